//! The state behind the fake runtime, and what a test may do to it.
//!
//! ```text
//! sandbox:    run ─> READY ─ stop ─> NOTREADY ─ remove ─> gone
//! container:  create ─> CREATED ─ start ─> RUNNING ─ exit, stop, kill ─> EXITED ─ remove ─> gone
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use longshore_util::Tasks;
use longshore_util::clock::{SharedClock, SystemClock};
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

use super::{ExecReply, Gate, OnTerm, Program};
use crate::v1;

/// Events that a slow subscriber may leave unread before it loses some.
const EVENT_BACKLOG: usize = 1024;
/// What a process killed by SIGKILL ends with.
const KILLED: i32 = 137;

/// What kind of runtime the fake is.
#[derive(Debug, Clone)]
pub struct FakeOptions {
    /// Whether it has the event stream and pod figures.
    pub events: bool,
    /// The cgroup driver that it tells; `None`: it does not know the call.
    pub cgroup_driver: Option<v1::CgroupDriver>,
    /// Whether it answers as containerd 1.6 where later ones differ: a taken name is `Unknown` and not
    /// `FailedPrecondition`, and stopping a sandbox that is gone is an error.
    pub old_answers: bool,
    /// Whether it fills `user` in container statuses.
    pub container_user: bool,
    /// Whether programs' output is written to the container's log file.
    pub log_files: bool,
    /// Whether any image can be pulled; otherwise only those made known by [`FakeRuntime::publish_image`].
    pub any_image: bool,
    /// Release that it names.
    pub version: &'static str,
    /// Where its times come from.
    pub clock: SharedClock,
}

impl Default for FakeOptions {
    /// A runtime of today.
    fn default() -> Self {
        Self {
            events: true,
            cgroup_driver: Some(v1::CgroupDriver::Cgroupfs),
            old_answers: false,
            container_user: true,
            log_files: false,
            any_image: true,
            version: "2.1.0",
            clock: Arc::new(SystemClock),
        }
    }
}

impl FakeOptions {
    /// A runtime without events, as containerd 1.6 is.
    pub fn without_events() -> Self {
        Self {
            events: false,
            cgroup_driver: None,
            old_answers: true,
            container_user: false,
            version: "1.6.20",
            ..Self::default()
        }
    }
}

/// The fake: a runtime behind a gate, and power over what runs in it. Clones are the same runtime, and it outlives the
/// agents that use it.
pub type FakeRuntime = Gate<Arc<World>>;

pub(super) struct Sandbox {
    pub(super) status: v1::PodSandboxStatus,
    pub(super) log_directory: String,
    pub(super) name: String,
}

pub(super) struct Container {
    pub(super) status: v1::ContainerStatus,
    pub(super) sandbox: String,
    pub(super) name: String,
    pub(super) program: Program,
}

type ExecHandler = Box<dyn Fn(&v1::ExecSyncRequest) -> ExecReply + Send + Sync>;
type ChangeHook = Box<dyn Fn(&v1::ContainerEventResponse) + Send + Sync>;

#[derive(Default)]
pub(super) struct State {
    pub(super) sandboxes: BTreeMap<String, Sandbox>,
    pub(super) containers: BTreeMap<String, Container>,
    /// Names that are taken, with the id that took them.
    pub(super) names: BTreeMap<String, String>,
    pub(super) images: BTreeMap<String, v1::Image>,
    pub(super) published: BTreeSet<String>,
    pub(super) denied: BTreeSet<String>,
    pub(super) conditions: BTreeMap<String, v1::RuntimeCondition>,
    pub(super) memory: BTreeMap<String, u64>,
    pub(super) stream_url: String,
    programs: BTreeMap<String, Program>,
    exec: Option<ExecHandler>,
    changed: Option<ChangeHook>,
    mute: bool,
    next_id: u64,
    last_time: i64,
}

