//! A child process of a run: its output in a file, killed when dropped.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A running process of the environment.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn spawn(name: &str, command: &mut Command, log: PathBuf) -> Result<Self> {
        let out = File::options().create(true).append(true).open(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {command:?}"))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its output, for an error message.
    pub fn tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }

    /// Returns an error with its last words if it has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}):\n{}", self.name, self.tail()),
        }
    }

    /// Waits until it is ready. That it ends before is an error with its last words, as is that it takes too long.
    pub fn until(&mut self, what: &str, within: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let mut ended = None;
        let waited = super::eventually(what, within, || {
            ended = self.check_alive().err();
            ended.is_some() || ready()
        });
        match ended {
            Some(error) => Err(error),
            None => waited.with_context(|| self.tail()),
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?);
        kill(pid, signal).with_context(|| format!("{signal} to {}", self.name))
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, and waits for the end; an error when it takes longer than `within`.
    pub fn stop(&mut self, within: Duration) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        self.wait(within)
    }

    /// Waits for the end; an error when it takes longer than `within`.
    pub fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        let mut status = None;
        let ended = super::eventually(&format!("end of {}", self.name), within, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        match (ended, status) {
            (Ok(()), Some(status)) => Ok(status),
            (Err(error), _) => Err(error),
            (Ok(()), None) => bail!("{} has no exit status", self.name),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            drop(self.kill());
        }
    }
}

/// Blocks the calling thread for a moment: the harness is synchronous.
#[expect(clippy::disallowed_methods, reason = "the harness polls from plain threads, no runtime is blocked")]
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
