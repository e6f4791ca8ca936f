use axum::{Router, routing::get};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::fixture::World;

const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

#[tokio::test]
async fn a_port_in_use_is_said_with_the_command_that_shows_who() {
    let first = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = first.local_addr().unwrap();
    let error = bind(address).await.unwrap_err();
    assert!(matches!(error, BindError::InUse { .. }));
    assert!(error.to_string().contains("in use") && error.to_string().contains(&address.port().to_string()), "{error}");
}

#[tokio::test]
async fn a_client_that_never_shakes_hands_is_dropped() {
    let world = World::new();
    let options = ServeOptions { handshake_timeout: Duration::from_millis(50), ..ServeOptions::default() };
    let address = world.serve(Router::new(), options).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut buffer = [0; 1];
    let read = tokio::time::timeout(Duration::from_secs(5), silent.read(&mut buffer)).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)));
}

#[tokio::test]
async fn connections_over_the_limit_wait_for_a_free_slot() {
    let world = World::new();
    let app = Router::new().route("/", get(|| async { "hello" }));
    let address = world.serve(app, ServeOptions { max_connections: 1, ..ServeOptions::default() }).await;
    let first = world.connect(address, &world.trust(), None).await.unwrap();
    let trust = world.trust();
    let mut second = std::pin::pin!(world.connect(address, &trust, None));
    assert!(tokio::time::timeout(Duration::from_millis(100), second.as_mut()).await.is_err());
    drop(first);
    let mut second = tokio::time::timeout(Duration::from_secs(5), second).await.unwrap().unwrap();
    second.write_all(HEAD).await.unwrap();
    let mut buffer = [0; 12];
    second.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"HTTP/1.1 200");
}

#[tokio::test]
async fn a_stop_lets_running_requests_end_and_cuts_endless_ones() {
    let world = World::new();
    let app = Router::new()
        .route("/", get(|| async { tokio::time::sleep(Duration::from_millis(100)).await }))
        .route("/endless", get(|| async { std::future::pending::<()>().await }));
    let options = ServeOptions { drain_timeout: Duration::from_millis(400), ..ServeOptions::default() };
    let address = world.serve(app, options).await;
    let mut short = world.connect(address, &world.trust(), None).await.unwrap();
    short.write_all(HEAD).await.unwrap();
    let mut endless = world.connect(address, &world.trust(), None).await.unwrap();
    endless.write_all(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(30)).await;

    world.tasks.cancel();
    tokio::time::timeout(Duration::from_secs(5), world.tasks.join()).await.unwrap();
    let mut answer = String::new();
    drop(short.read_to_string(&mut answer).await);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mut answer = Vec::new();
    drop(endless.read_to_end(&mut answer).await);
    assert!(answer.is_empty());
    assert!(TcpStream::connect(address).await.is_err());
}

/// A service that knows who comes with `known` in the path.
fn door() -> Router {
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/endless", get(|| async { std::future::pending::<()>().await }))
        .route("/known", get(|newcomer: axum::Extension<Newcomer>| async move { newcomer.logged_in() }))
        .route(
            "/known/watch",
            get(|newcomer: axum::Extension<Newcomer>| async move {
                newcomer.logged_in();
                let first = futures_util::stream::iter([Ok::<_, io::Error>("first")]);
                Body::from_stream(futures_util::StreamExt::chain(first, futures_util::stream::pending()))
            }),
        )
}

fn crowded(max_connections: usize, most: usize, first_request: Duration) -> ServeOptions {
    ServeOptions {
        max_connections,
        strangers: Some(StrangerLimits { most, first_request }),
        drain_timeout: Duration::from_millis(100),
        ..ServeOptions::default()
    }
}

const LONG: Duration = Duration::from_secs(600);

type Stream = tokio_rustls::client::TlsStream<TcpStream>;

async fn knock(world: &World, address: SocketAddr) -> Stream {
    let trust = world.trust();
    let connecting = world.connect(address, &trust, None);
    tokio::time::timeout(Duration::from_secs(5), connecting).await.unwrap().unwrap()
}

/// Sends a request and returns the start of its answer; empty if the connection has ended.
async fn ask(stream: &mut Stream, path: &str) -> String {
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    drop(stream.write_all(head.as_bytes()).await);
    let mut buffer = [0; 1024];
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut buffer)).await.unwrap();
    String::from_utf8_lossy(&buffer[..read.unwrap_or(0)]).into_owned()
}

