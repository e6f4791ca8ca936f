//! The stock Python client and kube-rs do their everyday calls on our node and our apiserver, and their informers go on
//! where they were when the control plane was killed.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::io::AsyncBufReadExt as _;
use futures_util::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{
    Api, AttachParams, DeleteParams, EvictParams, ListParams, LogParams, ObjectMeta, Patch, PatchParams, PostParams,
    WatchEvent, WatchParams,
};
use kube::core::DynamicObject;
use kube::discovery::{Discovery, Scope};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Error, ResourceExt as _};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, eventually, newest};
use longshore_integration::tools;
use longshore_transport::client::{ClientOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

/// For each thing that should happen soon; a loaded machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "default";
const TALKER: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: talker}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/busybox:1
    command: [sh, -c, "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.2; done"]
  - name: web
    image: localhost/busybox:1
    command: [sh, -c, "mkdir -p /www; echo served >/www/index.html; exec httpd -f -p 8080 -h /www"]
"#;

#[test]
fn root_python_and_kube_do_their_everyday_calls_and_resume_after_a_kill_of_the_plane() {
    let env = Env::start(newest()).unwrap();
    let mut cluster = Cluster::start(&env, ClusterOptions::default()).unwrap();
    let file = env.directory().join("talker.yaml");
    std::fs::write(&file, TALKER).unwrap();
    cluster.kubectl(&["apply", "-f", &file.display().to_string()]).unwrap();
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/talker", "--timeout=60s"]).unwrap();
    let mut failures = Vec::new();
    let mut note = |name: &str, outcome: Result<()>| {
        if let Err(error) = outcome {
            failures.push(format!("{name}: {error:#}"));
        }
    };
    note("python", python(&cluster));
    note("kube", env.block_on(|| async { Box::pin(with_kube(&cluster)).await }));
    note("informers", informers(&mut cluster));
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// A script of ours, put where the environment sees it.
fn script(cluster: &Cluster<'_>, name: &str, text: &str) -> Result<Command> {
    let path = cluster.env().directory().join(name);
    std::fs::write(&path, text)?;
    let mut command = Command::new(tools::python()?.join("python"));
    command.arg(path).arg(cluster.kubeconfig()).env("HOME", cluster.env().directory());
    Ok(command)
}

fn python(cluster: &Cluster<'_>) -> Result<()> {
    let mut command = script(cluster, "everyday.py", include_str!("clients/everyday.py"))?;
    let out = cluster.env().run(command.arg("talker"))?;
    ensure!(out.trim_end().ends_with("all steps done"), "{out}");
    Ok(())
}

async fn client(cluster: &Cluster<'_>) -> Result<Client> {
    Ok(Kubeconfig::load(&cluster.kubeconfig(), Timestamp::now()).await?.client(&ClientOptions::default())?)
}

fn map(name: &str, labels: &[(&str, &str)], data: &[(&str, &str)]) -> ConfigMap {
    let owned = |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.into()), labels: Some(owned(labels)), ..ObjectMeta::default() },
        data: Some(owned(data)),
        ..ConfigMap::default()
    }
}

async fn with_kube(cluster: &Cluster<'_>) -> Result<()> {
    let client = client(cluster).await?;
    objects(&client).await.context("objects")?;
    dynamic(&client).await.context("dynamic objects")?;
    Box::pin(pods(&client)).await.context("pods")
}

