//! What others have to say to a worker: the newest desired object, a removal, an order to end, a wake-up. Nothing queues
//! up; the newest wins, except grace, which only shrinks.

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::journal::EndFacts;
use crate::model::{DesiredPod, Terminate};

/// What came in since the worker last looked.
#[derive(Debug, Default)]
pub(super) struct News {
    /// A newer object.
    pub(super) desired: Option<DesiredPod>,
    /// The source no longer has the pod.
    pub(super) removed: bool,
    /// An order to end.
    pub(super) end: Option<EndFacts>,
    /// The runtime reported a change.
    pub(super) stale: bool,
    /// Others have gone from the node.
    pub(super) room: bool,
    /// Somebody wants everything to be tried at once.
    pub(super) retry: bool,
}

/// The letter box of a worker.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    news: Mutex<News>,
    bell: Notify,
    urgent: Notify,
}

impl Inbox {
    /// A newer object of the source. Its deletion interrupts whatever the worker does.
    pub(super) fn set(&self, desired: DesiredPod) {
        let deleting = desired.pod.metadata.deletion_timestamp.is_some();
        self.news.lock().desired = Some(desired);
        self.ring(deleting);
    }

    /// The source no longer has the pod.
    pub(super) fn remove(&self) {
        self.news.lock().removed = true;
        self.ring(true);
    }

    /// An order to end for the node's own reasons; the first reason stands, grace shrinks.
    pub(super) fn terminate(&self, order: Terminate) {
        let order = EndFacts {
            grace_seconds: order.grace.map(|g| i64::try_from(g.as_secs()).unwrap_or(i64::MAX)),
            reason: Some(order.reason.to_owned()),
            message: Some(order.message),
            disruption: order.disruption,
        };
        let mut news = self.news.lock();
        match &mut news.end {
            Some(end) => merge_end(end, order),
            None => news.end = Some(order),
        }
        drop(news);
        self.ring(true);
    }

    /// The runtime reported a change.
    pub(super) fn wake(&self) {
        self.news.lock().stale = true;
        self.ring(false);
    }

    /// Others have gone from the node: a pod that was refused may fit now.
    pub(super) fn room(&self) {
        self.news.lock().room = true;
        self.ring(false);
    }

    /// Somebody wants everything to be tried at once.
    pub(super) fn retry(&self) {
        self.news.lock().retry = true;
        self.ring(false);
    }

    /// Something the worker itself waits for is done.
    pub(super) fn nudge(&self) {
        self.ring(false);
    }

    fn ring(&self, urgent: bool) {
        if urgent {
            self.urgent.notify_one();
        }
        self.bell.notify_one();
    }

    /// Takes everything that came in.
    pub(super) fn take(&self) -> News {
        std::mem::take(&mut self.news.lock())
    }

    /// Waits for anything.
    pub(super) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// Waits for what must interrupt the worker.
    pub(super) async fn urgent(&self) {
        self.urgent.notified().await;
    }
}

/// Merges a later order into an earlier one: grace may only shrink, the first reason stands.
pub(super) fn merge_end(end: &mut EndFacts, order: EndFacts) {
    end.grace_seconds = match (end.grace_seconds, order.grace_seconds) {
        (Some(old), Some(new)) => Some(old.min(new)),
        (old, new) => old.or(new),
    };
    if end.reason.is_none() {
        end.reason = order.reason;
        end.message = order.message;
    }
    end.disruption |= order.disruption;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn order(grace: Option<u64>, reason: &'static str) -> Terminate {
        Terminate { grace: grace.map(Duration::from_secs), reason, message: reason.into(), disruption: false }
    }

    #[test]
    fn grace_never_grows_and_the_first_reason_stands() {
        let inbox = Inbox::default();
        inbox.terminate(order(Some(5), "Evicted"));
        inbox.terminate(order(Some(50), "DeadlineExceeded"));
        inbox.terminate(order(None, "NodeShutdown"));
        inbox.terminate(order(Some(3), "Preempting"));
        let end = inbox.take().end.unwrap();
        assert_eq!(end.grace_seconds, Some(3));
        assert_eq!(end.reason.as_deref(), Some("Evicted"));
    }
}
