//! From nothing to a ready node: each step finds what an earlier run left and goes on from there, so that a second
//! `up` is quick and one that was killed is simply run again.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use longshore_cri::{ClientOptions, CriClient, RuntimeService as _, labels, v1};
use longshore_host::oci::{PAUSE_IMAGE, pause_archive};
use longshore_node::gc::Cleaning;
use longshore_plane::PlaneOptions;
use longshore_transport::client::{Kubeconfig, Typed};
use longshore_util::Tasks;
use nix::fcntl::{Flock, FlockArg};

use super::agent::{AgentRun, keep_name, settings};
use super::fail::Hint;
use super::paths::Paths;
use super::plane::PlaneRun;
use super::preflight::{self, Wanted};
use super::progress::Progress;
use super::{cni, containerd, demo, kubelet, memory};

/// Until the node says that it is Ready.
const READY: Duration = Duration::from_secs(60);
/// Tries to take the lock, 50 ms apart.
const LOCK_TRIES: usize = 20;
/// Until what runs has ended when told to.
const STOP: Duration = Duration::from_secs(10);
/// Until the sample answers.
const ANSWER: Duration = Duration::from_secs(60);

/// What `up` was asked for.
#[derive(Debug, Clone)]
pub(crate) struct UpOptions {
    pub(crate) paths: Paths,
    pub(crate) install: bool,
    pub(crate) demo: bool,
    pub(crate) runtime_endpoint: Option<String>,
    pub(crate) bind: SocketAddr,
    pub(crate) node_name: Option<String>,
    /// Further arguments of the agent, e.g. `--node-labels`.
    pub(crate) agent_flags: Vec<String>,
}

impl UpOptions {
    /// Returns what the machine must offer.
    pub(crate) fn wanted(&self) -> Wanted {
        let agent: SocketAddr = ([0, 0, 0, 0], 10250).into();
        let health: SocketAddr = ([127, 0, 0, 1], 10248).into();
        Wanted {
            runtime_endpoint: self.runtime_endpoint.clone(),
            data: self.paths.data.clone(),
            addresses: vec![(self.bind, "apiserver port"), (agent, "agent port"), (health, "agent health port")],
        }
    }
}

/// The mark of a running `up`: its pid, in a file that it holds a lock on.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "held, not read: the lock is its life")] Flock<File>);

impl Lock {
    /// Takes the lock, or says which process has it.
    pub(crate) fn take(paths: &Paths) -> Result<Self> {
        std::fs::create_dir_all(&paths.run).with_context(|| format!("create {}", paths.run.display()))?;
        let path = paths.up_lock();
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .with_context(|| format!("open {}", path.display()))?;
        // One that was just killed holds it until the kernel has taken it apart.
        for _ in 0..LOCK_TRIES {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(mut lock) => {
                    lock.set_len(0)?;
                    lock.rewind()?;
                    writeln!(lock, "{}", std::process::id())?;
                    return Ok(Self(lock));
                }
                Err((back, _)) => file = back,
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        let mut pid = String::new();
        file.read_to_string(&mut pid)?;
        Err(Self::busy(pid.trim()))
    }

    /// The failure of an `up` beside another.
    pub(crate) fn busy(pid: impl std::fmt::Display) -> anyhow::Error {
        Hint::error(
            format!("longshore up runs already (process {pid})"),
            "longshore down stops it; longshore get nodes shows it",
        )
    }

    /// Returns the process that holds the lock.
    pub(crate) fn holder(paths: &Paths) -> Option<i32> {
        let mut file = File::open(paths.up_lock()).ok()?;
        let mut pid = String::new();
        file.read_to_string(&mut pid).ok()?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(_) => None,
            Err(_) => pid.trim().parse().ok(),
        }
    }
}

