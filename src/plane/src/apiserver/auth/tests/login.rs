use super::*;

fn join_secret(change: impl Fn(&mut Value)) -> Value {
    let encode = |text: &str| json!(base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text));
    let mut secret = json!({"type": "bootstrap.kubernetes.io/token",
        "metadata": {"namespace": "kube-system", "name": "bootstrap-token-abcdef"},
        "data": {"token-id": encode("abcdef"), "token-secret": encode("0123456789abcdef"),
            "usage-bootstrap-authentication": encode("true"), "expiration": encode("2026-11-29T12:30:00Z"),
            "auth-extra-groups": encode("system:bootstrappers:kubeadm:default-node-token,system:masters")}});
    change(&mut secret);
    secret
}

#[test]
fn a_token_to_join_is_good_for_what_its_secret_says() {
    let world = World::new();
    let login = || world.auth.login(&request(None, Some("abcdef.0123456789abcdef")));
    assert!(login().is_err());
    world.objects.put("secret", join_secret(|_| {}));
    let user = login().unwrap();
    assert_eq!(user.name, "system:bootstrap:abcdef");
    // Only groups of its own kind: a token can never make administrators.
    let groups = ["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated"];
    assert_eq!(user.groups, groups);
    assert!(world.auth.login(&request(None, Some("abcdef.0123456789abcdee"))).is_err());
    let no = |key: &'static str| join_secret(move |secret| drop(secret["data"].as_object_mut().unwrap().remove(key)));
    for key in ["usage-bootstrap-authentication", "token-secret", "token-id"] {
        world.objects.put("secret", no(key));
        assert!(login().is_err(), "without {key}");
    }
    world.objects.put("secret", join_secret(|secret| secret["type"] = json!("Opaque")));
    assert!(login().is_err());
    world.objects.put("secret", join_secret(|_| {}));
    world.clock.advance(Duration::from_secs(1800));
    assert!(login().is_err(), "it has expired");
}
use crate::apiserver::auth::token::{Private, Reference};
use crate::apiserver::identity::USER_ANONYMOUS;

fn bound(world: &World) -> Private {
    drop(world.objects.get("pod", "a", "p").unwrap());
    Private {
        namespace: "a".into(),
        serviceaccount: Reference { name: "default".into(), uid: "sa-uid".into() },
        pod: Some(Reference { name: "p".into(), uid: "p-uid".into() }),
        node: Some(Reference { name: "n1".into(), uid: "node-uid".into() }),
        secret: None,
    }
}

fn token(world: &World) -> String {
    world.auth.tokens().issue(vec![ISSUER.to_owned()], 3600, bound(world)).unwrap().0
}

fn refusal(world: &World, token: &str) -> String {
    world.auth.login(&request(None, Some(token))).unwrap_err().to_string()
}

#[test]
fn a_client_certificate_names_user_and_groups() {
    let world = World::new();
    let peer = world.certificate(&LeafRequest::client("system:node:n1", Some("system:nodes")));
    let user = world.auth.login(&request(Some(peer), None)).unwrap();
    assert_eq!((user.name.as_str(), user.node_name()), ("system:node:n1", Some("n1")));
    assert_eq!(user.groups, ["system:nodes", "system:authenticated"]);
}

#[test]
fn an_expired_certificate_and_one_of_another_authority_are_refused_with_the_reason() {
    let world = World::new();
    let mut short = LeafRequest::client("jane", None);
    short.validity = Duration::from_secs(60);
    let peer_short = world.certificate(&short);
    assert!(world.auth.login(&request(Some(peer_short.clone()), None)).is_ok());
    world.clock.advance(Duration::from_secs(61));
    let error = world.auth.login(&request(Some(peer_short), None)).unwrap_err().to_string();
    assert!(error.contains("CN=jane expired at 2026-11-29T12:01:00Z"), "{error}");

    let now = longshore_util::clock::Clock::now(world.clock.as_ref());
    let stranger = Authority::generate("kubernetes", Duration::from_secs(3600), now).unwrap();
    let forged =
        peer(&stranger.issue(&LeafRequest::client("root", Some("system:masters")), now).unwrap().certificate_pem);
    let error = world.auth.login(&request(Some(forged), None)).unwrap_err().to_string();
    assert!(error.contains("is not the client authority"), "{error}");
}

#[test]
fn who_shows_nothing_is_anonymous_and_who_shows_nonsense_is_refused() {
    let world = World::new();
    assert_eq!(world.auth.login(&request(None, None)).unwrap().name, USER_ANONYMOUS);
    assert_eq!(refusal(&world, "nonsense"), "invalid bearer token");
    let mut parts = request(None, None);
    parts.headers.insert("Authorization", "Basic eDp5".parse().unwrap());
    assert_eq!(world.auth.login(&parts), Err(LoginError::Scheme));
}

