//! `Env`: one run's world. Everything in it hangs on one directory and two namespaces; `Drop` removes all of it, and
//! what a killed run left behind is removed by the next one (its lock is free then).

mod clean;
mod containerd;
mod images;
mod power;
mod process;
mod space;

use std::fs::File;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

pub use containerd::{Containerd, Version, newest};
pub use images::BUSYBOX_IMAGE;
pub use process::{Process, pause};
use space::Space;

/// Address of the node inside the environment.
pub const NODE_ADDRESS: &str = "192.168.77.2";
/// Pod range of the environment's bridge (golden comparison replaces these addresses).
pub const POD_RANGE: &str = "10.88.0.0/16";

/// A world of its own for one test run.
#[derive(Debug)]
pub struct Env {
    id: String,
    directory: PathBuf,
    space: Space,
    containerd: Mutex<Option<Containerd>>,
    version: Version,
    registries: bool,
    // Held for the life of the run: a free lock means that the directory is a dead run's.
    lock: Option<nix::fcntl::Flock<File>>,
    keep: bool,
}

impl Env {
    /// Makes the world and starts containerd of `version` in it, with the pause and busybox images imported.
    pub fn start(version: Version) -> Result<Self> {
        Self::bare(version)?.started()
    }

    /// The same, with a containerd that reads how to reach registries from `/etc/containerd/certs.d`.
    pub fn start_with_registries(version: Version) -> Result<Self> {
        let mut env = Self::bare(version)?;
        env.registries = true;
        env.started()
    }

    /// Starts containerd in a bare world and imports the images.
    pub fn started(self) -> Result<Self> {
        self.start_containerd()?;
        self.import_images()?;
        Ok(self)
    }

