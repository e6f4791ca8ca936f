//! What the objects look like: of the size and shape that clusters have them in.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Scale;

const SECOND: &str = "%Y-%m-%dT%H:%M:%SZ";
const MICRO: &str = "%Y-%m-%dT%H:%M:%S.%6fZ";

fn now(format: &str) -> String {
    Timestamp::now().strftime(format).to_string()
}

/// A text of a length that no compression makes vanish.
fn text(seed: usize, length: usize) -> String {
    const WORDS: [&str; 8] = ["server", "timeout=30s", "upstream", "cache.size=4096", "level", "retry", "host", "0x1f"];
    let mut state = seed as u64 | 1;
    let mut out = String::with_capacity(length + 16);
    while out.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let word = WORDS[usize::try_from(state >> 61).unwrap_or(0)];
        out.push_str(word);
        out.extend(["-", &format!("{:x}", state >> 44), " "]);
    }
    out.truncate(length);
    out
}

fn probe(path: &str) -> Value {
    json!({"httpGet": {"path": path, "port": "http", "scheme": "HTTP"}, "initialDelaySeconds": 5, "periodSeconds": 10,
        "timeoutSeconds": 2, "failureThreshold": 3, "successThreshold": 1})
}

/// Whether the pods of a replica set have a second container: every third set's have.
fn has_proxy(set: usize) -> bool {
    set.is_multiple_of(3)
}

/// The pods of one replica set, as its controller makes them.
fn template(scale: &Scale, set: usize) -> Value {
    let configmap = scale.configmap(set % scale.configmaps().max(1)).1;
    let secret = scale.secret(set % scale.secrets().max(1)).1;
    let env = json!([
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": secret, "key": "url"}}},
        {"name": "LOG_LEVEL", "valueFrom": {"configMapKeyRef": {"name": configmap, "key": "level"}}},
        {"name": "JAVA_OPTS", "value": "-Xms128m -Xmx256m -XX:+UseG1GC"},
        {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector.observability.svc:4317"}]);
    let restricted = json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]}});
    let tier = ["web", "api", "batch", "data"][set % 4];
    let mut template = json!({
        "metadata": {
            "labels": {"app.kubernetes.io/name": format!("app-{set}"), "app.kubernetes.io/component": "backend",
                "app.kubernetes.io/part-of": "shop", "tier": tier,
                "pod-template-hash": "7c9d8f6b5d"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090",
                "checksum/config": format!("{:064x}", set * 7_919)},
        },
        "spec": {
            "containers": [
                {"name": "app", "image": format!("registry.example.com/shop/app-{set}:v1.{}.3", set % 40), "env": env,
                    "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}],
                    "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
                    "readinessProbe": probe("/ready"), "livenessProbe": probe("/live"), "securityContext": restricted,
                    "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}, {"name": "tmp", "mountPath": "/tmp"}]}],
            "volumes": [{"name": "config", "configMap": {"name": configmap}}, {"name": "tmp", "emptyDir": {}}],
            "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "fsGroup": 1000},
            "terminationGracePeriodSeconds": 30,
        },
    });
    if has_proxy(set) {
        let proxy = json!({"name": "proxy", "image": "registry.example.com/mesh/proxy:v2.9.1",
            "args": ["--mode", "sidecar"], "securityContext": restricted,
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}}});
        template["spec"]["containers"].as_array_mut().into_iter().for_each(|all| all.push(proxy.clone()));
    }
    template
}

/// A replica set.
pub(super) fn set(scale: &Scale, index: usize) -> String {
    let name = scale.set(index).1;
    let template = template(scale, index);
    let labels = &template["metadata"]["labels"];
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": Scale::REPLICAS, "selector": {"matchLabels": labels}, "template": template}})
    .to_string()
}

/// A pod of a replica set; bound when there is a node, else it waits for one.
pub(super) fn pod(scale: &Scale, set: usize, uid: &str, name: &str, node: Option<&str>) -> String {
    let mut pod = template(scale, set);
    let owner = scale.set(set).1;
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["generateName"] = format!("{owner}-").into();
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": uid,
        "controller": true, "blockOwnerDeletion": true}]);
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    pod.to_string()
}

