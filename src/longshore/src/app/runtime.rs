//! The process's tokio runtime: few threads, because each costs memory on every node for its whole life.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Worker threads; work that waits for disks goes to the blocking threads.
const WORKERS: usize = 2;
/// Blocking threads: mounts and file work of several pods at once, each with a deadline of its own.
const BLOCKING: usize = 32;
/// How long an idle blocking thread is kept.
const KEEP: Duration = Duration::from_secs(5);

/// Runs `body` to its end on a runtime of its own.
pub(crate) fn block_on<T>(body: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING)
        .thread_keep_alive(KEEP)
        .thread_name("longshore")
        .enable_all()
        .build()
        .context("start the async runtime")?;
    let result = runtime.block_on(Box::pin(body));
    // A thread that hangs in a system call must not keep the process from ending.
    runtime.shutdown_timeout(Duration::from_secs(2));
    result
}
