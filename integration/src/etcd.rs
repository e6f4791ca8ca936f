//! A real etcd of a chosen version, and control planes of ours on it or on their own file; all on loopback.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::env::{Process, eventually};
use crate::tools::{self, Package};

const PATIENCE: Duration = Duration::from_secs(60);

/// Which etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtcdVersion {
    /// Debian 12's 3.4; its notices of progress cannot be trusted.
    V3_4,
    /// Debian 13's 3.5.
    V3_5,
}

impl EtcdVersion {
    /// All that tests run on.
    pub const ALL: [Self; 2] = [Self::V3_4, Self::V3_5];

    fn program(self) -> Result<PathBuf> {
        let (name, file, sha256) = match self {
            Self::V3_4 => (
                "etcd-3.4",
                "etcd-server_3.4.23-4+b4_amd64.deb",
                "3a9445d4560ad6de1c375756b2a17d97713df44cbd20a658c871fe108af7ef5d",
            ),
            Self::V3_5 => (
                "etcd-3.5",
                "etcd-server_3.5.16-4_amd64.deb",
                "0875921bb0d023f2af9b8e15cdfbe417a03e65731345fb832c40f9c2dd72967b",
            ),
        };
        Ok(Package { pool: "main/e/etcd", file, sha256 }.unpacked(name)?.join("usr/bin/etcd"))
    }
}

/// Returns a port that nobody listens on at the moment.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// A running etcd of one member.
#[derive(Debug)]
pub struct Etcd {
    process: Option<Process>,
    program: PathBuf,
    directory: PathBuf,
    client: u16,
    peer: u16,
    flags: Vec<String>,
}

impl Etcd {
    /// Starts one with its data under a folder and waits until it answers.
    pub fn start(version: EtcdVersion, directory: &Path, flags: &[&str]) -> Result<Self> {
        let mut this = Self {
            process: None,
            program: version.program()?,
            directory: directory.to_path_buf(),
            client: free_port()?,
            peer: free_port()?,
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        };
        this.restart()?;
        Ok(this)
    }

    /// Where clients find it.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.client)
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), |mut process| process.kill())
    }

    /// Starts it again on its data.
    pub fn restart(&mut self) -> Result<()> {
        let peer = format!("http://127.0.0.1:{}", self.peer);
        let mut command = Command::new(&self.program);
        command
            .arg("--data-dir")
            .arg(self.directory.join("etcd"))
            .args(["--name", "one", "--initial-cluster", &format!("one={peer}")])
            .args(["--listen-client-urls", &self.url(), "--advertise-client-urls", &self.url()])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(&self.flags);
        let mut process = Process::spawn("etcd", &mut command, self.directory.join("etcd.log"))?;
        eventually("etcd answers", PATIENCE, || self.call("kv/range", &json!({"key": "AA=="})).is_ok())
            .with_context(|| process.tail())?;
        process.check_alive()?;
        self.process = Some(process);
        Ok(())
    }

    /// Makes one call over etcd's JSON gateway.
    pub fn call(&self, path: &str, body: &Value) -> Result<Value> {
        let url = format!("{}/v3/{path}", self.url());
        let answer = tools::run(Command::new("curl").args(["-fsS", "-m", "5", "-d", &body.to_string(), &url]))?;
        Ok(serde_json::from_str(&answer)?)
    }

    /// Writes a key directly, past all apiservers.
    pub fn put(&self, key: &str, value: &str) -> Result<()> {
        self.call("kv/put", &json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value)})).map(drop)
    }

    /// All that ever happened to the keys under a prefix, oldest first, as far as it was not dropped.
    pub fn events(&self, prefix: &str) -> Result<Vec<KeyEvent>> {
        let mut end = prefix.as_bytes().to_vec();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        let (key, end) = (STANDARD.encode(prefix), STANDARD.encode(end));
        let body = json!({"create_request": {"key": key, "range_end": end, "start_revision": "1"}});
        let url = format!("{}/v3/watch", self.url());
        // The stream has no end of its own: what is there comes at once.
        let output = Command::new("curl").args(["-sS", "-N", "-m", "3", "-d", &body.to_string(), &url]).output()?;
        let mut events = Vec::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let answer: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            for event in answer["result"]["events"].as_array().into_iter().flatten() {
                let text = |field: &str| -> Result<String> {
                    let coded = event["kv"][field].as_str().unwrap_or_default();
                    Ok(String::from_utf8(STANDARD.decode(coded)?)?)
                };
                let revision = event["kv"]["mod_revision"].as_str().context("a revision")?.parse()?;
                let value = if event["type"] == "DELETE" { None } else { Some(text("value")?) };
                events.push(KeyEvent { revision, key: text("key")?, value });
            }
        }
        Ok(events)
    }

    /// All keys.
    pub fn keys(&self) -> Result<Vec<String>> {
        let all = self.call("kv/range", &json!({"key": "AA==", "range_end": "AA==", "keys_only": true}))?;
        let kvs = all["kvs"].as_array().cloned().unwrap_or_default();
        kvs.iter().map(|kv| Ok(String::from_utf8(STANDARD.decode(kv["key"].as_str().context("a key")?)?)?)).collect()
    }
}

/// What happened to a key.
#[derive(Debug, Clone)]
pub struct KeyEvent {
    /// When.
    pub revision: u64,
    /// The key.
    pub key: String,
    /// What it got; none when it went.
    pub value: Option<String>,
}

/// A running `longshore plane`.
#[derive(Debug)]
pub struct PlaneProcess {
    process: Option<Process>,
    directory: PathBuf,
    bind: SocketAddr,
    etcd: Option<String>,
}

impl PlaneProcess {
    /// Starts one with its data under a folder, its objects in that etcd or in a file.
    pub fn start(directory: &Path, etcd: Option<&Etcd>) -> Result<Self> {
        let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let (directory, etcd) = (directory.to_path_buf(), etcd.map(Etcd::url));
        std::fs::create_dir_all(&directory)?;
        let mut this = Self { process: None, directory, bind, etcd };
        this.restart()?;
        Ok(this)
    }

    /// Starts another one with the keys of this, as one more apiserver of the same cluster.
    pub fn another(&self, directory: &Path) -> Result<Self> {
        std::fs::create_dir_all(directory.join("plane"))?;
        tools::run(Command::new("cp").arg("-a").arg(self.directory.join("plane/pki")).arg(directory.join("plane")))?;
        let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let mut this = Self { process: None, directory: directory.to_path_buf(), bind, etcd: self.etcd.clone() };
        this.restart()?;
        Ok(this)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.join("admin.kubeconfig")
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), |mut process| process.kill())
    }

    /// Starts it again on its data, and waits until it serves.
    pub fn restart(&mut self) -> Result<()> {
        let kubeconfig = self.kubeconfig();
        drop(std::fs::remove_file(&kubeconfig));
        let mut command = Command::new(tools::built("longshore")?);
        command
            .arg("plane")
            .arg("--data-dir")
            .arg(self.directory.join("plane"))
            .args(["--bind", &self.bind.to_string()])
            .arg("--write-kubeconfig")
            .arg(&kubeconfig);
        if let Some(url) = &self.etcd {
            command.args(["--etcd-servers", url]);
        }
        let mut process = Process::spawn("plane", &mut command, self.directory.join("plane.log"))?;
        process.until("the plane serves", PATIENCE, || kubeconfig.exists())?;
        self.process = Some(process);
        Ok(())
    }
}
