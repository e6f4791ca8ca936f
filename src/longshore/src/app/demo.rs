//! The sample of `up --demo`: a web page served from an image made of our own program, so that it needs no registry.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use longshore_host::oci::{Entry, ImageArchive, Source, shared_objects};

/// Name of the sample's image; it is pulled from nowhere.
pub(crate) const IMAGE: &str = "localhost/longshore-demo:1";
/// The sample's manifest.
pub(crate) const MANIFEST: &str = include_str!("../../../../static-pods/demo.yaml");
/// Where it answers inside the pod.
pub(crate) const PORT: u16 = 8080;
/// How soon a sample that runs must listen, and the pause between two tries.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Writes the image: our program, the shared objects it needs at their places, and nothing else.
pub(crate) fn archive(path: &Path) -> Result<()> {
    let program = std::env::current_exe().context("find our own program")?;
    let mut entries = vec![
        Entry::File { path: "/longshore".to_owned(), mode: 0o755, source: Source::Path(program) },
        Entry::Directory { path: "/tmp".to_owned(), mode: 0o1777 },
    ];
    for object in shared_objects().context("read /proc/self/maps")? {
        let text = object.display().to_string();
        // The loader stands under a second name that is written into every program.
        if let Some(name) = object.file_name().and_then(|name| name.to_str())
            && name.starts_with("ld-linux")
        {
            for folder in ["/lib64", "/lib"] {
                if Path::new(folder).join(name).exists() {
                    let path = format!("{folder}/{name}");
                    entries.push(Entry::File { path, mode: 0o755, source: Source::Path(object.clone()) });
                }
            }
        }
        entries.push(Entry::File { path: text, mode: 0o755, source: Source::Path(object) });
    }
    let image = ImageArchive {
        name: IMAGE.to_owned(),
        entries,
        entrypoint: vec!["/longshore".to_owned(), "demo-server".to_owned()],
        ..ImageArchive::default()
    };
    image.write(path)?;
    Ok(())
}

/// Serves the sample's page until told to end.
pub(crate) async fn serve(address: SocketAddr) -> Result<()> {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "?".to_owned());
    let node = std::env::var("NODE_NAME").unwrap_or_else(|_| "this node".to_owned());
    let page = format!("Hello from pod {host} on {node}, run by longshore.\n");
    let router = axum::Router::new().fallback(move || {
        let page = page.clone();
        async move { page }
    });
    let listener = tokio::net::TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
    tracing::info!(%address, "demo server listens");
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let mut interrupt = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
    let end = async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    axum::serve(listener, router).with_graceful_shutdown(end).await.context("serve")
}

/// Asks the sample's page once, with plain HTTP/1.1 over a connection of its own.
pub(crate) async fn ask(address: SocketAddr) -> Result<String> {
    // Without a probe a container is Ready as soon as it runs, which is before it listens.
    let asking = async {
        loop {
            match ask_once(address).await {
                Err(error) if is_refused(&error) => tokio::time::sleep(ASK_AGAIN).await,
                answer => return answer,
            }
        }
    };
    match tokio::time::timeout(LISTENS_WITHIN, asking).await {
        Ok(answer) => answer,
        Err(_) => ask_once(address).await,
    }
}

fn is_refused(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::ConnectionRefused)
}

async fn ask_once(address: SocketAddr) -> Result<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.with_context(|| format!("connect to {address}"))?;
    let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(64 * 1024).read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    anyhow::ensure!(head.starts_with("HTTP/1.1 200"), "answered {}", head.lines().next().unwrap_or_default());
    Ok(body.trim().to_owned())
}
