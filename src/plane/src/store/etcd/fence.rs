//! Reads that see all that was answered before them. etcd is asked for its revision once for all who wait; then memory
//! must have come that far. Where it cannot, for the last writes were not in our range, a write of ours brings it there.
//!
//! Progress notices of a watch would do the same without a write, but servers before 3.4.25 and 3.5.8 can send one
//! before events that belong to it.

use std::sync::Arc;
use std::time::Duration;

use longshore_util::Tasks;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::wire::{self, DEADLINE};
use super::{Hub, unsigned};
use crate::store::StoreError;

/// Key of the fence, under the prefix and outside all kinds.
pub(super) const KEY: &str = "longshore.io/fence";
/// Events that are on their way arrive sooner than this.
const ON_ITS_WAY: Duration = Duration::from_millis(50);
/// Readers that wait to be served; more wait to wait.
const QUEUE: usize = 1024;

type Reply = oneshot::Sender<Result<(), StoreError>>;

/// Lets readers wait for the present.
#[derive(Debug)]
pub(super) struct Fence {
    asks: mpsc::Sender<Reply>,
}

impl Fence {
    pub(super) fn start(hub: Hub, tasks: &Tasks) -> Self {
        let (asks, queue) = mpsc::channel(QUEUE);
        let token = tasks.token().clone();
        tasks.essential("etcd-fence", async move {
            tokio::select! {
                biased;
                () = token.cancelled() => {}
                () = serve(&hub, queue) => {}
            }
        });
        Self { asks }
    }

    pub(super) async fn settle(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.asks.send(reply).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

async fn serve(hub: &Hub, mut queue: mpsc::Receiver<Reply>) {
    while let Some(first) = queue.recv().await {
        // Who asks while etcd is being asked must wait for the next answer: this one may be older than their question.
        let mut waiting = vec![first];
        while let Ok(more) = queue.try_recv() {
            waiting.push(more);
        }
        let outcome = present(hub).await;
        for reply in waiting {
            // The reader may have gone away.
            drop(reply.send(outcome.clone()));
        }
    }
}

/// Brings memory to the present.
async fn present(hub: &Hub) -> Result<(), StoreError> {
    let now = hub.wire.now(hub.key(KEY)).await.map_err(|status| hub.wire.error(&status))?;
    if timeout(DEADLINE, hub.reach_or_fence(unsigned(now.revision))).await.is_err() {
        let detail = Arc::<str>::from("etcd is not followed at the moment: what is in memory may be old");
        return Err(StoreError::Io { path: hub.wire.name.as_ref().into(), detail });
    }
    Ok(())
}

impl Hub {
    /// Waits until memory has a revision that etcd has; writes the fence if no event of ours leads there.
    pub(super) async fn reach_or_fence(&self, revision: u64) {
        while timeout(ON_ITS_WAY, self.reach(revision)).await.is_err() {
            match self.wire.put(self.key(KEY), b"{}".to_vec()).await {
                // Its event is behind all that came before; however long that takes, it need not be written again.
                Ok(()) => return self.reach(revision).await,
                Err(status) => {
                    tracing::debug!(error = wire::describe(&status), "writing the fence");
                    tokio::time::sleep(ON_ITS_WAY).await;
                }
            }
        }
    }
}