async fn objects(client: &Client) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let (by, post) = ([("by", "kube")], PostParams::default());
    let made = maps.create(&post, &map("kube", &by, &[("x", "1")])).await?;
    let since = made.resource_version().context("a version")?;
    let mut changed = made.clone();
    changed.data = Some([("x".to_owned(), "2".to_owned())].into());
    let replaced = maps.replace("kube", &post, &changed).await?;
    let stale = maps.replace("kube", &post, &changed).await;
    ensure!(matches!(&stale, Err(Error::Api(status)) if status.code == 409), "{stale:?}");
    let merge = Patch::Merge(json!({"data": {"y": "1"}}));
    maps.patch("kube", &PatchParams::default(), &merge).await?;
    let steps: json_patch::Patch = serde_json::from_value(json!([{"op": "remove", "path": "/data/x"}]))?;
    maps.patch("kube", &PatchParams::default(), &Patch::Json::<()>(steps)).await?;
    let strategic = Patch::Strategic(json!({"metadata": {"labels": {"more": "yes"}}}));
    maps.patch("kube", &PatchParams::default(), &strategic).await?;
    let own = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"z": "1"}});
    let applied = maps.patch("kube", &PatchParams::apply("test"), &Patch::Apply(&own)).await?;
    ensure!(applied.data == Some([("y".to_owned(), "1".to_owned()), ("z".to_owned(), "1".to_owned())].into()));
    let listed = maps.list(&ListParams::default().labels("by=kube,more")).await?;
    ensure!(listed.items == [applied.clone()], "{listed:?}");
    let heads = maps.list_metadata(&ListParams::default().labels("by=kube")).await?;
    ensure!(heads.items.len() == 1 && heads.items[0].metadata == applied.metadata, "{heads:?}");
    ensure!(replaced.uid() == applied.uid());
    maps.delete("kube", &DeleteParams::default()).await?;
    ensure!(maps.get_opt("kube").await?.is_none());

    let mut told = Vec::new();
    let mut watch = maps.watch(&WatchParams::default().labels("by=kube").timeout(30), &since).await?.boxed();
    while let Some(event) = watch.try_next().await? {
        match event {
            WatchEvent::Added(_) => told.push("added"),
            WatchEvent::Modified(_) => told.push("modified"),
            WatchEvent::Deleted(_) => {
                told.push("deleted");
                break;
            }
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(error) => anyhow::bail!("{error:?}"),
        }
    }
    ensure!(told == ["modified", "modified", "modified", "modified", "modified", "deleted"], "{told:?}");
    ensure!(!Api::<Node>::all(client.clone()).list(&ListParams::default()).await?.items.is_empty());
    Ok(())
}

async fn dynamic(client: &Client) -> Result<()> {
    let found = Discovery::new(client.clone()).run().await?;
    let (kind, capabilities) = found
        .groups()
        .flat_map(|group| group.recommended_resources())
        .find(|(kind, _)| kind.kind == "Deployment")
        .context("no deployments")?;
    ensure!(capabilities.scope == Scope::Namespaced && capabilities.subresources.len() >= 2, "{capabilities:?}");
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &kind);
    let body: DynamicObject = serde_json::from_value(json!({"metadata": {"name": "kube"}, "spec": {
        "selector": {"matchLabels": {"app": "kube"}}, "template": {"metadata": {"labels": {"app": "kube"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}}))?;
    let made = api.create(&PostParams::default(), &body).await?;
    ensure!(made.data["spec"]["replicas"] == 1, "{made:?}");
    let typed: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let scaled =
        typed.patch_scale("kube", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 3}}))).await?;
    ensure!(scaled.spec.is_some_and(|spec| spec.replicas == Some(3)));
    let status = Patch::Merge(json!({"status": {"replicas": 3}, "spec": {"replicas": 7}}));
    let status = typed.patch_status("kube", &PatchParams::default(), &status).await?;
    let both = serde_json::to_value(&status)?;
    ensure!(both["status"]["replicas"] == 3 && both["spec"]["replicas"] == 3, "the status alone: {both}");
    typed.delete("kube", &DeleteParams::foreground()).await?;
    Ok(())
}

