use std::net::SocketAddr;

use longshore_transport::serve::{ServeOptions, StrangerLimits, bind, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::apiserver::tests::Server;

/// Less than a short rest is waited for.
const SHORT_WHILE: Duration = Duration::from_millis(900);
const PATH: &str = "/api/v1/namespaces/a/configmaps";

struct World {
    address: SocketAddr,
    tasks: Tasks,
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl World {
    async fn start() -> Self {
        Self::with(ServeOptions::default()).await
    }

    async fn with(options: ServeOptions) -> Self {
        let api = Server::start().await.api;
        let tasks = Tasks::new();
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        serve("test-api", listener, None, ApiService(api), options, &tasks);
        Self { address, tasks }
    }

    async fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }
}

fn head(user: &str, length: usize, extra: &str) -> String {
    format!(
        "POST {PATH} HTTP/1.1\r\nHost: x\r\nuser: {user}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n{extra}\r\n"
    )
}

/// Reads one answer; returns its head and body.
async fn read_answer(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let read = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let length =
            head.split("content-length: ").nth(1).map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        (head, body)
    };
    tokio::time::timeout(Duration::from_secs(10), read).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_requests_leave_the_connection_fit_for_the_next() {
    let world = World::start().await;
    let mut stream = world.connect().await;
    for turn in 0..300 {
        let body = "x".repeat(100 + turn);
        stream.write_all(head("nobody", body.len(), "").as_bytes()).await.unwrap();
        if turn % 100 == 0 {
            // The answer is known before the body comes.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        stream.write_all(body.as_bytes()).await.unwrap();
        let (head, body) = read_answer(&mut stream).await;
        assert!(head.starts_with("http/1.1 403") && !head.contains("connection: close"), "{turn}: {head}");
        assert!(body.ends_with(b"}\n") || body.ends_with(b"}"));
    }
    let body = r#"{"metadata":{"name":"cm"}}"#;
    stream.write_all(format!("{}{body}", head("admin", body.len(), "")).as_bytes()).await.unwrap();
    assert!(read_answer(&mut stream).await.0.starts_with("http/1.1 201"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_body_that_is_refused_can_be_sent_whole_and_the_answer_read() {
    let world = World::start().await;
    for (user, length, code) in [("nobody", 1 << 20, "403"), ("admin", 8 << 20, "413")] {
        let mut stream = world.connect().await;
        stream.write_all(head(user, length, "").as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        for _ in 0..length / 65536 {
            stream.write_all(&[b'x'; 65536]).await.unwrap();
        }
        let (head, _) = read_answer(&mut stream).await;
        assert!(head.starts_with(&format!("http/1.1 {code}")) && head.contains("connection: close"), "{head}");
        let mut more = Vec::new();
        let end = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut more)).await.unwrap();
        assert_eq!(end.unwrap(), 0, "an orderly end");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_leave_is_not_given_it_for_a_refused_body() {
    let world = World::start().await;
    let mut stream = world.connect().await;
    let begun = tokio::time::Instant::now();
    stream.write_all(head("nobody", 1000, "Expect: 100-continue\r\n").as_bytes()).await.unwrap();
    let (head, _) = read_answer(&mut stream).await;
    assert!(head.starts_with("http/1.1 403") && head.contains("connection: close"), "{head}");
    assert!(begun.elapsed() < SHORT_WHILE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_body_that_never_comes_delays_the_answer_by_a_second_only() {
    let world = World::start().await;
    let mut stream = world.connect().await;
    stream.write_all(head("nobody", 1000, "").as_bytes()).await.unwrap();
    let (head, _) = read_answer(&mut stream).await;
    assert!(head.starts_with("http/1.1 403") && head.contains("connection: close"), "{head}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_coming_ends_the_request_and_one_that_comes_slowly_does_not() {
    let api = Server::start().await.api;
    let body = |pauses: Vec<u64>| {
        let mut parts = vec![r#"{"metadata":"#, r#"{"name":"#, r#""slow"}}"#].into_iter();
        let chunks = futures_util::StreamExt::then(futures_util::stream::iter(pauses), move |pause| {
            let part = parts.next().unwrap_or_default();
            async move {
                tokio::time::sleep(Duration::from_secs(pause)).await;
                Ok::<_, std::io::Error>(Bytes::from_static(part.as_bytes()))
            }
        });
        Request::post(PATH).header("content-type", "application/json").body(Body::from_stream(chunks)).unwrap()
    };
    let begun = tokio::time::Instant::now();
    let answer = api.handle(body(vec![1, 3600])).await;
    assert_eq!(answer.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(answer.headers()[header::CONNECTION], "close");
    assert_eq!(begun.elapsed().as_secs(), 11);
    assert_eq!(api.handle(body(vec![8, 8, 8])).await.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn a_body_that_another_still_reads_is_left_to_it() {
    let kept = Kept::new(Body::from("abc"), None);
    let other = kept.body();
    assert!(matches!(kept.drain(false).await, Rest::Done));
    assert_eq!(longshore_transport::body::read(other, 10).await.unwrap(), "abc");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_caller_logged_in_is_no_strangers() {
    let strangers = StrangerLimits { most: 1, first_request: Duration::from_secs(10) };
    let world = World::with(ServeOptions { strangers: Some(strangers), ..ServeOptions::default() }).await;
    let mut connections = Vec::new();
    for turn in 0..2 {
        for _ in 0..5 {
            if turn == 0 {
                connections.push(world.connect().await);
            }
            let stream = connections.last_mut().unwrap();
            stream.write_all(head("admin", 0, "").as_bytes()).await.unwrap();
            assert!(read_answer(stream).await.0.starts_with("http/1.1 400"));
            connections.rotate_right(1);
        }
    }
}
