//! Pods: service account, token volume, priority, default tolerations.

use serde_json::{Value, json};

use crate::apiserver::error::{ApiError, Cause};
use crate::apiserver::object::{child, default, list, meta, text};
use crate::apiserver::registry::{Registry, suffix};
use crate::apiserver::resources::{PODS, PRIORITYCLASSES, RUNTIMECLASSES, SERVICEACCOUNTS};

/// Where containers find their account's token.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Marks a pod that an agent shows for a manifest on its disk.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

const TOLERATION_SECONDS: i64 = 300;

pub(super) fn is_mirror(pod: &Value) -> bool {
    pod.pointer("/metadata/annotations").and_then(|notes| notes.get(MIRROR)).is_some()
}

pub(super) fn create(registry: &Registry, pod: &mut Value) -> Result<(), ApiError> {
    if is_mirror(pod) {
        // A mirror cannot be given what its manifest on the node does not have.
        for field in ["serviceAccountName", "serviceAccount"] {
            if !text(pod, &format!("/spec/{field}")).is_empty() {
                let text = "a mirror pod may not reference service accounts";
                return Err(ApiError::forbidden(&PODS, meta(pod, "name"), text));
            }
        }
    } else {
        service_account(registry, pod)?;
    }
    priority(registry, pod)?;
    runtime_class(registry, pod)?;
    tolerations(pod);
    Ok(())
}

fn service_account(registry: &Registry, pod: &mut Value) -> Result<(), ApiError> {
    let spec = child(pod, "spec");
    let named = spec.get("serviceAccountName").and_then(Value::as_str).unwrap_or_default();
    let name = if named.is_empty() { "default".to_owned() } else { named.to_owned() };
    spec.insert("serviceAccountName".to_owned(), json!(name));
    spec.insert("serviceAccount".to_owned(), json!(name));
    let namespace = meta(pod, "namespace").to_owned();
    let Some(account) = registry.find(&SERVICEACCOUNTS, &namespace, &name)? else {
        let shown = if meta(pod, "name").is_empty() { meta(pod, "generateName") } else { meta(pod, "name") };
        let text = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        return Err(ApiError::forbidden(&PODS, shown, &text));
    };
    let spec = child(pod, "spec");
    if spec.get("imagePullSecrets").is_none()
        && let Some(secrets) = account.get("imagePullSecrets").filter(|secrets| !list_of(secrets).is_empty())
    {
        spec.insert("imagePullSecrets".to_owned(), secrets.clone());
    }
    let own = spec.get("automountServiceAccountToken").and_then(Value::as_bool);
    let wanted = own.or_else(|| account.get("automountServiceAccountToken").and_then(Value::as_bool)).unwrap_or(true);
    if wanted {
        mount_token(pod);
    }
    Ok(())
}

fn list_of(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn mount_token(pod: &mut Value) {
    let has = |container: &Value| {
        list(container, "/volumeMounts").iter().any(|mount| text(mount, "/mountPath") == TOKEN_PATH)
    };
    let volumes = list(pod, "/spec/volumes");
    let existing = volumes.iter().map(|volume| text(volume, "/name")).find(|name| name.starts_with("kube-api-access-"));
    let name = existing.map_or_else(|| format!("kube-api-access-{}", suffix()), str::to_owned);
    let known = existing.is_some();
    let spec = child(pod, "spec");
    let mut used = false;
    for containers in ["initContainers", "containers"] {
        for container in spec.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
            if has(container) {
                continue;
            }
            let Some(container) = container.as_object_mut() else { continue };
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            if let Some(mounts) = mounts.as_array_mut() {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": TOKEN_PATH}));
                used = true;
            }
        }
    }
    if !used || known {
        return;
    }
    let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
    if let Some(volumes) = volumes.as_array_mut() {
        volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace",
                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ]}}));
    }
}

