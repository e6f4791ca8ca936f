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
