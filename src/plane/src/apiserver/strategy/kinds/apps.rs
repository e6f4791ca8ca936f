//! Workloads: what they have in common is their pod template and the selector that must find its pods.

use k8s_openapi::api::{apps::v1 as apps, core::v1 as core};
use serde_json::{Map, Value, json};

use crate::apiserver::error::Cause;
use crate::apiserver::object::{child, metadata, text};
use crate::apiserver::strategy::checks::{percent, selector_of};
use crate::apiserver::strategy::described::{Check, Described, Fill, Frozen};
use crate::apiserver::strategy::typed;

use Check::{Amount, AtLeast, OneOf, Selector};
use Fill::{Set, When};

/// Deployments.
pub(crate) static DEPLOYMENTS: Described = Described {
    defaults: &[
        Set("spec.replicas", "1"),
        Set("spec.strategy.type", "\"RollingUpdate\""),
        When("spec.strategy.rollingUpdate.maxUnavailable", "spec.strategy.type", "RollingUpdate", "\"25%\""),
        When("spec.strategy.rollingUpdate.maxSurge", "spec.strategy.type", "RollingUpdate", "\"25%\""),
        Set("spec.revisionHistoryLimit", "10"),
        Set("spec.progressDeadlineSeconds", "600"),
    ],
    template: Some("spec.template"),
    status: Some("{}"),
    checks: &[
        AtLeast("spec.replicas", 0),
        Selector("spec.selector"),
        OneOf("spec.strategy.type", &["Recreate", "RollingUpdate"]),
        Amount("spec.strategy?.rollingUpdate?.maxUnavailable"),
        Amount("spec.strategy?.rollingUpdate?.maxSurge"),
        AtLeast("spec.minReadySeconds", 0),
        AtLeast("spec.revisionHistoryLimit", 0),
        AtLeast("spec.progressDeadlineSeconds", 0),
    ],
    rules: Some(deployment),
    frozen: &[Frozen::Immutable("spec.selector")],
    // Upstream counts a changed note too: rollouts are paused and resumed through them.
    generation: &["spec", "metadata.annotations"],
    ..Described::new(typed::<apps::Deployment>)
};

/// Replica sets.
pub(crate) static REPLICA_SETS: Described = Described {
    defaults: &[Set("spec.replicas", "1")],
    template: Some("spec.template"),
    status: Some("{\"replicas\":0}"),
    checks: &[AtLeast("spec.replicas", 0), AtLeast("spec.minReadySeconds", 0), Selector("spec.selector")],
    rules: Some(|object, causes| workload(object, "deployment", "ReplicaSet", causes)),
    frozen: &[Frozen::Immutable("spec.selector")],
    ..Described::new(typed::<apps::ReplicaSet>)
};

/// Daemon sets.
pub(crate) static DAEMON_SETS: Described = Described {
    defaults: &[
        Set("spec.updateStrategy.type", "\"RollingUpdate\""),
        When("spec.updateStrategy.rollingUpdate.maxUnavailable", "spec.updateStrategy.type", "RollingUpdate", "1"),
        When("spec.updateStrategy.rollingUpdate.maxSurge", "spec.updateStrategy.type", "RollingUpdate", "0"),
        Set("spec.revisionHistoryLimit", "10"),
    ],
    template: Some("spec.template"),
    status: Some(
        "{\"currentNumberScheduled\":0,\"numberMisscheduled\":0,\"desiredNumberScheduled\":0,\"numberReady\":0}",
    ),
    birth: Some(|object| template_generation(object, None)),
    carry: Some(|object, old| template_generation(object, Some(old))),
    checks: &[
        Selector("spec.selector"),
        AtLeast("spec.minReadySeconds", 0),
        OneOf("spec.updateStrategy.type", &["RollingUpdate", "OnDelete"]),
        Amount("spec.updateStrategy?.rollingUpdate?.maxUnavailable"),
        Amount("spec.updateStrategy?.rollingUpdate?.maxSurge"),
        AtLeast("spec.revisionHistoryLimit", 0),
    ],
    rules: Some(|object, causes| workload(object, "daemonset", "DaemonSet", causes)),
    frozen: &[Frozen::Immutable("spec.selector")],
    ..Described::new(typed::<apps::DaemonSet>)
};

