//! The only way to start a task: named, traced, tracked, cancelled as a tree.

use std::future::Future;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

/// A branch of the shutdown tree: a token to stop what runs on it and a tracker to wait for it.
#[derive(Debug, Clone)]
pub struct Tasks {
    token: CancellationToken,
    tracker: TaskTracker,
    fatal: watch::Sender<Option<String>>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

impl Tasks {
    /// Returns a new root.
    pub fn new() -> Self {
        Self { token: CancellationToken::new(), tracker: TaskTracker::new(), fatal: watch::Sender::new(None) }
    }

    /// Returns a branch that ends with this one but can be stopped and awaited alone.
    pub fn child(&self) -> Self {
        Self { token: self.token.child_token(), tracker: TaskTracker::new(), fatal: self.fatal.clone() }
    }

    /// The token that a loop selects on.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Tells everything on this branch to stop.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// Waits until all tasks of this branch have ended; call [`Tasks::cancel`] first, and put a deadline around it.
    pub async fn join(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Waits until an essential task of the tree has panicked or ended unasked, and says which and why.
    pub async fn failed(&self) -> String {
        let mut fatal = self.fatal.subscribe();
        match fatal.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    /// Starts an essential task: it must run until the branch is cancelled; a panic or an early return is reported
    /// by [`Tasks::failed`], on which the process shuts down.
    pub fn essential<F>(&self, name: &'static str, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let inner = spawn_raw(self, name, future);
        let token = self.token.clone();
        let fatal = self.fatal.clone();
        let watcher = async move {
            let ended = inner.await;
            if token.is_cancelled() {
                return;
            }
            let reason = match ended {
                Ok(()) => format!("task {name} ended unexpectedly"),
                Err(error) => format!("task {name} failed: {error}"),
            };
            tracing::error!(task = name, %reason, "essential task ended");
            fatal.send_replace(Some(reason));
        };
        drop(spawn_raw(self, "essential-watch", watcher));
    }
}

/// Starts a task on `tasks`. The future must itself watch `tasks.token()` (or be short) for the branch to end.
pub fn spawn<F>(tasks: &Tasks, name: &'static str, future: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    spawn_raw(tasks, name, future)
}

#[expect(clippy::disallowed_methods, reason = "the one place that starts tasks")]
fn spawn_raw<F>(tasks: &Tasks, name: &'static str, future: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(tasks.tracker.track_future(future.instrument(tracing::debug_span!("task", name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_of_an_essential_task_is_reported() {
        let tasks = Tasks::new();
        tasks.essential("boom", async { panic!("broken") });
        assert!(tasks.failed().await.contains("boom"));
    }

    #[tokio::test]
    async fn a_cancelled_branch_ends_quietly() {
        let tasks = Tasks::new();
        let branch = tasks.child();
        let token = branch.token().clone();
        branch.essential("loop", async move { token.cancelled().await });
        branch.cancel();
        branch.join().await;
        assert!(tasks.fatal.borrow().is_none());
    }
}
