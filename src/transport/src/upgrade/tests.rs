use std::net::SocketAddr;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::any;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::fixture::World;
use crate::serve::ServeOptions;
use crate::tls::client_config;

#[derive(Clone)]
struct Proxy {
    target: Target,
    limits: ForwardLimits,
    tasks: Tasks,
}

async fn pass_on(State(proxy): State<Proxy>, request: Request) -> Response<Body> {
    forward(request, &proxy.target, &proxy.limits, &proxy.tasks).await.unwrap_or_else(|error| {
        let mut answer = Response::new(Body::from(error.to_string()));
        *answer.status_mut() = error.status();
        answer
    })
}

async fn front(world: &World, target: Target, limits: ForwardLimits) -> SocketAddr {
    let proxy = Proxy { target, limits, tasks: world.tasks.clone() };
    world.serve(Router::new().route("/{*path}", any(pass_on)).with_state(proxy), ServeOptions::default()).await
}

/// Switches protocols like a streaming server, then echoes; after the client's end it says goodbye.
async fn echo_server(world: &World) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(spawn(&world.tasks, "echo", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = read_head(&mut stream).await;
            if !head.to_ascii_lowercase().contains("upgrade: spdy/3.1") {
                let body = head.replace("\r\n", "\n");
                let answer =
                    format!("HTTP/1.1 403 Forbidden\r\nX-From: echo\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
                continue;
            }
            let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
                X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\nready>";
            stream.write_all(answer.as_bytes()).await.unwrap();
            let mut buffer = [0; 1024];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                stream.write_all(&buffer[..read]).await.unwrap();
            }
            stream.write_all(b"<goodbye").await.unwrap();
        }
    }));
    address
}

async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

const UPGRADE: &[u8] = b"POST /exec HTTP/1.1\r\nHost: front\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
    X-Stream-Protocol-Version: v4.channel.k8s.io\r\nAuthorization: Bearer secret\r\nContent-Length: 0\r\n\r\n";

async fn upgraded<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) {
    stream.write_all(UPGRADE).await.unwrap();
    let head = read_head(stream).await.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(
        head.contains("upgrade: spdy/3.1") && head.contains("x-stream-protocol-version: v4.channel.k8s.io"),
        "{head}"
    );
    let mut ready = [0; 6];
    stream.read_exact(&mut ready).await.unwrap();
    assert_eq!(&ready, b"ready>");
}

fn target(address: SocketAddr, path: &str) -> Target {
    Target::new(format!("http://{address}{path}").parse().unwrap(), None)
}

#[tokio::test]
async fn bytes_go_both_ways_and_a_half_closed_client_still_hears_the_end() {
    let world = World::new();
    let echo = echo_server(&world).await;
    let front = front(&world, target(echo, "/exec?command=sh"), ForwardLimits::default()).await;
    let mut stream = world.connect(front, &world.trust(), None).await.unwrap();
    upgraded(&mut stream).await;
    let big = vec![b'x'; 300_000];
    let (mut reader, mut writer) = tokio::io::split(stream);
    let sent = async {
        writer.write_all(&big).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut heard = Vec::new();
    let (_, read) = tokio::join!(sent, reader.read_to_end(&mut heard));
    read.unwrap();
    assert_eq!(heard.len(), big.len() + "<goodbye".len());
    assert!(heard.ends_with(b"<goodbye"));
}

#[tokio::test]
async fn two_proxies_in_a_row_over_tls_work_alike() {
    let world = World::new();
    let echo = echo_server(&world).await;
    let inner = front(&world, target(echo, "/exec"), ForwardLimits::default()).await;
    let tls = client_config(&world.trust(), Some(&world.client_pair("apiserver"))).unwrap();
    let uri = format!("https://{inner}/exec").parse().unwrap();
    let outer = front(&world, Target::new(uri, Some(tls)), ForwardLimits::default()).await;
    let mut stream = world.connect(outer, &world.trust(), None).await.unwrap();
    upgraded(&mut stream).await;
    stream.write_all(b"ping").await.unwrap();
    let mut pong = [0; 4];
    stream.read_exact(&mut pong).await.unwrap();
    assert_eq!(&pong, b"ping");
}

#[tokio::test]
async fn a_refusal_comes_through_and_credentials_do_not_go_out() {
    let world = World::new();
    let echo = echo_server(&world).await;
    let front = front(&world, target(echo, "/else?q=1"), ForwardLimits::default()).await;
    let mut stream = world.connect(front, &world.trust(), None).await.unwrap();
    let request = "GET /exec HTTP/1.1\r\nHost: front\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nX-End: 2\r\n\
        Authorization: Bearer secret\r\nCookie: secret\r\nImpersonate-User: secret\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    drop(stream.read_to_string(&mut answer).await);
    let answer = answer.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 403") && answer.contains("x-from: echo"), "{answer}");
    assert!(answer.contains("get /else?q=1 http/1.1") && answer.contains("x-end: 2"), "{answer}");
    assert!(!answer.contains("secret") && !answer.contains("x-hop"), "{answer}");
}

#[tokio::test]
async fn a_target_that_is_not_there_is_a_bad_gateway() {
    let world = World::new();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let front = front(&world, target(closed, "/exec"), ForwardLimits::default()).await;
    let mut stream = world.connect(front, &world.trust(), None).await.unwrap();
    stream.write_all(UPGRADE).await.unwrap();
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
}

#[tokio::test]
async fn a_silent_target_is_a_gateway_timeout() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limits = ForwardLimits { response: Some(Duration::from_millis(50)), ..ForwardLimits::default() };
    let front = front(&world, target(listener.local_addr().unwrap(), "/exec"), limits).await;
    let mut stream = world.connect(front, &world.trust(), None).await.unwrap();
    stream.write_all(UPGRADE).await.unwrap();
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 504"), "{head}");
}

