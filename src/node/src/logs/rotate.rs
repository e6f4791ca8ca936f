//! Keeps logs of running containers within their bounds: one that has grown is moved away and the runtime told to open it
//! anew. Looks at sizes alone; the runtime is asked only about a log that is due.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use longshore_cri::{CriError, SharedRuntime, v1};
use longshore_util::Tasks;
use longshore_util::clock::SharedClock;
use tokio::time::MissedTickBehavior;

use super::parts;
use crate::model::{PodView, ReadPods};

/// What logs are bound to.
#[derive(Debug, Clone)]
pub struct RotateOptions {
    /// `containerLogMaxSize` in bytes.
    pub size: u64,
    /// `containerLogMaxFiles`, the one that is written included.
    pub files: usize,
    /// `containerLogMaxWorkers`.
    pub workers: usize,
    /// `containerLogMonitorInterval`.
    pub every: Duration,
    /// `podLogsDir`.
    pub folder: PathBuf,
    /// The runtime.
    pub runtime: SharedRuntime,
    /// The pods whose logs these are.
    pub pods: Arc<dyn ReadPods>,
    /// Wall-clock time.
    pub clock: SharedClock,
}

/// Why a log was not rotated.
#[derive(Debug, thiserror::Error)]
enum RotateError {
    /// The disk does not let us; tried again with the next look.
    #[error("{path}: {source}")]
    Disk { path: PathBuf, source: io::Error },
    /// The runtime goes on with the old file, which stands under its name again.
    #[error("open {path} anew: {source}")]
    Reopen { path: PathBuf, source: CriError },
}

/// A log that may be due.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Log {
    container: String,
    path: PathBuf,
}

/// Starts looking.
pub fn rotate(options: RotateOptions, tasks: &Tasks) {
    let token = tasks.token().clone();
    let run = async move {
        let mut ticks = tokio::time::interval(options.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                _ = ticks.tick() => {}
            }
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = options.look() => {}
            }
        }
    };
    tasks.essential("log-rotation", Box::pin(run));
}

impl RotateOptions {
    async fn look(&self) {
        let logs: Vec<Log> = self.pods.pods().iter().flat_map(|view| running(view, &self.folder)).collect();
        let size = self.size;
        let due = tokio::task::spawn_blocking(move || logs.into_iter().filter(|log| is_due(&log.path, size)).collect());
        let due: Vec<Log> = due.await.unwrap_or_default();
        let works = futures_util::stream::iter(due).map(|log| async move {
            if let Err(error) = self.turn(&log).await {
                tracing::warn!(container = log.container, %error, "container log cannot be rotated");
            }
        });
        works.buffer_unordered(self.workers.max(1)).collect::<()>().await;
    }

    /// Rotates one log, if the runtime says that it is still written.
    async fn turn(&self, log: &Log) -> Result<(), RotateError> {
        let request = v1::ContainerStatusRequest { container_id: log.container.clone(), verbose: false };
        let Ok(answer) = self.runtime.container_status(request).await else { return Ok(()) };
        let Some(status) = answer.status else { return Ok(()) };
        if status.state() != v1::ContainerState::ContainerRunning || status.log_path.is_empty() {
            return Ok(());
        }
        let path = PathBuf::from(status.log_path);
        match size_of(&path) {
            // Somebody took it away: without a file the container's words go nowhere.
            None => return self.reopen(&log.container, &path).await,
            Some(size) if size < self.size => return Ok(()),
            Some(_) => {}
        }
        let (old, new, keep) = (path.clone(), parts::rotated(&path, self.clock.now()), self.files.saturating_sub(2));
        let (from, to) = (old.clone(), new.clone());
        let moved = tokio::task::spawn_blocking(move || {
            parts::make_room(&from, keep)?;
            // Twice in one second: the next look will do.
            if to.try_exists()? {
                return Ok(false);
            }
            std::fs::rename(&from, &to).map(|()| true)
        });
        let moved = moved.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        if !moved.map_err(|source| RotateError::Disk { path: old.clone(), source })? {
            return Ok(());
        }
        let answer = self.reopen(&log.container, &path).await;
        if answer.is_err()
            && size_of(&old).is_none()
            && let Err(error) = std::fs::rename(&new, &old)
        {
            tracing::warn!(path = %old.display(), %error, "a log that was moved away cannot be moved back");
        }
        answer
    }

    async fn reopen(&self, container: &str, path: &Path) -> Result<(), RotateError> {
        let request = v1::ReopenContainerLogRequest { container_id: container.to_owned() };
        let answer = self.runtime.reopen_container_log(request).await;
        answer.map(drop).map_err(|source| RotateError::Reopen { path: path.to_owned(), source })
    }
}

/// The logs of a pod's running containers, where the agent told the runtime to write them.
fn running(view: &PodView, folder: &Path) -> Vec<Log> {
    let Some(status) = &view.status else { return Vec::new() };
    let key = &view.desired.key;
    let pod = folder.join(format!("{}_{}_{}", key.namespace, key.name, view.desired.uid));
    let lists = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    let found = lists.into_iter().flatten().flatten().filter_map(|status| {
        status.state.as_ref()?.running.as_ref()?;
        let container = status.container_id.as_deref()?.rsplit_once("://")?.1.to_owned();
        Some(Log { container, path: pod.join(&status.name).join(format!("{}.log", status.restart_count)) })
    });
    found.collect()
}

fn size_of(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|meta| meta.size())
}

/// Grown, or not there at all.
fn is_due(path: &Path, size: u64) -> bool {
    size_of(path).is_none_or(|here| here >= size)
}

#[cfg(test)]
mod tests;
