//! What probes cost: many containers, each asked over HTTP once a second. The bench answers itself, at an address of the
//! node, so that the machine's time goes into the asking.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::report::Limit;
use crate::rows::{Bench, share};

/// Containers of each pod.
const CONTAINERS: usize = 5;
/// Until the probes of all containers are spread and the starts are over.
const REST: Duration = Duration::from_secs(20);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

impl Bench<'_> {
    /// The agent's CPU while `count` pods of five containers are asked once a second each.
    pub(crate) async fn probes(&mut self, count: usize, over: Duration) -> anyhow::Result<()> {
        let pid = self.pid.context("the row probes needs --pid")?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        #[expect(clippy::disallowed_methods, reason = "ended below, or with the program")]
        let server = tokio::spawn(serve(listener));
        let names: Vec<String> = (0..count).map(|index| format!("probes-{index}")).collect();
        stream::iter(&names)
            .map(|name| self.pods.create(name, spec(port, &self.pods)))
            .buffer_unordered(8)
            .try_collect::<Vec<_>>()
            .await?;
        for name in &names {
            self.pods.wait(name, |seen| seen.ready).await?;
        }
        tokio::time::sleep(REST).await;
        let figure = share(pid, over).await?;
        let name = format!("CPU, {} HTTP probes a second", count * CONTAINERS);
        self.row(&name, "% of a core", vec![figure], Vec::new(), Some(Limit::AtMost(10.0)));
        self.fell(&names).await?;
        server.abort();
        Ok(())
    }
}

fn spec(port: u16, pods: &crate::pods::Pods) -> Value {
    let probe = json!({"httpGet": {"host": "127.0.0.1", "port": port, "path": "/"}, "periodSeconds": 1});
    let container = |index: usize| {
        json!({"name": format!("c{index}"), "image": pods.image(), "imagePullPolicy": "IfNotPresent",
               "command": crate::same::COMMAND, "readinessProbe": probe})
    };
    json!({"containers": (0..CONTAINERS).map(container).collect::<Vec<_>>(), "terminationGracePeriodSeconds": 30})
}

async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        #[expect(clippy::disallowed_methods, reason = "lives for one answer")]
        drop(tokio::spawn(answer(stream)));
    }
}

async fn answer(mut stream: TcpStream) {
    let mut head = [0; 1024];
    if matches!(stream.read(&mut head).await, Ok(length) if length > 0) {
        drop(stream.write_all(ANSWER).await);
    }
}
