//! A stock kubectl runs commands, copies files and reaches ports through our apiserver and our node's server in a
//! container of a real containerd: its newest protocol is refused, the older ones are passed on byte by byte.
//!
//! There is no agent: the sandbox is made by hand, and the pod table holds one pod.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use longshore_cri::{ClientOptions as CriOptions, CriClient, SharedRuntime, labels, v1};
use longshore_integration::env::{BUSYBOX_IMAGE, Env, Version};
use longshore_node::model::{DesiredPod, PodKey, PodUid, PodView, ReadPods, SourceKind};
use longshore_node::server::{self, HealthChecks, ServerDeps, ServerOptions};
use longshore_node::telemetry::Telemetry;
use longshore_plane::apiserver::registry::{Part, WriteOptions};
use longshore_plane::apiserver::resources::{NODES, PODS};
use longshore_plane::{Plane, PlaneOptions};
use longshore_transport::client::{ClientOptions, Kubeconfig};
use longshore_util::Tasks;
use longshore_util::clock::{Clock as _, SystemClock};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const NODE: &str = "n1";

#[derive(Debug)]
struct OnePod(PodView);

impl ReadPods for OnePod {
    fn pods(&self) -> Vec<PodView> {
        vec![self.0.clone()]
    }
    fn by_key(&self, key: &PodKey) -> Option<PodView> {
        (self.0.desired.key == *key).then(|| self.0.clone())
    }
    fn by_uid(&self, uid: &str) -> Option<PodView> {
        (self.0.desired.uid.as_str() == uid).then(|| self.0.clone())
    }
}

struct World {
    config: PathBuf,
    tasks: Tasks,
    plane: Plane,
    runtime: SharedRuntime,
    sandbox: String,
    directory: PathBuf,
}

impl World {
    async fn start(endpoint: &str, cgroup: &str, directory: &Path) -> Result<Self> {
        let tasks = Tasks::new();
        let loopback: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let plane = Plane::start(PlaneOptions::new(directory.join("plane"), loopback), &tasks).await?;
        let runtime: SharedRuntime = Arc::new(CriClient::connect(endpoint, CriOptions::default())?);
        let uid = make_pod(&plane).await?;
        let sandbox = run_pod(&runtime, &uid, cgroup, directory).await?;
        let config = directory.join("node.kubeconfig");
        std::fs::write(&config, plane.pki().node_kubeconfig(NODE, &plane.server)?)?;
        let client = Kubeconfig::load(&config, SystemClock.now()).await?.client(&ClientOptions::default())?;
        let mut options = ServerOptions::new(NODE, loopback, directory.join("certs"));
        options.client_ca_file = Some(directory.join("plane/pki/ca.crt"));
        options.addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let deps = ServerDeps {
            client: Some(client),
            runtime: Arc::clone(&runtime),
            pods: Arc::new(OnePod(view(&plane, &uid)?)),
            clock: Arc::new(SystemClock),
            telemetry: Arc::new(Telemetry::new()),
            health: HealthChecks::new([]),
        };
        let running = |mut pod: Value| {
            pod["status"]["phase"] = json!("Running");
            Ok(Some(pod))
        };
        plane.registry().modify(&PODS, "default", "p", Part::Status, &WriteOptions::default(), running).await?;
        let port = server::start(options, deps, &tasks).await?.address().port();
        make_node(&plane, port).await?;
        let config = plane.admin_kubeconfig.clone();
        Ok(Self { config, tasks, plane, runtime, sandbox, directory: directory.to_owned() })
    }

