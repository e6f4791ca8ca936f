//! The node agent as `agent` and `up` run it: from flags to a running [`longshore_node`].

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use longshore_api::flags::Flags;
use longshore_cri::{ClientOptions, CriClient, RuntimeMetrics};
use longshore_node::agent::{Agent, AgentOptions};
use longshore_node::gc::Cleaning;
use longshore_node::node::KUBELET_VERSION;
use longshore_node::settings::{self, Settings};
use longshore_transport::client::{Clients, ClientsOptions, Kubeconfig, Rate, explain};
use longshore_util::backoff::Backoff;
use longshore_util::clock::SystemClock;
use longshore_util::{Tasks, spawn};

use super::fail::{Hint, Usage};

/// How the common name of a node's certificate begins.
const NODE_PREFIX: &str = "system:node:";

/// Reads files that the flags name; all faults are told together.
pub(crate) fn settings(flags: &Flags) -> Result<Settings> {
    settings::load(flags).map_err(|errors| Usage(errors.to_string()).into())
}

/// A running agent.
#[derive(Debug)]
pub(crate) struct AgentRun {
    agent: Agent,
}

impl AgentRun {
    /// Starts it; neither the runtime nor the apiserver need to be there yet.
    pub(crate) async fn start(settings: Settings, cleaning: Cleaning, tasks: &Tasks) -> Result<Self> {
        let calls = RuntimeMetrics::default();
        let (runtime, images) = connect_runtime(&settings, calls.clone()).await?;
        let clients = clients(&settings).await?;
        let node_name = node_name(&settings, clients.as_ref().map(|(_, kubeconfig)| kubeconfig))?;
        let clients = match clients {
            Some((clients, kubeconfig)) => {
                drop(spawn(tasks, "api-check", check_api(clients.heartbeat.clone(), kubeconfig)));
                Some(clients)
            }
            None => None,
        };
        if clients.is_none() {
            tracing::info!("no kubeconfig: static pods alone");
        }
        let options = AgentOptions {
            settings,
            node_name,
            runtime: Arc::new(runtime),
            images: Arc::new(images),
            clients,
            clock: Arc::new(SystemClock),
            cleaning,
        };
        let agent = Box::pin(Agent::start(options, tasks.child())).await.context("start the node agent")?;
        agent.telemetry().register(|registry| calls.register(registry));
        longshore_host::notify::ready();
        Ok(Self { agent })
    }

    /// Ends it in order; pods run on.
    pub(crate) async fn stop(self) {
        longshore_host::notify::stopping();
        self.agent.stop().await;
    }
}

/// Clients of the runtime. What is wrong with its socket is said at once; the agent goes on and tries again.
async fn connect_runtime(settings: &Settings, metrics: RuntimeMetrics) -> Result<(CriClient, CriClient)> {
    let config = &settings.config;
    let timeout = config.runtime_request_timeout.as_std();
    let mut options = ClientOptions { metrics, ..ClientOptions::default() };
    if timeout > Duration::ZERO {
        options.request_timeout = timeout;
    }
    let image_endpoint = match config.image_service_endpoint.as_str() {
        "" => None,
        endpoint => Some(endpoint),
    };
    let endpoint = &config.container_runtime_endpoint;
    let usage =
        |error: longshore_cri::EndpointError| Usage(format!("container runtime endpoint {endpoint:?}: {error}"));
    let clients = CriClient::connect_both(endpoint, image_endpoint, options).map_err(usage)?;
    match tokio::time::timeout(Duration::from_secs(2), clients.0.check()).await {
        Ok(Ok(version)) => {
            tracing::info!(
                runtime = version.runtime_name,
                version = version.runtime_version,
                "container runtime answers"
            );
        }
        Ok(Err(error)) => tracing::error!(endpoint, %error, "container runtime does not answer; trying on"),
        Err(_) => tracing::error!(endpoint, "container runtime gives no answer within 2 s; trying on"),
    }
    Ok(clients)
}