/// A pod's status as its node tells it; each `turn` differs from the one before.
pub(super) fn status(pod: usize, turn: usize) -> String {
    let at = now(SECOND);
    let ready = turn.is_multiple_of(2);
    let condition = |kind: &str, holds: bool| {
        json!({"type": kind, "status": if holds { "True" } else { "False" }, "lastProbeTime": null,
            "lastTransitionTime": at, "observedGeneration": 1})
    };
    let container = |name: &str, restarts: usize| {
        json!({"name": name, "image": format!("registry.example.com/{name}:v1"), "ready": ready, "started": true,
            "imageID": format!("registry.example.com/{name}@sha256:{:064x}", pod * 31), "restartCount": restarts,
            "containerID": format!("containerd://{:064x}", pod * 97 + turn), "lastState": {},
            "state": {"running": {"startedAt": at}},
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}})
    };
    let mut containers = vec![container("app", turn)];
    if has_proxy(pod / Scale::REPLICAS) {
        containers.push(container("proxy", 0));
    }
    let address = format!("10.{}.{}.{}", 128 + pod / 65_536, pod / 256 % 256, pod % 256);
    json!({"status": {
        "phase": "Running", "hostIP": "192.0.2.10", "podIP": address, "podIPs": [{"ip": address}], "startTime": at,
        "hostIPs": [{"ip": "192.0.2.10"}], "qosClass": "Burstable", "observedGeneration": 1,
        "conditions": [condition("PodReadyToStartContainers", true), condition("Initialized", true),
            condition("Ready", ready), condition("ContainersReady", ready), condition("PodScheduled", true)],
        "containerStatuses": containers,
    }})
    .to_string()
}

/// A node as its agent registers it.
pub(super) fn node(index: usize) -> String {
    let name = Scale::node(index);
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": format!("kubelet says {reason}"),
            "lastHeartbeatTime": now(SECOND), "lastTransitionTime": now(SECOND)})
    };
    let images: Vec<Value> = (0..20)
        .map(|image| {
            json!({"names": [format!("registry.example.com/shop/app-{image}@sha256:{:064x}", image * 31),
                format!("registry.example.com/shop/app-{image}:v1.{image}.3")], "sizeBytes": 54_321_000 + image})
        })
        .collect();
    let amounts = json!({"cpu": "16", "memory": "65806412Ki", "pods": "110", "ephemeral-storage": "101430960Ki"});
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": format!("zone-{}", index % 3)}},
        "status": {"capacity": amounts, "allocatable": amounts, "images": images,
            "addresses": [{"type": "InternalIP", "address": format!("192.0.2.{}", index % 250)},
                {"type": "Hostname", "address": name}],
            "conditions": [condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady")],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {"kubeletVersion": "v1.37.0", "osImage": "Debian GNU/Linux 12", "operatingSystem": "linux",
                "architecture": "amd64", "containerRuntimeVersion": "containerd://2.1.9", "kernelVersion": "6.1.0",
                "bootID": "", "machineID": "", "systemUUID": "", "kubeProxyVersion": ""}}})
    .to_string()
}

/// A heartbeat; without a version it is a new one.
pub(super) fn lease(name: &str, version: Option<u64>) -> String {
    let mut metadata = json!({"name": name});
    if let Some(version) = version {
        metadata["resourceVersion"] = version.to_string().into();
    }
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now(MICRO)}})
    .to_string()
}

/// A configmap of 0.5 to 4 KiB.
pub(super) fn configmap(name: &str, index: usize, turn: usize) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": format!("app-{index}")}},
        "data": {"level": "info", "turn": turn.to_string(), "app.conf": text(index, 400 << (index % 4))}})
    .to_string()
}

/// A secret of about 1 KiB.
pub(super) fn secret(name: &str, index: usize) -> String {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque",
        "stringData": {"url": format!("postgres://app-{index}@db.example.com/shop"), "token": text(index, 600)}})
    .to_string()
}

/// What happened to a pod.
pub(super) fn event(namespace: &str, name: &str, pod: &str, node: &str) -> String {
    let at = now(SECOND);
    json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod,
            "uid": "5d9c2f4e-8f1b-4f0e-9a53-6b1f2f9a7c11", "resourceVersion": "1", "fieldPath": "spec.containers{app}"},
        "reason": "Pulled", "type": "Normal", "count": 1, "firstTimestamp": at, "lastTimestamp": at,
        "message": "Container image \"registry.example.com/shop/app:v1.4.3\" already present on machine and can be accessed by the pod",
        "source": {"component": "kubelet", "host": node}, "reportingComponent": "kubelet", "reportingInstance": node})
    .to_string()
}

/// Where a service's pods are: ten of them.
pub(super) fn slice(name: &str, index: usize, nodes: usize) -> String {
    let endpoints: Vec<Value> = (0..10)
        .map(|pod| {
            json!({"addresses": [format!("10.130.{}.{pod}", index % 256)], "nodeName": Scale::node((index + pod) % nodes),
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "targetRef": {"kind": "Pod", "name": format!("app-{index}-7c9d8f6b5d-{pod:05}"), "namespace": "team"}})
        })
        .collect();
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": format!("app-{index}")}},
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints})
    .to_string()
}

/// A service.
pub(super) fn service(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}})
    .to_string()
}

/// Something with a name and nothing else.
pub(super) fn named(api_version: &str, kind: &str, name: &str) -> String {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}).to_string()
}
