//! The store on etcd, for control planes of several apiservers: objects lie where a stock apiserver lays them out.
//!
//! Writes are transactions guarded by the revision that was read. Reads come from memory, which one watch on etcd keeps
//! up to date; before a request reads, [`Keeper::settle`] waits until memory has all that was answered before, by any
//! apiserver. A write is answered when its own event has arrived.

mod fence;
mod follow;
mod layout;
mod tidy;
mod wire;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use longshore_util::Tasks;
use longshore_util::clock::SharedClock;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::timeout;

use super::plan::Operation;
use super::state::{Limits, Shared, State};
use super::types::{Entry, Event, EventKind, Revision};
use super::{Keeper, OpenError, StoreError};
use fence::Fence;
use follow::Loaded;
use wire::{Wire, pb};

/// How the engine reaches etcd and what it does there.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// URLs of the members, `http://HOST:PORT` or `https://HOST:PORT`; the next one is tried when a connection breaks.
    pub servers: Vec<String>,
    /// Whom to trust and how to log in; needed for `https`.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// All keys begin with this; `/registry` as upstream.
    pub prefix: String,
    /// How much history is kept in memory for watches.
    pub limits: Limits,
    /// The history in etcd is dropped when it is older than this; none leaves that to others.
    pub compaction: Option<Duration>,
    /// Stamps the history.
    pub clock: SharedClock,
}

impl EtcdOptions {
    /// Returns the defaults for some members, without TLS.
    pub fn new(servers: Vec<String>, clock: SharedClock) -> Self {
        let (prefix, compaction) = ("/registry".to_owned(), Some(Duration::from_secs(300)));
        Self { servers, tls: None, prefix, limits: Limits::default(), compaction, clock }
    }
}

/// A write that was answered by etcd waits this long for its own event; then it is answered without.
const ECHO: Duration = Duration::from_secs(5);

/// What the parts of the engine share.
#[derive(Debug, Clone)]
struct Hub {
    wire: Wire,
    shared: Shared,
    /// `/registry/`.
    prefix: Arc<str>,
    /// The revision up to which memory has everything; changed only by the one that follows.
    reached: watch::Sender<u64>,
    /// Which etcd memory was read from.
    cluster: Arc<AtomicU64>,
    clock: SharedClock,
}

impl Hub {
    fn key(&self, key: &str) -> Vec<u8> {
        format!("{}{}", self.prefix, layout::to_etcd(key)).into_bytes()
    }

    /// Returns first key and end of all that is ours.
    fn range(&self) -> (Vec<u8>, Vec<u8>) {
        let start = self.prefix.as_bytes().to_vec();
        let mut end = start.clone();
        // The prefix ends with a slash; the byte behind it ends the range.
        if let Some(last) = end.last_mut() {
            *last = last.saturating_add(1);
        }
        (start, end)
    }

    /// Waits until memory has a revision.
    async fn reach(&self, revision: u64) {
        let mut reached = self.reached.subscribe();
        // The sender lives as long as `self`.
        drop(reached.wait_for(|reached| *reached >= revision).await);
    }
}

/// A store whose objects are in etcd.
#[derive(Debug)]
pub struct EtcdStore {
    hub: Hub,
    fence: Fence,
}

impl EtcdStore {
    /// Loads all objects and begins to follow; runs on `tasks` until they are cancelled.
    pub async fn open(options: EtcdOptions, tasks: &Tasks) -> Result<Self, OpenError> {
        let wire = Wire::new(&options)?;
        let failed = |detail: String| OpenError::Etcd { servers: Arc::clone(&wire.name), detail };
        let version = wire.version().await.map_err(|status| failed(wire::describe(&status)))?;
        let prefix = format!("/{}/", options.prefix.trim_matches('/'));
        let hub = Hub {
            wire: wire.clone(),
            shared: Arc::new(RwLock::new(State::new(options.limits))),
            prefix: prefix.into(),
            reached: watch::Sender::new(0),
            cluster: Arc::default(),
            clock: options.clock,
        };
        let Loaded { entries, revision, unreadable } = follow::load(&hub).await.map_err(failed)?;
        tracing::info!(servers = %wire.name, version, objects = entries.len(), %revision, "objects are in etcd");
        let mut state = hub.shared.write();
        state.load(entries, revision);
        unreadable.into_iter().for_each(|(key, why)| state.cannot_read(key, why));
        drop(state);
        hub.reached.send_replace(revision.0);
        follow::start(hub.clone(), tasks);
        if let Some(age) = options.compaction {
            tidy::start(hub.clone(), age, tasks);
        }
        let fence = Fence::start(hub.clone(), tasks);
        Ok(Self { hub, fence })
    }

    /// Sends a write. Returns the revision it got, or what stands in its way.
    async fn send(&self, operation: &Operation) -> Result<Revision, StoreError> {
        let key = self.hub.key(operation.key());
        let put = |draft: &super::Draft| {
            pb::request_op::Request::RequestPut(pb::PutRequest { key: key.clone(), value: draft.render("") })
        };
        let (expected, write) = match operation {
            Operation::Create { draft, .. } => (0, put(draft)),
            Operation::Update { expected, draft, .. } => (expected.0, put(draft)),
            Operation::Delete { expected, .. } => {
                let request = pb::DeleteRangeRequest { key: key.clone() };
                (expected.0, pb::request_op::Request::RequestDeleteRange(request))
            }
        };
        // A key that is not there has revision 0.
        let wanted = pb::compare::TargetUnion::ModRevision(i64::try_from(expected).unwrap_or(i64::MAX));
        let answer = self.hub.wire.guarded(key, wanted, write).await.map_err(|status| self.hub.wire.error(&status))?;
        let now = unsigned(answer.header.map_or(0, |header| header.revision));
        if answer.succeeded {
            return Ok(Revision(now));
        }
        // Whoever tries again must see what was in the way.
        drop(timeout(ECHO, self.hub.reach_or_fence(now)).await);
        let found = answer.responses.into_iter().find_map(|response| match response.response {
            Some(pb::response_op::Response::ResponseRange(range)) => range.kvs.into_iter().next(),
            _ => None,
        });
        let key = Arc::clone(operation.key());
        Err(match (operation, found) {
            (Operation::Create { .. }, _) => StoreError::Exists { key },
            (_, None) => StoreError::NotFound { key },
            (_, Some(kv)) => {
                let found = Revision(unsigned(kv.mod_revision));
                StoreError::Conflict { key, expected: Revision(expected), found }
            }
        })
    }
}

fn unsigned(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}

#[async_trait]
impl Keeper for EtcdStore {
    fn shared(&self) -> &Shared {
        &self.hub.shared
    }

    async fn write(&self, operation: Operation) -> Result<Entry, StoreError> {
        let revision = self.send(&operation).await?;
        if timeout(ECHO, self.hub.reach(revision.0)).await.is_err() {
            tracing::warn!(key = %operation.key(), %revision, "a write is done but its event has not come: etcd is not followed at the moment");
        }
        let (kind, key, draft) = match operation {
            Operation::Create { key, draft } => (EventKind::Created, key, draft),
            Operation::Update { key, draft, .. } => (EventKind::Updated, key, draft),
            Operation::Delete { key, last, .. } => (EventKind::Deleted, key, last),
        };
        Ok(super::plan::answer(&Event::from_draft(revision, kind, key, &draft, None)))
    }

    async fn settle(&self) -> Result<(), StoreError> {
        self.fence.settle().await
    }

    fn engine(&self) -> &'static str {
        "etcd"
    }
}
