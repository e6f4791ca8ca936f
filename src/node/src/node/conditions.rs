//! The four conditions of a node, with upstream's reasons and texts. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What eviction sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Memory is short.
    pub memory: bool,
    /// Disk space or inodes are short.
    pub disk: bool,
    /// Process ids are short.
    pub pid: bool,
}

struct Texts {
    kind: &'static str,
    /// Reason, message, event while the pressure lasts.
    bad: (&'static str, &'static str, &'static str),
    /// The same without it.
    good: (&'static str, &'static str, &'static str),
}

const MEMORY: Texts = Texts {
    kind: "MemoryPressure",
    bad: ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory"),
    good: ("KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"),
};
const DISK: Texts = Texts {
    kind: "DiskPressure",
    bad: ("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"),
    good: ("KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"),
};
const PID: Texts = Texts {
    kind: "PIDPressure",
    bad: ("KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"),
    good: ("KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"),
};

/// Returns the conditions in upstream's order, and the events that their changes earn.
pub(super) fn compute(
    previous: &[NodeCondition],
    pressure: Pressure,
    not_ready: &[String],
    now: Timestamp,
) -> (Vec<NodeCondition>, Vec<&'static str>) {
    let mut conditions = Vec::with_capacity(4);
    let mut events = Vec::new();
    for (texts, present) in [(MEMORY, pressure.memory), (DISK, pressure.disk), (PID, pressure.pid)] {
        let (reason, message, event) = if present { texts.bad } else { texts.good };
        let before = find(previous, texts.kind);
        let condition = condition(texts.kind, present, reason, message.to_owned(), before, now);
        // A condition that did not stand before counts as changed.
        if before.is_none_or(|before| before.status != condition.status) {
            events.push(event);
        }
        conditions.push(condition);
    }
    let ready = not_ready.is_empty();
    let (reason, message) = if ready {
        ("KubeletReady", "kubelet is posting ready status".to_owned())
    } else {
        ("KubeletNotReady", aggregate(not_ready))
    };
    let before = find(previous, "Ready");
    let condition = condition("Ready", ready, reason, message, before, now);
    if before.is_some_and(|before| before.status != condition.status) {
        events.push(if ready { "NodeReady" } else { "NodeNotReady" });
    }
    conditions.push(condition);
    (conditions, events)
}

/// Whether two sets differ in more than their heartbeats.
pub(super) fn differ(old: &[NodeCondition], new: &[NodeCondition]) -> bool {
    new.iter().any(|new| {
        find(old, &new.type_)
            .is_none_or(|old| old.status != new.status || old.reason != new.reason || old.message != new.message)
    })
}

fn find<'a>(conditions: &'a [NodeCondition], kind: &str) -> Option<&'a NodeCondition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

fn condition(
    kind: &str,
    status: bool,
    reason: &str,
    message: String,
    before: Option<&NodeCondition>,
    now: Timestamp,
) -> NodeCondition {
    let status = if status { "True" } else { "False" };
    let transition = before
        .filter(|before| before.status == status)
        .and_then(|before| before.last_transition_time.clone())
        .unwrap_or(Time(now));
    NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(transition),
    }
}

/// One error stands alone, several are put in brackets; doubles are dropped.
fn aggregate(errors: &[String]) -> String {
    let mut seen: Vec<&str> = Vec::with_capacity(errors.len());
    for error in errors {
        if !seen.contains(&error.as_str()) {
            seen.push(error);
        }
    }
    match seen.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_move_the_transition_time_and_make_events() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let waiting = ["container runtime is down".to_owned()];
        let (first, events) = compute(&[], Pressure::default(), &waiting, start);
        assert_eq!(events, ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]);
        assert_eq!(first[3].message.as_deref(), Some("container runtime is down"));
        assert_eq!(first[3].reason.as_deref(), Some("KubeletNotReady"));

        let later = start + jiff::SignedDuration::from_secs(10);
        let (second, events) = compute(&first, Pressure { disk: true, ..Pressure::default() }, &[], later);
        assert_eq!(events, ["NodeHasDiskPressure", "NodeReady"]);
        assert_eq!(second[0].last_transition_time, Some(Time(start)));
        assert_eq!(second[0].last_heartbeat_time, Some(Time(later)));
        assert_eq!(second[1].last_transition_time, Some(Time(later)));
        assert_eq!(second[3].message.as_deref(), Some("kubelet is posting ready status"));
        assert!(differ(&first, &second));

        let (third, events) = compute(&second, Pressure { disk: true, ..Pressure::default() }, &[], later);
        assert!(events.is_empty());
        assert!(!differ(&second, &third));
    }

    #[test]
    fn several_errors_are_listed_once_each() {
        let errors = ["a".to_owned(), "b".to_owned(), "a".to_owned()];
        assert_eq!(aggregate(&errors), "[a, b]");
    }
}
