//! Mirror pods: what the API shows of static pods. Created when the API has none of that name, replaced when the manifest
//! changed or somebody deletes them, removed when the static pod is gone. Works from what the sources say and from the
//! pods the API source sees, so an apiserver that comes later, or goes for a while, needs no special path.
//!
//! Never touches a pod that is no mirror, and removes strangers' mirrors only after every source has spoken.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};
use longshore_transport::client::{Typed, brief};
use longshore_util::Tasks;
use longshore_util::backoff::Backoff;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::model::annotations::{CONFIG_HASH, CONFIG_MIRROR};
use crate::model::{DesiredPod, PodChange, PodKey, PodSink, PodUid, ReadPods};
use plan::{Action, Facts, plan};

/// One request takes no longer than this.
const DEADLINE: Duration = Duration::from_secs(10);
/// How often a name is looked at again whose old pod is still ending.
const WAITING: Duration = Duration::from_millis(500);

/// Is told which mirror stands for a static pod.
pub trait MirrorSink: Send + Sync + std::fmt::Debug {
    /// The mirror of a static pod as the API shows it, on each change; `None` when it is gone.
    fn mirror(&self, uid: &PodUid, mirror: Option<&Pod>);
}

/// What the room needs.
#[derive(Clone)]
pub struct MirrorOptions {
    /// The apiserver.
    pub client: kube::Client,
    /// The node's name.
    pub node_name: String,
    /// Which pods still run.
    pub pods: Arc<dyn ReadPods>,
    /// Who wants to know.
    pub notes: Arc<dyn MirrorSink>,
}

impl std::fmt::Debug for MirrorOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MirrorOptions").field("node_name", &self.node_name).finish_non_exhaustive()
    }
}

/// Looks after the mirrors of this node's static pods.
#[derive(Debug)]
pub struct Mirrors {
    options: MirrorOptions,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Static pods as the sources want them.
    desired: BTreeMap<PodKey, DesiredPod>,
    /// Mirrors as the API shows them.
    mirrors: BTreeMap<PodKey, Pod>,
    /// The API has been listed once.
    listed: bool,
    /// Every source has spoken.
    ready: bool,
    /// Static pods that their source let go of: nobody else has to speak for their mirrors to go.
    left: BTreeSet<PodUid>,
    /// Which mirror (uid and version) each static pod was told of.
    told: BTreeMap<PodUid, (String, String)>,
    /// Names whose last request failed.
    failures: BTreeMap<PodKey, Failed>,
}

#[derive(Debug)]
struct Failed {
    backoff: Backoff,
    until: Instant,
    text: String,
}