#[test]
fn a_token_names_account_groups_and_what_it_is_bound_to() {
    let world = World::new();
    let user = world.auth.login(&request(None, Some(&token(&world)))).unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:a:default", "sa-uid"));
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"]);
    let extra = |key: &str| user.extra[&format!("authentication.kubernetes.io/{key}")][0].clone();
    assert_eq!(
        [extra("pod-name"), extra("pod-uid"), extra("node-name"), extra("node-uid")],
        ["p", "p-uid", "n1", "node-uid"]
    );
    assert!(extra("credential-id").starts_with("JTI="));
}

#[test]
fn claims_are_those_of_a_stock_token() {
    let world = World::new();
    let claims = jwt::peek(&token(&world)).unwrap();
    assert_eq!(claims["iss"], "https://kubernetes.default.svc.cluster.local");
    assert_eq!(claims["sub"], "system:serviceaccount:a:default");
    assert_eq!(claims["aud"], json!([ISSUER]));
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3600);
    assert_eq!(claims["nbf"], claims["iat"]);
    assert_eq!(
        claims["kubernetes.io"],
        json!({"namespace": "a", "node": {"name": "n1", "uid": "node-uid"}, "pod": {"name": "p", "uid": "p-uid"},
            "serviceaccount": {"name": "default", "uid": "sa-uid"}})
    );
}

#[test]
fn the_public_key_that_is_told_checks_tokens() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
    let world = World::new();
    let issuer = world.auth.tokens.issuer();
    assert_eq!((issuer.name.as_str(), issuer.algorithm), (ISSUER, "ES256"));
    let part = |name: &str| BASE64.decode(issuer.key[name].as_str().unwrap()).unwrap();
    let point = [vec![4], part("x"), part("y")].concat();
    let token = token(&world);
    let (text, signature) = token.rsplit_once('.').unwrap();
    let key = ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_FIXED, point);
    key.verify(text.as_bytes(), &BASE64.decode(signature).unwrap()).unwrap();
    let head: Value = serde_json::from_slice(&BASE64.decode(text.split_once('.').unwrap().0).unwrap()).unwrap();
    assert_eq!((&head["kid"], &head["alg"]), (&issuer.key["kid"], &issuer.key["alg"]));
}

#[test]
fn a_token_ends_with_its_time_its_pod_and_its_account() {
    let world = World::new();
    let made = token(&world);
    world.clock.advance(Duration::from_secs(3700));
    assert_eq!(refusal(&world, &made), "[invalid bearer token, service account token has expired]");

    let made = token(&world);
    world.objects.remove("pod", "a", "p");
    assert_eq!(refusal(&world, &made), "[invalid bearer token, pod \"p\" bound to the token is gone]");
    let mut other = pod("a", "p", "n1");
    other["metadata"]["uid"] = json!("new-uid");
    world.objects.put("pod", other);
    assert!(refusal(&world, &made).contains("was replaced by another"));
    world.objects.put("pod", pod("a", "p", "n1"));
    assert!(world.auth.login(&request(None, Some(&made))).is_ok());

    world.objects.remove("account", "a", "default");
    assert!(refusal(&world, &made).contains("not found"));
    world.objects.put("account", json!({"metadata": {"namespace": "a", "name": "default", "uid": "new"}}));
    assert!(refusal(&world, &made).contains("UID does not match"));
}

#[test]
fn a_pod_that_shuts_down_keeps_its_token_until_a_minute_after_its_end() {
    let world = World::new();
    let made = token(&world);
    let mut going = pod("a", "p", "n1");
    going["metadata"]["deletionTimestamp"] = json!("2026-11-29T12:00:30Z");
    world.objects.put("pod", going);
    world.clock.advance(Duration::from_secs(80));
    assert!(world.auth.login(&request(None, Some(&made))).is_ok());
    world.clock.advance(Duration::from_secs(20));
    assert!(refusal(&world, &made).contains("has been deleted"));
}

#[test]
fn a_token_for_others_another_key_s_and_a_changed_one_are_refused() {
    let world = World::new();
    let vault = world.auth.tokens().issue(vec!["vault".to_owned()], 3600, bound(&world)).unwrap().0;
    let error = refusal(&world, &vault);
    assert!(error.contains("token audiences [\"vault\"] is invalid for the target audiences"), "{error}");

    let other = World::new();
    assert_eq!(refusal(&world, &token(&other)), "invalid bearer token");

    let good = token(&world);
    let parts: Vec<&str> = good.split('.').collect();
    let mut claims = jwt::peek(&good).unwrap();
    claims["kubernetes.io"]["serviceaccount"]["name"] = json!("admin");
    use base64::Engine as _;
    let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let forged = format!("{}.{}.{}", parts[0], engine.encode(claims.to_string()), parts[2]);
    assert_eq!(refusal(&world, &forged), "invalid bearer token");
    let head = engine.encode(r#"{"alg":"none"}"#);
    assert_eq!(refusal(&world, &format!("{head}.{}.", parts[1])), "invalid bearer token");
}

#[test]
fn the_two_halves_of_the_key_must_belong_together() {
    let (private, _) = signing_key_pair().unwrap();
    let (_, public) = signing_key_pair().unwrap();
    assert!(matches!(SigningKey::from_pem(&private, &public), Err(KeyError::Mismatch)));
}
