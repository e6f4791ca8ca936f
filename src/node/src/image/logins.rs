//! Logins for registries out of pull secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use longshore_api::image_name;
use longshore_cri::v1;
use serde_json::Value;

/// The logins of a secret that fit an image, the more specific ones first.
pub fn logins(secret: &Secret, image: &str) -> Vec<v1::AuthConfig> {
    let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.as_slice());
    let entries = match secret.type_.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => data(".dockerconfigjson")
            .and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok())
            .and_then(|mut value| value.get_mut("auths").map(Value::take)),
        Some("kubernetes.io/dockercfg") => data(".dockercfg").and_then(|bytes| serde_json::from_slice(bytes).ok()),
        _ => None,
    };
    let Some(Value::Object(entries)) = entries else { return Vec::new() };
    let Ok(name) = image_name::parse(image) else { return Vec::new() };
    let mut found: Vec<(String, v1::AuthConfig)> = entries
        .iter()
        .filter(|(place, _)| fits(place, &name.domain, &name.path))
        .filter_map(|(place, entry)| Some((place.clone(), login(entry)?)))
        .collect();
    found.sort_by(|a, b| b.0.cmp(&a.0));
    found.into_iter().map(|(_, login)| login).collect()
}

fn login(entry: &Value) -> Option<v1::AuthConfig> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (mut username, mut password) = (text("username"), text("password"));
    if let Some((user, word)) = STANDARD
        .decode(text("auth"))
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .and_then(|pair| pair.split_once(':').map(|(user, word)| (user.to_owned(), word.to_owned())))
    {
        (username, password) = (user, word);
    }
    let identity_token = text("identitytoken");
    let empty = username.is_empty() && identity_token.is_empty();
    (!empty).then(|| v1::AuthConfig { username, password, identity_token, ..v1::AuthConfig::default() })
}

/// Says whether a key like `https://*.example.com:5000/team/v2/` covers a repository.
fn fits(place: &str, domain: &str, path: &str) -> bool {
    let place = place.trim_start_matches("https://").trim_start_matches("http://");
    let place = place.trim_end_matches('/');
    let place = place.strip_suffix("/v1").or_else(|| place.strip_suffix("/v2")).unwrap_or(place);
    let (host, prefix) = place.split_once('/').unwrap_or((place, ""));
    if !(prefix.is_empty() || path == prefix || path.starts_with(&format!("{prefix}/"))) {
        return false;
    }
    let host = if host == "index.docker.io" { "docker.io" } else { host };
    let split = |text: &str| {
        let (name, port) = text.split_once(':').map_or((text, ""), |(name, port)| (name, port));
        (name.split('.').map(str::to_owned).collect::<Vec<_>>(), port.to_owned())
    };
    let ((wanted, wanted_port), (given, given_port)) = (split(host), split(domain));
    wanted_port == given_port
        && wanted.len() == given.len()
        && wanted.iter().zip(&given).all(|(pattern, part)| glob(pattern, part))
}

/// Matches one part of a host name; `*` stands for any run of characters.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    if !pattern.contains('*') {
        return rest.is_empty();
    }
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return false };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_cover_what_upstream_says() {
        let cases = [
            ("https://index.docker.io/v1/", "docker.io", "library/a", true),
            ("reg.example.com", "reg.example.com", "a", true),
            ("*.example.com", "reg.example.com", "a", true),
            ("*.example.com", "a.reg.example.com", "a", false),
            ("reg*.example.com", "reg1.example.com", "a", true),
            ("reg.example.com:5000", "reg.example.com", "a", false),
            ("reg.example.com/team", "reg.example.com", "team/a", true),
            ("reg.example.com/team", "reg.example.com", "teams/a", false),
        ];
        for (place, domain, path, want) in cases {
            assert_eq!(fits(place, domain, path), want, "{place} {domain}/{path}");
        }
    }

    #[test]
    fn a_docker_config_gives_its_logins() {
        let auth = STANDARD.encode("me:word");
        let config = format!(r#"{{"auths":{{"reg.example.com":{{"auth":"{auth}"}}}}}}"#);
        let mut secret = Secret { type_: Some("kubernetes.io/dockerconfigjson".into()), ..Secret::default() };
        let data = [(".dockerconfigjson".to_owned(), k8s_openapi::ByteString(config.into_bytes()))];
        secret.data = Some(data.into());
        let found = logins(&secret, "reg.example.com/a:1");
        assert_eq!((found[0].username.as_str(), found[0].password.as_str()), ("me", "word"));
        assert!(logins(&secret, "other.example.com/a:1").is_empty());
    }
}
