//! A node in an environment: the bundled control plane, an agent (ours or any that takes the kubelet's flags) and, if
//! wanted, the recorder between agent and runtime.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::env::{Env, NODE_ADDRESS, Process, eventually};
use crate::foreign::{Foreign, Joined};
use crate::tools;

/// For each part to come up; a loaded machine is slow.
const PATIENCE: Duration = Duration::from_secs(90);

/// How the node is made.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    /// Put the recorder between agent and runtime.
    pub record: bool,
    /// Another agent that takes the kubelet's flags; ours when empty.
    pub agent: Vec<String>,
    /// Fields of the agent's configuration that replace the usual ones.
    pub config: serde_json::Map<String, Value>,
    /// More flags of the agent.
    pub flags: Vec<String>,
    /// An apiserver that runs already, in place of the bundled one.
    pub foreign: Option<Foreign>,
}

/// A running node.
#[derive(Debug)]
pub struct Cluster<'env> {
    env: &'env Env,
    options: ClusterOptions,
    plane: Option<Process>,
    joined: Option<Joined>,
    recorder: Option<Process>,
    agent: Option<Process>,
}

impl<'env> Cluster<'env> {
    /// Name of the node: a word that occurs in nothing else, because comparisons replace it.
    pub const NODE: &'static str = "qnode-1";

    /// Starts everything and waits until the node is Ready.
    pub fn start(env: &'env Env, options: ClusterOptions) -> Result<Self> {
        let mut this = Self { env, options, plane: None, joined: None, recorder: None, agent: None };
        match this.options.foreign.clone() {
            Some(foreign) => this.join(&foreign)?,
            None => this.start_plane()?,
        }
        if this.options.record {
            this.start_recorder()?;
        }
        this.start_agent()?;
        this.wait_ready(PATIENCE)?;
        Ok(this)
    }