fn node_name(settings: &Settings, kubeconfig: Option<&Kubeconfig>) -> Result<String> {
    let given = settings.process.hostname_override.trim().to_lowercase();
    let host = || -> Result<String> {
        Ok(nix::unistd::gethostname().context("read the host's name")?.to_string_lossy().trim().to_lowercase())
    };
    let name = if given.is_empty() { keep_name(host()?, kubeconfig) } else { given };
    match longshore_api::names::dns1123_subdomain(&name).into_iter().next() {
        None => Ok(name),
        Some(detail) => {
            Err(Hint::error(format!("{name:?} is no name for a node: {detail}"), "give one with --hostname-override"))
        }
    }
}

/// The name that the node's credential is for, where there is one: under another name the apiserver would take nothing from
/// it, and a host that is renamed stays the node that it was.
pub(crate) fn keep_name(host: String, kubeconfig: Option<&Kubeconfig>) -> String {
    let known = kubeconfig.and_then(Kubeconfig::identity).and_then(|own| own.common_name.strip_prefix(NODE_PREFIX));
    match known {
        Some(known) if known != host => {
            tracing::warn!(
                host,
                node = known,
                "the host is called otherwise than its node; the node keeps the name that its credential is for (--hostname-override gives another)"
            );
            known.to_owned()
        }
        Some(_) | None => host,
    }
}

/// Clients of the apiserver, or none without a kubeconfig.
async fn clients(settings: &Settings) -> Result<Option<(Clients, Kubeconfig)>> {
    let file = &settings.process.kubeconfig;
    if file.is_empty() {
        return Ok(None);
    }
    let kubeconfig = Kubeconfig::load(Path::new(file), Timestamp::now()).await?;
    for problem in kubeconfig.problems() {
        // The machine's clock may be what is wrong: the apiserver has the last word.
        tracing::error!(file, %problem, "kubeconfig");
    }
    let config = &settings.config;
    let rate = |per_second: i32, burst: i32| {
        // As upstream: no rate for a negative number, and the burst is at least one.
        let per_second = u32::try_from(per_second).ok().filter(|rate| *rate > 0)?;
        Some(Rate { per_second, burst: u32::try_from(burst).unwrap_or(1).max(1) })
    };
    let heartbeat = config.node_status_update_frequency.as_std();
    let lease = Duration::from_secs(u64::try_from(config.node_lease_duration_seconds).unwrap_or(40)) / 4;
    let usual = ClientsOptions::default();
    let options = ClientsOptions {
        user_agent: format!(
            "kubelet/{KUBELET_VERSION} (linux/{}) longshore/{}",
            std::env::consts::ARCH,
            env!("CARGO_PKG_VERSION")
        ),
        rate: rate(config.kube_api_qps, config.kube_api_burst),
        event_rate: rate(config.event_record_qps, config.event_burst),
        heartbeat_timeout: [heartbeat, lease]
            .into_iter()
            .filter(|time| *time > Duration::ZERO)
            .min()
            .unwrap_or(usual.heartbeat_timeout),
    };
    Ok(Some((kubeconfig.clients(&options)?, kubeconfig)))
}

/// Asks the apiserver until it answers. The rooms of the agent try on by themselves; here alone the kubeconfig is at hand
/// to say what is wrong and with which of its fields.
async fn check_api(client: kube::Client, kubeconfig: Kubeconfig) {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30), 1);
    let mut told = String::new();
    loop {
        match client.apiserver_version().await {
            Ok(version) => {
                tracing::info!(server = %kubeconfig.server(), version = version.git_version, "apiserver answers");
                return;
            }
            Err(error) => {
                let text = explain(&error, &kubeconfig);
                if text != told {
                    tracing::error!(error = text, "apiserver cannot be used; trying on");
                    told = text;
                }
            }
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}