#[tokio::test]
async fn silent_strangers_keep_nobody_out_and_the_oldest_of_them_leaves() {
    let world = World::new();
    let address = world.serve(door(), crowded(100, 4, LONG)).await;
    let mut known = knock(&world, address).await;
    assert!(ask(&mut known, "/known").await.starts_with("HTTP/1.1 200"));
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(knock(&world, address).await);
    }
    let mut bare = Vec::new();
    for _ in 0..20 {
        bare.push(TcpStream::connect(address).await.unwrap());
    }
    let mut caller = knock(&world, address).await;
    assert!(ask(&mut caller, "/known").await.starts_with("HTTP/1.1 200"));
    assert!(ask(&mut known, "/known").await.starts_with("HTTP/1.1 200"), "it logged in before they came");
    for stream in &mut silent {
        assert_eq!(ask(stream, "/").await, "");
    }
}

#[tokio::test]
async fn a_stranger_with_a_request_stays_longer_than_one_without() {
    let world = World::new();
    let address = world.serve(door(), crowded(100, 2, LONG)).await;
    let mut busy = knock(&world, address).await;
    busy.write_all(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut idle = knock(&world, address).await;
    assert!(ask(&mut idle, "/").await.starts_with("HTTP/1.1 200"));
    let mut third = knock(&world, address).await;
    assert_eq!(ask(&mut idle, "/").await, "", "older than the third, and nothing to do");
    let mut buffer = [0; 1];
    let silence = tokio::time::timeout(Duration::from_millis(200), busy.read(&mut buffer)).await;
    assert!(silence.is_err(), "still served");
    third.write_all(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut fourth = knock(&world, address).await;
    assert!(ask(&mut fourth, "/").await.starts_with("HTTP/1.1 200"), "also when all are busy");
    let end = tokio::time::timeout(Duration::from_secs(5), busy.read(&mut buffer)).await.unwrap();
    assert!(matches!(end, Ok(0) | Err(_)));
}

#[tokio::test]
async fn a_stranger_must_ask_soon() {
    let world = World::new();
    let address = world.serve(door(), crowded(100, 10, Duration::from_millis(300))).await;
    let mut bare = TcpStream::connect(address).await.unwrap();
    let mut silent = knock(&world, address).await;
    let mut slow = knock(&world, address).await;
    slow.write_all(b"GET / HT").await.unwrap();
    let mut asks = knock(&world, address).await;
    assert!(ask(&mut asks, "/").await.starts_with("HTTP/1.1 200"));
    let mut buffer = [0; 1];
    for end in [bare.read(&mut buffer).await, silent.read(&mut [0; 1]).await, slow.read(&mut [0; 1]).await] {
        assert!(matches!(end, Ok(0) | Err(_)));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(ask(&mut asks, "/").await.starts_with("HTTP/1.1 200"), "it has asked before");
}

#[tokio::test]
async fn a_full_server_sends_an_idle_caller_away_and_never_a_watch() {
    let world = World::new();
    let address = world.serve(door(), crowded(3, 2, LONG)).await;
    let mut watch = knock(&world, address).await;
    assert!(ask(&mut watch, "/known/watch").await.starts_with("HTTP/1.1 200"));
    let mut known = Vec::new();
    for _ in 0..5 {
        let mut stream = knock(&world, address).await;
        assert!(ask(&mut stream, "/known").await.starts_with("HTTP/1.1 200"));
        known.push(stream);
    }
    assert_eq!(ask(&mut known[0], "/known").await, "");
    let mut watches = Vec::new();
    for _ in 0..2 {
        let mut stream = knock(&world, address).await;
        assert!(ask(&mut stream, "/known/watch").await.starts_with("HTTP/1.1 200"));
        watches.push(stream);
    }
    let mut buffer = [0; 512];
    let mut rest = String::new();
    while let Ok(read) = tokio::time::timeout(Duration::from_millis(200), watch.read(&mut buffer)).await {
        let read = read.unwrap();
        assert_ne!(read, 0, "the watch goes on");
        rest += &String::from_utf8_lossy(&buffer[..read]);
    }
    // All are busy: a further one waits until one of them ends.
    let mut waits = pin!(knock(&world, address));
    assert!(tokio::time::timeout(Duration::from_millis(300), waits.as_mut()).await.is_err());
    drop(watches);
    assert!(ask(&mut waits.await, "/").await.starts_with("HTTP/1.1 200"), "{rest}");
}
