//! Rights at registries: read from pull secrets, matched to an image's registry and path.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use longshore_api::image_name::ImageName;
use longshore_cri::v1;
use serde_json::{Map, Value};

/// A login. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Credential {
    username: String,
    password: String,
    identity_token: String,
    registry_token: String,
    server: String,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Credential {
    pub(super) fn message(&self) -> v1::AuthConfig {
        v1::AuthConfig {
            username: self.username.clone(),
            password: self.password.clone(),
            server_address: self.server.clone(),
            identity_token: self.identity_token.clone(),
            registry_token: self.registry_token.clone(),
            ..v1::AuthConfig::default()
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Entry {
    host: String,
    path: String,
    credential: Credential,
}

/// Rights of one pod, the most specific first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Keyring(Vec<Entry>);

impl Keyring {
    /// Reads the logins of pull secrets; ones of another type or that cannot be read are left out.
    pub fn from_secrets<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut entries = Vec::new();
        for secret in secrets {
            let (key, wrapped) = match secret.type_.as_deref() {
                Some("kubernetes.io/dockerconfigjson") => (".dockerconfigjson", true),
                Some("kubernetes.io/dockercfg") => (".dockercfg", false),
                _ => continue,
            };
            let Some(bytes) = secret.data.as_ref().and_then(|data| data.get(key)) else { continue };
            let Ok(Value::Object(mut config)) = serde_json::from_slice::<Value>(&bytes.0) else { continue };
            let servers = if wrapped { config.remove("auths") } else { Some(Value::Object(config)) };
            if let Some(Value::Object(servers)) = servers {
                entries.extend(servers.iter().filter_map(|(server, login)| entry(server, login.as_object()?)));
            }
        }
        // Reverse lexical order puts the longer path before its prefix, and names before patterns.
        entries.sort_by(|a, b| (&b.host, &b.path).cmp(&(&a.host, &a.path)));
        Self(entries)
    }

    /// Returns the logins that fit an image.
    pub fn matching(&self, image: &ImageName) -> Vec<&Credential> {
        self.0
            .iter()
            .filter(|entry| host_matches(&entry.host, &image.domain) && path_matches(&entry.path, &image.path))
            .map(|entry| &entry.credential)
            .collect()
    }
}

fn entry(server: &str, login: &Map<String, Value>) -> Option<Entry> {
    let text = |key: &str| login.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (mut username, mut password) = (text("username"), text("password"));
    if username.is_empty() && password.is_empty() {
        let auth = text("auth");
        if !auth.is_empty() {
            let decoded = String::from_utf8(STANDARD.decode(auth.trim_end_matches('\0')).ok()?).ok()?;
            let (user, word) = decoded.split_once(':')?;
            (username, password) = (user.to_owned(), word.trim_end_matches('\0').to_owned());
        }
    }
    let bare = server.strip_prefix("https://").or_else(|| server.strip_prefix("http://")).unwrap_or(server);
    let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
    // Old clients wrote the registry's API version behind the host.
    let path = match path.trim_end_matches('/') {
        "v1" | "v2" => "",
        path => path,
    };
    let host = if host == "index.docker.io" { "docker.io" } else { host };
    Some(Entry {
        host: host.to_owned(),
        path: path.to_owned(),
        credential: Credential {
            username,
            password,
            identity_token: text("identitytoken"),
            registry_token: text("registrytoken"),
            server: server.to_owned(),
        },
    })
}

/// Compares part by part; `*` stands for any run of characters inside one part. Ports must be equal.
fn host_matches(pattern: &str, host: &str) -> bool {
    let split = |text: &str| -> (String, String) {
        text.split_once(':').map_or((text.to_owned(), String::new()), |(host, port)| (host.to_owned(), port.to_owned()))
    };
    let ((pattern, want), (host, port)) = (split(pattern), split(host));
    if want != port {
        return false;
    }
    let (wanted, given): (Vec<&str>, Vec<&str>) = (pattern.split('.').collect(), host.split('.').collect());
    wanted.len() == given.len() && wanted.iter().zip(given).all(|(pattern, part)| glob(pattern, part))
}

fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| glob(after, &rest[at..]))
        }),
    }
}

fn path_matches(prefix: &str, path: &str) -> bool {
    path.starts_with(prefix)
}

#[cfg(test)]
mod tests {
    use longshore_api::image_name::parse;
    use serde_json::json;

    use super::*;

    fn keyring(servers: Value) -> Keyring {
        let text = json!({"auths": servers}).to_string();
        let secret: Secret = serde_json::from_value(json!({"metadata": {}, "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": STANDARD.encode(text)}}))
        .unwrap();
        Keyring::from_secrets([&secret])
    }

    fn users(keyring: &Keyring, image: &str) -> Vec<String> {
        keyring.matching(&parse(image).unwrap()).iter().map(|login| login.username.clone()).collect()
    }

    fn login(user: &str) -> Value {
        json!({"auth": STANDARD.encode(format!("{user}:pa:ss"))})
    }

    #[test]
    fn hosts_ports_paths_and_patterns() {
        let ring = keyring(json!({
            "r.example": login("plain"),
            "r.example/team": login("team"),
            "r.example:5000": login("port"),
            "*.cloud.example": login("glob"),
            "https://index.docker.io/v1/": login("hub"),
        }));
        for (image, want) in [
            ("r.example/a:1", vec!["plain"]),
            ("r.example/team/a:1", vec!["team", "plain"]),
            ("r.example:5000/a", vec!["port"]),
            ("x.cloud.example/a", vec!["glob"]),
            ("x.y.cloud.example/a", vec![]),
            ("busybox", vec!["hub"]),
            ("other.example/a", vec![]),
        ] {
            assert_eq!(users(&ring, image), want, "{image}");
        }
    }

    #[test]
    fn passwords_may_hold_colons_and_never_show() {
        let ring = keyring(json!({"r.example": login("u")}));
        let found = ring.matching(&parse("r.example/a").unwrap())[0].clone();
        assert_eq!(found.message().password, "pa:ss");
        assert!(!format!("{ring:?}").contains("pa:ss"));
    }

    #[test]
    fn the_old_format_and_broken_secrets() {
        let secret = |kind: &str, key: &str, text: &str| -> Secret {
            serde_json::from_value(json!({"metadata": {}, "type": kind, "data": {key: STANDARD.encode(text)}})).unwrap()
        };
        let old = secret(
            "kubernetes.io/dockercfg",
            ".dockercfg",
            &json!({"r.example": {"username": "u", "password": "p"}}).to_string(),
        );
        let broken = secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", "{");
        let opaque = secret("Opaque", ".dockerconfigjson", "{}");
        assert_eq!(users(&Keyring::from_secrets([&old, &broken, &opaque]), "r.example/a"), ["u"]);
    }

    #[test]
    fn glob_table() {
        for (pattern, text, want) in
            [("*", "abc", true), ("a*c", "abc", true), ("a*d", "abc", false), ("", "", true), ("**", "x", true)]
        {
            assert_eq!(glob(pattern, text), want, "{pattern} {text}");
        }
    }
}
