//! `longshore up`: from nothing to a ready node on this machine.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::down::Folders;
use crate::app::fail::Hint;
use crate::app::paths::Paths;
use crate::app::runtime;
use crate::app::up::{Lock, UpOptions, up};

/// Flags of `up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    node: Node,
    /// Install missing Debian packages with apt-get
    #[arg(long)]
    install: bool,
    /// Run a sample pod and show it answering
    #[arg(long)]
    demo: bool,
    /// Return when the node is ready instead of staying in the foreground
    #[arg(long)]
    detach: bool,
    /// Further flags of the agent
    #[arg(last = true)]
    agent_flags: Vec<String>,
}

/// Flags that say what runs here; `check` has them too.
#[derive(Debug, clap::Args)]
pub(crate) struct Node {
    /// Use this runtime instead of a containerd of our own
    #[arg(long, value_name = "unix:///PATH")]
    runtime_endpoint: Option<String>,
    /// Where the apiserver listens
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443")]
    bind: SocketAddr,
    /// Name of the node [default: the host's name]
    #[arg(long)]
    node_name: Option<String>,
    #[command(flatten)]
    folders: Folders,
}

impl Node {
    /// Returns the options of an `up` with these flags.
    pub(crate) fn options(&self) -> Result<UpOptions> {
        Ok(UpOptions {
            paths: self.folders.paths()?,
            install: false,
            demo: false,
            runtime_endpoint: self.runtime_endpoint.clone(),
            bind: self.bind,
            node_name: self.node_name.clone(),
            agent_flags: Vec::new(),
        })
    }
}

/// Runs the command.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let mut options = arguments.node.options()?;
    options.install = arguments.install;
    options.demo = arguments.demo;
    options.agent_flags = arguments.agent_flags;
    if !nix::unistd::geteuid().is_root() {
        return Err(Hint::error("longshore up must be root", "run it with sudo"));
    }
    if arguments.detach {
        return detach(&options.paths);
    }
    runtime::block_on(up(options))?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the same command in the background and shows what it says until the node is ready.
fn detach(paths: &Paths) -> Result<ExitCode> {
    // Taken and given back: the one in the background takes it again.
    drop(Lock::take(paths)?);
    std::fs::create_dir_all(&paths.run).with_context(|| format!("create {}", paths.run.display()))?;
    drop(std::fs::remove_file(paths.ready()));
    let path = paths.up_log();
    let log = std::fs::File::create(&path).with_context(|| format!("create {}", path.display()))?;
    let flags = std::env::args_os().skip(1).filter(|word| word != "--detach");
    let mut child = Command::new(std::env::current_exe().context("find our own program")?)
        .args(flags)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .context("start in the background")?;
    let mut log = std::fs::File::open(&path)?;
    let mut shown = 0;
    loop {
        let ended = child.try_wait()?;
        let ready = paths.ready().exists();
        shown += show_from(&mut log, shown)?;
        if let Some(status) = ended {
            if status.success() {
                bail!("it ended before the node was ready, see {}", path.display());
            }
            return Ok(ExitCode::FAILURE);
        }
        if ready {
            drop(writeln!(
                std::io::stderr().lock(),
                "in the background as process {}, log in {}",
                child.id(),
                path.display()
            ));
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

fn show_from(log: &mut std::fs::File, at: u64) -> Result<u64> {
    log.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    log.read_to_end(&mut bytes)?;
    std::io::stderr().lock().write_all(&bytes)?;
    Ok(u64::try_from(bytes.len())?)
}
