use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::HTTPHeader;
use longshore_transport::pki::{LeafRequest, self_signed_server};
use longshore_transport::serve;
use longshore_transport::tls::{ClientCertificates, MinVersion, ReloadableCertificate, ServerTls, server_config};
use longshore_util::{Tasks, spawn};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::probe::PROBE_AGENT;
use crate::probe::http::{Answer, HttpError, Url, get, headers};

/// A server that says the same to everyone; returns its port and what it was asked.
async fn says(answer: impl Into<Vec<u8>>) -> (u16, tokio::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (asked, heard) = tokio::sync::mpsc::channel(64);
    let answer = answer.into();
    drop(spawn(&Tasks::new(), "server", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            let mut piece = [0; 4096];
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read(&mut piece).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => request.extend_from_slice(&piece[..count]),
                }
                if !request.first().is_some_and(u8::is_ascii_alphabetic) {
                    break;
                }
            }
            drop(asked.send(String::from_utf8_lossy(&request).into_owned()).await);
            drop(stream.write_all(&answer).await);
            if answer.ends_with(b"...") {
                // The rest never comes.
                std::mem::forget(stream);
            }
        }
    }));
    (port, heard)
}

fn url(port: u16, path: &str) -> Url {
    Url { secure: false, host: "127.0.0.1".into(), port, path: path.into() }
}

async fn ask(url: &Url) -> Result<Answer, HttpError> {
    get(url, &headers(None, PROBE_AGENT), Duration::from_millis(500)).await
}