/// Brings the node up and stays until told to end or until a part that must live has died.
pub(crate) async fn up(options: UpOptions) -> Result<()> {
    let progress = Progress::new();
    let paths = options.paths.clone();
    let mut findings = preflight::check(&Wanted { addresses: Vec::new(), ..options.wanted() }).await;
    if findings.iter().any(|finding| finding.name == "user" && finding.level != preflight::Level::Ok) {
        preflight::blockers(&findings)?;
    }
    let _lock = Lock::take(&paths)?;
    drop(std::fs::remove_file(paths.ready()));
    progress.say("longshore up");
    progress
        .step("check this machine", async {
            if options.install {
                preflight::install(&findings, &progress).await?;
            }
            findings = preflight::check(&options.wanted()).await;
            preflight::blockers(&findings)?;
            let warnings = findings.iter().filter(|finding| finding.level == preflight::Level::Warning).count();
            let note =
                if warnings == 0 { String::new() } else { format!(", {warnings} warnings: see longshore check") };
            Ok(((), format!("{} things are as wanted{note}", findings.len() - warnings)))
        })
        .await?;

    let runtime = prepare_runtime(&options, &progress).await?;
    let tasks = Tasks::new();
    memory::keep_small(&tasks);
    let outcome = run_node(&options, &runtime, &tasks, &progress).await;
    drop(std::fs::remove_file(paths.ready()));
    tasks.cancel();
    let ended = tokio::time::timeout(STOP, tasks.join()).await.is_ok();
    if outcome.is_ok() {
        progress.say(if ended { "stopped" } else { "stopped (some work was cut off)" });
        progress.say("pods go on running; longshore up finds them again, longshore down removes them");
    }
    outcome
}

/// The runtime that the node uses.
#[derive(Debug)]
struct Runtime {
    endpoint: String,
    client: CriClient,
}

async fn prepare_runtime(options: &UpOptions, progress: &Progress) -> Result<Runtime> {
    let paths = &options.paths;
    one_runtime(paths, options.runtime_endpoint.as_deref())?;
    let socket: PathBuf;
    let endpoint = match &options.runtime_endpoint {
        Some(endpoint) => {
            socket = PathBuf::from(endpoint.strip_prefix("unix://").unwrap_or(endpoint));
            progress
                .step("container runtime", async {
                    let client = CriClient::connect(endpoint, ClientOptions::default())?;
                    let version = client.check().await.with_context(|| {
                        Hint::new(
                            endpoint.clone(),
                            "start it, or leave --runtime-endpoint out: longshore brings its own",
                        )
                    })?;
                    refuse_strangers(paths, endpoint, &client).await?;
                    Ok(((), format!("{} {}", version.runtime_name, version.runtime_version)))
                })
                .await?;
            endpoint.clone()
        }
        None => {
            socket = paths.containerd_socket();
            let config = progress.step("pod network", async { pod_network(paths) }).await?;
            progress
                .step("container runtime", async {
                    let installed = containerd::installed().await.context("containerd is not installed")?;
                    let running = containerd::ensure(paths, &installed, &config).await?;
                    let how = if running.found { "found running" } else { "started" };
                    Ok((running.endpoint, format!("containerd {} {how}", running.version)))
                })
                .await?
        }
    };
    let client = CriClient::connect(&endpoint, ClientOptions::default())?;
    if options.runtime_endpoint.is_none() || containerd_like(&client).await {
        let scratch = paths.run.clone();
        progress
            .step("pause image", async {
                let make = |path: &Path| Ok(pause_archive(path).map(drop)?);
                let made = containerd::import(&client, &socket, PAUSE_IMAGE, make, &scratch).await?;
                Ok(((), if made { "made and imported".to_owned() } else { "there".to_owned() }))
            })
            .await?;
    }
    Ok(Runtime { endpoint, client })
}

/// The machine's own CNI configuration if there is one, else ours.
fn pod_network(paths: &Paths) -> Result<(PathBuf, String)> {
    if let Some(config) = cni::system_config() {
        return Ok((PathBuf::from(cni::SYSTEM_CONFIG), format!("this machine's own, {}", config.display())));
    }
    let folder = paths.cni();
    let range = cni::write_config(&folder)?;
    Ok((folder, format!("bridge {} with {range}", cni::BRIDGE)))
}

/// Whether images can be imported with `ctr`.
async fn containerd_like(client: &CriClient) -> bool {
    client.check().await.is_ok_and(|version| version.runtime_name == "containerd")
}

