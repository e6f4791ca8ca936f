//! `longshore logs POD`: a container's log through the apiserver.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use futures_util::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;

use super::client::{Connection, Namespace, explain};
use super::print::out_bytes;

/// Flags of `logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Pod
    pod: String,
    /// Container; needed when there are several
    #[arg(short, long)]
    container: Option<String>,
    /// Go on with what comes
    #[arg(short, long)]
    follow: bool,
    /// The run before this one
    #[arg(short, long)]
    previous: bool,
    /// Lines from the end
    #[arg(long)]
    tail: Option<i64>,
    /// Only the last so many seconds
    #[arg(long, value_name = "SECONDS")]
    since: Option<i64>,
    /// Begin each line with its time
    #[arg(long)]
    timestamps: bool,
    #[command(flatten)]
    namespace: Namespace,
    #[command(flatten)]
    connection: Connection,
}

/// Runs the command.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let client = arguments.connection.client().await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), arguments.namespace.name(&client));
    let params = LogParams {
        container: arguments.container,
        follow: arguments.follow,
        previous: arguments.previous,
        tail_lines: arguments.tail,
        since_seconds: arguments.since,
        timestamps: arguments.timestamps,
        ..LogParams::default()
    };
    let pod = arguments.pod.trim_start_matches("pod/");
    let stream = pods.log_stream(pod, &params).await.map_err(explain).with_context(|| format!("log of pod {pod}"))?;
    let mut stream = Box::pin(stream);
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = stream.read(&mut buffer).await.context("read the log")?;
        if read == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        out_bytes(&buffer[..read])?;
    }
}
