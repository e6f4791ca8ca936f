//! `longshore demo-server`: what runs in the sample's container.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Result;

use crate::app::{demo, runtime};

/// Flags of `demo-server`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Where to listen
    #[arg(long, default_value_t = SocketAddr::from(([0, 0, 0, 0], demo::PORT)))]
    bind: SocketAddr,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    runtime::block_on(demo::serve(arguments.bind))?;
    Ok(ExitCode::SUCCESS)
}
