//! Follows single objects that pods have mounted, so that a change of one shows in the pods within a second or two.
//!
//! Each is a watch of its own, for a node may read single objects only; on the wire that is a connection. So their number
//! is bound, and what is not followed is read from time to time, as is everything while a watch is broken.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::runtime::watcher::{self, Event};
use longshore_util::backoff::Backoff;
use longshore_util::{Tasks, spawn};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::cache::{Cache, Kind};

/// So many objects are followed at a time; each takes some tens of kilobytes for its connection.
const MOST: usize = 64;
/// A watch is renewed after so many seconds: one that died without a word is noticed at the latest then.
const WATCH_SECONDS: u32 = 240;
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// In every namespace, mounted by almost every pod, and changed once in years: read from time to time like the rest.
const CLUSTER_AUTHORITY: &str = "kube-root-ca.crt";

/// An object that is no longer what was read before.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Changed {
    /// Its kind as messages name it.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Objects that changed and that nobody has looked at since. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes(Arc<Board>);

#[derive(Debug, Default)]
struct Board {
    open: Mutex<BTreeSet<Changed>>,
    bell: Notify,
}

impl Changes {
    fn tell(&self, changed: Changed) {
        self.0.open.lock().insert(changed);
        self.0.bell.notify_one();
    }

    /// Waits until something has changed and takes all of it.
    pub(super) async fn next(&self) -> BTreeSet<Changed> {
        loop {
            let open = std::mem::take(&mut *self.0.open.lock());
            if !open.is_empty() {
                return open;
            }
            self.0.bell.notified().await;
        }
    }
}

/// What it takes to follow objects. Clones share the bound.
#[derive(Debug, Clone)]
pub(super) struct Followers {
    tasks: Tasks,
    changes: Changes,
    running: Arc<AtomicUsize>,
}

/// A followed object; dropped, the watch ends.
#[derive(Debug)]
pub(super) struct Following {
    task: tokio::task::AbortHandle,
    running: Arc<AtomicUsize>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Followers {
    pub(super) fn new(changes: Changes, tasks: &Tasks) -> Self {
        Self { tasks: tasks.clone(), changes, running: Arc::default() }
    }

    /// Begins to follow an object; `None` when there are too many or when it is not worth it.
    pub(super) fn begin<T: Kind>(
        &self,
        cache: &Cache<T>,
        client: &kube::Client,
        namespace: &str,
        name: &str,
    ) -> Option<Following> {
        if name == CLUSTER_AUTHORITY {
            return None;
        }
        let place = |running: usize| (running < MOST).then_some(running + 1);
        self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, place).ok()?;
        let changed = Changed { kind: T::NAME, namespace: namespace.to_owned(), name: name.to_owned() };
        let work = follow(client.clone(), cache.clone(), changed, self.changes.clone());
        let token = self.tasks.token().clone();
        let work = Box::pin(async move {
            token.run_until_cancelled(work).await;
        });
        let task = spawn(&self.tasks, "object", work).abort_handle();
        Some(Following { task, running: Arc::clone(&self.running) })
    }
}

async fn follow<T: Kind>(client: kube::Client, cache: Cache<T>, which: Changed, changes: Changes) {
    let api = T::api(client, &which.namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", which.name)).timeout(WATCH_SECONDS);
    let seed = longshore_api::hash::fnv64(format!("{which:?}").as_bytes());
    let mut backoff = Backoff::new(RETRY, RETRY_MAX, seed);
    let mut events = watcher::watcher(api, config).boxed();
    let mut listed = None;
    while let Some(event) = events.next().await {
        let news = match event {
            Ok(Event::Init) => {
                listed = None;
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listed = Some(object.0);
                continue;
            }
            Ok(Event::InitDone) => listed.take(),
            Ok(Event::Apply(object)) => Some(object.0),
            Ok(Event::Delete(_)) => None,
            Err(error) => {
                cache.set_live(&which.namespace, &which.name, false);
                tracing::debug!(kind = which.kind, namespace = which.namespace, name = which.name, %error, "object cannot be followed, it is read from time to time");
                tokio::time::sleep(backoff.next_delay()).await;
                continue;
            }
        };
        backoff.reset();
        if cache.learn(&which.namespace, &which.name, news).await {
            changes.tell(which.clone());
        }
    }
}
