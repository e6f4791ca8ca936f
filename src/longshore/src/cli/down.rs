//! `longshore down`: takes away what `up` made.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::app::fail::Hint;
use crate::app::paths::Paths;
use crate::app::progress::Progress;
use crate::app::{remove, runtime};

/// Flags of `down`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Also remove the data: keys, stored objects, images
    #[arg(long)]
    purge: bool,
    #[command(flatten)]
    folders: Folders,
}

/// Where `up` keeps things.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Folders {
    /// What outlives a reboot
    #[arg(long, value_name = "DIR", default_value = Paths::DATA)]
    pub(crate) data_dir: PathBuf,
    /// Sockets, state, pid files
    #[arg(long, value_name = "DIR", default_value = Paths::RUN)]
    pub(crate) run_dir: PathBuf,
    /// The agent's root
    #[arg(long, value_name = "DIR", default_value = Paths::KUBELET)]
    pub(crate) root_dir: PathBuf,
}

impl Folders {
    /// The folders as absolute paths: what is removed later must not depend on where one stands.
    pub(crate) fn paths(&self) -> Result<Paths> {
        Ok(Paths {
            data: std::path::absolute(&self.data_dir)?,
            run: std::path::absolute(&self.run_dir)?,
            kubelet: std::path::absolute(&self.root_dir)?,
        })
    }
}

/// Runs the command.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Hint::error("longshore down must be root", "run it with sudo"));
    }
    let paths = arguments.folders.paths()?;
    let progress = Progress::new();
    progress.say("longshore down");
    runtime::block_on(remove::down(&paths, arguments.purge, &progress))?;
    Ok(ExitCode::SUCCESS)
}