fn failure(result: Result<Answer, HttpError>) -> String {
    match result {
        Err(HttpError::Failure(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_request_is_what_servers_know_from_probes() {
    let (port, mut asked) = says("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine").await;
    let answer = ask(&url(port, "/ready?x=1")).await.unwrap();
    assert_eq!(answer, Answer { status: 200, body: "fine".into() });
    let request = asked.recv().await.unwrap();
    assert_eq!(
        request,
        format!(
            "GET /ready?x=1 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: kube-probe/1.36\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        )
    );
}

#[tokio::test]
async fn headers_of_the_manifest_come_first_and_empty_ones_leave_a_header_out() {
    let (port, mut asked) = says("HTTP/1.1 204 No Content\r\n\r\n").await;
    let header = |name: &str, value: &str| HTTPHeader { name: name.into(), value: value.into() };
    let wanted = [
        header("Host", "example.org"),
        header("X-A", "1"),
        header("X-A", "2"),
        header("Accept", ""),
        header("user-agent", "me"),
    ];
    get(&url(port, "/"), &headers(Some(&wanted), PROBE_AGENT), Duration::from_secs(1)).await.unwrap();
    let request = asked.recv().await.unwrap();
    assert_eq!(
        request,
        "GET / HTTP/1.1\r\nHost: example.org\r\nX-A: 1\r\nX-A: 2\r\nUser-Agent: me\r\nConnection: close\r\n\r\n"
    );
}

#[tokio::test]
async fn no_more_than_ten_kibibytes_of_a_body_are_read() {
    let mut answer = b"HTTP/1.1 500 No\r\nContent-Length: 1000000\r\n\r\n".to_vec();
    answer.resize(600_000, b'a');
    let (port, _asked) = says(answer).await;
    let answer = ask(&url(port, "/")).await.unwrap();
    assert_eq!((answer.status, answer.body.len()), (500, 10 * 1024));
    assert!(!answer.is_good());
}

#[tokio::test]
async fn redirects_on_the_same_host_are_followed_and_others_are_not() {
    let (last, mut asked) = says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let (first, _) =
        says(format!("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{last}/there\r\nContent-Length: 0\r\n\r\n"))
            .await;
    assert_eq!(ask(&url(first, "/")).await.unwrap().body, "ok");
    assert!(asked.recv().await.unwrap().starts_with(&format!("GET /there HTTP/1.1\r\nHost: 127.0.0.1:{last}\r\n")));
    let (away, _) = says("HTTP/1.1 301 Gone\r\nLocation: http://example.org/\r\nContent-Length: 2\r\n\r\nhi").await;
    let answer = ask(&url(away, "/")).await.unwrap();
    assert!(answer.is_redirect() && answer.body == "hi");
    let (circle, _) = says("HTTP/1.1 307 Again\r\nLocation: /\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(
        failure(ask(&url(circle, "/")).await),
        format!("Get \"http://127.0.0.1:{circle}/\": stopped after 10 redirects")
    );
}

#[tokio::test]
async fn silence_and_nonsense_are_failures_in_the_usual_words() {
    assert_eq!(
        failure(get(&url(1, "/"), &headers(None, PROBE_AGENT), Duration::from_secs(1)).await),
        "Get \"http://127.0.0.1:1/\": dial tcp 127.0.0.1:1: connect: connection refused"
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let begin = tokio::time::Instant::now();
    assert_eq!(
        failure(ask(&url(port, "/")).await),
        format!(
            "Get \"http://127.0.0.1:{port}/\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        )
    );
    assert!(begin.elapsed() < Duration::from_secs(2));
    let (nonsense, _asked) = says("what do you want?").await;
    let text = failure(ask(&url(nonsense, "/")).await);
    assert!(text.contains("malformed HTTP response"), "{text}");
    let (closing, _) = says("").await;
    assert_eq!(failure(ask(&url(closing, "/")).await), format!("Get \"http://127.0.0.1:{closing}/\": EOF"));
    let (slow_body, _) = says("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n...").await;
    assert!(matches!(ask(&url(slow_body, "/")).await, Err(HttpError::Body(_))));
}

#[tokio::test]
async fn tls_is_not_verified_and_plain_http_behind_it_is_told() {
    let tasks = Tasks::new();
    let request = LeafRequest::server("someone-else", Vec::new());
    let keyed = self_signed_server(&request, jiff::Timestamp::now()).unwrap();
    let settings = ServerTls {
        client_certificates: ClientCertificates::None,
        min_version: MinVersion::default(),
        cipher_suites: Vec::new(),
        http2: true,
    };
    let config = server_config(ReloadableCertificate::from_pem(&keyed).unwrap(), &settings).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = axum::Router::new().route("/", axum::routing::get(async || "safe"));
    serve::serve("tls", listener, Some(config), router, serve::ServeOptions::default(), &tasks);
    let secure = Url { secure: true, ..url(port, "/") };
    let answer = get(&secure, &headers(None, PROBE_AGENT), Duration::from_secs(5)).await.unwrap();
    assert_eq!(answer, Answer { status: 200, body: "safe".into() });
    tasks.cancel();

    let (plain, _) = says("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let secure = Url { secure: true, ..url(plain, "/") };
    match ask(&secure).await {
        Err(HttpError::NotSecure(text)) => {
            assert_eq!(
                text,
                format!("Get \"https://127.0.0.1:{plain}/\": http: server gave HTTP response to HTTPS client")
            );
        }
        other => panic!("{other:?}"),
    }
}

/// A server in a process of its own, so that its costs are not counted.
pub(super) struct Server {
    child: Child,
    pub(super) port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(super) fn server_in_another_process() -> Server {
    const PROGRAM: &str = "
import asyncio
async def serve(r, w):
    try:
        await r.readuntil(b'\\r\\n\\r\\n')
        w.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok')
        await w.drain()
    except Exception:
        pass
    w.close()
async def main():
    s = await asyncio.start_server(serve, '127.0.0.1', 0, backlog=1024)
    print(s.sockets[0].getsockname()[1], flush=True)
    await s.serve_forever()
asyncio.run(main())
";
    let mut child = Command::new("python3").args(["-c", PROGRAM]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    Server { child, port: line.trim().parse().unwrap() }
}
