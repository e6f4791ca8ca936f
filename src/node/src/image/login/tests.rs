use k8s_openapi::ByteString;
use serde_json::json;

use super::*;

fn secret(kind: &str, key: &str, text: &str) -> Secret {
    let mut secret = Secret { type_: Some(kind.to_owned()), ..Secret::default() };
    secret.data = Some([(key.to_owned(), ByteString(text.as_bytes().to_vec()))].into());
    secret.metadata.name = Some("s".to_owned());
    secret
}

fn ring(places: &[(&str, &str)]) -> Keyring {
    let mut ring = Keyring::default();
    for (place, user) in places {
        let auth = v1::AuthConfig { username: (*user).to_owned(), ..Default::default() };
        ring.add([((*place).to_owned(), auth)].into(), &Source::Node);
    }
    ring
}

fn users(ring: &Keyring, repository: &str) -> Vec<String> {
    ring.find(repository).into_iter().map(|login| login.auth.username).collect()
}

#[test]
fn the_more_specific_login_is_tried_first() {
    let ring = ring(&[
        ("reg.example.com", "host"),
        ("https://reg.example.com/team/app", "app"),
        ("reg.example.com/team", "team"),
        ("*.example.com", "any"),
    ]);
    assert_eq!(users(&ring, "reg.example.com/team/app"), ["app", "team", "host", "any"]);
    assert_eq!(users(&ring, "reg.example.com/other"), ["host", "any"]);
    assert_eq!(users(&ring, "else.where/other"), [] as [&str; 0]);
}

#[test]
fn the_default_registry_is_known_by_its_old_name() {
    let both = ring(&[("https://index.docker.io/v1/", "old"), ("docker.io", "new")]);
    assert_eq!(users(&both, "docker.io/library/busybox"), ["new"]);
    let old = ring(&[("https://index.docker.io/v1/", "old")]);
    assert_eq!(users(&old, "docker.io/library/busybox"), ["old"]);
    assert_eq!(users(&old, "docker.io.example.com/busybox"), [] as [&str; 0]);
}

#[test]
fn two_logins_for_one_place_are_both_tried_and_a_double_once() {
    let ring = ring(&[("reg", "a"), ("http://reg", "b"), ("https://reg/", "a")]);
    assert_eq!(users(&ring, "reg/x"), ["a", "b"]);
}

#[test]
fn both_kinds_of_secret_give_their_logins() {
    let entry = json!({"reg": {"username": "me", "password": "word"}});
    let new = secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", &json!({ "auths": entry }).to_string());
    let old = secret("kubernetes.io/dockercfg", ".dockercfg", &entry.to_string());
    for secret in [new, old] {
        assert_eq!(of_secret(&secret).unwrap()["reg"].password, "word");
    }
    for (kind, key, text, why) in [
        ("Opaque", "x", "", "type \"Opaque\" holds no logins"),
        ("kubernetes.io/dockercfg", "x", "", "it has no .dockercfg"),
    ] {
        assert_eq!(of_secret(&secret(kind, key, text)).unwrap_err(), why);
    }
    assert!(of_secret(&secret("kubernetes.io/dockercfg", ".dockercfg", "{")).is_err());
}

#[test]
fn a_hash_tells_logins_apart_and_hides_them() {
    let login = |word: &str| Login {
        auth: v1::AuthConfig { username: "me".into(), password: word.into(), ..Default::default() },
        source: Source::Node,
    };
    // sha256 of {"username":"me","password":"a"}
    assert_eq!(login("a").hash(), "a3145699b181e0865b550e0fdf43f5adeec5127f124e19f53dcff4ac8f6c1043");
    assert_ne!(login("a").hash(), login("b").hash());
    assert!(!format!("{:?}", login("s3cret")).contains("s3cret"));
}