    async fn end(self) -> Result<()> {
        let sandbox = self.sandbox;
        self.runtime.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id: sandbox.clone() }).await?;
        self.runtime.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id: sandbox }).await?;
        self.tasks.cancel();
        tokio::time::timeout(Duration::from_secs(20), self.tasks.join()).await.context("tasks do not end")?;
        self.plane.close().await;
        Ok(())
    }

    /// Runs a shell line with `kubectl` set up; returns exit code and everything said.
    async fn shell(&self, line: &str) -> Result<(i32, String)> {
        let line = format!(
            "exec 2>&1; kubectl() {{ command kubectl --kubeconfig {} \"$@\"; }}; {line}",
            self.config.display()
        );
        let mut command = tokio::process::Command::new("bash");
        command.args(["-c", &line]).current_dir(&self.directory).env("KUBECONFIG", &self.config).kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_secs(60), command.output());
        let output = output.await.with_context(|| format!("too slow: {line}"))??;
        Ok((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

async fn make_pod(plane: &Plane) -> Result<String> {
    let own = WriteOptions::default();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": BUSYBOX_IMAGE, "stdin": true}]}});
    for _ in 0..200 {
        // The namespace's account comes a moment after the start.
        match plane.registry().create(&PODS, "default", pod.clone(), &own).await {
            Ok(made) => return Ok(made.value()?["metadata"]["uid"].as_str().unwrap_or_default().to_owned()),
            Err(error) if error.reason == "Forbidden" => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => return Err(error.into()),
        }
    }
    anyhow::bail!("the pod is not accepted")
}

fn view(plane: &Plane, uid: &str) -> Result<PodView> {
    let pod: Pod = serde_json::from_slice(&plane.registry().get(&PODS, "default", "p")?.bytes())?;
    let desired = DesiredPod {
        uid: PodUid::new(uid),
        key: PodKey::new("default", "p"),
        pod: Arc::new(pod),
        source: SourceKind::Api,
        seen: SystemClock.now(),
    };
    Ok(PodView { desired, status: None, mirror: None })
}

async fn make_node(plane: &Plane, port: u16) -> Result<()> {
    let own = WriteOptions::default();
    plane.registry().create(&NODES, "", json!({"metadata": {"name": NODE}}), &own).await?;
    let change = |mut node: Value| {
        node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "127.0.0.1"}]);
        node["status"]["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": port}});
        Ok(Some(node))
    };
    plane.registry().modify(&NODES, "", NODE, Part::Status, &own, change).await?;
    Ok(())
}

async fn run_pod(runtime: &SharedRuntime, uid: &str, cgroup: &str, directory: &Path) -> Result<String> {
    let logs = directory.join("logs/p");
    std::fs::create_dir_all(&logs)?;
    let labels = |container: Option<&str>| {
        let mut labels = BTreeMap::from([
            (labels::POD_NAME.to_owned(), "p".to_owned()),
            (labels::POD_NAMESPACE.to_owned(), "default".to_owned()),
            (labels::POD_UID.to_owned(), uid.to_owned()),
        ]);
        labels.extend(container.map(|name| (labels::CONTAINER_NAME.to_owned(), name.to_owned())));
        labels
    };
    let sandbox = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "p".to_owned(),
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            attempt: 0,
        }),
        log_directory: logs.to_string_lossy().into_owned(),
        labels: labels(None),
        linux: Some(v1::LinuxPodSandboxConfig { cgroup_parent: cgroup.to_owned(), ..Default::default() }),
        ..Default::default()
    };
    let request = v1::RunPodSandboxRequest { config: Some(sandbox.clone()), ..Default::default() };
    let id = runtime.run_pod_sandbox(request).await?.pod_sandbox_id;
    let script = "mkdir /www; echo served >/www/index.html; httpd -p 8080 -h /www; while read l; do echo got $l; done";
    let container = v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "c".to_owned(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: BUSYBOX_IMAGE.to_owned(), ..Default::default() }),
        command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        log_path: "c.log".to_owned(),
        labels: labels(Some("c")),
        stdin: true,
        linux: Some(v1::LinuxContainerConfig::default()),
        ..Default::default()
    };
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: id.clone(),
        config: Some(container),
        sandbox_config: Some(sandbox),
    };
    let container_id = runtime.create_container(request).await?.container_id;
    runtime.start_container(v1::StartContainerRequest { container_id }).await?;
    Ok(id)
}