/// The runtime itself.
pub struct World {
    pub(super) options: FakeOptions,
    pub(super) state: Mutex<State>,
    events: broadcast::Sender<v1::ContainerEventResponse>,
    /// Grows when a container ends.
    ends: watch::Sender<u64>,
    tasks: Tasks,
    this: Weak<Self>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("World")
            .field("sandboxes", &state.sandboxes.len())
            .field("containers", &state.containers.len())
            .finish_non_exhaustive()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl Default for FakeRuntime {
    fn default() -> Self {
        Self::new(FakeOptions::default())
    }
}

impl FakeRuntime {
    /// Returns an empty runtime.
    pub fn new(options: FakeOptions) -> Self {
        let world = Arc::new_cyclic(|this| World {
            options,
            state: Mutex::default(),
            events: broadcast::Sender::new(EVENT_BACKLOG),
            ends: watch::Sender::new(0),
            tasks: Tasks::new(),
            this: this.clone(),
        });
        world.state.lock().stream_url = "http://127.0.0.1:1".to_owned();
        world.set_condition("RuntimeReady", true, "", "");
        world.set_condition("NetworkReady", true, "", "");
        Self::with_control(world.clone(), world.clone(), world)
    }

    /// Sets what containers of that name do; call it before they are started.
    pub fn set_program(&self, container: &str, program: Program) {
        self.control.state.lock().programs.insert(container.to_owned(), program);
    }

    /// Sets what commands in containers answer.
    pub fn on_exec(&self, handler: impl Fn(&v1::ExecSyncRequest) -> ExecReply + Send + Sync + 'static) {
        self.control.state.lock().exec = Some(Box::new(handler));
    }

    /// Shows every change as it happens, also while events are lost. The hook must not use this runtime itself.
    pub fn on_change(&self, hook: impl Fn(&v1::ContainerEventResponse) + Send + Sync + 'static) {
        self.control.state.lock().changed = Some(Box::new(hook));
    }

    /// Ends a running container with that code, as if by itself. Says whether it was running.
    pub fn exit(&self, container_id: &str, code: i32) -> bool {
        self.control.finish(container_id, code, None)
    }

    /// Ends a running container as the kernel does when memory is short. Says whether it was running.
    pub fn oom_kill(&self, container_id: &str) -> bool {
        self.control.finish(container_id, KILLED, Some("OOMKilled"))
    }

    /// Removes a container as somebody else who talks to the runtime does: no failpoint is in the way.
    pub fn take_away(&self, container_id: &str) {
        self.control.remove(container_id);
    }

    /// The id of the newest container of that name in a pod.
    pub fn container_id(&self, pod_uid: &str, name: &str) -> Option<String> {
        let state = self.control.state.lock();
        let newest = state.containers.values().filter(|container| {
            let owner = state.sandboxes.get(&container.sandbox).and_then(|sandbox| sandbox.status.metadata.as_ref());
            owner.is_some_and(|metadata| metadata.uid == pod_uid)
                && container.status.metadata.as_ref().is_some_and(|metadata| metadata.name == name)
        });
        newest.max_by_key(|container| container.status.created_at).map(|container| container.status.id.clone())
    }

    /// Ends the pause process of a sandbox; its containers go on, as they do on Linux without a shared pid namespace.
    pub fn kill_sandbox(&self, sandbox_id: &str) {
        self.control.sandbox_ended(sandbox_id);
    }

    /// Forgets the address of a sandbox that runs on, as some runtimes do when they are started again.
    pub fn lose_address(&self, sandbox_id: &str) {
        if let Some(sandbox) = self.control.state.lock().sandboxes.get_mut(sandbox_id) {
            sandbox.status.network = Some(v1::PodSandboxNetworkStatus::default());
        }
    }

    /// Loses all events from now on, or tells them again. Some runtimes do lose events.
    pub fn mute_events(&self, mute: bool) {
        self.control.state.lock().mute = mute;
    }

