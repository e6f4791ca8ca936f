//! How many requests are answered at a time, by class: a flood of one class waits behind its own seats, and heartbeats
//! never wait behind anybody else's.
//!
//! ```text
//! heartbeats  leases, and status of nodes and pods, written by nodes or the plane's own
//! system      other requests of nodes, administrators, and accounts and components of the system
//! others      everybody else
//! ```
//!
//! One user holds half of a class's seats at most, and half of the places to wait. A request that finds no seat waits for
//! one for a moment; when too many wait already, it is told to come again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::ApiError;
use super::identity::{Attributes, GROUP_CLUSTER_ADMINS, GROUP_MASTERS, GROUP_NODES, UserInfo};

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
            || user.is_in(GROUP_CLUSTER_ADMINS)
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

/// Places of one kind: seats, and room to wait for them.
#[derive(Debug)]
struct Places {
    seats: Arc<Semaphore>,
    waiting: AtomicUsize,
    most_waiting: usize,
}

impl Places {
    fn new(seats: usize, most_waiting: usize) -> Self {
        Self { seats: Arc::new(Semaphore::new(seats)), waiting: AtomicUsize::new(0), most_waiting }
    }

    async fn take(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        if let Ok(seat) = Arc::clone(&self.seats).try_acquire_owned() {
            return Ok(seat);
        }
        let _counted = Counted::new(&self.waiting, self.most_waiting).ok_or_else(ApiError::too_many_requests)?;
        Arc::clone(&self.seats).acquire_owned().await.map_err(|_| ApiError::too_many_requests())
    }
}

/// Seats of one class.
#[derive(Debug)]
struct Seats {
    all: Places,
    /// What each user may hold of them; only of users who hold or want some.
    shares: Arc<Mutex<HashMap<String, Arc<Places>>>>,
    seats: usize,
}

impl Seats {
    fn new(seats: usize, most_waiting: usize) -> Self {
        Self { all: Places::new(seats, most_waiting), shares: Arc::default(), seats }
    }

    async fn take(&self, user: &str) -> Result<Seat, ApiError> {
        let share = Share::of(user, self);
        let take = async {
            // First of the user's own: who waits here stands in nobody else's way.
            let own = share.places.take().await?;
            Ok((self.all.take().await?, own))
        };
        let (all, own) =
            tokio::time::timeout(PATIENCE, take).await.unwrap_or_else(|_| Err(ApiError::too_many_requests()))?;
        Ok(Seat { _all: all, _own: own, _share: share })
    }
}

/// A user's share of a class, for one request.
#[derive(Debug)]
struct Share {
    user: String,
    places: Arc<Places>,
    shares: Arc<Mutex<HashMap<String, Arc<Places>>>>,
}

impl Share {
    fn of(user: &str, seats: &Seats) -> Self {
        let mut shares = seats.shares.lock();
        let places = shares
            .entry(user.to_owned())
            .or_insert_with(|| Arc::new(Places::new(seats.seats.div_ceil(2), seats.all.most_waiting.div_ceil(2))));
        Self { user: user.to_owned(), places: Arc::clone(places), shares: Arc::clone(&seats.shares) }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = self.shares.lock();
        // The list's and this one: copies are made under the lock only.
        if Arc::strong_count(&self.places) == 2 {
            shares.remove(&self.user);
        }
    }
}

/// A seat taken.
#[derive(Debug)]
pub(super) struct Seat {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    _share: Share,
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
    pub(super) async fn seat(&self, user: &UserInfo, asked: &Attributes, method: &Method) -> Result<Seat, ApiError> {
        let seats = match Class::of(user, asked) {
            Class::Heartbeats => &self.heartbeats,
            Class::System => &self.system,
            Class::Others if matches!(*method, Method::GET | Method::HEAD) => &self.reads,
            Class::Others => &self.writes,
        };
        seats.take(&user.name).await
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

    fn named(name: &str) -> UserInfo {
        UserInfo::new(name, &["system:authenticated"])
    }

    fn other() -> UserInfo {
        named("jane")
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_others_leaves_heartbeats_and_the_system_their_seats() {
        let seating = Arc::new(Seating::new(4, 4, 4));
        let lease = asked("update", "leases", "");
        let mut held = Vec::new();
        for name in ["jane", "joe"] {
            held.push(seating.seat(&named(name), &lease, &Method::PUT).await.unwrap());
        }
        // Eight wait, the ninth is sent away at once, the others after their patience.
        let waiting: Vec<_> = (0..9)
            .map(|number| {
                let seating = Arc::clone(&seating);
                let user = named(&format!("user-{number}"));
                async move { seating.seat(&user, &asked("update", "leases", ""), &Method::PUT).await.map(drop) }
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

    #[tokio::test(start_paused = true)]
    async fn one_user_holds_half_of_the_seats_and_of_the_places_to_wait() {
        // Five seats for writes of others, twenty may wait.
        let seating = Arc::new(Seating::new(10, 10, 4));
        let create = asked("create", "configmaps", "");
        let take = |name: &'static str| {
            let seating = Arc::clone(&seating);
            let create = create.clone();
            async move { seating.seat(&named(name), &create, &Method::POST).await }
        };
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(take("greedy").await.unwrap());
        }
        let started = tokio::time::Instant::now();
        let flood = futures_util::future::join_all((0..30).map(|_| take("greedy")));
        let (ends, ()) = tokio::join!(flood, async {
            tokio::task::yield_now().await;
            let second = take("jane").await.unwrap();
            let third = take("joe").await.unwrap();
            assert_eq!(started.elapsed(), Duration::ZERO, "neither waited");
            // All five are taken; ten of the greedy wait, and there is still room to wait for another.
            let (fourth, ()) = tokio::join!(take("jane"), async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                drop(third);
            });
            assert!(fourth.is_ok());
            drop(second);
        });
        assert!(ends.iter().all(Result::is_err));
        assert_eq!(started.elapsed(), PATIENCE);
        drop((ends, held));
        assert!(take("greedy").await.is_ok());
        assert!(seating.writes.shares.lock().is_empty(), "nothing is kept of users who ask no more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_seat_can_be_had() {
        let seating = Seating::new(READS_PER_SEAT, 2, 4);
        assert!(seating.seat(&other(), &asked("get", "pods", ""), &Method::GET).await.is_ok());
        assert!(seating.seat(&other(), &asked("create", "pods", ""), &Method::POST).await.is_ok());
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
            (UserInfo::new("kubernetes-admin", &[GROUP_CLUSTER_ADMINS]), "create", "pods", "", Class::System),
            (UserInfo::new("system:kube-scheduler", &[]), "update", "leases", "", Class::Heartbeats),
            (other(), "update", "leases", "", Class::Others),
            (other(), "patch", "nodes", "status", Class::Others),
        ] {
            assert_eq!(Class::of(&user, &asked(verb, resource, subresource)), want, "{} {verb} {resource}", user.name);
        }
    }
}
