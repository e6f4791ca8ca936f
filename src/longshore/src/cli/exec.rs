//! `longshore exec POD -- COMMAND…`: runs a command in a container; its exit code becomes ours.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Api;
use kube::api::{AttachParams, TerminalSize};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use super::client::{Connection, Namespace, explain};
use super::print::out_bytes;
use crate::app::fail::Usage;

/// Flags of `exec`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Pod
    pod: String,
    /// Container; the first one without
    #[arg(short, long)]
    container: Option<String>,
    /// Pass our stdin on
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Give it a terminal
    #[arg(short = 't', long)]
    tty: bool,
    /// The command
    #[arg(last = true)]
    command: Vec<String>,
    #[command(flatten)]
    namespace: Namespace,
    #[command(flatten)]
    connection: Connection,
}

/// Runs the command.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    if arguments.command.is_empty() {
        return Err(Usage("say what to run: longshore exec POD -- COMMAND".to_owned()).into());
    }
    let client = arguments.connection.client().await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), arguments.namespace.name(&client));
    let tty = arguments.tty && std::io::stdin().is_terminal();
    let params = AttachParams {
        container: arguments.container.clone(),
        stdin: arguments.stdin,
        stdout: true,
        stderr: !tty,
        tty,
        ..AttachParams::default()
    };
    let pod = arguments.pod.trim_start_matches("pod/");
    let mut process = pods
        .exec(pod, &arguments.command, &params)
        .await
        .map_err(explain)
        .with_context(|| format!("exec in pod {pod}"))?;
    let _raw = if tty { Some(RawMode::enter()?) } else { None };
    if tty && let (Some(mut sizes), Some(size)) = (process.terminal_size(), terminal_size()) {
        use futures_util::SinkExt as _;
        drop(sizes.send(size).await);
    }
    let (stdin, stdout, stderr) = (process.stdin(), process.stdout(), process.stderr());
    let status = process.take_status();
    let input = async move {
        if let Some(mut to) = stdin {
            let mut from = stdin_chunks();
            while let Some(chunk) = from.recv().await {
                if to.write_all(&chunk).await.is_err() {
                    break;
                }
            }
            drop(to.shutdown().await);
        }
        std::future::pending::<()>().await;
    };
    let output = async {
        let out = async {
            match stdout {
                Some(from) => copy(from, out_bytes).await,
                None => Ok(()),
            }
        };
        let err = async {
            match stderr {
                Some(from) => copy(from, |bytes| Ok(std::io::stderr().lock().write_all(bytes)?)).await,
                None => Ok(()),
            }
        };
        let (out, err) = tokio::join!(out, err);
        out.and(err)
    };
    tokio::select! {
        () = input => {}
        result = output => result?,
    }
    let status = match status {
        Some(status) => status.await,
        None => None,
    };
    exit_code(status)
}

/// Our stdin in pieces, read on a thread of its own: a read that never ends must hold up nothing.
fn stdin_chunks() -> tokio::sync::mpsc::Receiver<Vec<u8>> {
    // One piece is on its way while the next is read.
    let (sender, receiver) = tokio::sync::mpsc::channel(2);
    std::thread::spawn(move || {
        let mut buffer = [0; 8 * 1024];
        while let Ok(read) = std::io::stdin().lock().read(&mut buffer) {
            if read == 0 || sender.blocking_send(buffer[..read].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await.context("read output")?;
        if read == 0 {
            return Ok(());
        }
        to(&buffer[..read])?;
    }
}

/// Success is 0; a command's own exit code is in the details of the status.
fn exit_code(status: Option<Status>) -> Result<ExitCode> {
    let Some(status) = status else { anyhow::bail!("the connection ended before the command") };
    if status.status.as_deref() == Some("Success") {
        return Ok(ExitCode::SUCCESS);
    }
    let causes = status.details.and_then(|details| details.causes).unwrap_or_default();
    let code = causes
        .iter()
        .find(|cause| cause.reason.as_deref() == Some("ExitCode"))
        .and_then(|cause| cause.message.as_deref()?.parse::<u8>().ok());
    match code {
        Some(code) => Ok(ExitCode::from(code)),
        None => anyhow::bail!(status.message.unwrap_or_else(|| "the command could not be run".to_owned())),
    }
}

fn terminal_size() -> Option<TerminalSize> {
    let output = std::process::Command::new("stty").arg("size").stdin(std::process::Stdio::inherit()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (height, width) = text.trim().split_once(' ')?;
    Some(TerminalSize { width: width.parse().ok()?, height: height.parse().ok()? })
}

/// The terminal passes every key on; as it was again when dropped.
struct RawMode {
    before: Termios,
}

impl RawMode {
    fn enter() -> Result<Self> {
        let stdin = std::io::stdin();
        let before = tcgetattr(stdin.as_fd()).context("read the terminal's settings")?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(stdin.as_fd(), SetArg::TCSANOW, &raw).context("change the terminal's settings")?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin().as_fd(), SetArg::TCSANOW, &self.before);
    }
}
