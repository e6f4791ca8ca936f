//! The phase of a pod, from its spec and the statuses of its containers.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{ContainerStatus, PodSpec};

use crate::restart::{is_sidecar, should_restart, should_restart_init};

/// The phases that the agent reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not all containers have been made yet.
    Pending,
    /// All containers were made; at least one runs or will run again.
    Running,
    /// All containers ended well and none will run again.
    Succeeded,
    /// All containers ended, one of them badly, or the node ended the pod.
    Failed,
}

impl Phase {
    /// The phase as `status.phase` shows it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Reads `status.phase`; unknown texts give `None`.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Pending, Self::Running, Self::Succeeded, Self::Failed].into_iter().find(|phase| phase.as_str() == text)
    }

    /// Says whether a pod of this phase never runs again.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What decides besides the container statuses.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// The agent has stopped, or is done stopping, the pod for good.
    pub is_terminal: bool,
    /// An app container was made once, or all init containers are done.
    pub has_initialized: bool,
    /// A static pod never becomes Succeeded or Failed merely because it is removed.
    pub is_static: bool,
}

#[derive(Default)]
struct Count {
    pending_init: u32,
    failed_final: u32,
    pending_sidecar: u32,
    unknown: u32,
    running: u32,
    waiting: u32,
    stopped: u32,
    succeeded: u32,
    stopped_restartable: u32,
}

/// Computes the phase; `statuses` holds app and init containers alike.
pub fn compute(spec: &PodSpec, statuses: &[ContainerStatus], facts: Facts) -> Phase {
    let by_name: BTreeMap<&str, &ContainerStatus> =
        statuses.iter().map(|status| (status.name.as_str(), status)).collect();
    let mut count = Count::default();
    for container in spec.init_containers.iter().flatten() {
        let status = by_name.get(container.name.as_str()).copied();
        if is_sidecar(container) {
            count.sidecar(status);
        } else {
            count.plain_init(status, |code| should_restart_init(spec, container, code));
        }
    }
    for container in &spec.containers {
        let status = by_name.get(container.name.as_str()).copied();
        count.app(status, |code| should_restart(spec, container, code));
    }
    count.phase(facts)
}

/// What a status says about its container.
enum Seen {
    Running,
    /// Ended with this code.
    Ended(i32),
    /// Waits for its next start after an end with this code.
    WaitsAgain(i32),
    Waits,
}

fn seen(status: &ContainerStatus) -> Seen {
    let state = status.state.as_ref();
    if state.is_some_and(|state| state.running.is_some()) {
        return Seen::Running;
    }
    if let Some(ended) = state.and_then(|state| state.terminated.as_ref()) {
        return Seen::Ended(ended.exit_code);
    }
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    last.map_or(Seen::Waits, |last| Seen::WaitsAgain(last.exit_code))
}

impl Count {
    fn plain_init(&mut self, status: Option<&ContainerStatus>, restarts: impl Fn(i32) -> bool) {
        match status.map(seen) {
            None | Some(Seen::Running | Seen::Waits) => self.pending_init += 1,
            Some(Seen::Ended(0) | Seen::WaitsAgain(0)) => {}
            Some(Seen::Ended(code) | Seen::WaitsAgain(code)) => {
                if restarts(code) {
                    self.pending_init += 1;
                } else {
                    self.failed_final += 1;
                }
            }
        }
    }

    fn sidecar(&mut self, status: Option<&ContainerStatus>) {
        match status.map(|status| (seen(status), status.started == Some(true))) {
            None => self.unknown += 1,
            Some((Seen::Running, started)) => {
                self.running += 1;
                if !started {
                    self.pending_sidecar += 1;
                }
            }
            Some((Seen::Ended(_) | Seen::WaitsAgain(_), _)) => {}
            Some((Seen::Waits, _)) => {
                self.waiting += 1;
                self.pending_sidecar += 1;
            }
        }
    }

    fn app(&mut self, status: Option<&ContainerStatus>, restarts: impl Fn(i32) -> bool) {
        match status.map(seen) {
            None => self.unknown += 1,
            Some(Seen::Running) => self.running += 1,
            Some(Seen::Ended(code)) => {
                self.stopped += 1;
                self.succeeded += u32::from(code == 0);
                self.stopped_restartable += u32::from(restarts(code));
            }
            Some(Seen::WaitsAgain(code)) => {
                self.stopped += 1;
                self.stopped_restartable += u32::from(restarts(code));
            }
            Some(Seen::Waits) => self.waiting += 1,
        }
    }

