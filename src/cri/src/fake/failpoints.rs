//! What shall go wrong, and what was called. A shared handle: tests keep one side, the gate asks the other.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::subject::Subject;
use crate::{CriError, ErrorKind, v1};

/// Calls kept for looking at; older ones are forgotten, so that a long run does not fill the memory.
const RECORD_LIMIT: usize = 20_000;

/// How a call goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The call is not made and fails with this.
    Error(ErrorKind, String),
    /// The call is not made and never answered; it goes on as if nothing had been when the failpoint is cleared.
    Hang,
    /// The call is made after this time.
    Delay(Duration),
    /// The call is made, its answer is lost, and the caller learns only that the connection broke.
    DropReply,
    /// The call is made, its answer is lost, and the caller waits until its own deadline.
    SwallowReply,
    /// The call is not made and all connections to the runtime break, with the calls on them.
    CrashConnection,
}

/// Which calls a failpoint meets.
#[derive(Debug, Clone, Default)]
pub struct On {
    rpc: Option<&'static str>,
    pod: Option<String>,
    skip: u32,
    times: Option<u32>,
}

impl On {
    /// Every call.
    pub fn any() -> Self {
        Self::default()
    }

    /// Calls of that name, e.g. `CreateContainer`.
    pub fn rpc(rpc: &'static str) -> Self {
        Self { rpc: Some(rpc), ..Self::default() }
    }

    /// Only calls about the pod of that uid.
    #[must_use]
    pub fn pod(mut self, uid: impl Into<String>) -> Self {
        self.pod = Some(uid.into());
        self
    }

    /// Leaves the first `count` such calls alone.
    #[must_use]
    pub fn skip(mut self, count: u32) -> Self {
        self.skip = count;
        self
    }

    /// Meets `count` calls, then no more.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.times = Some(count);
        self
    }

    /// Meets one call.
    #[must_use]
    pub fn once(self) -> Self {
        self.times(1)
    }
}

/// One call that was made.
#[derive(Clone)]
pub struct Call {
    /// Its name on the wire.
    pub rpc: &'static str,
    /// The uid of the pod that it is about, where that could be told.
    pub pod: Option<String>,
    /// When.
    pub at: Instant,
    request: Arc<dyn Any + Send + Sync>,
}

impl Call {
    /// The request, where it is of that type.
    pub fn request<T: 'static>(&self) -> Option<&T> {
        self.request.downcast_ref()
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("rpc", &self.rpc).field("pod", &self.pod).field("at", &self.at).finish()
    }
}

/// Looks at each call as it arrives.
type CallHook = Box<dyn Fn(&Call) + Send + Sync>;

#[derive(Default)]
struct State {
    rules: Vec<(u64, On, Failure)>,
    next_rule: u64,
    calls: VecDeque<Call>,
    /// Pods by the ids of their sandboxes and containers, learned from what went through.
    pods: BTreeMap<String, String>,
    hook: Option<CallHook>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("rules", &self.rules).field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

/// Failpoints and records of one gate.
#[derive(Debug, Clone)]
pub struct Failpoints {
    state: Arc<Mutex<State>>,
    /// Grows with every change of the rules, for what hangs.
    changed: watch::Sender<u64>,
    /// Grows with every crash.
    crashes: watch::Sender<u64>,
}

impl Default for Failpoints {
    fn default() -> Self {
        Self { state: Arc::default(), changed: watch::Sender::new(0), crashes: watch::Sender::new(0) }
    }
}

impl Failpoints {
    /// Sets a failpoint; of several that meet a call, the one set first counts. Returns a number to clear it by.
    pub fn set(&self, on: On, failure: Failure) -> u64 {
        let mut state = self.state.lock();
        state.next_rule += 1;
        let number = state.next_rule;
        state.rules.push((number, on, failure));
        number
    }

    /// Takes a failpoint away; what hangs on it goes on.
    pub fn clear(&self, number: u64) {
        self.state.lock().rules.retain(|(other, ..)| *other != number);
        self.changed.send_modify(|version| *version += 1);
    }

    /// Takes all failpoints away.
    pub fn clear_all(&self) {
        self.state.lock().rules.clear();
        self.changed.send_modify(|version| *version += 1);
    }

    /// Breaks all connections and the calls on them, as a restart of the runtime does.
    pub fn crash(&self) {
        self.crashes.send_modify(|count| *count += 1);
    }

