//! Processes we find again: a pid file alone is not believed, the process must also be what we started.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process known by pid and by a word of its command line that only ours has.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pid: i32,
    mark: String,
}

impl Known {
    /// Returns the process of a pid file if it runs and its command line holds `mark`.
    pub(crate) fn from_file(file: &Path, mark: &str) -> Option<Self> {
        let pid = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
        Self::from_pid(pid, mark)
    }

    /// Returns the process if it runs and its command line holds `mark`.
    pub(crate) fn from_pid(pid: i32, mark: &str) -> Option<Self> {
        let this = Self { pid, mark: mark.to_owned() };
        this.is_alive().then_some(this)
    }

    /// Returns all processes whose command line holds `mark`, without ourselves.
    pub(crate) fn all(mark: &str) -> Vec<Self> {
        let mine = std::process::id();
        let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
            .filter(|pid| u32::try_from(*pid).is_ok_and(|pid| pid != mine))
            .filter_map(|pid| Self::from_pid(pid, mark))
            .collect()
    }

    /// The process id.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it still runs where we do (a zombie does not).
    pub(crate) fn is_alive(&self) -> bool {
        // The same words in another mount namespace mean other files: a container's, or a test's world of its own.
        let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        if space(&self.pid.to_string()) != space("self") {
            return false;
        }
        let line = std::fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        !self.mark.is_empty() && line.contains(&self.mark)
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.is_alive() {
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    /// Asks it to end, then makes it; returns whether it is gone.
    pub(crate) async fn stop(&self, patience: Duration) -> bool {
        self.signal(Signal::SIGTERM);
        if self.gone(patience).await {
            return true;
        }
        self.signal(Signal::SIGKILL);
        self.gone(Duration::from_secs(5)).await
    }

    async fn gone(&self, within: Duration) -> bool {
        let wait = async {
            while self.is_alive() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(within, wait).await.is_ok()
    }
}

/// Looks a program up in PATH and the usual system folders.
pub(crate) fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"])
        .filter(|directory| !directory.is_empty())
        .map(|directory| Path::new(directory).join(name))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// Runs a short command to its end with a deadline; a failure carries its last words.
pub(crate) async fn run(program: &Path, arguments: &[&str], deadline: Duration) -> anyhow::Result<String> {
    use anyhow::Context as _;
    let text = format!("{} {}", program.display(), arguments.join(" "));
    let child = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(deadline, child)
        .await
        .with_context(|| format!("{text}: no end within {} s", deadline.as_secs()))?
        .with_context(|| format!("run {text}"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        anyhow::bail!("{text}: {}: {words}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