#[tokio::test]
async fn when_the_target_goes_away_the_client_is_told() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let front = front(&world, target(listener.local_addr().unwrap(), "/exec"), ForwardLimits::default()).await;
    let mut stream = world.connect(front, &world.trust(), None).await.unwrap();
    stream.write_all(UPGRADE).await.unwrap();
    let (mut backend, _) = listener.accept().await.unwrap();
    read_head(&mut backend).await;
    backend
        .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
        .await
        .unwrap();
    read_head(&mut stream).await;
    drop(backend);
    let mut rest = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await;
    assert!(read.is_ok() && rest.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pair_ends_when_nothing_moves_for_the_idle_time() {
    let (left, mut client) = tokio::io::duplex(64);
    let (right, mut server) = tokio::io::duplex(64);
    let limits = CopyLimits { idle: Duration::from_secs(100), half_closed: Duration::from_secs(10) };
    let start = tokio::time::Instant::now();
    let talk = async {
        tokio::time::sleep(Duration::from_secs(90)).await;
        client.write_all(b"x").await.unwrap();
        server.read_u8().await.unwrap();
    };
    let (ended, ()) = tokio::join!(copy(left, right, limits), talk);
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(start.elapsed().as_secs(), 190);
}

#[tokio::test(start_paused = true)]
async fn a_half_closed_pair_waits_a_shorter_time() {
    let (left, client) = tokio::io::duplex(64);
    let (right, mut server) = tokio::io::duplex(64);
    let limits = CopyLimits { idle: Duration::from_secs(1000), half_closed: Duration::from_secs(10) };
    let start = tokio::time::Instant::now();
    let talk = async {
        let (_reader, mut writer) = tokio::io::split(client);
        writer.shutdown().await.unwrap();
        assert!(server.read_u8().await.is_err());
        tokio::time::sleep(Duration::from_secs(5)).await;
        server.write_all(b"more").await.unwrap();
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! { ended = copy(left, right, limits) => ended, () = talk => unreachable!() };
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(start.elapsed().as_secs(), 15);
}

/// Stdout of a command, on its way when the far side goes.
const OUTPUT: &[u8] = &[0, 0, 0, 3, 0, 0, 0, 2, b'h', b'i'];
/// How a command ended, on the stream that tells.
const END: &[u8] = &[0, 0, 0, 1, 1, 0, 0, 2, b'{', b'}'];

async fn session(sent: &[u8], stopped: bool) -> Vec<u8> {
    let (client, mut user) = tokio::io::duplex(1024);
    let (target, mut far) = tokio::io::duplex(1024);
    let stop = async move {
        if !stopped {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    let talk = async {
        far.write_all(sent).await.unwrap();
        if stopped {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        drop(far);
    };
    let mut seen = Vec::new();
    let (ended, (), read) = tokio::join!(
        copy::copy_command(client, target, CopyLimits::default(), stop),
        talk,
        user.read_to_end(&mut seen)
    );
    ended.unwrap();
    read.unwrap();
    seen
}

#[tokio::test(start_paused = true)]
async fn a_command_whose_far_side_is_gone_does_not_look_as_if_it_had_ended_well() {
    let lost = "the connection to the container was lost";
    for stopped in [false, true] {
        let seen = session(OUTPUT, stopped).await;
        assert!(seen.starts_with(OUTPUT) && String::from_utf8_lossy(&seen).contains(lost), "{seen:?}");
        let all = [OUTPUT, END].concat();
        assert_eq!(session(&all, stopped).await, all);
    }
}
