//! How many requests are answered at a time, by class: a flood of one class waits behind its own seats, and heartbeats
//! never wait behind anybody else's.
//!
//! ```text
//! heartbeats  leases, and status of nodes and pods, written by nodes or the plane's own
//! system      other requests of nodes, administrators, and accounts and components of the system
//! others      everybody else
//! ```
//!
//! A request that finds no seat waits for one for a moment; when too many wait already, it is told to come again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::ApiError;
use super::identity::{Attributes, GROUP_MASTERS, GROUP_NODES, UserInfo};

/// How long a request waits for a seat.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads are answered from memory: more at a time are not done sooner, but stand between a heartbeat and a core.
const READS_PER_SEAT: usize = 25;

/// Who a request is from, as seats are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Heartbeats,
    System,
    Others,
}

impl Class {
    /// Tells the class of a request.
    pub(super) fn of(user: &UserInfo, asked: &Attributes) -> Self {
        let is_node = user.is_in(GROUP_NODES);
        let is_system = is_node
            || user.is_in(GROUP_MASTERS)
            || user.is_in("system:serviceaccounts:kube-system")
            || user.name.starts_with("system:kube-");
        if !is_system {
            return Self::Others;
        }
        let resource = (asked.resource.as_str(), asked.subresource.as_str());
        match resource {
            ("leases", "") | ("nodes" | "pods", "status") if asked.verb != "list" && asked.verb != "watch" => {
                Self::Heartbeats
            }
            _ => Self::System,
        }
    }
}

/// Seats of one class.
#[derive(Debug)]
struct Seats {
    seats: Arc<Semaphore>,
    waiting: AtomicUsize,
    most_waiting: usize,
}

impl Seats {
    fn new(seats: usize, most_waiting: usize) -> Self {
        Self { seats: Arc::new(Semaphore::new(seats)), waiting: AtomicUsize::new(0), most_waiting }
    }

    async fn take(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        if let Ok(seat) = Arc::clone(&self.seats).try_acquire_owned() {
            return Ok(seat);
        }
        let _counted = Counted::new(&self.waiting, self.most_waiting).ok_or_else(ApiError::too_many_requests)?;
        match tokio::time::timeout(PATIENCE, Arc::clone(&self.seats).acquire_owned()).await {
            Ok(Ok(seat)) => Ok(seat),
            Ok(Err(_)) | Err(_) => Err(ApiError::too_many_requests()),
        }
    }
}

/// One that waits; counted for as long as it does.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize, most: usize) -> Option<Self> {
        let counted = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < most).then_some(counted)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The seats of all classes.
#[derive(Debug)]
pub(super) struct Seating {
    heartbeats: Seats,
    system: Seats,
    reads: Seats,
    writes: Seats,
    watches: Arc<Semaphore>,
    most_watches: usize,
    /// Watches that everybody else may hold; the rest is for the system.
    others_watches: Arc<Semaphore>,
}

/// A watch's places.
#[derive(Debug)]
pub(crate) struct WatchSlot {
    _all: OwnedSemaphorePermit,
    _others: Option<OwnedSemaphorePermit>,
}

impl Seating {
    /// Divides the limits: half of the writes for everybody else, few reads at a time, a quarter of the watches for the
    /// system alone. What may wait grows with them.
    pub(super) fn new(reads: usize, writes: usize, watches: usize) -> Self {
        Self {
            heartbeats: Seats::new(writes / 2, writes * 2),
            system: Seats::new(reads / 2 + writes / 2, reads + writes),
            reads: Seats::new(reads / READS_PER_SEAT, reads),
            writes: Seats::new(writes / 2, writes * 2),
            watches: Arc::new(Semaphore::new(watches)),
            most_watches: watches,
            others_watches: Arc::new(Semaphore::new(watches - watches / 4)),
        }
    }