    fn phase(&self, facts: Facts) -> Phase {
        let by_exit_code = || if self.stopped == self.succeeded { Phase::Succeeded } else { Phase::Failed };
        if self.failed_final > 0 {
            Phase::Failed
        } else if self.pending_init > 0 || self.waiting > 0 || (self.pending_sidecar > 0 && !facts.has_initialized) {
            Phase::Pending
        } else if self.running > 0 && self.unknown == 0 {
            Phase::Running
        } else if self.running == 0 && self.stopped > 0 && self.unknown == 0 {
            if facts.is_terminal && !facts.is_static {
                by_exit_code()
            } else if self.stopped_restartable > 0 {
                Phase::Running
            } else {
                by_exit_code()
            }
        } else {
            Phase::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const STEADY: Facts = Facts { is_terminal: false, has_initialized: true, is_static: false };

    fn status(name: &str, state: &str) -> Value {
        let terminated = |code: &str| json!({"terminated": {"exitCode": code.parse::<i32>().unwrap()}});
        let (state, last) = match state.split_once(':') {
            Some(("exit", code)) => (terminated(code), json!({})),
            Some(("again", code)) => (json!({"waiting": {}}), terminated(code)),
            _ if state == "run" => (json!({"running": {}}), json!({})),
            _ => (json!({"waiting": {}}), json!({})),
        };
        json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state, "lastState": last})
    }

    fn phase(policy: &str, init: &[&str], app: &[&str], facts: Facts) -> Phase {
        let list = |prefix: &str, states: &[&str]| -> Vec<Value> {
            (0..states.len()).map(|index| json!({"name": format!("{prefix}{index}")})).collect()
        };
        let spec: PodSpec = serde_json::from_value(json!({"restartPolicy": policy,
            "initContainers": list("i", init), "containers": list("c", app)}))
        .unwrap();
        let statuses: Vec<ContainerStatus> = [("i", init), ("c", app)]
            .into_iter()
            .flat_map(|(prefix, states)| {
                states.iter().enumerate().filter(|(_, state)| **state != "none").map(move |(index, state)| {
                    serde_json::from_value(status(&format!("{prefix}{index}"), state)).unwrap()
                })
            })
            .collect();
        compute(&spec, &statuses, facts)
    }

    #[test]
    fn phase_table() {
        for (policy, init, app, want) in [
            ("Always", &[][..], &["wait"][..], Phase::Pending),
            ("Always", &[], &["none"], Phase::Pending),
            ("Always", &[], &["run"], Phase::Running),
            ("Always", &[], &["run", "none"], Phase::Pending),
            ("Always", &[], &["run", "wait"], Phase::Pending),
            ("Always", &[], &["exit:0"], Phase::Running),
            ("Always", &[], &["again:3"], Phase::Running),
            ("OnFailure", &[], &["exit:0"], Phase::Succeeded),
            ("OnFailure", &[], &["exit:4"], Phase::Running),
            ("Never", &[], &["exit:0", "exit:0"], Phase::Succeeded),
            ("Never", &[], &["exit:3", "exit:0"], Phase::Failed),
            ("Never", &[], &["exit:3", "run"], Phase::Running),
            ("Always", &["run"], &["wait"], Phase::Pending),
            ("Always", &["exit:1"], &["wait"], Phase::Pending),
            ("Never", &["exit:7"], &["wait"], Phase::Failed),
            ("Never", &["again:7"], &["wait"], Phase::Failed),
            ("Always", &["exit:0"], &["run"], Phase::Running),
            ("Always", &["exit:0", "none"], &["wait"], Phase::Pending),
        ] {
            assert_eq!(phase(policy, init, app, STEADY), want, "{policy} {init:?} {app:?}");
        }
    }

    #[test]
    fn a_stopped_pod_ends_by_its_exit_codes_unless_it_is_static() {
        let done = Facts { is_terminal: true, ..STEADY };
        assert_eq!(phase("Always", &[], &["exit:0"], done), Phase::Succeeded);
        assert_eq!(phase("Always", &[], &["exit:137"], done), Phase::Failed);
        assert_eq!(phase("Always", &[], &["wait"], done), Phase::Pending);
        assert_eq!(phase("Always", &[], &["exit:0"], Facts { is_static: true, ..done }), Phase::Running);
    }

    #[test]
    fn a_sidecar_keeps_running_but_never_fails_the_pod() {
        let spec: PodSpec = serde_json::from_value(json!({"restartPolicy": "Never",
            "initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "c"}]}))
        .unwrap();
        let got = |side: &str, app: &str| {
            let all: Vec<ContainerStatus> = vec![
                serde_json::from_value(status("s", side)).unwrap(),
                serde_json::from_value(status("c", app)).unwrap(),
            ];
            compute(&spec, &all, STEADY)
        };
        assert_eq!(got("run", "exit:0"), Phase::Running);
        assert_eq!(got("exit:137", "exit:0"), Phase::Succeeded);
        assert_eq!(got("wait", "wait"), Phase::Pending);
    }
}
