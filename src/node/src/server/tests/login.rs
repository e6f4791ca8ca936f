//! Who gets in, and what the API is asked.

use super::*;

#[tokio::test]
async fn without_a_credential_nobody_enters() {
    let world = World::new();
    world.answer(&["pods"]);
    let router = world.router();
    for path in ["/healthz", "/metrics", "/pods", "/nothing"] {
        assert_eq!(ask(&router, get(path)).await, (StatusCode::UNAUTHORIZED, "Unauthorized\n".to_owned()), "{path}");
    }
    assert_eq!(ask(&router, with_token("/pods", "bad")).await.0, StatusCode::UNAUTHORIZED);
    assert!(world.asked("/subjectaccessreviews").is_empty());
}

#[tokio::test]
async fn tokens_and_rights_are_asked_once_and_kept() {
    let world = World::new();
    world.answer(&["proxy"]);
    let router = world.router();
    for _ in 0..3 {
        assert_eq!(ask(&router, with_token("/pods", "good")).await.0, StatusCode::OK);
    }
    assert_eq!(world.asked("/tokenreviews"), [json!({"token": "good"})]);
    let review = |subresource: &str| {
        json!({
            "user": "joe", "groups": ["g", "system:authenticated"],
            "resourceAttributes": {"verb": "get", "version": "v1", "resource": "nodes", "subresource": subresource, "name": "node-1"},
        })
    };
    assert_eq!(world.asked("/subjectaccessreviews"), [review("pods"), review("proxy")]);
    assert_eq!(
        ask(&router, with_token("/stats/summary", "good")).await,
        (StatusCode::FORBIDDEN, "Forbidden (user=joe, verb=get, resource=nodes, subresource(s)=[stats])\n".to_owned())
    );
}

#[tokio::test]
async fn a_failed_credential_is_not_taken_for_none() {
    let mut world = World::new();
    world.options.anonymous = true;
    world.answer(&["pods"]);
    let router = world.router();
    assert_eq!(ask(&router, get("/pods")).await.0, StatusCode::OK);
    let asked = world.asked("/subjectaccessreviews");
    assert_eq!(
        (&asked[0]["user"], &asked[0]["groups"]),
        (&json!("system:anonymous"), &json!(["system:unauthenticated"]))
    );
    assert_eq!(ask(&router, with_token("/pods", "bad")).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn an_api_that_cannot_answer_is_an_error_of_ours() {
    let world = World::new();
    world.api.answer(|asked| {
        let mut body = asked.body.clone();
        body["status"] = json!({"authenticated": true, "user": {"username": "joe"}});
        let refused = (StatusCode::FORBIDDEN, json!({"kind": "Status", "message": "no", "code": 403}));
        Some(if asked.path.ends_with("/tokenreviews") { (StatusCode::CREATED, body) } else { refused })
    });
    let (status, body) = ask(&world.router(), with_token("/configz", "good")).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(body, "Authorization error (user=joe, verb=get, resource=nodes, subresource=configz)\n");
}

#[tokio::test]
async fn client_certificates_of_the_authority_enter() {
    let mut world = World::new();
    let now = jiff::Timestamp::now();
    let year = Duration::from_secs(365 * 24 * 3600);
    let (ours, other) = (Authority::generate("ca", year, now).unwrap(), Authority::generate("ca", year, now).unwrap());
    let path = world.dir.path().join("ca.crt");
    std::fs::write(&path, &ours.keyed().certificate_pem).unwrap();
    world.options.client_ca_file = Some(path);
    world.answer(&["pods"]);
    let router = world.router();
    let request = |authority: &Authority| {
        let leaf = authority
            .issue(&LeafRequest::client("kube-apiserver-kubelet-client", Some("system:masters")), now)
            .unwrap();
        let certificates = certificates_from_pem(leaf.certificate_pem.as_bytes(), "leaf").unwrap().into();
        let mut request = get("/pods");
        request.extensions_mut().insert(PeerIdentity { address: "127.0.0.1:1".parse().unwrap(), certificates });
        request
    };
    assert_eq!(ask(&router, request(&ours)).await.0, StatusCode::OK);
    let asked = world.asked("/subjectaccessreviews");
    assert_eq!(asked[0]["user"], "kube-apiserver-kubelet-client");
    assert_eq!(asked[0]["groups"], json!(["system:masters", "system:authenticated"]));
    let print = asked[0]["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap().to_owned();
    assert!(print.starts_with("X509SHA256=") && print.len() == 11 + 64, "{print}");
    assert_eq!(ask(&router, request(&other)).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_right_to_read_is_none_to_run_commands() {
    let world = World::new();
    world.answer(&[]);
    let router = world.router();
    let (status, text) = ask(&router, with_token("/exec/ns/p/c?command=sh&output=1", "good")).await;
    assert_eq!(
        (status, text.as_str()),
        (StatusCode::FORBIDDEN, "Forbidden (user=joe, verb=create, resource=nodes, subresource(s)=[proxy])\n")
    );
}

/// Asks on a connection that is there; nothing once the server has hung up.
async fn ask_on(stream: &mut tokio::net::TcpStream, token: &str) -> Option<String> {
    let request = format!("GET /healthz HTTP/1.1\r\nHost: n\r\n{token}\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"ok") {
        let byte = tokio::time::timeout(std::time::Duration::from_secs(10), stream.read_u8()).await.unwrap();
        answer.push(byte.ok()?);
    }
    Some(String::from_utf8(answer).unwrap())
}

#[tokio::test]
async fn strangers_make_room_and_who_logged_in_stays() {
    let mut world = World::new();
    world.options.anonymous = true;
    world.answer(&["healthz", "proxy"]);
    let listener = serve::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let strangers = serve::StrangerLimits { most: 1, first_request: std::time::Duration::from_secs(10) };
    let limits = ServeOptions { strangers: Some(strangers), ..ServeOptions::default() };
    serve::serve("test", listener, None, world.router(), limits, &world.tasks);
    for (token, stays) in [("Authorization: Bearer good\r\n", true), ("", false)] {
        let mut first = tokio::net::TcpStream::connect(address).await.unwrap();
        assert!(ask_on(&mut first, token).await.is_some_and(|answer| answer.starts_with("HTTP/1.1 200")));
        for _ in 0..3 {
            let mut other = tokio::net::TcpStream::connect(address).await.unwrap();
            assert!(ask_on(&mut other, "").await.is_some());
        }
        assert_eq!(ask_on(&mut first, token).await.is_some(), stays, "{token}");
    }
}