async fn pods(client: &Client) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let main = Some("main".to_owned());
    let log = pods
        .logs("talker", &LogParams { container: main.clone(), tail_lines: Some(1), ..LogParams::default() })
        .await?;
    ensure!(log.starts_with("line "), "{log:?}");
    let follow = LogParams { container: main.clone(), follow: true, ..LogParams::default() };
    let lines: Vec<String> = pods.log_stream("talker", &follow).await?.lines().take(3).try_collect().await?;
    ensure!(lines == ["line 0", "line 1", "line 2"], "{lines:?}");

    let attach = AttachParams::default().container("main").stdin(true);
    let mut shell = pods.exec("talker", ["sh", "-c", "read word; echo got $word; exit 5"], &attach).await?;
    shell.stdin().context("no stdin")?.write_all(b"this\n").await?;
    let mut out = String::new();
    shell.stdout().context("no stdout")?.read_to_string(&mut out).await?;
    let status = shell.take_status().context("no status")?.await.context("the status did not come")?;
    ensure!(out == "got this\n", "{out:?}");
    let told = serde_json::to_value(&status)?;
    ensure!(told["details"]["causes"][0]["message"] == "5", "{told}");

    let mut forward = pods.portforward("talker", &[8080]).await?;
    let mut stream = forward.take_stream(8080).context("no stream")?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    ensure!(answer.ends_with("served\n"), "{answer:?}");

    // Its `delete_options` do not arrive at any server: kube-rs sends them under a name that nobody knows.
    let post_options = PostParams { dry_run: true, ..PostParams::default() };
    let dry = EvictParams { post_options, ..EvictParams::default() };
    let evicted = pods.evict("talker", &dry).await?;
    ensure!(evicted.code == 201 || evicted.is_success(), "{evicted:?}");
    ensure!(pods.get("talker").await?.metadata.deletion_timestamp.is_none(), "a dry run");
    Ok(())
}

/// What a watcher of kube-rs is told, one word and a name each.
async fn follow(client: Client, told: mpsc::Sender<String>) {
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let wanted = watcher::Config::default().labels("followed=yes");
    let mut stream = watcher(maps, wanted).default_backoff().boxed();
    while let Some(event) = stream.next().await {
        let line = match event {
            Ok(watcher::Event::Init) => "init".to_owned(),
            Ok(watcher::Event::InitDone) => "done".to_owned(),
            Ok(watcher::Event::InitApply(map) | watcher::Event::Apply(map)) => format!("APPLY {}", map.name_any()),
            Ok(watcher::Event::Delete(map)) => format!("DELETED {}", map.name_any()),
            // The stream goes on by itself.
            Err(_) => continue,
        };
        if told.send(line).await.is_err() {
            return;
        }
    }
}

fn informers(cluster: &mut Cluster<'_>) -> Result<()> {
    let env = cluster.env();
    let followed = |name: &str| -> Value {
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "labels": {"followed": "yes"}}})
    };
    let apply = |cluster: &Cluster<'_>, name: &str| -> Result<()> {
        let file = env.directory().join("followed.json");
        std::fs::write(&file, followed(name).to_string())?;
        cluster.kubectl(&["create", "-f", &file.display().to_string()]).map(drop)
    };
    apply(cluster, "first")?;
    let mut command = script(cluster, "informer.py", include_str!("clients/informer.py"))?;
    let informer = env.spawn("informer", &mut command)?;
    let told = || std::fs::read_to_string(informer.log()).unwrap_or_default();
    eventually("the Python informer lists", PATIENCE, || told() == "ADDED first\n").with_context(told)?;
    let lines = env.block_on(|| async {
        let (sender, mut lines) = mpsc::channel(64);
        let client = client(cluster).await?;
        let mut seen: Vec<String> = Vec::new();
        let work = async {
            let mut until = async |wanted: &str| -> Result<()> {
                while !seen.iter().any(|line| line == wanted) {
                    let next = tokio::time::timeout(PATIENCE, lines.recv()).await.context(wanted.to_owned())?;
                    seen.push(next.context("the watcher ended")?);
                }
                Ok(())
            };
            until("done").await?;
            cluster.kill_plane()?;
            cluster.start_plane()?;
            apply(cluster, "second")?;
            cluster.kubectl(&["label", "configmap", "first", "a=b"])?;
            cluster.kubectl(&["delete", "configmap", "first"])?;
            until("DELETED first").await
        };
        tokio::select! {
            outcome = work => outcome?,
            () = follow(client, sender) => {}
        }
        Ok(seen)
    })?;
    // Neither has listed again: what was there before is not told twice.
    let wanted = ["init", "APPLY first", "done", "APPLY second", "APPLY first", "DELETED first"];
    ensure!(lines == wanted, "kube: {lines:?}");
    let wanted = "ADDED first\nADDED second\nMODIFIED first\nDELETED first\n";
    eventually("the Python informer is told the rest", PATIENCE, || told() == wanted).with_context(told)
}
