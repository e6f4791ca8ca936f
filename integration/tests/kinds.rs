//! A stock kubectl on every kind that our apiserver has beside pods: get, describe, scale, the forms of cascade, rights.
//!
//! One cluster serves all; each step is a function of its own, and all are tried even when one fails.

use std::time::Duration;

use anyhow::{Result, ensure};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, eventually, newest};

const PATIENCE: Duration = Duration::from_secs(60);

/// One object of each kind, all of the name `x`.
const OBJECTS: &str = r#"
{kind: Deployment, apiVersion: apps/v1, metadata: {name: x}, spec: {replicas: 2, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}
---
{kind: ReplicaSet, apiVersion: apps/v1, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}
---
{kind: DaemonSet, apiVersion: apps/v1, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}
---
{kind: StatefulSet, apiVersion: apps/v1, metadata: {name: x}, spec: {serviceName: x, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}
---
{kind: ControllerRevision, apiVersion: apps/v1, metadata: {name: x}, revision: 1, data: {a: 1}}
---
{kind: ReplicationController, apiVersion: v1, metadata: {name: x}, spec: {template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}
---
{kind: Job, apiVersion: batch/v1, metadata: {name: x}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
---
{kind: CronJob, apiVersion: batch/v1, metadata: {name: x}, spec: {schedule: "*/5 * * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}}
---
{kind: PodDisruptionBudget, apiVersion: policy/v1, metadata: {name: x}, spec: {minAvailable: 1, selector: {matchLabels: {a: b}}}}
---
{kind: Endpoints, apiVersion: v1, metadata: {name: x}, subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80}]}]}
---
{kind: EndpointSlice, apiVersion: discovery.k8s.io/v1, metadata: {name: x}, addressType: IPv4, endpoints: [{addresses: [10.0.0.1]}], ports: [{port: 80}]}
---
{kind: LimitRange, apiVersion: v1, metadata: {name: x}, spec: {limits: [{type: Container, max: {cpu: 8}}]}}
---
{kind: ResourceQuota, apiVersion: v1, metadata: {name: x}, spec: {hard: {pods: 100}}}
---
{kind: PersistentVolume, apiVersion: v1, metadata: {name: x}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: x, hostPath: {path: /x}}}
---
{kind: PersistentVolumeClaim, apiVersion: v1, metadata: {name: x}, spec: {storageClassName: x, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{kind: StorageClass, apiVersion: storage.k8s.io/v1, metadata: {name: x}, provisioner: example.com/x}
---
{kind: VolumeAttachment, apiVersion: storage.k8s.io/v1, metadata: {name: x}, spec: {attacher: example.com/x, nodeName: node-x, source: {persistentVolumeName: x}}}
---
{kind: Ingress, apiVersion: networking.k8s.io/v1, metadata: {name: x}, spec: {ingressClassName: x, rules: [{host: example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: x, port: {number: 80}}}}]}}]}}
---
{kind: IngressClass, apiVersion: networking.k8s.io/v1, metadata: {name: x}, spec: {controller: example.com/x}}
---
{kind: NetworkPolicy, apiVersion: networking.k8s.io/v1, metadata: {name: x}, spec: {podSelector: {matchLabels: {a: b}}, ingress: [{ports: [{port: 80, protocol: TCP}]}]}}
---
{kind: Role, apiVersion: rbac.authorization.k8s.io/v1, metadata: {name: x}, rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]}
---
{kind: ClusterRole, apiVersion: rbac.authorization.k8s.io/v1, metadata: {name: x}, rules: [{apiGroups: [""], resources: [nodes], verbs: [get]}]}
---
{kind: RoleBinding, apiVersion: rbac.authorization.k8s.io/v1, metadata: {name: x}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: x}, subjects: [{kind: ServiceAccount, name: default, namespace: default}]}
---
{kind: ClusterRoleBinding, apiVersion: rbac.authorization.k8s.io/v1, metadata: {name: x}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: x}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]}
---
{kind: PriorityClass, apiVersion: scheduling.k8s.io/v1, metadata: {name: x}, value: 5}
"#;