async fn commands(world: &World) -> Result<()> {
    let (code, text) = world.shell("kubectl exec p -- sh -c 'echo out; echo err >&2; exit 7'").await?;
    ensure!(code == 7 && text.contains("out\n") && text.contains("err\n"), "{code} {text}");
    let (code, text) = world.shell("head -c 3000000 /dev/zero | kubectl exec -i p -- wc -c").await?;
    ensure!(code == 0 && text.trim() == "3000000", "stdin and its end: {code} {text}");
    let (code, text) = world.shell("kubectl exec p -- head -c 3000000 /dev/zero | wc -c").await?;
    ensure!(code == 0 && text.trim() == "3000000", "stdout: {code} {text}");
    let line = "printf 'tty\\nstty size\\nexit 3\\n' | \
        script -qec 'stty rows 33 cols 77; kubectl exec -it p -- sh' /dev/null; echo code $?";
    let (_, text) = world.shell(line).await?;
    ensure!(text.contains("/dev/pts/") && text.contains("33 77") && text.contains("code 3"), "terminal: {text}");
    let (_, text) = world.shell("kubectl exec -v=8 p -- true").await?;
    ensure!(text.contains("v5.channel.k8s.io"), "the newest protocol was not even asked for:\n{text}");
    let (code, text) = world.shell("kubectl exec p -c nobody -- true").await?;
    ensure!(code != 0 && text.contains("container nobody is not valid for pod p"), "{code} {text}");
    let (code, text) = world.shell("kubectl exec p -- /no/such/command").await?;
    ensure!(code != 0 && text.contains("no such file or directory"), "{code} {text}");
    Ok(())
}

async fn attach(world: &World) -> Result<()> {
    let (_, text) = world.shell("(echo hello; sleep 1) | timeout 5 kubectl attach -i p -c c").await?;
    ensure!(text.contains("got hello"), "{text}");
    Ok(())
}

async fn copies(world: &World) -> Result<()> {
    std::fs::write(world.directory.join("there"), vec![b'x'; 2_000_000])?;
    let (code, text) =
        world.shell("kubectl cp there p:/tmp/there && kubectl cp p:/tmp/there back && cmp there back").await?;
    ensure!(code == 0, "{text}");
    Ok(())
}

async fn ports(world: &World) -> Result<()> {
    let mut command = tokio::process::Command::new("kubectl");
    command.arg("--kubeconfig").arg(&world.config).args(["port-forward", "pod/p", ":8080"]);
    let mut forwarder = command.stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut said = vec![0; 200];
    let read = forwarder.stdout.as_mut().context("no output")?.read(&mut said);
    let read = tokio::time::timeout(Duration::from_secs(20), read).await.context("port-forward says nothing")??;
    let said = String::from_utf8_lossy(&said[..read]).into_owned();
    let port: u16 = said
        .split_once("127.0.0.1:")
        .and_then(|(_, rest)| rest.split_once(' '))
        .and_then(|(port, _)| port.parse().ok())
        .with_context(|| format!("no port in {said:?}"))?;
    // One client that hangs up the hard way, in the middle of its request, costs the others nothing (O-088).
    let mut rude = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    rude.write_all(b"GET / HTTP/1.0\r\n").await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    rude.set_zero_linger()?;
    drop(rude);
    tokio::time::sleep(Duration::from_millis(500)).await;
    for _ in 0..3 {
        let mut stream = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut answer)).await??;
        ensure!(answer.contains(" 200 OK") && answer.ends_with("served\n"), "{answer}");
    }
    forwarder.kill().await?;
    Ok(())
}

async fn summary_of_the_node(world: &World) -> Result<()> {
    let (code, text) = world.shell("kubectl get --raw /api/v1/nodes/n1/proxy/healthz").await?;
    ensure!(code == 0 && text.trim() == "ok", "{code} {text}");
    Ok(())
}

#[test]
fn root_kubectl_streams_through_apiserver_and_node() -> Result<()> {
    if !nix_is_root() || std::process::Command::new("kubectl").arg("version").arg("--client").output().is_err() {
        longshore_integration::tools::say("skipped: needs root and kubectl");
        return Ok(());
    }
    let env = Env::start(Version::V1_6)?;
    let (endpoint, cgroup, directory) =
        (env.endpoint(), format!("{}/streams", env.cgroup_root()), env.directory().to_owned());
    env.block_on(|| async move {
        let world = World::start(&endpoint, &cgroup, &directory).await?;
        let mut failures = Vec::new();
        for (name, result) in [
            ("exec", commands(&world).await),
            ("attach", attach(&world).await),
            ("cp", copies(&world).await),
            ("port-forward", ports(&world).await),
            ("node proxy", summary_of_the_node(&world).await),
        ] {
            if let Err(error) = result {
                failures.push(format!("{name}: {error:#}"));
            }
        }
        world.end().await?;
        ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
        Ok(())
    })
}

fn nix_is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|about| std::os::unix::fs::MetadataExt::uid(&about) == 0)
}
