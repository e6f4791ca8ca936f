//! A pod's row: ready containers, the word for its state and restarts, computed as upstream's printer does.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::{NONE, age, human, non_empty};
use crate::apiserver::object::{list, text};

/// What the containers of one list add to a pod's row.
#[derive(Debug, Default)]
struct Tally {
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Tally {
    fn add(&mut self, status: &Value) {
        self.restarts += status.get("restartCount").and_then(Value::as_i64).unwrap_or(0);
        if let Ok(at) = text(status, "/lastState/terminated/finishedAt").parse::<Timestamp>() {
            self.last_restart = self.last_restart.max(Some(at));
        }
    }
}

fn is_sidecar(pod: &Value, name: &str) -> bool {
    list(pod, "/spec/initContainers")
        .iter()
        .any(|container| text(container, "/name") == name && text(container, "/restartPolicy") == "Always")
}

/// What the columns of a pod are made of.
struct Row {
    ready: usize,
    word: String,
    tally: Tally,
}

pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let sidecars =
        list(pod, "/spec/initContainers").iter().filter(|container| text(container, "/restartPolicy") == "Always");
    let total = list(pod, "/spec/containers").len() + sidecars.count();
    let Row { ready, word, tally } = row(pod);
    let restarts = match tally.last_restart {
        Some(at) if tally.restarts > 0 => {
            format!("{} ({} ago)", tally.restarts, human(now.duration_since(at).as_secs()))
        }
        _ => tally.restarts.to_string(),
    };
    vec![
        json!(text(pod, "/metadata/name")),
        json!(format!("{ready}/{total}")),
        json!(word),
        json!(restarts),
        json!(age(text(pod, "/metadata/creationTimestamp"), now)),
        json!(non_empty(text(pod, "/status/podIP"))),
        json!(non_empty(text(pod, "/spec/nodeName"))),
        json!(non_empty(text(pod, "/status/nominatedNodeName"))),
        json!(gates(pod)),
    ]
}

fn row(pod: &Value) -> Row {
    let phase = text(pod, "/status/phase");
    let word = match text(pod, "/status/reason") {
        "" => phase,
        reason => reason,
    };
    let gated = has_condition(pod, |condition| {
        text(condition, "/type") == "PodScheduled" && text(condition, "/reason") == "SchedulingGated"
    });
    let word = if gated { "SchedulingGated" } else { word };
    let mut row = Row { ready: 0, word: word.to_owned(), tally: Tally::default() };
    let initialising = init_containers(pod, &mut row);
    if !initialising || is_true(pod, "Initialized") {
        main_containers(pod, &mut row);
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        if text(pod, "/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut row.word);
        } else if phase != "Failed" && phase != "Succeeded" {
            "Terminating".clone_into(&mut row.word);
        }
    }
    row
}

/// Looks at init containers up to the first that is not done; returns whether there is one. Afterwards the tally holds
/// all init containers if there is, else the sidecars alone.
fn init_containers(pod: &Value, row: &mut Row) -> bool {
    let mut sidecars = Tally::default();
    for (index, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
        row.tally.add(status);
        let sidecar = is_sidecar(pod, text(status, "/name"));
        if sidecar {
            sidecars.add(status);
        }
        if let Some(over) = status.pointer("/state/terminated") {
            if exit_code(over) == 0 {
                continue;
            }
            row.word = format!("Init:{}", terminated_reason(over));
        } else if sidecar && status.get("started") == Some(&json!(true)) {
            if status.get("ready") == Some(&json!(true)) {
                row.ready += 1;
            }
            continue;
        } else {
            let waiting = text(status, "/state/waiting/reason");
            row.word = if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", list(pod, "/spec/initContainers").len())
            };
        }
        if is_true(pod, "Initialized") {
            row.tally = sidecars;
        }
        return true;
    }
    row.tally = sidecars;
    false
}

fn main_containers(pod: &Value, row: &mut Row) {
    let mut running = false;
    for status in list(pod, "/status/containerStatuses").iter().rev() {
        row.tally.add(status);
        let waiting = text(status, "/state/waiting/reason");
        if !waiting.is_empty() {
            waiting.clone_into(&mut row.word);
        } else if let Some(over) = status.pointer("/state/terminated") {
            row.word = terminated_reason(over);
        } else if status.get("ready") == Some(&json!(true)) && status.pointer("/state/running").is_some() {
            running = true;
            row.ready += 1;
        }
    }
    if row.word == "Completed" && running {
        (if is_true(pod, "Ready") { "Running" } else { "NotReady" }).clone_into(&mut row.word);
    }
}

fn gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let met = gates.iter().filter(|gate| is_true(pod, text(gate, "/conditionType"))).count();
    format!("{met}/{}", gates.len())
}

fn has_condition(pod: &Value, wanted: impl Fn(&Value) -> bool) -> bool {
    list(pod, "/status/conditions").iter().any(wanted)
}

fn is_true(pod: &Value, kind: &str) -> bool {
    has_condition(pod, |condition| text(condition, "/type") == kind && text(condition, "/status") == "True")
}

fn exit_code(over: &Value) -> i64 {
    over.get("exitCode").and_then(Value::as_i64).unwrap_or(0)
}

fn terminated_reason(over: &Value) -> String {
    let reason = text(over, "/reason");
    if !reason.is_empty() {
        return reason.to_owned();
    }
    match over.get("signal").and_then(Value::as_i64).unwrap_or(0) {
        0 => format!("ExitCode:{}", exit_code(over)),
        signal => format!("Signal:{signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_status_word_follows_its_containers() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let with = |status: Value| {
            json!({"metadata": {"name": "p"}, "status": status,
            "spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}]}})
        };
        let word = |status: Value| {
            cells(&with(status), now)[1..4].iter().map(|c| c.as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(word(json!({"phase": "Pending"})), ["0/1", "Pending", "0"]);
        assert_eq!(
            word(json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "restartCount": 2,
                "state": {"terminated": {"exitCode": 3}}}]})),
            ["0/1", "Init:ExitCode:3", "2"]
        );
        assert_eq!(
            word(json!({"phase": "Running", "containerStatuses": [{"name": "c", "ready": true, "restartCount": 1,
                "state": {"running": {}}, "lastState": {"terminated": {"finishedAt": "2026-01-01T00:05:00Z"}}}]})),
            ["1/1", "Running", "1 (5m ago)"]
        );
        assert_eq!(
            word(json!({"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 0,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]})),
            ["0/1", "CrashLoopBackOff", "0"]
        );
    }
}