    /// All sandboxes.
    pub fn sandboxes(&self) -> Vec<v1::PodSandboxStatus> {
        self.control.state.lock().sandboxes.values().map(|sandbox| sandbox.status.clone()).collect()
    }

    /// All containers.
    pub fn containers(&self) -> Vec<v1::ContainerStatus> {
        self.control.state.lock().containers.values().map(|container| container.status.clone()).collect()
    }

    /// Sets a condition of the runtime, e.g. `NetworkReady`.
    pub fn set_condition(&self, kind: &str, status: bool, reason: &str, message: &str) {
        self.control.set_condition(kind, status, reason, message);
    }

    /// Puts an image into the runtime's store; returns its id.
    pub fn add_image(&self, name: &str) -> String {
        self.control.state.lock().add_image(name)
    }

    /// Makes an image known to the registry.
    pub fn publish_image(&self, name: &str) {
        let mut state = self.control.state.lock();
        state.denied.remove(name);
        state.published.insert(name.to_owned());
    }

    /// Takes an image from the registry.
    pub fn deny_image(&self, name: &str) {
        let mut state = self.control.state.lock();
        state.published.remove(name);
        state.denied.insert(name.to_owned());
    }

    /// Sets the working set that a container's figures show.
    pub fn set_memory(&self, container_id: &str, bytes: u64) {
        self.control.state.lock().memory.insert(container_id.to_owned(), bytes);
    }

    /// Sets where the streaming server is said to be.
    pub fn set_stream_url(&self, base: &str) {
        self.control.state.lock().stream_url = base.to_owned();
    }
}

impl State {
    pub(super) fn new_id(&mut self) -> String {
        self.next_id += 1;
        format!("{:064x}", self.next_id)
    }

    pub(super) fn program(&self, container: &str) -> Program {
        self.programs.get(container).cloned().unwrap_or_default()
    }

    pub(super) fn exec(&self, request: &v1::ExecSyncRequest) -> ExecReply {
        self.exec.as_ref().map_or_else(ExecReply::default, |handler| handler(request))
    }