/// The node's pods are in one runtime: in another they would be made a second time.
fn one_runtime(paths: &Paths, wanted: Option<&str>) -> Result<()> {
    let adopted = std::fs::read_to_string(paths.adopted()).ok().map(|text| text.trim().to_owned());
    let other = match (adopted, wanted) {
        (Some(adopted), wanted) if wanted != Some(adopted.as_str()) => adopted,
        (None, Some(_)) if containerd::process(paths).is_some() => containerd::endpoint(paths),
        (Some(_) | None, _) => return Ok(()),
    };
    Err(Hint::error(
        format!("this node's pods are in {other}"),
        "longshore down removes them (with --purge also if that runtime is gone), then another can be used",
    ))
}

/// A runtime with pods of somebody else is refused: two agents would be at each other's addresses, ports and names.
async fn refuse_strangers(paths: &Paths, endpoint: &str, client: &CriClient) -> Result<()> {
    let adopted = std::fs::read_to_string(paths.adopted()).is_ok_and(|text| text.trim() == endpoint);
    if !adopted {
        let sandboxes = client.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.items;
        let strangers = sandboxes.iter().filter(|sandbox| sandbox.labels.contains_key(labels::POD_UID)).count();
        if strangers > 0 {
            return Err(Hint::error(
                format!("{endpoint} holds {strangers} pods that longshore did not make"),
                "leave --runtime-endpoint out: longshore brings its own containerd",
            ));
        }
        std::fs::create_dir_all(&paths.data)?;
        longshore_util::atomic::write(&paths.adopted(), format!("{endpoint}\n").as_bytes(), 0o644)?;
    }
    Ok(())
}

async fn run_node(options: &UpOptions, runtime: &Runtime, tasks: &Tasks, progress: &Progress) -> Result<()> {
    let paths = &options.paths;
    let hostname = nix::unistd::gethostname().context("read the host's name")?;
    let node = match &options.node_name {
        Some(given) => given.clone(),
        None => {
            let earlier = Kubeconfig::load(&paths.node_kubeconfig(), jiff::Timestamp::now()).await.ok();
            keep_name(kubelet::node_name(&hostname.to_string_lossy()), earlier.as_ref())
        }
    };
    let plane = progress
        .step("control plane", async {
            let plane = PlaneRun::start(PlaneOptions::new(&paths.data, options.bind), tasks).await?;
            plane.write_node_kubeconfig(&node, &paths.node_kubeconfig()).await?;
            let url = plane.url().to_owned();
            Ok((plane, format!("{url}, data in {}", paths.data.display())))
        })
        .await?;
    let client = plane.client().await?;
    let agent = progress
        .step("node agent", async {
            let mut flags = kubelet::write_config(paths, &runtime.endpoint, &node)?;
            flags.extend(options.agent_flags.iter().cloned());
            let flags = longshore_api::flags::parse(&flags)?;
            let settings = settings(&flags)?;
            // Whoever used this machine before may want its pods, logs and volumes back.
            let cleaning = if options.runtime_endpoint.is_some() { Cleaning::OwnPods } else { Cleaning::OwnRuntime };
            let agent = AgentRun::start(settings, cleaning, tasks).await?;
            Ok((agent, format!("watches pods of node {node}")))
        })
        .await?;
    progress
        .step("node ready", async {
            wait_ready(&client, &node, tasks).await?;
            Ok(((), format!("after {:.1} s in all", progress.seconds())))
        })
        .await?;
    if options.demo {
        run_demo(options, runtime, &client, progress).await?;
    }
    what_now(paths, options.demo, progress);
    longshore_util::atomic::write(&paths.ready(), b"ready\n", 0o644)?;
    let outcome = until_told(tasks).await;
    agent.stop().await;
    tasks.cancel();
    drop(tokio::time::timeout(STOP, tasks.join()).await);
    plane.close().await;
    outcome
}

