//! Logs, commands and streams of containers.

use super::*;

#[tokio::test]
async fn logs_are_found_and_refused_in_upstreams_words() {
    let mut world = World::open();
    let id = world.container("c").await;
    let running = json!({"containerStatuses": [
        {"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
         "containerID": format!("containerd://{id}"), "state": {"running": {}}},
        {"name": "term", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}},
    ]});
    world.pods.0 = vec![view(SourceKind::Api, &running)];
    std::fs::write(world.dir.path().join("c.log"), "2026-01-01T00:00:00Z stdout F hello\n").unwrap();
    let router = world.router();
    for (path, status, body) in [
        ("/containerLogs/ns/p/c", 200, "hello\n"),
        ("/containerLogs/ns/p/c?timestamps=true", 200, "2026-01-01T00:00:00.000000000Z hello\n"),
        ("/containerLogs/ns/p/c?tailLines=x", 400, "{\"message\": \"Unable to decode query.\"}\n"),
        ("/containerLogs/ns/p/c?tailLines=-1", 422, "{\"message\": \"Invalid request.\"}\n"),
        ("/containerLogs/ns/other/c", 404, "pod \"other\" does not exist\n"),
        ("/containerLogs/ns/p/x", 404, "container \"x\" not found in pod \"p\"\n"),
        ("/containerLogs/ns/p/i", 400, "container \"i\" in pod \"p\" is not available\n"),
        ("/containerLogs/ns/p/term", 400, "container \"term\" in pod \"p\" is waiting to start: ContainerCreating\n"),
        ("/containerLogs/ns/p/c?previous=true", 400, "previous terminated container \"c\" in pod \"p\" not found\n"),
    ] {
        let got = ask(&router, get(path)).await;
        assert_eq!((got.0.as_u16(), got.1.as_str()), (status, body), "{path}");
    }
    let follow = router.clone().oneshot(get("/containerLogs/ns/p/c?follow=true")).await.unwrap();
    world.runtime.exit(&id, 0);
    assert_eq!(text(follow).await.1, "hello\n", "ends with the container");
}

#[tokio::test]
async fn commands_are_run_for_their_output() {
    let world = World::open();
    world.container("c").await;
    world.runtime.on_exec(|request| longshore_cri::fake::ExecReply {
        exit_code: i32::from(request.cmd.len() != 2),
        stdout: request.cmd.join("|").into_bytes(),
        stderr: b"err".to_vec(),
    });
    let router = world.router();
    let post = |path: &str| Request::post(path).body(Body::empty()).unwrap();
    assert_eq!(ask(&router, post("/run/ns/p/c?cmd=echo%20a")).await, (StatusCode::OK, "echo|aerr".to_owned()));
    let (status, body) = ask(&router, post("/run/ns/p/u1/c?cmd=false")).await;
    assert_eq!((status.as_u16(), body.as_str()), (500, "command 'false' exited with 1: err\n"));
    assert_eq!(ask(&router, post("/run/ns/p/u2/c?cmd=a")).await.0, StatusCode::NOT_FOUND);
    assert_eq!(ask(&router, get("/run/ns/p/c?cmd=a")).await.0, StatusCode::METHOD_NOT_ALLOWED);
}

/// A streaming server as runtimes have it: takes the upgrade and sends back what it gets.
async fn echo_server() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "a test's own server")]
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let line = head.split(|byte| *byte == b'\r').next().unwrap().to_vec();
            let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&line).await.unwrap();
            let (mut reader, mut writer) = stream.split();
            let _ended = tokio::io::copy(&mut reader, &mut writer).await;
        }
    });
    url
}

#[tokio::test]
async fn streams_are_passed_on_to_the_runtime() {
    let world = World::open();
    let id = world.container("c").await;
    world.runtime.set_stream_url(&echo_server().await);
    let listener = serve::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    serve::serve("test", listener, None, world.router(), ServeOptions::default(), &world.tasks);
    for (path, line) in [
        ("/exec/ns/p/c?command=sh&input=1&output=1&tty=1", format!("POST /exec/{id} HTTP/1.1")),
        ("/exec/ns/p/u1/c?command=sh&output=1", format!("POST /exec/{id} HTTP/1.1")),
        ("/attach/ns/p/c?output=1", format!("POST /attach/{id} HTTP/1.1")),
    ] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("POST {path} HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        stream.write_all(b" ping").await.unwrap();
        let mut got = vec![0; line.len() + 5];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(String::from_utf8(got).unwrap(), format!("{line} ping"));
    }
    let sent = world.runtime.failpoints().calls();
    let exec = sent.iter().find_map(|call| call.request::<v1::ExecRequest>()).unwrap();
    assert_eq!((exec.tty, exec.stdin, exec.stdout, exec.stderr), (true, true, true, false));
    let router = world.router();
    for (path, status, body) in [
        ("/exec/ns/p/c?command=sh", 400, "you must specify at least 1 of stdin, stdout, stderr\n"),
        ("/exec/ns/p/c?command=sh&output=1", 400, "Upgrade request required\n"),
        ("/exec/ns/x/c?command=sh&output=1", 404, "pod does not exist\n"),
        ("/exec/ns/p/term?command=sh&output=1", 500, "container not found (\"term\")\n"),
        ("/portForward/ns/p/u9", 404, "pod not found\n"),
        ("/portForward/ns/p", 400, "Upgrade request required\n"),
    ] {
        let got = ask(&router, get(path)).await;
        assert_eq!((got.0.as_u16(), got.1.as_str()), (status, body), "{path}");
    }
}