    /// The environment.
    pub fn env(&self) -> &'env Env {
        self.env
    }

    /// The administrator's kubeconfig (a path inside the environment that exists outside too).
    pub fn kubeconfig(&self) -> PathBuf {
        let own = || self.env.directory().join("admin.kubeconfig");
        self.joined.as_ref().map_or_else(own, |joined| joined.admin.clone())
    }

    fn client_authority(&self) -> PathBuf {
        let own = || self.data_dir().join("pki/ca.crt");
        self.joined.as_ref().map_or_else(own, |joined| joined.client_authority.clone())
    }

    fn node_kubeconfig(&self) -> PathBuf {
        let own = || self.env.directory().join("node.kubeconfig");
        self.joined.as_ref().map_or_else(own, |joined| joined.node.clone())
    }

    /// Takes up an apiserver that is not ours. A node of our name there is somebody's.
    fn join(&mut self, foreign: &Foreign) -> Result<()> {
        self.joined = Some(foreign.join(self.env)?);
        let there = self.kubectl(&["get", "node", Self::NODE, "--ignore-not-found", "-o", "name"])?;
        ensure!(there.is_empty(), "{}: there is a node {} already", foreign.admin.display(), Self::NODE);
        Ok(())
    }

    /// Whether the apiserver reaches the node, which exec needs.
    pub fn is_reached_by_the_apiserver(&self) -> bool {
        let path = format!("/api/v1/nodes/{}/proxy/healthz", Self::NODE);
        self.joined.is_none() || self.kubectl(&["get", "--request-timeout=10s", "--raw", &path]).is_ok()
    }

    /// Ends the agent and takes the node out of an apiserver that is not ours.
    pub fn leave(&mut self) -> Result<()> {
        self.kill_agent()?;
        self.kubectl(&["delete", "node", Self::NODE, "--ignore-not-found"]).map(drop)
    }

    /// The recorder's output.
    pub fn calls(&self) -> PathBuf {
        self.env.directory().join("calls.jsonl")
    }

    /// The agent's process.
    pub fn agent(&mut self) -> Result<&mut Process> {
        self.agent.as_mut().context("the agent is not running")
    }

    /// The control plane's process.
    pub fn plane(&mut self) -> Result<&mut Process> {
        self.plane.as_mut().context("the control plane is not running")
    }

    /// Kills the agent with SIGKILL.
    pub fn kill_agent(&mut self) -> Result<()> {
        self.agent.take().map_or(Ok(()), |mut agent| agent.kill())
    }

    /// Kills the control plane with SIGKILL.
    pub fn kill_plane(&mut self) -> Result<()> {
        self.plane.take().map_or(Ok(()), |mut plane| plane.kill())
    }

    /// Replaces the fields of the configuration that the next agent is started with.
    pub fn set_config(&mut self, config: serde_json::Map<String, Value>) {
        self.options.config = config;
    }

    /// Replaces the flags that the next agent is started with beside the usual ones.
    pub fn set_flags(&mut self, flags: Vec<String>) {
        self.options.flags = flags;
    }

    fn data_dir(&self) -> PathBuf {
        self.env.directory().join("plane")
    }

    /// Starts the control plane on the data of an earlier one if there is any.
    pub fn start_plane(&mut self) -> Result<()> {
        let longshore = tools::built("longshore")?;
        let mut command = Command::new(&longshore);
        command.arg("plane").arg("--data-dir").arg(self.data_dir()).args(["--bind", &format!("{NODE_ADDRESS}:6443")]);
        command.arg("--write-kubeconfig").arg(self.kubeconfig());
        let mut plane = self.env.spawn("plane", &mut command)?;
        plane.until("the apiserver answers", PATIENCE, || {
            self.kubeconfig().exists() && self.kubectl(&["get", "--raw", "/readyz"]).is_ok()
        })?;
        self.plane = Some(plane);
        Ok(())
    }

    fn recorder_socket(&self) -> String {
        format!("/run/{}/recorder.sock", self.env.id())
    }

    fn start_recorder(&mut self) -> Result<()> {
        let proto = repository().join("proto/cri-v1.proto");
        let mut command = Command::new(tools::python()?.join("python"));
        command.arg(golden_directory().join("crirecord.py"));
        command.args(["--listen", &self.recorder_socket(), "--to", &self.env.endpoint()]);
        command.arg("--out").arg(self.calls()).arg("--proto").arg(proto);
        let mut recorder = self.env.spawn("recorder", &mut command)?;
        let socket = self.recorder_socket();
        let ready = eventually("the recorder listens", PATIENCE, || {
            self.env.within(|| Path::new(&socket).exists()).unwrap_or(false)
        });
        recorder.check_alive()?;
        ready?;
        self.recorder = Some(recorder);
        Ok(())
    }

    /// Starts the agent; it finds pods of an earlier one.
    pub fn start_agent(&mut self) -> Result<()> {
        let directory = self.env.directory();
        let config = directory.join("kubelet.yaml");
        let kubeconfig = self.node_kubeconfig();
        let longshore = tools::built("longshore")?;
        if !kubeconfig.exists() {
            let mut command = Command::new(&longshore);
            command.args(["plane", "node-kubeconfig", Self::NODE, "--data-dir"]).arg(self.data_dir());
            command.args(["--server", &format!("https://{NODE_ADDRESS}:6443"), "--write"]).arg(&kubeconfig);
            self.env.run(&mut command)?;
        }
        std::fs::write(&config, serde_json::to_vec_pretty(&self.config())?)?;
        let mut command = match self.options.agent.split_first() {
            Some((program, rest)) => {
                let mut command = Command::new(program);
                command.args(rest);
                command
            }
            None => {
                let mut command = Command::new(&longshore);
                command.arg("agent");
                command
            }
        };
        command.arg("--config").arg(&config).arg("--kubeconfig").arg(&kubeconfig);
        command.args(["--hostname-override", Self::NODE, "--node-ip", NODE_ADDRESS, "--v=2"]);
        command.args(&self.options.flags);
        self.agent = Some(self.env.spawn("agent", &mut command)?);
        Ok(())
    }

    fn config(&self) -> Value {
        let endpoint =
            if self.options.record { format!("unix://{}", self.recorder_socket()) } else { self.env.endpoint() };
        let mut config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": true},
                "x509": {"clientCAFile": self.client_authority()},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.env.cgroup_root(),
            "clusterDNS": ["10.96.0.10"],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": endpoint,
            "failCgroupV1": false,
            "failSwapOn": false,
            "resolvConf": "/etc/resolv.conf",
            "staticPodPath": "/etc/kubernetes/manifests",
        });
        if let Some(fields) = config.as_object_mut() {
            fields.extend(self.options.config.clone());
        }
        config
    }

    /// Waits until the node is Ready.
    pub fn wait_ready(&mut self, within: Duration) -> Result<()> {
        let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
        let mut failure = None;
        let ready = eventually("the node is Ready", within, || {
            failure = self.agent.as_mut().and_then(|agent| agent.check_alive().err());
            failure.is_some() || self.kubectl(&["get", "node", Self::NODE, "-o", path]).is_ok_and(|out| out == "True")
        });
        if let Some(error) = failure {
            return Err(error);
        }
        ready.with_context(|| self.agent.as_ref().map(Process::tail).unwrap_or_default())
    }

    /// Waits until the agent's own health endpoint answers; it says nothing of what the API shows.
    pub fn wait_healthy(&mut self, within: Duration) -> Result<()> {
        let mut failure = None;
        let ready = eventually("the agent's health endpoint answers", within, || {
            failure = self.agent.as_mut().and_then(|agent| agent.check_alive().err());
            failure.is_some() || self.env.within(|| http_ok("127.0.0.1:10248", "/healthz")).unwrap_or(false)
        });
        if let Some(error) = failure {
            return Err(error);
        }
        ready.with_context(|| self.agent.as_ref().map(Process::tail).unwrap_or_default())
    }

    /// Runs a stock kubectl as the administrator and returns its stdout.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.env.run(&mut self.kubectl_command(arguments)?)
    }

    /// A stock kubectl command, to be run inside the environment.
    pub fn kubectl_command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(tools::python()?.join("kubectl"));
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(arguments).env("HOME", self.env.directory());
        Ok(command)
    }

    /// Removes all pods through the API and waits for their end.
    pub fn remove_pods(&self) -> Result<()> {
        self.kubectl(&["delete", "pods", "--all", "--all-namespaces", "--timeout=180s"]).map(drop)
    }
}

/// Asks a plain HTTP server and says whether it answered 200.
fn http_ok(address: &str, path: &str) -> bool {
    use std::io::{Read as _, Write as _};
    let ask = || -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.split(' ').nth(1) == Some("200"))
}

/// The repository's root.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The folder of golden cases, recordings and tools.
pub fn golden_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}