fn priority(registry: &Registry, pod: &mut Value) -> Result<(), ApiError> {
    let class = text(pod, "/spec/priorityClassName").to_owned();
    let (value, policy) = match class.as_str() {
        "" => default_class(registry)?,
        "system-node-critical" => (2_000_001_000, "PreemptLowerPriority".to_owned()),
        "system-cluster-critical" => (2_000_000_000, "PreemptLowerPriority".to_owned()),
        name => {
            let Some(found) = registry.find(&PRIORITYCLASSES, "", name)? else {
                let text = format!("no PriorityClass with name {name} was found");
                return Err(ApiError::forbidden(&PODS, meta(pod, "name"), &text));
            };
            class_facts(&found)
        }
    };
    let spec = child(pod, "spec");
    if let Some(own) = spec.get("priority").and_then(Value::as_i64)
        && own != value
    {
        let text = format!(
            "the integer value of priority ({own}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        );
        return Err(ApiError::forbidden(&PODS, meta(pod, "name"), &text));
    }
    spec.insert("priority".to_owned(), json!(value));
    default(spec, "preemptionPolicy", || json!(policy));
    Ok(())
}

fn class_facts(class: &Value) -> (i64, String) {
    let policy = text(class, "/preemptionPolicy");
    let policy = if policy.is_empty() { "PreemptLowerPriority" } else { policy };
    (class.get("value").and_then(Value::as_i64).unwrap_or(0), policy.to_owned())
}

fn default_class(registry: &Registry) -> Result<(i64, String), ApiError> {
    let (classes, _) = registry.list_values(&PRIORITYCLASSES, "")?;
    let global = classes.iter().filter(|class| class.get("globalDefault") == Some(&json!(true)));
    let lowest = global.map(class_facts).min_by_key(|(value, _)| *value);
    Ok(lowest.unwrap_or_else(|| (0, "PreemptLowerPriority".to_owned())))
}

/// A runtime class may bring overhead, a node selector and tolerations.
fn runtime_class(registry: &Registry, pod: &mut Value) -> Result<(), ApiError> {
    let name = text(pod, "/spec/runtimeClassName").to_owned();
    if name.is_empty() {
        return Ok(());
    }
    let Some(class) = registry.find(&RUNTIMECLASSES, "", &name)? else {
        let text = format!("pod rejected: RuntimeClass {name:?} not found");
        return Err(ApiError::forbidden(&PODS, meta(pod, "name"), &text));
    };
    if let Some(overhead) = class.pointer("/overhead/podFixed") {
        let spec = child(pod, "spec");
        if spec.get("overhead").is_some_and(|own| own != overhead) {
            let text = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
            return Err(ApiError::forbidden(&PODS, meta(pod, "name"), text));
        }
        spec.insert("overhead".to_owned(), overhead.clone());
    }
    if let Some(selector) = class.pointer("/scheduling/nodeSelector").and_then(Value::as_object) {
        let own = child(pod, "spec").entry("nodeSelector").or_insert_with(|| json!({}));
        for (key, value) in selector {
            if own.get(key).is_some_and(|own| own != value) {
                let text = format!(
                    "pod rejected: conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {}",
                    own[key]
                );
                return Err(ApiError::forbidden(&PODS, meta(pod, "name"), &text));
            }
            own[key] = value.clone();
        }
    }
    let more = list(&class, "/scheduling/tolerations");
    if !more.is_empty() {
        let own = child(pod, "spec").entry("tolerations").or_insert_with(|| json!([]));
        if let Some(own) = own.as_array_mut() {
            for toleration in more.iter().filter(|toleration| !own.contains(toleration)).cloned().collect::<Vec<_>>() {
                own.push(toleration);
            }
        }
    }
    Ok(())
}

fn tolerations(pod: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |toleration: &Value| {
            let (own, effect) = (text(toleration, "/key"), text(toleration, "/effect"));
            (own == key || own.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        };
        if list(pod, "/spec/tolerations").iter().any(covers) {
            continue;
        }
        let tolerations = child(pod, "spec").entry("tolerations").or_insert_with(|| json!([]));
        if let Some(tolerations) = tolerations.as_array_mut() {
            tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": TOLERATION_SECONDS}));
        }
    }
}

/// Finds a service-account volume in a mirror pod's specification.
pub(super) fn forbidden_reference(pod: &Value) -> Option<Cause> {
    for (index, volume) in list(pod, "/spec/volumes").iter().enumerate() {
        for kind in ["secret", "configMap", "persistentVolumeClaim"] {
            if volume.get(kind).is_some() {
                return Some(Cause::forbidden(format!("spec.volumes[{index}].{kind}"), "not for mirror pods"));
            }
        }
    }
    None
}
