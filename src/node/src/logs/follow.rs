//! Waits until a log file may have more to say.

use std::path::Path;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use inotify::{EventMask, Inotify, WatchMask};

/// Without inotify (its limits are per user and small) the file is looked at this often.
const BLIND_PERIOD: Duration = Duration::from_millis(300);
const BUFFER: usize = 4096;

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// There may be more to read.
    Written,
    /// A writer has let go of a file: the container may have ended.
    Closed,
    /// Nothing for the time given.
    Nothing,
}

/// Sees changes in the directory of a log file, so that a file that is rotated away and made anew is seen as well.
pub(super) struct Follower {
    stream: Option<inotify::EventStream<Vec<u8>>>,
}

impl Follower {
    pub(super) fn new(dir: &Path) -> Self {
        let stream = match watch(dir) {
            Ok(stream) => Some(stream),
            Err(error) => {
                tracing::debug!(%error, path = %dir.display(), "log directory cannot be watched; looking at it instead");
                None
            }
        };
        Self { stream }
    }

    /// Waits for a change, no longer than `limit`. Cancel-safe: events not yet taken stay in the kernel.
    pub(super) async fn changed(&mut self, limit: Duration) -> Change {
        let Some(stream) = &mut self.stream else {
            tokio::time::sleep(limit.min(BLIND_PERIOD)).await;
            return Change::Written;
        };
        let Ok(mut event) = tokio::time::timeout(limit, stream.next()).await else { return Change::Nothing };
        let mut change = Change::Written;
        // All that wait are taken as one, so that a chatty container costs one look and not one per line.
        loop {
            match event {
                Some(Ok(event)) if event.mask.contains(EventMask::CLOSE_WRITE) => change = Change::Closed,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => {
                    self.stream = None;
                    return Change::Written;
                }
            }
            match stream.next().now_or_never() {
                Some(next) => event = next,
                None => return change,
            }
        }
    }
}

fn watch(dir: &Path) -> std::io::Result<inotify::EventStream<Vec<u8>>> {
    let inotify = Inotify::init()?;
    let mask =
        WatchMask::MODIFY | WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::CLOSE_WRITE | WatchMask::ONLYDIR;
    inotify.watches().add(dir, mask)?;
    inotify.into_event_stream(vec![0; BUFFER])
}