async fn wait_ready(client: &kube::Client, node: &str, tasks: &Tasks) -> Result<()> {
    use k8s_openapi::api::core::v1::Node;
    let nodes: kube::Api<Typed<Node>> = kube::Api::all(client.clone());
    let mut last = "it has not registered".to_owned();
    let ready = async {
        loop {
            match nodes.get_opt(node).await {
                Ok(Some(node)) => match ready_condition(&node) {
                    Ok(()) => return,
                    Err(message) => last = message,
                },
                Ok(None) => {}
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = ready => Ok(()),
        reason = tasks.failed() => Err(anyhow::anyhow!(reason)),
        () = tokio::time::sleep(READY) => {
            Err(anyhow::anyhow!("node {node} is not Ready after {} s: {last}", READY.as_secs()))
        }
    }
}

fn ready_condition(node: &k8s_openapi::api::core::v1::Node) -> Result<(), String> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    match conditions.iter().find(|condition| condition.type_ == "Ready") {
        Some(ready) if ready.status == "True" => Ok(()),
        Some(ready) => Err(ready.message.clone().unwrap_or_default()),
        None => Err("it has not reported yet".to_owned()),
    }
}

async fn run_demo(options: &UpOptions, runtime: &Runtime, client: &kube::Client, progress: &Progress) -> Result<()> {
    let socket = runtime.endpoint.strip_prefix("unix://").unwrap_or(&runtime.endpoint).to_owned();
    progress
        .step("sample image", async {
            let scratch = options.paths.run.clone();
            let made =
                containerd::import(&runtime.client, Path::new(&socket), demo::IMAGE, demo::archive, &scratch).await?;
            let how = if made { "made of this program and imported" } else { "there" };
            Ok(((), how.to_owned()))
        })
        .await?;
    let address = progress
        .step("sample pod", async {
            let applied = crate::cli::apply::documents(client, demo::MANIFEST, Some("default")).await?;
            let address = demo_address(client).await?;
            Ok((address, applied.join(", ")))
        })
        .await?;
    progress
        .step(&format!("GET http://{address}/"), async {
            let answer = demo::ask(address).await?;
            Ok(((), answer))
        })
        .await
}

/// Waits until the sample is Ready and returns its address.
async fn demo_address(client: &kube::Client) -> Result<SocketAddr> {
    use k8s_openapi::api::core::v1::Pod;
    let pods: kube::Api<Typed<Pod>> = kube::Api::namespaced(client.clone(), "default");
    let mut last = String::new();
    let ready = async {
        loop {
            if let Ok(Some(pod)) = pods.get_opt("hello").await {
                let status = pod.0.status.unwrap_or_default();
                let conditions = status.conditions.unwrap_or_default();
                let is_ready =
                    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
                if let (true, Some(address)) = (is_ready, status.pod_ip.and_then(|text| text.parse().ok())) {
                    return SocketAddr::new(address, demo::PORT);
                }
                last = status
                    .container_statuses
                    .unwrap_or_default()
                    .into_iter()
                    .filter_map(|container| container.state?.waiting?.message)
                    .collect::<Vec<_>>()
                    .join("; ");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    match tokio::time::timeout(ANSWER, ready).await {
        Ok(address) => Ok(address),
        Err(_) => {
            // What holds up a pod before it has containers stands in its events alone.
            let why = if last.is_empty() { last_warning(client, "hello").await } else { last };
            Err(Hint::error(
                format!("the sample is not Ready after {} s: {why}", ANSWER.as_secs()),
                "longshore get pods -A; longshore ps",
            ))
        }
    }
}

/// The newest warning about a pod of the namespace `default`.
async fn last_warning(client: &kube::Client, pod: &str) -> String {
    use k8s_openapi::api::core::v1::Event;
    let events: kube::Api<Event> = kube::Api::namespaced(client.clone(), "default");
    let fields = format!("involvedObject.name={pod},type=Warning");
    let list = events.list(&kube::api::ListParams::default().fields(&fields)).await;
    let newest = list.ok().and_then(|list| list.items.into_iter().max_by_key(|event| event.last_timestamp.clone()));
    newest.and_then(|event| event.message).unwrap_or_else(|| "no event tells why".to_owned())
}

fn what_now(paths: &Paths, demo: bool, progress: &Progress) {
    let kubeconfig = paths.admin_kubeconfig();
    progress.say("");
    progress.say("what now:");
    progress.say(&format!("  export KUBECONFIG={}", kubeconfig.display()));
    progress.say("  longshore get pods -A          (or kubectl)");
    if demo {
        progress.say("  longshore logs hello");
        progress.say("  longshore delete pod hello");
    } else {
        progress.say("  longshore apply -f FILE");
    }
    progress.say("  longshore down                 stops and removes it all");
}

/// Waits for Ctrl-C, SIGTERM, or the death of a part that must live.
pub(crate) async fn until_told(tasks: &Tasks) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    tokio::select! {
        biased;
        _ = term.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        reason = tasks.failed() => Err(anyhow::anyhow!(reason)),
    }
}
