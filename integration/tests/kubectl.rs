//! A stock kubectl, with nothing switched off, does its everyday work against our node and our apiserver.
//!
//! One node serves all verbs; each verb is a function of its own, and all are tried even when one fails.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, Version, eventually, newest};

/// For each thing that should happen soon; a loaded machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);

const PODS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {greeting: hello}
---
apiVersion: v1
kind: Pod
metadata: {name: talker, labels: {app: talker}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: localhost/busybox:1
    command: [sh, -c, "trap 'exit 0' TERM; i=0; while :; do echo line $i; i=$((i+1)); sleep 0.2 & wait $!; done"]
  - name: web
    image: localhost/busybox:1
    command: [sh, -c, "mkdir -p /www; echo served >/www/index.html; exec httpd -f -p 8080 -h /www"]
---
apiVersion: v1
kind: Pod
metadata: {name: listener}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: localhost/busybox:1
    stdin: true
    tty: false
    command: [sh, -c, "while read line; do echo got $line; done"]
"#;

type Step = fn(&Cluster<'_>) -> Result<()>;

const STEPS: [(&str, Step); 15] = [
    ("apply", apply),
    ("create", create),
    ("apply --server-side", apply_server_side),
    ("explain", explain),
    ("wait", wait),
    ("get", get),
    ("get -w", get_watch),
    ("describe", describe),
    ("logs -f", logs_follow),
    ("exec", exec),
    ("exec -it", exec_terminal),
    ("attach", attach),
    ("cp", copy),
    ("port-forward", port_forward),
    ("delete", delete),
];

fn every_verb_works(version: Version) {
    let env = Env::start(version).unwrap();
    let cluster = Cluster::start(&env, ClusterOptions::default()).unwrap();
    let mut failures = Vec::new();
    for (name, step) in STEPS {
        if let Err(error) = step(&cluster) {
            failures.push(format!("kubectl {name}: {error:#}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn root_kubectl_verbs_on_debian_12_containerd() {
    every_verb_works(Version::V1_6);
}

#[test]
fn root_kubectl_verbs_on_the_newest_containerd() {
    every_verb_works(newest());
}

fn apply(cluster: &Cluster<'_>) -> Result<()> {
    let file = cluster.env().directory().join("pods.yaml");
    std::fs::write(&file, PODS)?;
    let file = file.display().to_string();
    let out = cluster.kubectl(&["apply", "-f", &file])?;
    ensure!(out.contains("pod/talker created") && out.contains("configmap/words created"), "{out}");
    let again = cluster.kubectl(&["apply", "-f", &file])?;
    ensure!(
        again.contains("pod/talker unchanged") && again.contains("configmap/words unchanged"),
        "second time: {again}"
    );
    std::fs::write(&file, PODS.replace("greeting: hello", "greeting: hi"))?;
    let changed = cluster.kubectl(&["apply", "-f", &file])?;
    ensure!(changed.contains("configmap/words configured"), "changed: {changed}");
    let word = cluster.kubectl(&["get", "configmap", "words", "-o", "jsonpath={.data.greeting}"])?;
    ensure!(word == "hi", "{word}");
    Ok(())
}

/// What typed clients do, in protobuf.
fn create(cluster: &Cluster<'_>) -> Result<()> {
    let all: [&[&str]; 6] = [
        &["create", "namespace", "typed"],
        &["create", "configmap", "typed", "-n", "typed", "--from-literal=a=1"],
        &["create", "secret", "generic", "typed", "-n", "typed", "--from-literal=a=1"],
        &["create", "serviceaccount", "typed", "-n", "typed"],
        &["create", "service", "clusterip", "typed", "-n", "typed", "--tcp=80:8080"],
        &["create", "priorityclass", "typed", "--value=5"],
    ];
    for arguments in all {
        let out = cluster.kubectl(arguments)?;
        ensure!(out.contains("typed created"), "{arguments:?}: {out}");
    }
    let token = cluster.kubectl(&["create", "token", "typed", "-n", "typed", "--duration=20m"])?;
    ensure!(token.trim().split('.').count() == 3, "no token: {token}");
    let who = cluster.kubectl(&["auth", "whoami"])?;
    ensure!(who.contains("Username"), "{who}");
    let may = cluster.kubectl(&["auth", "can-i", "create", "pods"])?;
    ensure!(may.trim() == "yes", "{may}");
    let ports =
        cluster.kubectl(&["get", "service", "typed", "-n", "typed", "-o", "jsonpath={.spec.ports[0].targetPort}"])?;
    ensure!(ports == "8080", "{ports}");
    Ok(())
}

fn apply_server_side(cluster: &Cluster<'_>) -> Result<()> {
    let file = cluster.env().directory().join("owned.yaml");
    let path = file.display().to_string();
    let words = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: owned}\ndata: {a: \"1\", b: \"1\"}\n";
    std::fs::write(&file, words)?;
    let out = cluster.kubectl(&["apply", "--server-side", "-f", &path])?;
    ensure!(out.contains("configmap/owned serverside-applied"), "{out}");
    let other = words.replace("a: \"1\", ", "").replace("b: \"1\"", "b: \"2\"");
    std::fs::write(&file, &other)?;
    let refused = cluster.kubectl(&["apply", "--server-side", "--field-manager=other", "-f", &path]);
    let said = format!("{:#}", refused.err().context("no conflict")?);
    ensure!(said.contains("conflict with \"kubectl\": .data.b"), "{said}");
    // A difference is told by the exit code 1.
    let differs = cluster.kubectl(&["diff", "--server-side", "-f", &path]);
    let said = format!("{:#}", differs.err().context("no difference")?);
    ensure!(said.contains("-  a: \"1\"") && said.contains("+  b: \"2\""), "{said}");
    cluster.kubectl(&["apply", "--server-side", "-f", &path])?;
    let data = cluster.kubectl(&["get", "configmap", "owned", "-o", "jsonpath={.data}"])?;
    ensure!(data == r#"{"b":"2"}"#, "what is applied no more is gone: {data}");
    Ok(())
}

fn explain(cluster: &Cluster<'_>) -> Result<()> {
    let out = cluster.kubectl(&["explain", "pod.spec.containers.ports"])?;
    ensure!(out.contains("<[]ContainerPort>") && out.contains("containerPort\t<integer> -required-"), "{out}");
    let unknown = PODS.replace("tty: false", "ttty: false");
    let file = cluster.env().directory().join("unknown.yaml");
    std::fs::write(&file, unknown.split("---").last().unwrap_or_default().replace("name: listener", "name: wrong"))?;
    let refused = cluster.kubectl(&["apply", "-f", &file.display().to_string()]);
    let said = format!("{:#}", refused.err().context("an unknown field is taken")?);
    ensure!(said.contains("unknown field \"spec.containers[0].ttty\""), "{said}");
    Ok(())
}

fn wait(cluster: &Cluster<'_>) -> Result<()> {
    let out = cluster.kubectl(&["wait", "--for=condition=Ready", "pod/talker", "pod/listener", "--timeout=120s"])?;
    ensure!(out.contains("pod/talker condition met"), "{out}");
    Ok(())
}

fn get(cluster: &Cluster<'_>) -> Result<()> {
    let out = cluster.kubectl(&["get", "pods"])?;
    let row = out.lines().find(|line| line.starts_with("talker")).context("no row of talker")?;
    let words: Vec<&str> = row.split_whitespace().collect();
    ensure!(words[1..4] == ["2/2", "Running", "0"], "{out}");
    let nodes = cluster.kubectl(&["get", "nodes"])?;
    ensure!(nodes.contains("Ready"), "{nodes}");
    let selected = cluster.kubectl(&["get", "pods", "-l", "app=talker", "-o", "name"])?;
    ensure!(selected.trim() == "pod/talker", "{selected}");
    let all = cluster.kubectl(&["get", "pods", "-A", "-o", "wide"])?;
    ensure!(all.contains(Cluster::NODE), "{all}");
    Ok(())
}

fn get_watch(cluster: &Cluster<'_>) -> Result<()> {
    let env = cluster.env();
    let watcher = env.spawn("kubectl-watch", &mut cluster.kubectl_command(&["get", "pods", "-w", "--no-headers"])?)?;
    let seen = |text: &str| std::fs::read_to_string(watcher.log()).unwrap_or_default().contains(text);
    eventually("the watch lists", PATIENCE, || seen("talker"))?;
    cluster.kubectl(&["run", "passer-by", "--image=localhost/busybox:1", "--restart=Never", "--", "true"])?;
    eventually("the watch shows a new pod to its end", PATIENCE, || {
        let text = std::fs::read_to_string(watcher.log()).unwrap_or_default();
        text.lines().any(|line| line.starts_with("passer-by") && line.contains("Pending"))
            && text.lines().any(|line| line.starts_with("passer-by") && line.contains("Completed"))
    })?;
    cluster.kubectl(&["delete", "pod", "passer-by", "--timeout=120s"]).map(drop)
}

fn describe(cluster: &Cluster<'_>) -> Result<()> {
    let out = cluster.kubectl(&["describe", "pod", "talker"])?;
    for text in
        ["Name:             talker", "Status:           Running", "Image:         localhost/busybox:1", "Started"]
    {
        ensure!(out.contains(text), "no {text:?} in:\n{out}");
    }
    let node = cluster.kubectl(&["describe", "node", Cluster::NODE])?;
    ensure!(node.contains("KubeletReady") && node.contains("Non-terminated Pods"), "{node}");
    Ok(())
}

fn logs_follow(cluster: &Cluster<'_>) -> Result<()> {
    let tail = cluster.kubectl(&["logs", "talker", "-c", "main", "--tail=2"])?;
    ensure!(tail.lines().count() == 2 && tail.starts_with("line "), "{tail:?}");
    let stamped = cluster.kubectl(&["logs", "talker", "-c", "main", "--tail=1", "--timestamps"])?;
    ensure!(stamped.contains('T') && stamped.contains("Z line "), "{stamped:?}");
    let missing = cluster.kubectl(&["logs", "talker", "-c", "nobody"]);
    ensure!(missing.is_err_and(|error| format!("{error:#}").contains("nobody")), "an unknown container was accepted");
    let follower =
        cluster.env().spawn("kubectl-logs", &mut cluster.kubectl_command(&["logs", "-f", "talker", "-c", "main"])?)?;
    let lines = || std::fs::read_to_string(follower.log()).unwrap_or_default().lines().count();
    eventually("the first lines", PATIENCE, || lines() > 2)?;
    let before = lines();
    eventually("lines written later", PATIENCE, || lines() > before + 5)?;
    let text = std::fs::read_to_string(follower.log())?;
    for (index, line) in text.lines().enumerate() {
        ensure!(line == format!("line {index}"), "line {index} is {line:?}");
    }
    Ok(())
}

fn exec(cluster: &Cluster<'_>) -> Result<()> {
    let out = cluster.kubectl(&["exec", "talker", "-c", "main", "--", "sh", "-c", "echo out; echo $((6*7))"])?;
    ensure!(out == "out\n42\n", "{out:?}");
    let failed = cluster.env().output(&mut cluster.kubectl_command(&[
        "exec",
        "talker",
        "-c",
        "main",
        "--",
        "sh",
        "-c",
        "echo bad >&2; exit 7",
    ])?)?;
    ensure!(failed.status.code() == Some(7), "exit code {:?}", failed.status);
    ensure!(String::from_utf8_lossy(&failed.stderr).contains("bad"), "stderr was lost");
    let text = shell(cluster, "head -c 3000000 /dev/zero | KUBECTL exec -i talker -c main -- wc -c")?;
    ensure!(text.trim() == "3000000", "bytes through stdin: {text:?}");
    Ok(())
}

fn exec_terminal(cluster: &Cluster<'_>) -> Result<()> {
    let text = shell(
        cluster,
        "printf 'tty\\nstty size\\nexit 3\\n' | script -qec 'stty rows 33 cols 77; KUBECTL exec -it talker -c main -- sh' /dev/null; echo code $?",
    )?;
    ensure!(text.contains("/dev/pts/"), "no terminal inside:\n{text}");
    ensure!(text.contains("33 77"), "the terminal's size did not arrive:\n{text}");
    Ok(())
}

fn attach(cluster: &Cluster<'_>) -> Result<()> {
    let text = shell(cluster, "(echo one; sleep 1; echo two; sleep 1) | timeout 60 KUBECTL attach -i listener -c c")?;
    ensure!(text.contains("got one") && text.contains("got two"), "{text:?}");
    let logs = cluster.kubectl(&["logs", "listener"])?;
    ensure!(logs.contains("got one") && logs.contains("got two"), "the log has {logs:?}");
    Ok(())
}

fn copy(cluster: &Cluster<'_>) -> Result<()> {
    let directory = cluster.env().directory();
    let (there, back) = (directory.join("there"), directory.join("back"));
    let content: Vec<u8> = (0..2_000_000u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&there, &content)?;
    cluster.kubectl(&["cp", &there.display().to_string(), "talker:/tmp-there", "-c", "main"])?;
    cluster.kubectl(&["cp", "talker:/tmp-there", &back.display().to_string(), "-c", "main"])?;
    ensure!(std::fs::read(&back)? == content, "the file came back changed");
    Ok(())
}

fn port_forward(cluster: &Cluster<'_>) -> Result<()> {
    let mut forwarder = cluster
        .env()
        .spawn("kubectl-forward", &mut cluster.kubectl_command(&["port-forward", "pod/talker", "18080:8080"])?)?;
    let log = forwarder.log().to_path_buf();
    eventually("port-forward listens", PATIENCE, || {
        std::fs::read_to_string(&log).unwrap_or_default().contains("Forwarding from")
    })?;
    for round in 0..5 {
        let answer = cluster.env().within(|| ask("127.0.0.1:18080"))??;
        ensure!(answer.ends_with("served\n"), "round {round}: {answer:?}\n{}", forwarder.tail());
    }
    forwarder.check_alive()
}

fn delete(cluster: &Cluster<'_>) -> Result<()> {
    let file = cluster.env().directory().join("pods.yaml").display().to_string();
    let out = cluster.kubectl(&["delete", "-f", &file, "--timeout=120s"])?;
    ensure!(out.contains("pod \"talker\" deleted"), "{out}");
    let left = cluster.kubectl(&["get", "pods", "-o", "name"])?;
    ensure!(left.is_empty(), "{left}");
    let again = cluster.kubectl(&["delete", "pod", "talker"]);
    ensure!(
        again.is_err_and(|error| format!("{error:#}").contains("NotFound")),
        "a second delete did not say NotFound"
    );
    Ok(())
}

/// Asks for `/` and returns the whole answer.
fn ask(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Runs a shell line inside the environment with `KUBECTL` standing for kubectl and its kubeconfig; returns both outputs.
fn shell(cluster: &Cluster<'_>, line: &str) -> Result<String> {
    let kubectl = cluster.kubectl_command(&[])?;
    let words: Vec<String> = std::iter::once(kubectl.get_program())
        .chain(kubectl.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let mut command = Command::new("sh");
    command.args(["-c", &line.replace("KUBECTL", &words.join(" "))]).env("HOME", cluster.env().directory());
    let output = cluster.env().output(&mut command)?;
    Ok(format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}