    /// Shows each call as it arrives, before anything goes wrong with it. The hook must not use these failpoints itself.
    pub fn on_call(&self, hook: impl Fn(&Call) + Send + Sync + 'static) {
        self.state.lock().hook = Some(Box::new(hook));
    }

    /// The calls made so far, oldest first.
    pub fn calls(&self) -> Vec<Call> {
        self.state.lock().calls.iter().cloned().collect()
    }

    /// The names of the calls made so far, reads left out.
    pub fn changes(&self) -> Vec<&'static str> {
        const READS: [&str; 8] = [
            "Version",
            "Status",
            "ListPodSandbox",
            "ListContainers",
            "PodSandboxStatus",
            "ContainerStatus",
            "ImageStatus",
            "GetContainerEvents",
        ];
        self.state.lock().calls.iter().map(|call| call.rpc).filter(|rpc| !READS.contains(rpc)).collect()
    }

    /// How often a call was made.
    pub fn count(&self, rpc: &str) -> usize {
        self.state.lock().calls.iter().filter(|call| call.rpc == rpc).count()
    }

    /// All requests of one type, oldest first.
    pub fn requests<T: Clone + 'static>(&self) -> Vec<T> {
        self.state.lock().calls.iter().filter_map(|call| call.request::<T>().cloned()).collect()
    }

    /// Forgets the calls made so far.
    pub fn forget_calls(&self) {
        self.state.lock().calls.clear();
    }

    pub(super) fn crashed(&self) -> watch::Receiver<u64> {
        self.crashes.subscribe()
    }

    pub(super) fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn is_set(&self, number: u64) -> bool {
        self.state.lock().rules.iter().any(|(other, ..)| *other == number)
    }

    /// Records a call and says what shall go wrong with it.
    pub(super) fn arrive<Q: Clone + Send + Sync + 'static>(
        &self,
        rpc: &'static str,
        request: &Q,
    ) -> Option<(u64, Failure)> {
        let mut state = self.state.lock();
        let pod = match Subject::of(request) {
            Subject::Pod(uid) => Some(uid),
            Subject::Id(id) => state.pods.get(&id).cloned(),
            Subject::None => None,
        };
        if state.calls.len() >= RECORD_LIMIT {
            state.calls.pop_front();
        }
        let call = Call { rpc, pod: pod.clone(), at: Instant::now(), request: Arc::new(request.clone()) };
        if let Some(hook) = &state.hook {
            hook(&call);
        }
        state.calls.push_back(call);

        let matches = |on: &On| {
            on.rpc.is_none_or(|wanted| wanted == rpc)
                && on.pod.as_ref().is_none_or(|wanted| Some(wanted) == pod.as_ref())
                && on.times != Some(0)
        };
        let (number, on, failure) = state.rules.iter_mut().find(|(_, on, _)| matches(on))?;
        if on.skip > 0 {
            on.skip -= 1;
            return None;
        }
        if let Some(times) = &mut on.times {
            *times -= 1;
        }
        Some((*number, failure.clone()))
    }

    /// Learns from an answer which pod an id belongs to.
    pub(super) fn learn(&self, request: &dyn Any, answer: &dyn Any) {
        let mut state = self.state.lock();
        if let Some(answer) = answer.downcast_ref::<v1::RunPodSandboxResponse>() {
            if let Subject::Pod(uid) = Subject::of(request) {
                state.pods.insert(answer.pod_sandbox_id.clone(), uid);
            }
        } else if let Some(answer) = answer.downcast_ref::<v1::CreateContainerResponse>() {
            if let Subject::Id(sandbox) = Subject::of(request)
                && let Some(uid) = state.pods.get(&sandbox).cloned()
            {
                state.pods.insert(answer.container_id.clone(), uid);
            }
        } else if let Some(answer) = answer.downcast_ref::<v1::ListPodSandboxResponse>() {
            for row in &answer.items {
                if let Some(metadata) = &row.metadata {
                    state.pods.insert(row.id.clone(), metadata.uid.clone());
                }
            }
        } else if let Some(answer) = answer.downcast_ref::<v1::ListContainersResponse>() {
            for row in &answer.containers {
                if let Some(uid) = state.pods.get(&row.pod_sandbox_id).cloned() {
                    state.pods.insert(row.id.clone(), uid);
                }
            }
        }
    }
}

/// What a caller sees when the connection breaks under its call.
pub(super) fn broken(rpc: &'static str) -> CriError {
    CriError::new(rpc, ErrorKind::Unavailable, "error reading from server: EOF")
}