    /// Nanoseconds that never stand still, so that "newest" is always clear.
    pub(super) fn now(&mut self, clock: &SharedClock) -> i64 {
        let now = i64::try_from(clock.now().as_nanosecond()).unwrap_or(i64::MAX);
        self.last_time = now.max(self.last_time + 1);
        self.last_time
    }
}

impl World {
    fn set_condition(&self, kind: &str, status: bool, reason: &str, message: &str) {
        let condition = v1::RuntimeCondition {
            r#type: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        self.state.lock().conditions.insert(kind.to_owned(), condition);
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<v1::ContainerEventResponse> {
        self.events.subscribe()
    }

    /// Tells subscribers about a sandbox or container, with the state of the whole pod.
    pub(super) fn emit(&self, state: &State, kind: v1::ContainerEventType, id: &str, sandbox_id: &str, at: i64) {
        let sandbox = state.sandboxes.get(sandbox_id);
        let containers = state.containers.values().filter(|container| container.sandbox == sandbox_id);
        let event = v1::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind.into(),
            created_at: at,
            pod_sandbox_status: sandbox.map(|sandbox| sandbox.status.clone()),
            containers_statuses: containers.map(|container| container.status.clone()).collect(),
        };
        if let Some(hook) = &state.changed {
            hook(&event);
        }
        if !state.mute {
            // Nobody listening is no error.
            let _nobody = self.events.send(event);
        }
    }

    /// A container's process ends. Says whether it was running.
    pub(super) fn finish(&self, id: &str, code: i32, reason: Option<&str>) -> bool {
        let mut state = self.state.lock();
        let now = state.now(&self.options.clock);
        let Some(container) = state.containers.get_mut(id) else { return false };
        if container.status.state() != v1::ContainerState::ContainerRunning {
            return false;
        }
        container.status.set_state(v1::ContainerState::ContainerExited);
        container.status.finished_at = now;
        container.status.exit_code = code;
        // 128 is containerd's code for a start that it broke off.
        let usual = match code {
            0 => "Completed",
            128 => "StartError",
            _ => "Error",
        };
        container.status.reason = reason.unwrap_or(usual).to_owned();
        let sandbox = container.sandbox.clone();
        self.emit(&state, v1::ContainerEventType::ContainerStoppedEvent, id, &sandbox, now);
        drop(state);
        self.ends.send_modify(|count| *count += 1);
        true
    }

    fn finish_later(&self, id: &str, code: i32, after: Duration) {
        let (world, id) = (self.this.clone(), id.to_owned());
        let cancelled = self.tasks.token().clone();
        let ending = async move {
            tokio::select! {
                () = cancelled.cancelled() => {}
                () = tokio::time::sleep(after) => {
                    if let Some(world) = world.upgrade() {
                        world.finish(&id, code, None);
                    }
                }
            }
        };
        drop(longshore_util::spawn(&self.tasks, "fake-exit", ending));
    }

    /// A container's process begins: it may end by itself.
    pub(super) fn run(&self, id: &str, program: &Program) {
        if let Some(runs_for) = program.runs_for {
            self.finish_later(id, program.exit_code, runs_for);
        }
    }

    fn is_running(&self, id: &str) -> bool {
        let running = v1::ContainerState::ContainerRunning;
        self.state.lock().containers.get(id).is_some_and(|container| container.status.state() == running)
    }

    /// Stops a container as a runtime does: signal, wait, kill. Dropped half-way it does not kill.
    pub(super) async fn stop(&self, id: &str, grace: Duration) {
        let mut ends = self.ends.subscribe();
        let program = match self.state.lock().containers.get(id) {
            Some(container) => container.program.clone(),
            None => return,
        };
        if grace.is_zero() {
            self.finish(id, KILLED, None);
            return;
        }
        match program.on_term {
            OnTerm::Exit { code, after } if after.is_zero() => {
                self.finish(id, code, None);
            }
            OnTerm::Exit { code, after } => self.finish_later(id, code, after),
            OnTerm::Ignore => {}
        }
        let ended = async {
            while self.is_running(id) {
                if ends.changed().await.is_err() {
                    return;
                }
            }
        };
        if tokio::time::timeout(grace, ended).await.is_err() {
            self.finish(id, KILLED, None);
        }
    }

    /// The pause process of a sandbox ends.
    pub(super) fn sandbox_ended(&self, id: &str) {
        let mut state = self.state.lock();
        let now = state.now(&self.options.clock);
        let Some(sandbox) = state.sandboxes.get_mut(id) else { return };
        if sandbox.status.state() == v1::PodSandboxState::SandboxNotready {
            return;
        }
        sandbox.status.set_state(v1::PodSandboxState::SandboxNotready);
        sandbox.status.network = Some(v1::PodSandboxNetworkStatus::default());
        self.emit(&state, v1::ContainerEventType::ContainerStoppedEvent, id, id, now);
    }

    /// Kills the running containers of a sandbox.
    pub(super) fn kill_containers(&self, sandbox_id: &str) {
        let ids: Vec<_> = {
            let state = self.state.lock();
            let inside = state.containers.iter().filter(|(_, container)| container.sandbox == sandbox_id);
            inside.map(|(id, _)| id.clone()).collect()
        };
        for id in ids {
            self.finish(&id, KILLED, None);
        }
    }

    /// Removes a container, killing it first.
    pub(super) fn remove(&self, id: &str) {
        self.finish(id, KILLED, None);
        let mut state = self.state.lock();
        let now = state.now(&self.options.clock);
        if let Some(container) = state.containers.remove(id) {
            state.names.remove(&container.name);
            self.emit(&state, v1::ContainerEventType::ContainerDeletedEvent, id, &container.sandbox, now);
        }
    }
}