    /// Makes the world without a running containerd.
    pub fn bare(version: Version) -> Result<Self> {
        if !nix::unistd::geteuid().is_root() {
            bail!("the integration tests need root (namespaces, mounts, containerd)");
        }
        let base = base_directory();
        std::fs::create_dir_all(&base).with_context(|| format!("create {}", base.display()))?;
        clean::remove_dead_runs(&base);
        let id = format!("ls{}", unique());
        let directory = base.join(&id);
        std::fs::create_dir_all(&directory)?;
        let lock = File::create(directory.join("lock"))?;
        let lock = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusiveNonblock)
            .map_err(|(_, errno)| errno)
            .context("lock the run's directory")?;
        for sub in ["tmp", "run", "etc", "etc.work", "var", "var.work", "containerd", "kubelet", "longshore", "logs"] {
            std::fs::create_dir_all(directory.join(sub))?;
        }
        let space = Space::new(&directory)?;
        Ok(Self {
            id,
            directory,
            space,
            containerd: Mutex::new(None),
            version,
            registries: false,
            lock: Some(lock),
            keep: std::env::var_os("LONGSHORE_TEST_KEEP").is_some(),
        })
    }

    /// A short unique name of the run, usable in file, cgroup and interface names.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The run's directory on the machine's own file system (seen under the same path inside).
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The cgroup below which all pods of this run live.
    pub fn cgroup_root(&self) -> String {
        format!("/longshore-{}", self.id)
    }

    /// The containerd version asked for.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The runtime's socket, as a path inside the environment.
    pub fn socket(&self) -> String {
        format!("/run/{}/containerd.sock", self.id)
    }

    /// The runtime's endpoint, for `containerRuntimeEndpoint`.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket())
    }

    /// Runs `job` on a thread that stands inside the environment's namespaces.
    pub fn within<T: Send>(&self, job: impl FnOnce() -> T + Send) -> Result<T> {
        self.space.within(job)
    }

    /// Runs an async body inside the environment: sockets, files and child processes are the environment's.
    pub fn block_on<F, T>(&self, body: impl FnOnce() -> F + Send) -> Result<T>
    where
        F: Future<Output = Result<T>>,
        T: Send,
    {
        self.within(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(body())
        })?
    }

    /// Runs a command to its end inside the environment.
    pub fn output(&self, command: &mut Command) -> Result<Output> {
        let text = format!("{command:?}");
        self.within(|| command.output())?.with_context(|| format!("run {text}"))
    }

    /// Like [`Env::output`], but a non-zero exit is an error; returns stdout.
    pub fn run(&self, command: &mut Command) -> Result<String> {
        let text = format!("{command:?}");
        let output = self.output(command)?;
        if !output.status.success() {
            bail!(
                "{text}: {}\n{}{}",
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts a process inside the environment; its output goes to `logs/NAME.log`, and it is killed on drop.
    pub fn spawn(&self, name: &str, command: &mut Command) -> Result<Process> {
        let log = self.directory.join("logs").join(format!("{name}.log"));
        self.within(|| Process::spawn(name, command, log))?
    }

    /// Starts containerd (again): state and pods of an earlier one are found by it.
    pub fn start_containerd(&self) -> Result<()> {
        let containerd = Containerd::start(self)?;
        *self.slot() = Some(containerd);
        Ok(())
    }

    /// Kills containerd with SIGKILL; shims and containers go on.
    pub fn kill_containerd(&self) -> Result<()> {
        match self.slot().take() {
            Some(mut containerd) => containerd.kill(),
            None => Ok(()),
        }
    }

    fn slot(&self) -> MutexGuard<'_, Option<Containerd>> {
        self.containerd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A PATH on which the chosen containerd comes first, for programs that look for one.
    pub fn search_path(&self) -> Result<String> {
        let binaries = containerd::binaries(self.version)?;
        Ok(format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", binaries.display()))
    }

    /// A `ctr` command on this runtime, namespace k8s.io.
    pub fn ctr(&self, arguments: &[&str]) -> Result<Command> {
        self.ctr_on(&self.socket(), arguments)
    }

    fn ctr_on(&self, socket: &str, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(containerd::binaries(self.version)?.join("ctr"));
        command.args(["--address", socket, "-n", "k8s.io"]).args(arguments);
        Ok(command)
    }

    fn import_images(&self) -> Result<()> {
        self.import_images_into(&self.socket())
    }

    /// Imports the images of a run into the containerd on another socket of the environment.
    pub fn import_images_into(&self, socket: &str) -> Result<()> {
        for (archive, name) in images::archives(&self.directory)? {
            let file = archive.display().to_string();
            self.run(&mut self.ctr_on(socket, &["images", "import", "--local", &file])?)
                .or_else(|_| self.run(&mut self.ctr_on(socket, &["images", "import", &file])?))
                .with_context(|| format!("import {name}"))?;
            drop(std::fs::remove_file(archive));
        }
        Ok(())
    }

    /// Leaves the directory in place on drop (processes and cgroups are removed all the same).
    pub fn keep_directory(&mut self) {
        self.keep = true;
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        drop(self.kill_containerd());
        clean::remove_run(&self.directory, &self.id, self.keep);
        drop(self.lock.take());
    }
}

/// Where runs live: not /tmp, which each run has for itself.
fn base_directory() -> PathBuf {
    std::env::var_os("LONGSHORE_TEST_DIR").map_or_else(|| PathBuf::from("/var/tmp/longshore-test"), PathBuf::from)
}

/// Eight hex digits that two runs on one machine do not share.
fn unique() -> String {
    use std::hash::{BuildHasher as _, Hasher as _};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    format!("{:08x}", hasher.finish() & 0xffff_ffff)
}

/// Waits until `condition` holds, or says what was waited for.
pub fn eventually(what: &str, within: Duration, mut condition: impl FnMut() -> bool) -> Result<()> {
    let step = Duration::from_millis(20);
    let mut waited = Duration::ZERO;
    while !condition() {
        if waited >= within {
            bail!("{what}: not within {within:?}");
        }
        pause(step);
        waited += step;
    }
    Ok(())
}