/// The kinds as people call them, and a text that their table must have.
const KINDS: [(&str, &str); 25] = [
    ("deploy", "UP-TO-DATE"),
    ("rs", "DESIRED"),
    ("ds", "NODE SELECTOR"),
    ("sts", "READY"),
    ("controllerrevisions", "REVISION"),
    ("rc", "DESIRED"),
    ("jobs", "COMPLETIONS"),
    ("cj", "LAST SCHEDULE"),
    ("pdb", "ALLOWED DISRUPTIONS"),
    ("ep", "10.0.0.1:80"),
    ("endpointslices", "10.0.0.1"),
    ("limits", "CREATED AT"),
    ("quota", "REQUEST"),
    ("pv", "RECLAIM POLICY"),
    ("pvc", "Pending"),
    ("sc", "example.com/x"),
    ("volumeattachments", "ATTACHED"),
    ("ing", "example.com"),
    ("ingressclasses", "CONTROLLER"),
    ("netpol", "a=b"),
    ("roles", "CREATED AT"),
    ("clusterroles", "CREATED AT"),
    ("rolebindings", "Role/x"),
    ("clusterrolebindings", "ClusterRole/x"),
    ("pc", "GLOBAL-DEFAULT"),
];

type Step = fn(&Cluster<'_>) -> Result<()>;

const STEPS: [(&str, Step); 8] = [
    ("create", create),
    ("get and describe", get_and_describe),
    ("scale", scale),
    ("cascade", cascade),
    ("rights of an account", rights),
    ("rights of one's own", own_rights),
    ("events", events),
    ("top", top),
];

#[test]
fn root_kubectl_on_every_kind() {
    let env = Env::start(newest()).unwrap();
    let cluster = Cluster::start(&env, ClusterOptions::default()).unwrap();
    let mut failures = Vec::new();
    for (name, step) in STEPS {
        if let Err(error) = step(&cluster) {
            failures.push(format!("{name}: {error:#}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

fn apply(cluster: &Cluster<'_>, name: &str, text: &str) -> Result<String> {
    let file = cluster.env().directory().join(name);
    std::fs::write(&file, text)?;
    cluster.kubectl(&["apply", "-f", &file.display().to_string()])
}

fn create(cluster: &Cluster<'_>) -> Result<()> {
    let out = apply(cluster, "kinds.yaml", OBJECTS)?;
    ensure!(out.lines().filter(|line| line.ends_with("created")).count() == KINDS.len(), "{out}");
    let again = apply(cluster, "kinds.yaml", OBJECTS)?;
    // Where the manifest leaves out what the server fills in inside a list, or writes an amount as a number, kubectl sends
    // it again each time, to any server.
    let rewritten = ["poddisruptionbudget", "endpoints/", "endpointslice", "limitrange", "resourcequota"];
    let steady = again.lines().filter(|line| !rewritten.iter().any(|kind| line.starts_with(kind)));
    let changed: Vec<&str> = steady.filter(|line| !line.ends_with("unchanged")).collect();
    ensure!(changed.is_empty(), "the second time something changed: {changed:?}");
    Ok(())
}

fn get_and_describe(cluster: &Cluster<'_>) -> Result<()> {
    for (kind, text) in KINDS {
        let out = cluster.kubectl(&["get", kind, "x", "-o", "wide"])?;
        ensure!(out.contains(text), "get {kind}: no {text:?} in\n{out}");
        let out = cluster.kubectl(&["describe", kind, "x"])?;
        ensure!(out.contains("Name:") && out.contains(" x"), "describe {kind}:\n{out}");
    }
    let all = cluster.kubectl(&["get", "all"])?;
    for kind in ["deployment.apps/x", "replicaset.apps/x", "daemonset.apps/x", "statefulset.apps/x", "job.batch/x"] {
        ensure!(all.contains(kind), "no {kind} in\n{all}");
    }
    Ok(())
}

fn scale(cluster: &Cluster<'_>) -> Result<()> {
    for kind in ["deployment", "rs", "sts", "rc"] {
        let out = cluster.kubectl(&["scale", kind, "x", "--replicas=3"])?;
        ensure!(out.contains("scaled"), "{kind}: {out}");
        let now = cluster.kubectl(&["get", kind, "x", "-o", "jsonpath={.spec.replicas}"])?;
        ensure!(now == "3", "{kind}: {now}");
        let wrong = cluster.kubectl(&["scale", kind, "x", "--current-replicas=7", "--replicas=4"]);
        ensure!(wrong.is_err(), "{kind}: scaled from a number that it did not have");
    }
    Ok(())
}

fn cascade(cluster: &Cluster<'_>) -> Result<()> {
    let family = |cluster: &Cluster<'_>, name: &str| -> Result<()> {
        apply(cluster, "owner.yaml", &format!("{{kind: ConfigMap, apiVersion: v1, metadata: {{name: {name}}}}}"))?;
        let uid = cluster.kubectl(&["get", "cm", name, "-o", "jsonpath={.metadata.uid}"])?;
        let child = format!(
            "{{kind: ConfigMap, apiVersion: v1, metadata: {{name: {name}-child, ownerReferences: [{{apiVersion: v1, \
             kind: ConfigMap, name: {name}, uid: {uid}, blockOwnerDeletion: true}}]}}}}"
        );
        apply(cluster, "child.yaml", &child).map(drop)
    };
    let there = |name: &str| cluster.kubectl(&["get", "cm", name]).is_ok();
    for form in ["background", "foreground"] {
        family(cluster, form)?;
        cluster.kubectl(&["delete", "cm", form, &format!("--cascade={form}"), "--timeout=60s"])?;
        eventually("the child goes", PATIENCE, || !there(&format!("{form}-child")))?;
        ensure!(!there(form), "the owner is still there after {form}");
    }
    family(cluster, "orphan")?;
    cluster.kubectl(&["delete", "cm", "orphan", "--cascade=orphan", "--timeout=60s"])?;
    let owners = cluster.kubectl(&["get", "cm", "orphan-child", "-o", "jsonpath={.metadata.ownerReferences}"])?;
    ensure!(owners.is_empty(), "the orphan still has {owners}");
    Ok(())
}

fn rights(cluster: &Cluster<'_>) -> Result<()> {
    // The role binding `x` lets the account `default` read pods, and nothing else.
    let account = "system:serviceaccount:default:default";
    let review = |verb: &str, resource: &str| -> Result<String> {
        let text = format!(
            "{{kind: SubjectAccessReview, apiVersion: authorization.k8s.io/v1, spec: {{user: \"{account}\", \
             resourceAttributes: {{namespace: default, verb: {verb}, resource: {resource}}}}}}}"
        );
        ask(cluster, &text, "jsonpath={.status.allowed} {.status.reason}")
    };
    let out = review("list", "pods")?;
    ensure!(out.starts_with("true RBAC: allowed by RoleBinding \"x/default\" of Role \"x\""), "{out}");
    let out = review("delete", "pods")?;
    ensure!(out.starts_with("false"), "{out}");
    cluster.kubectl(&["delete", "rolebinding", "x"])?;
    let out = review("list", "pods")?;
    ensure!(out.starts_with("false"), "after the binding went: {out}");
    Ok(())
}

/// Sends a review; it is not stored, so there is nothing to get.
fn ask(cluster: &Cluster<'_>, review: &str, output: &str) -> Result<String> {
    let file = cluster.env().directory().join("review.yaml");
    std::fs::write(&file, review)?;
    cluster.kubectl(&["create", "--validate=false", "-f", &file.display().to_string(), "-o", output])
}

fn own_rights(cluster: &Cluster<'_>) -> Result<()> {
    let text = "{kind: SelfSubjectAccessReview, apiVersion: authorization.k8s.io/v1, spec: {resourceAttributes: \
                {verb: delete, resource: nodes}}}";
    let out = ask(cluster, text, "jsonpath={.status.allowed}")?;
    ensure!(out == "true", "{out}");
    let text = "{kind: SelfSubjectRulesReview, apiVersion: authorization.k8s.io/v1, spec: {namespace: default}}";
    let out = ask(cluster, text, "json")?;
    ensure!(out.contains("selfsubjectaccessreviews") && out.contains("nonResourceRules"), "{out}");
    Ok(())
}

fn events(cluster: &Cluster<'_>) -> Result<()> {
    let text = "{kind: Event, apiVersion: events.k8s.io/v1, metadata: {name: e}, eventTime: \"2026-01-01T00:00:00.000000Z\", \
                action: Test, reason: Because, type: Normal, note: hello-there, reportingController: example.com/x, \
                reportingInstance: i, regarding: {kind: Deployment, apiVersion: apps/v1, namespace: default, name: x}}";
    let file = cluster.env().directory().join("event.yaml");
    std::fs::write(&file, text)?;
    cluster.kubectl(&["create", "-f", &file.display().to_string()])?;
    for command in [&["events"][..], &["get", "events"], &["get", "events.v1.events.k8s.io"]] {
        let out = cluster.kubectl(command)?;
        ensure!(out.contains("hello-there"), "{command:?}:\n{out}");
    }
    Ok(())
}

fn top(cluster: &Cluster<'_>) -> Result<()> {
    let refused = cluster.kubectl(&["top", "pods"]);
    ensure!(
        refused.is_err_and(|error| format!("{error:#}").contains("Metrics API not available")),
        "top did not say so"
    );
    Ok(())
}
