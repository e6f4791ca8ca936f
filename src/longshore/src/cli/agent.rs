//! placeholder
use anyhow::Result;
use std::ffi::OsString;
use std::process::ExitCode;
pub(crate) fn run(_flags: Vec<OsString>) -> Result<ExitCode> {
    anyhow::bail!("no agent")
}