/// Stateful sets.
pub(crate) static STATEFUL_SETS: Described = Described {
    defaults: &[
        Set("spec.replicas", "1"),
        Set("spec.podManagementPolicy", "\"OrderedReady\""),
        Set("spec.updateStrategy.type", "\"RollingUpdate\""),
        When("spec.updateStrategy.rollingUpdate.partition", "spec.updateStrategy.type", "RollingUpdate", "0"),
        Set("spec.revisionHistoryLimit", "10"),
        Set("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "\"Retain\""),
        Set("spec.persistentVolumeClaimRetentionPolicy.whenScaled", "\"Retain\""),
        Set("spec.volumeClaimTemplates[].kind", "\"PersistentVolumeClaim\""),
        Set("spec.volumeClaimTemplates[].apiVersion", "\"v1\""),
        Set("spec.volumeClaimTemplates[].spec.volumeMode", "\"Filesystem\""),
        Set("spec.volumeClaimTemplates[].status.phase", "\"Pending\""),
    ],
    template: Some("spec.template"),
    status: Some("{\"replicas\":0,\"availableReplicas\":0}"),
    checks: &[
        AtLeast("spec.replicas", 0),
        AtLeast("spec.minReadySeconds", 0),
        AtLeast("spec.revisionHistoryLimit", 0),
        AtLeast("spec.ordinals?.start", 0),
        AtLeast("spec.updateStrategy?.rollingUpdate?.partition", 0),
        OneOf("spec.persistentVolumeClaimRetentionPolicy?.whenDeleted", &["Delete", "Retain"]),
        OneOf("spec.persistentVolumeClaimRetentionPolicy?.whenScaled", &["Delete", "Retain"]),
        Selector("spec.selector"),
    ],
    rules: Some(stateful_set),
    changes: Some(stateful_set_changes),
    ..Described::new(typed::<apps::StatefulSet>)
};

/// Controller revisions.
pub(crate) static CONTROLLER_REVISIONS: Described = Described {
    checks: &[AtLeast("revision", 0), Check::Required("data", "data is mandatory")],
    frozen: &[Frozen::Immutable("data")],
    generation: &[],
    ..Described::new(typed::<apps::ControllerRevision>)
};

/// Replication controllers.
pub(crate) static REPLICATION_CONTROLLERS: Described = Described {
    defaults: &[Set("spec.replicas", "1")],
    template: Some("spec.template"),
    fill: Some(labels_of_template),
    status: Some("{\"replicas\":0}"),
    checks: &[AtLeast("spec.replicas", 0), AtLeast("spec.minReadySeconds", 0), Check::Required("spec.selector", "")],
    rules: Some(replication_controller),
    ..Described::new(typed::<core::ReplicationController>)
};

/// The rules that all workloads share: `what` is the word for the kind, `owner` the one in refusals of deadlines.
fn workload(object: &Value, what: &str, owner: &str, causes: &mut Vec<Cause>) {
    let Some(selector) = object.pointer("/spec/selector") else {
        causes.push(Cause::required("spec.selector", ""));
        return;
    };
    let count = |key: &str| match selector.get(key) {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(items)) => items.len(),
        _ => 0,
    };
    if count("matchLabels") + count("matchExpressions") == 0 {
        let text = format!("empty selector is invalid for {what}");
        causes.push(Cause::invalid("spec.selector", selector, &text));
    } else if let Some(template) = object.pointer("/spec/template")
        && !selector_of(object, "/spec/selector").matches_object(template)
    {
        causes.push(mismatch(template));
    }
    always(object, causes);
    if object.pointer("/spec/template/spec/activeDeadlineSeconds").is_some() {
        let text = format!("activeDeadlineSeconds in {owner} is not Supported");
        causes.push(Cause::forbidden("spec.template.spec.activeDeadlineSeconds", &text));
    }
}

fn mismatch(template: &Value) -> Cause {
    let labels = template.pointer("/metadata/labels").unwrap_or(&Value::Null);
    Cause::invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
}

