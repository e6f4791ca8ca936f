//! Static pods from the manifest directory. Woken by the kernel's notices; a full look every `fileCheckFrequency` is the
//! safety net for what no notice tells (links, network file systems, a directory that was not there).

mod scan;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use inotify::{EventMask, EventStream, Inotify, WatchMask};
use longshore_util::Tasks;
use longshore_util::backoff::Backoff;
use tokio::time::{Instant, sleep_until, timeout};

use super::mux::Mux;
use crate::model::SourceKind;
use scan::Scanner;

/// Events that come this close together are looked at once.
const QUIET: Duration = Duration::from_millis(20);
/// But not later than this after the first.
const LATEST: Duration = Duration::from_millis(200);
/// Room for notices of the kernel: a name has at most 255 bytes.
const BUFFER: usize = 4096;

/// Starts the source.
pub(super) fn start(path: PathBuf, every: Duration, node: String, mux: Arc<Mux>, tasks: &Tasks) {
    let token = tasks.token().clone();
    tasks.essential("file-source", async move {
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            () = run(path, every, node, mux) => {}
        }
    });
}

async fn run(path: PathBuf, every: Duration, node: String, mux: Arc<Mux>) {
    let every = if every.is_zero() { Duration::from_secs(20) } else { every };
    let mut scanner = Scanner::new(path.clone(), node);
    let mut notices = Notices::new(path.clone());
    let mut closed = BTreeSet::new();
    let mut told = String::new();
    loop {
        // The watch stands before the look, so that nothing falls between.
        notices.ensure();
        let names = std::mem::take(&mut closed);
        let now = Instant::now();
        let looked = tokio::task::spawn_blocking(move || {
            let found = scanner.scan(&names, now);
            (scanner, found)
        });
        let found = match looked.await {
            Ok((back, found)) => {
                scanner = back;
                found
            }
            // The runtime is going down; the pods that were found stay.
            Err(_) => return,
        };
        let mut next = every;
        match found {
            Ok(scan) => {
                told.clear();
                next = scan.again.unwrap_or(every).min(every);
                mux.replace(SourceKind::File, scan.pods);
            }
            Err(error) => {
                let text = error.to_string();
                if text != told {
                    tracing::error!(path = %path.display(), %error, "cannot read the manifest directory, its pods stay as they are");
                    told = text;
                }
            }
        }
        notices.wait(Instant::now() + next, &mut closed).await;
    }
}

/// The kernel's notices about a directory; works without them, too.
struct Notices {
    path: PathBuf,
    stream: Option<EventStream<Vec<u8>>>,
    backoff: Backoff,
    retry_at: Option<Instant>,
    /// Whether a limit of the kernel was told.
    told: bool,
}

impl Notices {
    fn new(path: PathBuf) -> Self {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(20), u64::from(std::process::id()));
        Self { path, stream: None, backoff, retry_at: None, told: false }
    }

    fn ensure(&mut self) {
        if self.stream.is_some() || self.retry_at.is_some_and(|at| at > Instant::now()) {
            return;
        }
        match watch(&self.path) {
            Ok(stream) => {
                self.stream = Some(stream);
                self.told = false;
                self.backoff.reset();
                self.retry_at = None;
            }
            Err(error) => {
                tracing::debug!(path = %self.path.display(), %error, "manifest directory is not watched");
                let limit =
                    limit_of(&error, |name| std::fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))));
                if let Some(limit) = limit.filter(|_| !std::mem::replace(&mut self.told, true)) {
                    tracing::warn!(
                        path = %self.path.display(),
                        "manifest directory is looked at from time to time only, the kernel gives no notice: {limit}"
                    );
                }
                self.retry_at = Some(Instant::now() + self.backoff.next_delay());
            }
        }
    }

    /// Waits for news, at most until `deadline`; collects the names of files that were closed or moved in.
    async fn wait(&mut self, deadline: Instant, closed: &mut BTreeSet<OsString>) {
        let Some(stream) = &mut self.stream else {
            // Without a watch the directory may come up at any time; the next try decides when to look.
            return sleep_until(self.retry_at.map_or(deadline, |at| at.min(deadline))).await;
        };
        let mut broken = false;
        let mut until = deadline;
        let mut latest = None;
        while let Ok(event) = timeout(until.saturating_duration_since(Instant::now()), stream.next()).await {
            match event {
                Some(Ok(event)) => {
                    if event.mask.intersects(EventMask::CLOSE_WRITE | EventMask::MOVED_TO)
                        && let Some(name) = event.name
                    {
                        // A single watched file is known by its whole path.
                        if self.path.file_name() == Some(name.as_os_str()) {
                            closed.insert(self.path.clone().into_os_string());
                        }
                        closed.insert(name);
                    }
                    if event.mask.intersects(EventMask::IGNORED | EventMask::DELETE_SELF | EventMask::MOVE_SELF) {
                        broken = true;
                        break;
                    }
                }
                Some(Err(error)) => {
                    tracing::debug!(path = %self.path.display(), %error, "watch of the manifest directory broke");
                    broken = true;
                    break;
                }
                None => {
                    broken = true;
                    break;
                }
            }
            let now = Instant::now();
            until = (now + QUIET).min(*latest.get_or_insert(now + LATEST));
        }
        if broken {
            self.stream = None;
            self.retry_at = Some(Instant::now() + self.backoff.next_delay());
        }
    }
}

/// Which limit of the kernel an error of inotify stands for, its value and the one to set: the error itself says "too many
/// open files" or "no space left".
fn limit_of(error: &std::io::Error, read: impl Fn(&str) -> std::io::Result<String>) -> Option<String> {
    let (name, wanted) = match error.raw_os_error()? {
        nix::libc::EMFILE => ("fs.inotify.max_user_instances", 512),
        nix::libc::ENOSPC => ("fs.inotify.max_user_watches", 524_288),
        _ => return None,
    };
    let value = read(name).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned());
    Some(format!("{name} is {value} and used up; set it to {wanted}: sysctl -w {name}={wanted}"))
}

fn watch(path: &Path) -> std::io::Result<EventStream<Vec<u8>>> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::CREATE
        | WatchMask::CLOSE_WRITE
        | WatchMask::MOVED_TO
        | WatchMask::MOVED_FROM
        | WatchMask::DELETE
        | WatchMask::ATTRIB
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF;
    // A single file is watched through its directory: editors replace it by another inode.
    let directory = if path.is_file() { path.parent().unwrap_or(path) } else { path };
    inotify.watches().add(directory, mask)?;
    inotify.into_event_stream(vec![0; BUFFER])
}

#[cfg(test)]
mod tests;
