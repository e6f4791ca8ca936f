//! The forms in which docker clients keep their logins. Pure.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use longshore_cri::v1;
use serde_json::Value;

/// Logins by place, as written.
pub(crate) type Places = BTreeMap<String, v1::AuthConfig>;

/// Reads `config.json` and `.dockerconfigjson`: the logins stand under `auths`.
pub(crate) fn config_json(bytes: &[u8]) -> Result<Places, String> {
    let mut value: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    match value.get_mut("auths").map(Value::take) {
        Some(Value::Null) | None => Ok(Places::new()),
        Some(auths) => entries(auths),
    }
}

/// Reads `.dockercfg`: the logins stand at the top.
pub(crate) fn dockercfg(bytes: &[u8]) -> Result<Places, String> {
    entries(serde_json::from_slice(bytes).map_err(|error| error.to_string())?)
}

fn entries(value: Value) -> Result<Places, String> {
    let Value::Object(entries) = value else { return Err("the logins are not an object".to_owned()) };
    Ok(entries.iter().filter_map(|(place, entry)| Some((place.clone(), login(entry)?))).collect())
}

/// One login. `auth` outdoes the two fields; an entry that says nothing is none (a credential store keeps it elsewhere).
fn login(entry: &Value) -> Option<v1::AuthConfig> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (mut username, mut password) = (text("username"), text("password"));
    if let Some((user, word)) = decode(&text("auth")) {
        (username, password) = (user, word);
    }
    let (identity_token, registry_token) = (text("identitytoken"), text("registrytoken"));
    let is_empty = username.is_empty() && password.is_empty() && identity_token.is_empty() && registry_token.is_empty();
    (!is_empty).then(|| v1::AuthConfig {
        username,
        password,
        identity_token,
        registry_token,
        ..v1::AuthConfig::default()
    })
}

/// User and password out of the encoded pair, with or without padding.
fn decode(text: &str) -> Option<(String, String)> {
    let text = text.trim();
    let bytes = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok()?;
    let pair = String::from_utf8(bytes).ok()?;
    let (user, word) = pair.split_once(':')?;
    // Some clients pad the pair itself.
    Some((user.to_owned(), word.trim_end_matches('\0').to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(entry: &Value) -> Option<(String, String, String)> {
        let places = config_json(json!({"auths": {"r": entry}}).to_string().as_bytes()).unwrap();
        places.get("r").map(|auth| (auth.username.clone(), auth.password.clone(), auth.identity_token.clone()))
    }

    #[test]
    fn a_login_is_a_pair_or_its_encoding_or_a_token() {
        let want = |user: &str, word: &str, token: &str| Some((user.into(), word.into(), token.into()));
        for (entry, wanted) in [
            (json!({"username": "me", "password": "word"}), want("me", "word", "")),
            (json!({"auth": STANDARD.encode("me:wo:rd")}), want("me", "wo:rd", "")),
            (json!({"auth": STANDARD_NO_PAD.encode("me:word1")}), want("me", "word1", "")),
            (json!({"username": "x", "password": "y", "auth": STANDARD.encode("me:word")}), want("me", "word", "")),
            (json!({"username": "x", "password": "y", "auth": "!"}), want("x", "y", "")),
            (json!({"identitytoken": "t"}), want("", "", "t")),
            (json!({"auth": STANDARD.encode("<token>:"), "identitytoken": "t"}), want("<token>", "", "t")),
            (json!({}), None),
            (json!({"auth": ""}), None),
            (json!(7), None),
        ] {
            assert_eq!(read(&entry), wanted, "{entry}");
        }
    }

    #[test]
    fn both_forms_are_read_and_others_refused() {
        assert_eq!(dockercfg(br#"{"r":{"username":"me","password":"x"}}"#).unwrap().len(), 1);
        assert!(config_json(b"{}").unwrap().is_empty());
        assert!(config_json(br#"{"auths":null,"credsStore":"x"}"#).unwrap().is_empty());
        for broken in [&b""[..], b"[]", b"{\"auths\":[]}", b"nonsense"] {
            assert!(config_json(broken).is_err() || broken == b"[]");
            assert!(dockercfg(broken).is_err() || broken.starts_with(b"{"));
        }
    }
}
