//! What a stock kubectl does beside the everyday verbs, with nothing switched off: pruning, editing, patches of each type,
//! all forms of output, debugging, the proxy, and the objects that it makes from the command line.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, eventually, newest};

/// For each thing that should happen soon; a loaded machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);

const WORKLOAD: &str = r#"
{kind: ConfigMap, apiVersion: v1, metadata: {name: one, labels: {set: p}}, data: {a: "1"}}
---
{kind: ConfigMap, apiVersion: v1, metadata: {name: two, labels: {set: p}}, data: {a: "1"}}
---
{kind: Deployment, apiVersion: apps/v1, metadata: {name: web, labels: {set: p}}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: "i:1"}, {name: d, image: "i:1"}]}}}}
"#;

type Step = fn(&Cluster<'_>) -> Result<()>;

const STEPS: [(&str, Step); 14] = [
    ("apply --prune", prune),
    ("get in all outputs", outputs),
    ("patch", patch),
    ("label and annotate", label_and_annotate),
    ("set", set),
    ("edit", edit),
    ("diff", diff),
    ("replace", replace),
    ("create from the command line", create),
    ("api-resources and explain", kinds_are_told),
    ("auth", auth),
    ("cordon, taint, drain", node),
    ("debug", debug),
    ("proxy", proxy),
];

#[test]
fn root_kubectl_beyond_the_everyday_verbs() {
    let env = Env::start(newest()).unwrap();
    let cluster = Cluster::start(&env, ClusterOptions::default()).unwrap();
    let mut failures = Vec::new();
    for (name, step) in STEPS {
        if let Err(error) = step(&cluster) {
            failures.push(format!("kubectl {name}: {error:#}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Writes a file of the run and returns its path.
fn file(cluster: &Cluster<'_>, name: &str, text: &str) -> Result<String> {
    let path = cluster.env().directory().join(name);
    std::fs::write(&path, text)?;
    Ok(path.display().to_string())
}

fn first_of(text: &str) -> &str {
    text.split("---").next().unwrap_or_default()
}

/// Runs kubectl and expects it to fail; returns what it said.
fn refused(cluster: &Cluster<'_>, arguments: &[&str]) -> Result<String> {
    let outcome = cluster.kubectl(arguments);
    Ok(format!("{:#}", outcome.err().with_context(|| format!("{arguments:?} was not refused"))?))
}

fn path_of(cluster: &Cluster<'_>, object: &str, path: &str) -> Result<String> {
    cluster.kubectl(&["get", object, "-o", &format!("jsonpath={path}")])
}

fn prune(cluster: &Cluster<'_>) -> Result<()> {
    let all = file(cluster, "all.yaml", WORKLOAD)?;
    let one = file(cluster, "one.yaml", first_of(WORKLOAD))?;
    cluster.kubectl(&["apply", "--prune", "-l", "set=p", "-f", &all])?;
    let out = cluster.kubectl(&["apply", "--prune", "-l", "set=p", "-f", &one])?;
    for wanted in ["configmap/one unchanged", "configmap/two pruned", "deployment.apps/web pruned"] {
        ensure!(out.contains(wanted), "no {wanted:?} in {out}");
    }
    // The newer form: what belongs to the set is written on an object that stands for the set.
    let set = |file: &str| {
        let words = ["apply", "--prune", "--applyset=configmaps/mine", "-n", "default", "-f", file];
        let mut command = cluster.kubectl_command(&words)?;
        cluster.env().run(command.env("KUBECTL_APPLYSET", "true"))
    };
    set(&all)?;
    let out = set(&one)?;
    ensure!(out.contains("configmap/two pruned") && out.contains("deployment.apps/web pruned"), "{out}");
    cluster.kubectl(&["get", "configmap", "mine"])?;
    let out = cluster.kubectl(&["apply", "-f", &all])?;
    ensure!(out.contains("configmap/two created"), "{out}");
    Ok(())
}

fn outputs(cluster: &Cluster<'_>) -> Result<()> {
    for (form, wanted) in [
        ("json", "\"kind\": \"List\""),
        ("yaml", "kind: List"),
        ("kyaml", "kind: \"List\""),
        ("wide", "DATA"),
        ("name", "configmap/one\nconfigmap/two"),
        ("jsonpath={.items[*].metadata.name}", "one two"),
        ("jsonpath-as-json={.items[*].data}", "\"a\": \"1\""),
        ("go-template={{range .items}}<{{.metadata.name}}>{{end}}", "<one><two>"),
        ("custom-columns=N:.metadata.name,A:.data.a", "one   1"),
    ] {
        let out = cluster.kubectl(&["get", "cm", "-l", "set=p", "-o", form])?;
        ensure!(out.contains(wanted), "-o {form}: no {wanted:?} in\n{out}");
    }
    let out = cluster.kubectl(&["get", "cm", "-l", "set=p", "-L", "set", "--show-labels"])?;
    ensure!(out.lines().next().is_some_and(|head| head.contains("SET") && head.contains("LABELS")), "{out}");
    let out =
        cluster.kubectl(&["get", "cm", "-A", "--sort-by=.metadata.uid", "-o", "jsonpath={.items[*].metadata.uid}"])?;
    ensure!(out.split(' ').is_sorted() && out.split(' ').count() > 3, "{out}");
    let out = cluster.kubectl(&["get", "cm", "-A", "--sort-by=.metadata.creationTimestamp", "--no-headers"])?;
    ensure!(out.lines().count() > 3, "a sorted table: {out}");
    let out = cluster.kubectl(&["get", "cm", "--chunk-size=1", "-A", "-o", "name"])?;
    ensure!(out.lines().count() > 3, "page by page: {out}");
    let out = cluster.kubectl(&["get", "cm", "one", "-o", "yaml", "--show-managed-fields"])?;
    ensure!(out.contains("manager: kubectl-client-side-apply"), "{out}");
    let out = cluster.kubectl(&["get", "cm", "-w", "--output-watch-events", "--request-timeout=1s"])?;
    ensure!(out.lines().any(|line| line.starts_with("ADDED") && line.contains("one")), "{out}");
    let out = cluster.kubectl(&["get", "--raw", "/api/v1/namespaces/default/configmaps/one"])?;
    ensure!(out.starts_with(r#"{"kind":"ConfigMap""#), "{out}");
    Ok(())
}

fn patch(cluster: &Cluster<'_>) -> Result<()> {
    let patch = |object: &str, kind: &str, body: &str| cluster.kubectl(&["patch", object, "--type", kind, "-p", body]);
    patch("cm/one", "merge", r#"{"data":{"b":"2"}}"#)?;
    patch(
        "cm/one",
        "json",
        r#"[{"op":"test","path":"/data/b","value":"2"},{"op":"add","path":"/data/c","value":"3"}]"#,
    )?;
    let failed = r#"[{"op":"test","path":"/data/b","value":"9"},{"op":"remove","path":"/data/c"}]"#;
    ensure!(patch("cm/one", "json", failed).is_err(), "a test that does not hold");
    ensure!(path_of(cluster, "cm/one", "{.data}")? == r#"{"a":"1","b":"2","c":"3"}"#);
    patch("deploy/web", "strategic", r#"{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"i:2"}]}}}}"#)?;
    for (part, body) in [("scale", r#"{"spec":{"replicas":2}}"#), ("status", r#"{"status":{"replicas":2}}"#)] {
        cluster.kubectl(&["patch", "deploy", "web", "--subresource", part, "--type", "merge", "-p", body])?;
    }
    let now = path_of(
        cluster,
        "deploy/web",
        "{.spec.replicas} {.spec.template.spec.containers[*].image} {.status.replicas}",
    )?;
    ensure!(now == "2 i:1 i:2 2", "{now}");
    let text = refused(cluster, &["patch", "deploy", "web", "-p", r#"{"spec":{"replicas":-1}}"#])?;
    ensure!(text.contains("spec.replicas: Invalid value: -1"), "{text}");
    Ok(())
}

fn label_and_annotate(cluster: &Cluster<'_>) -> Result<()> {
    cluster.kubectl(&["label", "cm", "one", "x=y"])?;
    let text = refused(cluster, &["label", "cm", "one", "x=z"])?;
    ensure!(text.contains("--overwrite is false"), "{text}");
    cluster.kubectl(&["label", "cm", "one", "x=z", "--overwrite"])?;
    ensure!(cluster.kubectl(&["get", "cm", "-l", "x in (z)", "-o", "name"])?.trim() == "configmap/one");
    cluster.kubectl(&["label", "cm", "one", "x-"])?;
    ensure!(cluster.kubectl(&["get", "cm", "-l", "x", "-o", "name"])?.is_empty(), "the label is still there");
    let text = refused(cluster, &["label", "cm", "one", "a/b/c=d"])?;
    ensure!(text.contains("a/b/c"), "{text}");
    cluster.kubectl(&["annotate", "cm", "one", "two", "note=v"])?;
    ensure!(path_of(cluster, "cm/two", "{.metadata.annotations.note}")? == "v");
    let text = refused(cluster, &["annotate", "cm", "one", "--resource-version=1", "note=w", "--overwrite"])?;
    ensure!(text.contains("Conflict"), "{text}");
    cluster.kubectl(&["annotate", "cm", "one", "two", "note-"]).map(drop)
}

fn set(cluster: &Cluster<'_>) -> Result<()> {
    for words in [
        &["set", "image", "deploy/web", "c=i:9"][..],
        &["set", "env", "deploy/web", "-c", "c", "A=B"],
        &["set", "resources", "deploy/web", "-c", "c", "--limits=cpu=1"],
        &["set", "serviceaccount", "deploy", "web", "robot"],
        &["rollout", "restart", "deploy/web"],
        &["rollout", "pause", "deploy/web"],
    ] {
        cluster.kubectl(words)?;
    }
    let path = "{.spec.paused} {.spec.template.spec.serviceAccountName} {.spec.template.spec.containers[0].image} \
                {.spec.template.spec.containers[0].env[0].value} {.spec.template.spec.containers[0].resources.limits.cpu}";
    let now = path_of(cluster, "deploy/web", path)?;
    ensure!(now == "true robot i:9 B 1", "{now}");
    Ok(())
}

/// Runs `kubectl edit` with a program in the editor's place.
fn edit_with(cluster: &Cluster<'_>, script: &str, object: &str) -> Result<String> {
    let editor = file(cluster, "editor.sh", &format!("#!/bin/sh\n{script}\n"))?;
    std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o755))?;
    let mut command = cluster.kubectl_command(&["edit", object])?;
    let output = cluster.env().output(command.env("EDITOR", editor))?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}

fn edit(cluster: &Cluster<'_>) -> Result<()> {
    let out = edit_with(cluster, r#"sed -i 's/a: "1"/a: "edited"/' "$1""#, "cm/two")?;
    ensure!(out.contains("configmap/two edited"), "{out}");
    ensure!(path_of(cluster, "cm/two", "{.data.a}")? == "edited");
    let out = edit_with(cluster, "true", "cm/two")?;
    ensure!(out.contains("no changes made"), "{out}");
    // What the apiserver refuses is shown in the editor again, with the reason above it.
    let mend = r##"if grep -q '^# .*spec.replicas: Invalid value: -1' "$1"; then
        sed -i 's/replicas: -1/replicas: 4/' "$1"
    else
        sed -i 's/^  replicas: 2/  replicas: -1/' "$1"
    fi"##;
    let out = edit_with(cluster, mend, "deploy/web")?;
    ensure!(out.contains("deployment.apps/web edited"), "{out}");
    ensure!(path_of(cluster, "deploy/web", "{.spec.replicas}")? == "4");
    Ok(())
}

fn diff(cluster: &Cluster<'_>) -> Result<()> {
    let changed = file(cluster, "changed.yaml", &first_of(WORKLOAD).replace("a: \"1\"", "a: \"7\""))?;
    // Differences are told by the exit code 1.
    let text = refused(cluster, &["diff", "-f", &changed])?;
    ensure!(text.contains("-  a: \"1\"") && text.contains("+  a: \"7\""), "{text}");
    ensure!(path_of(cluster, "cm/one", "{.data.a}")? == "1", "a diff changes nothing");
    cluster.kubectl(&["apply", "-f", &changed])?;
    let out = cluster.kubectl(&["diff", "-f", &changed])?;
    ensure!(out.is_empty(), "{out}");
    Ok(())
}

fn replace(cluster: &Cluster<'_>) -> Result<()> {
    let one = file(cluster, "one.yaml", first_of(WORKLOAD))?;
    cluster.kubectl(&["replace", "-f", &one])?;
    ensure!(path_of(cluster, "cm/one", "{.data}")? == r#"{"a":"1"}"#, "what is not there goes");
    let before = path_of(cluster, "cm/one", "{.metadata.uid}")?;
    cluster.kubectl(&["replace", "--force", "-f", &one])?;
    ensure!(path_of(cluster, "cm/one", "{.metadata.uid}")? != before, "made anew");
    let text = refused(cluster, &["create", "-f", &one])?;
    ensure!(text.contains("AlreadyExists"), "{text}");
    cluster.kubectl(&["delete", "cm", "one", "--dry-run=server"])?;
    ensure!(path_of(cluster, "cm/one", "{.data.a}")? == "1", "still there");
    Ok(())
}

fn create(cluster: &Cluster<'_>) -> Result<()> {
    for words in [
        "deployment made --image=i:1 --replicas=2 --port=80",
        "job made --image=i:1",
        "cronjob made --image=i:1 --schedule=*/5_*_*_*_*",
        "job made-by-hand --from=cronjob/made",
        "ingress made --rule=a.example.com/b=made:80",
        "role made --verb=get,list --resource=pods,deployments.apps",
        "clusterrole made --verb=get --resource=nodes",
        "rolebinding made --role=made --user=jane",
        "clusterrolebinding made --clusterrole=made --group=all",
        "quota made --hard=pods=10",
        "poddisruptionbudget made --selector=a=b --min-available=50%",
        "secret docker-registry made --docker-username=a --docker-password=b",
        "service nodeport made-node --tcp=80",
        "service externalname made-name --external-name=a.example.com",
        "service loadbalancer made-load --tcp=80",
    ] {
        let words: Vec<String> = words.split(' ').map(|word| word.replace('_', " ")).collect();
        let words: Vec<&str> = std::iter::once("create").chain(words.iter().map(String::as_str)).collect();
        let out = cluster.kubectl(&words)?;
        ensure!(out.contains("created"), "{words:?}: {out}");
    }
    cluster.kubectl(&["expose", "deployment", "made"])?;
    for kind in
        ["job/made-by-hand", "ingress/made", "quota/made", "pdb/made", "secret/made", "svc/made", "svc/made-load"]
    {
        let out = cluster.kubectl(&["describe", kind])?;
        ensure!(out.contains("made"), "describe {kind}: {out}");
    }
    for kind in ["ns/default", "sa/default", "lease/qnode-1", "clusterrole/admin", "pc/system-node-critical"] {
        let namespace = if kind.starts_with("lease") { "kube-node-lease" } else { "default" };
        let out = cluster.kubectl(&["describe", kind, "-n", namespace])?;
        ensure!(out.contains("Name:"), "describe {kind}: {out}");
    }
    let out = cluster.kubectl(&["create", "deployment", "dry", "--image=i", "--dry-run=server", "-o", "name"])?;
    ensure!(out.trim() == "deployment.apps/dry" && cluster.kubectl(&["get", "deploy", "dry"]).is_err(), "{out}");
    let out = cluster.kubectl(&["delete", "all", "--all", "--cascade=foreground", "--timeout=60s"])?;
    ensure!(out.contains("\"made\" deleted") && cluster.kubectl(&["get", "jobs", "-o", "name"])?.is_empty(), "{out}");
    Ok(())
}

fn kinds_are_told(cluster: &Cluster<'_>) -> Result<()> {
    let out =
        cluster.kubectl(&["api-resources", "--api-group=apps", "--verbs=list,watch", "--namespaced", "-o", "wide"])?;
    for kind in ["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"] {
        ensure!(out.contains(kind), "no {kind} in\n{out}");
    }
    let out = cluster.kubectl(&["api-versions"])?;
    ensure!(out.contains("apps/v1\n") && out.ends_with("v1\n"), "{out}");
    let out = cluster.kubectl(&["explain", "deploy.spec.template.spec.containers", "--recursive"])?;
    ensure!(out.contains("configMapKeyRef\t<ConfigMapKeySelector>"), "{out}");
    let out = cluster.kubectl(&["explain", "cronjob.spec.jobTemplate.spec"])?;
    ensure!(out.contains("activeDeadlineSeconds\t<integer>"), "{out}");
    let out = cluster.kubectl(&["version"])?;
    ensure!(out.contains("Server Version: v1."), "{out}");
    let out = cluster.kubectl(&["cluster-info"])?;
    ensure!(out.contains("control plane") && out.contains(":6443"), "{out}");
    Ok(())
}

fn auth(cluster: &Cluster<'_>) -> Result<()> {
    let out = cluster.kubectl(&["auth", "can-i", "--list"])?;
    ensure!(out.contains("*.*") && out.contains("[/api/*]"), "{out}");
    let robot = "--as=system:serviceaccount:default:default";
    let text = refused(cluster, &["auth", "can-i", "get", "pods", robot])?;
    ensure!(text.contains("no"), "{text}");
    let rules = "{kind: Role, apiVersion: rbac.authorization.k8s.io/v1, metadata: {name: rec, namespace: default}, \
                 rules: [{apiGroups: [\"\"], resources: [pods], verbs: [get]}]}\n---\n{kind: RoleBinding, apiVersion: \
                 rbac.authorization.k8s.io/v1, metadata: {name: rec, namespace: default}, roleRef: {apiGroup: \
                 rbac.authorization.k8s.io, kind: Role, name: rec}, subjects: [{kind: ServiceAccount, name: default, \
                 namespace: default}]}";
    let rules = file(cluster, "rules.yaml", rules)?;
    let out = cluster.kubectl(&["auth", "reconcile", "-f", &rules])?;
    ensure!(out.contains("reconciled"), "{out}");
    ensure!(cluster.kubectl(&["auth", "can-i", "get", "pods", robot])?.trim() == "yes");
    ensure!(cluster.kubectl(&["get", "pods", robot]).is_err(), "list was not given");
    let out = cluster.kubectl(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", robot])?;
    ensure!(out == "system:serviceaccount:default:default", "{out}");
    Ok(())
}

fn node(cluster: &Cluster<'_>) -> Result<()> {
    let node = Cluster::NODE;
    for words in [
        &["cordon", node][..],
        &["taint", "node", node, "a=b:NoSchedule"],
        &["taint", "node", node, "a-"],
        &["drain", node, "--ignore-daemonsets", "--dry-run=server"],
        &["uncordon", node],
    ] {
        cluster.kubectl(words)?;
    }
    let spec = path_of(cluster, &format!("node/{node}"), "{.spec.taints}{.spec.unschedulable}")?;
    ensure!(spec.is_empty(), "{spec}");
    Ok(())
}

fn debug(cluster: &Cluster<'_>) -> Result<()> {
    let image = "--image=localhost/busybox:1";
    let pull = "--image-pull-policy=Never";
    cluster.kubectl(&["run", "sick", image, pull, "--", "sleep", "1000"])?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/sick", "--timeout=60s"])?;
    let shell = "echo looked; ps | grep -c 'sleep 1000'; exec sleep 1000";
    cluster.kubectl(&[
        "debug",
        "sick",
        image,
        pull,
        "--container=doctor",
        "--target=sick",
        "--profile=general",
        "--",
        "sh",
        "-c",
        shell,
    ])?;
    // It shares the target's processes.
    eventually("the debug container looked", PATIENCE, || {
        cluster.kubectl(&["logs", "sick", "-c", "doctor"]).is_ok_and(|log| log.starts_with("looked\n"))
    })?;
    let out = cluster.kubectl(&["exec", "sick", "-c", "doctor", "--", "ps"])?;
    ensure!(out.lines().filter(|line| line.contains("sleep 1000")).count() >= 2, "the target is not seen:\n{out}");
    let out = cluster.kubectl(&["describe", "pod", "sick"])?;
    ensure!(out.contains("Ephemeral Containers:") && out.contains("doctor:"), "{out}");
    let words = [
        "debug",
        "sick",
        "--copy-to=twin",
        image,
        pull,
        "--container=doctor",
        "--share-processes",
        "--",
        "sleep",
        "1000",
    ];
    cluster.kubectl(&words)?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/twin", "--timeout=60s"])?;
    ensure!(path_of(cluster, "pod/twin", "{.spec.containers[*].name}")? == "sick doctor");
    cluster.kubectl(&["wait", "--for=jsonpath={.status.phase}=Running", "pod/twin", "--timeout=10s"])?;
    let out = cluster.kubectl(&["events", "--for", "pod/sick"])?;
    ensure!(out.contains("Started"), "{out}");
    cluster.kubectl(&["delete", "pod", "twin", "sick", "--wait=false", "--now"])?;
    cluster.kubectl(&["wait", "--for=delete", "pod/twin", "pod/sick", "--timeout=60s"]).map(drop)
}

fn proxy(cluster: &Cluster<'_>) -> Result<()> {
    let proxy = cluster.env().spawn("kubectl-proxy", &mut cluster.kubectl_command(&["proxy", "--port=18001"])?)?;
    let log = proxy.log().to_path_buf();
    eventually("the proxy serves", PATIENCE, || {
        std::fs::read_to_string(&log).unwrap_or_default().contains("Starting to serve")
    })?;
    let ask = |path: &str| -> Result<String> {
        cluster.env().within(|| {
            let mut stream = TcpStream::connect("127.0.0.1:18001")?;
            stream.set_read_timeout(Some(PATIENCE))?;
            write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            anyhow::Ok(answer)
        })?
    };
    let answer = ask("/api/v1/namespaces/default")?;
    ensure!(answer.contains("200 OK") && answer.contains("\"kind\":\"Namespace\""), "{answer}");
    let answer = ask(&format!("/api/v1/nodes/{}/proxy/healthz", Cluster::NODE))?;
    ensure!(answer.contains("200 OK") && answer.ends_with("ok"), "{answer}");
    Ok(())
}