fn always(object: &Value, causes: &mut Vec<Cause>) {
    let policy = text(object, "/spec/template/spec/restartPolicy");
    if !matches!(policy, "" | "Always") {
        causes.push(Cause::unsupported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
}

fn deployment(object: &Value, causes: &mut Vec<Cause>) {
    workload(object, "deployment", "ReplicaSet", causes);
    let rolling = object.pointer("/spec/strategy/rollingUpdate");
    match text(object, "/spec/strategy/type") {
        "Recreate" if rolling.is_some() => {
            let text = "may not be specified when strategy `type` is 'Recreate'";
            causes.push(Cause::forbidden("spec.strategy.rollingUpdate", text));
        }
        "RollingUpdate" => {
            let amount = |key: &str| {
                let value = rolling.and_then(|rolling| rolling.get(key))?;
                value.as_i64().or_else(|| percent(value))
            };
            if amount("maxUnavailable") == Some(0) && amount("maxSurge") == Some(0) {
                let value = rolling.and_then(|rolling| rolling.get("maxUnavailable")).unwrap_or(&Value::Null);
                let text = "may not be 0 when `maxSurge` is 0";
                causes.push(Cause::invalid("spec.strategy.rollingUpdate.maxUnavailable", value, text));
            }
        }
        _ => {}
    }
    let number = |key: &str| object.pointer(&format!("/spec/{key}")).and_then(Value::as_i64);
    if let Some(deadline) = number("progressDeadlineSeconds")
        && deadline <= number("minReadySeconds").unwrap_or(0)
    {
        let text = "must be greater than minReadySeconds";
        causes.push(Cause::invalid("spec.progressDeadlineSeconds", &json!(deadline), text));
    }
}

fn stateful_set(object: &Value, causes: &mut Vec<Cause>) {
    match text(object, "/spec/podManagementPolicy") {
        "" => causes.push(Cause::required("spec.podManagementPolicy", "")),
        "OrderedReady" | "Parallel" => {}
        other => {
            let text = "must be 'OrderedReady' or 'Parallel'";
            causes.push(Cause::invalid("spec.podManagementPolicy", &json!(other), text));
        }
    }
    let strategy = object.pointer("/spec/updateStrategy").unwrap_or(&Value::Null);
    match text(strategy, "/type") {
        "" => causes.push(Cause::required("spec.updateStrategy", "")),
        "OnDelete" => {
            if let Some(rolling) = strategy.get("rollingUpdate") {
                let text = "only allowed for updateStrategy 'RollingUpdate'";
                causes.push(Cause::invalid("spec.updateStrategy.rollingUpdate", rolling, text));
            }
        }
        "RollingUpdate" => {}
        _ => {
            let text = "must be 'RollingUpdate' or 'OnDelete'";
            causes.push(Cause::invalid("spec.updateStrategy", strategy, text));
        }
    }
    workload(object, "statefulset", "StatefulSet", causes);
}

/// What of a stateful set may change.
const CHANGEABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

fn stateful_set_changes(object: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let rest = |object: &Value| -> Map<String, Value> {
        let spec = object.get("spec").and_then(Value::as_object).into_iter().flatten();
        let kept = spec.filter(|(key, _)| !CHANGEABLE.contains(&key.as_str()));
        kept.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    if rest(object) != rest(old) {
        let text = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                    'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                    'minReadySeconds' are forbidden";
        causes.push(Cause::forbidden("spec", text));
    }
}

/// Counts the changes of a daemon set's template in a note, as the first version of the kind did in a field.
fn template_generation(object: &mut Value, old: Option<&Value>) {
    const NOTE: &str = "deprecated.daemonset.template.generation";
    let generation = old.map_or(1, |old| {
        let before = old.pointer("/metadata/annotations").and_then(|notes| notes.get(NOTE)).and_then(Value::as_str);
        let before: i64 = before.and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut template = object.pointer("/spec/template").cloned().unwrap_or_default();
        longshore_api::defaults::template(&mut template);
        before + i64::from(old.pointer("/spec/template") != Some(&template))
    });
    let notes = metadata(object).entry("annotations").or_insert_with(|| json!({}));
    if let Some(notes) = notes.as_object_mut() {
        notes.insert(NOTE.to_owned(), json!(generation.to_string()));
    }
}

/// A replication controller without labels or selector has those of its template.
fn labels_of_template(object: &mut Value) {
    let Some(labels) = object.pointer("/spec/template/metadata/labels").cloned() else { return };
    let spec = child(object, "spec");
    if spec.get("selector").and_then(Value::as_object).is_none_or(Map::is_empty) {
        spec.insert("selector".to_owned(), labels.clone());
    }
    let meta = metadata(object);
    if meta.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty) {
        meta.insert("labels".to_owned(), labels);
    }
}

fn replication_controller(object: &Value, causes: &mut Vec<Cause>) {
    always(object, causes);
    let selector = object.pointer("/spec/selector").and_then(Value::as_object);
    let labels = object.pointer("/spec/template/metadata/labels");
    let fits =
        selector.into_iter().flatten().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value));
    if let Some(template) = object.pointer("/spec/template").filter(|_| !fits) {
        causes.push(mismatch(template));
    }
}