/// Why a mirror could not be made or removed.
#[derive(Debug, thiserror::Error)]
enum MirrorError {
    #[error("cannot read the node: {0}")]
    Node(#[source] Box<kube::Error>),
    #[error("cannot create the mirror: {0}")]
    Create(#[source] Box<kube::Error>),
    #[error("cannot delete the mirror: {0}")]
    Delete(#[source] Box<kube::Error>),
    #[error("no answer within {DEADLINE:?}")]
    Deadline,
}

impl Mirrors {
    /// Starts the room.
    pub fn start(options: MirrorOptions, tasks: &Tasks) -> Arc<Self> {
        let mirrors = Arc::new(Self { options, state: Mutex::new(State::default()), wake: Notify::new() });
        let (looped, token) = (Arc::clone(&mirrors), tasks.token().clone());
        tasks.essential("mirrors", async move {
            tokio::select! {
                biased;
                () = token.cancelled() => {}
                () = looped.run() => {}
            }
        });
        mirrors
    }

    /// Returns a sink that also tells this room what the sources want.
    pub fn tap(self: &Arc<Self>, inner: Arc<dyn PodSink>) -> MirrorTap {
        MirrorTap { mirrors: Arc::clone(self), inner }
    }

    /// Takes all mirrors that the API has for this node.
    pub fn replace(&self, pods: Vec<Pod>) {
        let mut state = self.state.lock();
        state.mirrors = pods.into_iter().filter_map(|pod| Some((PodKey::of(&pod)?, pod))).collect();
        state.listed = true;
        drop(state);
        self.wake.notify_one();
    }

    /// Takes a new or changed mirror.
    pub(crate) fn apply(&self, pod: Pod) {
        let Some(key) = PodKey::of(&pod) else { return };
        self.state.lock().mirrors.insert(key, pod);
        self.wake.notify_one();
    }

    /// A mirror is gone.
    pub(crate) fn remove(&self, pod: &Pod) {
        let Some(key) = PodKey::of(pod) else { return };
        self.drop_mirror(&key, pod.metadata.uid.as_deref());
        self.wake.notify_one();
    }

    fn drop_mirror(&self, key: &PodKey, uid: Option<&str>) {
        let mut state = self.state.lock();
        if state.mirrors.get(key).is_some_and(|held| held.metadata.uid.as_deref() == uid) {
            state.mirrors.remove(key);
        }
    }

    async fn run(self: Arc<Self>) {
        loop {
            let (actions, next) = self.look();
            self.tell();
            let acted = !actions.is_empty();
            join_all(actions.into_iter().map(|(key, action)| self.act(key, action))).await;
            if acted {
                continue;
            }
            match next {
                Some(next) => tokio::select! {
                    () = self.wake.notified() => {}
                    () = sleep_until(next) => {}
                },
                None => self.wake.notified().await,
            }
        }
    }

    /// Decides for every name; also says when to look again without being woken.
    fn look(&self) -> (Vec<(PodKey, Action)>, Option<Instant>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let keys: BTreeSet<PodKey> = state.desired.keys().chain(state.mirrors.keys()).cloned().collect();
        state.failures.retain(|key, _| keys.contains(key));
        let State { left, mirrors, .. } = &mut *state;
        left.retain(|uid| mirrors.values().any(|mirror| plan::hash_of(mirror) == Some(uid.as_str())));
        let mut actions = Vec::new();
        let mut next: Option<Instant> = None;
        for key in keys {
            let running = self.options.pods.by_key(&key).filter(|view| view.desired.source.is_static());
            let mirror = state.mirrors.get(&key);
            let is_left = mirror.and_then(plan::hash_of).is_some_and(|hash| state.left.contains(&PodUid::from(hash)));
            let facts = Facts {
                desired: state.desired.get(&key),
                running: running.as_ref().map(|view| &view.desired.uid),
                mirror,
                listed: state.listed,
                ready: state.ready || is_left,
            };
            let action = plan(&facts);
            let at = match (&action, state.failures.get(&key)) {
                (Action::Nothing, _) => continue,
                (Action::Wait, _) => now + WAITING,
                (_, Some(failed)) if failed.until > now => failed.until,
                _ => {
                    actions.push((key, action));
                    continue;
                }
            };
            next = Some(next.map_or(at, |next| next.min(at)));
        }
        (actions, next)
    }

    /// Tells which mirror stands for which static pod, where that changed.
    fn tell(&self) {
        let mut news: Vec<(PodUid, Option<Pod>)> = Vec::new();
        let mut state = self.state.lock();
        let mut told = BTreeMap::new();
        for mirror in state.mirrors.values().filter(|mirror| mirror.metadata.deletion_timestamp.is_none()) {
            let (Some(hash), Some(uid)) = (plan::hash_of(mirror), mirror.metadata.uid.as_deref()) else { continue };
            let version = mirror.metadata.resource_version.clone().unwrap_or_default();
            let (pod, now) = (PodUid::from(hash), (uid.to_owned(), version));
            if state.told.get(&pod) != Some(&now) {
                news.push((pod.clone(), Some(mirror.clone())));
            }
            told.insert(pod, now);
        }
        news.extend(state.told.keys().filter(|uid| !told.contains_key(*uid)).map(|uid| (uid.clone(), None)));
        state.told = told;
        drop(state);
        for (uid, mirror) in news {
            self.options.notes.mirror(&uid, mirror.as_ref());
        }
    }

    async fn act(&self, key: PodKey, action: Action) {
        let result = match timeout(DEADLINE, self.request(&key, action)).await {
            Ok(result) => result,
            Err(_) => Err(MirrorError::Deadline),
        };
        let mut state = self.state.lock();
        match result {
            Ok(()) => drop(state.failures.remove(&key)),
            Err(error) => {
                let text = brief(&error);
                let failed = state.failures.entry(key.clone()).or_insert_with(|| Failed {
                    backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(20), key.name.len() as u64),
                    until: Instant::now(),
                    text: String::new(),
                });
                failed.until = Instant::now() + failed.backoff.next_delay();
                if failed.text == text {
                    tracing::debug!(pod = %key, error = text, "mirror pod");
                } else {
                    tracing::warn!(pod = %key, error = text, "mirror pod, will be tried again");
                    failed.text = text;
                }
            }
        }
    }

    async fn request(&self, key: &PodKey, action: Action) -> Result<(), MirrorError> {
        let api: Api<Typed<Pod>> = Api::namespaced(self.options.client.clone(), &key.namespace);
        match action {
            Action::Nothing | Action::Wait => Ok(()),
            Action::Create(desired) => {
                let node: Typed<Node> = Api::all(self.options.client.clone())
                    .get(&self.options.node_name)
                    .await
                    .map_err(|error| MirrorError::Node(Box::new(error)))?;
                let body = Typed(mirror_of(&desired, &node));
                match api.create(&PostParams::default(), &body).await {
                    Ok(made) => {
                        tracing::info!(pod = %key, uid = %desired.uid, "mirror pod created");
                        self.state.lock().mirrors.entry(key.clone()).or_insert(made.0);
                        Ok(())
                    }
                    Err(error) => Err(MirrorError::Create(Box::new(error))),
                }
            }
            Action::Delete(uid) => {
                let parameters = DeleteParams {
                    grace_period_seconds: Some(0),
                    preconditions: Some(Preconditions { uid: Some(uid.clone()), resource_version: None }),
                    ..DeleteParams::default()
                };
                match api.delete(&key.name, &parameters).await {
                    Ok(_) => tracing::info!(pod = %key, mirror = uid, "mirror pod deleted"),
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    // Another one has the name by now, or somebody wrote at the same moment: only a look tells.
                    Err(kube::Error::Api(status)) if status.code == 409 => {
                        let there =
                            api.get_opt(&key.name).await.map_err(|error| MirrorError::Delete(Box::new(error)))?;
                        if there.is_some_and(|pod| pod.metadata.uid.as_deref() == Some(&uid)) {
                            return Err(MirrorError::Delete(Box::new(kube::Error::Api(status))));
                        }
                    }
                    Err(error) => return Err(MirrorError::Delete(Box::new(error))),
                }
                self.drop_mirror(key, Some(&uid));
                Ok(())
            }
        }
    }
}

/// The object that stands for a static pod in the API.
fn mirror_of(desired: &DesiredPod, node: &Node) -> Pod {
    let meta = &desired.pod.metadata;
    let mut annotations = meta.annotations.clone().unwrap_or_default();
    let hash = annotations.get(CONFIG_HASH).cloned().unwrap_or_else(|| desired.uid.to_string());
    annotations.insert(CONFIG_MIRROR.to_owned(), hash);
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.metadata.name.clone().unwrap_or_default(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    Pod {
        metadata: ObjectMeta {
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            labels: meta.labels.clone(),
            annotations: Some(annotations),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: desired.pod.spec.clone(),
        status: None,
    }
}

/// Listens to what the sources say on its way to the pod table.
#[derive(Debug)]
pub struct MirrorTap {
    mirrors: Arc<Mirrors>,
    inner: Arc<dyn PodSink>,
}

impl PodSink for MirrorTap {
    fn apply(&self, change: PodChange) {
        let is_news = match &change {
            PodChange::Set(desired) if desired.source.is_static() => {
                let mut state = self.mirrors.state.lock();
                state.left.remove(&desired.uid);
                state.desired.insert(desired.key.clone(), desired.clone());
                true
            }
            PodChange::Remove(uid) => {
                let mut state = self.mirrors.state.lock();
                let before = state.desired.len();
                state.desired.retain(|_, desired| desired.uid != *uid);
                let is_ours = before != state.desired.len();
                if is_ours {
                    state.left.insert(uid.clone());
                }
                is_ours
            }
            PodChange::AllSourcesReady => {
                self.mirrors.state.lock().ready = true;
                true
            }
            PodChange::Set(_) | PodChange::Status(_) => false,
        };
        // The table first: the plan asks it what runs.
        self.inner.apply(change);
        if is_news {
            self.mirrors.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