    /// Takes a seat for a short request.
    pub(super) async fn seat(
        &self,
        user: &UserInfo,
        asked: &Attributes,
        method: &Method,
    ) -> Result<OwnedSemaphorePermit, ApiError> {
        let seats = match Class::of(user, asked) {
            Class::Heartbeats => &self.heartbeats,
            Class::System => &self.system,
            Class::Others if matches!(*method, Method::GET | Method::HEAD) => &self.reads,
            Class::Others => &self.writes,
        };
        seats.take().await
    }

    /// Returns how many watches are open.
    pub(super) fn open_watches(&self) -> usize {
        self.most_watches.saturating_sub(self.watches.available_permits())
    }

    /// Takes a place for a watch.
    pub(super) fn watch(&self, user: &UserInfo, asked: &Attributes) -> Result<WatchSlot, ApiError> {
        let take =
            |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().map_err(|_| ApiError::too_many_requests());
        let others = if Class::of(user, asked) == Class::Others { Some(take(&self.others_watches)?) } else { None };
        Ok(WatchSlot { _all: take(&self.watches)?, _others: others })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(verb: &str, resource: &str, subresource: &str) -> Attributes {
        Attributes {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            is_resource: true,
            ..Attributes::default()
        }
    }

    fn node() -> UserInfo {
        UserInfo::new("system:node:n1", &[GROUP_NODES])
    }

    fn other() -> UserInfo {
        UserInfo::new("jane", &["system:authenticated"])
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_others_leaves_heartbeats_and_the_system_their_seats() {
        let seating = Arc::new(Seating::new(4, 4, 4));
        let lease = asked("update", "leases", "");
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(seating.seat(&other(), &lease, &Method::PUT).await.unwrap());
        }
        // Eight wait, the ninth is sent away at once, the others after their patience.
        let waiting: Vec<_> = (0..9)
            .map(|_| {
                let seating = Arc::clone(&seating);
                async move { seating.seat(&other(), &asked("update", "leases", ""), &Method::PUT).await.map(drop) }
            })
            .collect();
        let started = tokio::time::Instant::now();
        let (ends, _) = tokio::join!(futures_util::future::join_all(waiting), async {
            tokio::task::yield_now().await;
            assert!(seating.seat(&node(), &lease, &Method::PUT).await.is_ok());
            assert!(seating.seat(&node(), &asked("get", "pods", ""), &Method::GET).await.is_ok());
            assert_eq!(started.elapsed(), Duration::ZERO, "neither waited");
        });
        assert_eq!(ends.iter().filter(|end| end.is_err()).count(), 9);
        drop(held);
        assert!(seating.seat(&other(), &lease, &Method::PUT).await.is_ok());
    }

    #[test]
    fn others_never_hold_all_watches() {
        let seating = Seating::new(4, 4, 4);
        let watch = asked("watch", "pods", "");
        let held: Vec<WatchSlot> = (0..3).map(|_| seating.watch(&other(), &watch).unwrap()).collect();
        assert!(seating.watch(&other(), &watch).is_err());
        assert!(seating.watch(&node(), &watch).is_ok());
        drop(held);
    }

    #[test]
    fn classes_are_told_by_user_and_request() {
        for (user, verb, resource, subresource, want) in [
            (node(), "update", "leases", "", Class::Heartbeats),
            (node(), "patch", "nodes", "status", Class::Heartbeats),
            (node(), "list", "leases", "", Class::System),
            (node(), "watch", "pods", "", Class::System),
            (UserInfo::new("a", &[GROUP_MASTERS]), "delete", "pods", "", Class::System),
            (UserInfo::new("system:kube-scheduler", &[]), "update", "leases", "", Class::Heartbeats),
            (other(), "update", "leases", "", Class::Others),
            (other(), "patch", "nodes", "status", Class::Others),
        ] {
            assert_eq!(Class::of(&user, &asked(verb, resource, subresource)), want, "{} {verb} {resource}", user.name);
        }
    }
}
