//! A containerd of a chosen version: the one installed here (1.6) or a pinned Debian package unpacked into a cache.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use longshore_host::oci::PAUSE_IMAGE;

use super::Env;
use super::process::Process;
use crate::tools::Package;

/// Which containerd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Debian 12's.
    V1_6,
    /// Debian 13's; also what stands in for 2.1 when that package has moved on.
    V1_7,
    /// Debian sid's.
    V2_1,
}

impl Version {
    /// All versions that tests run on.
    pub const ALL: [Self; 2] = [Self::V1_6, Self::V2_1];

    /// Reads `1.6`, `1.7`, `2.1`.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "1.6" => Ok(Self::V1_6),
            "1.7" => Ok(Self::V1_7),
            "2.1" => Ok(Self::V2_1),
            other => bail!("no containerd {other:?}: 1.6, 1.7 or 2.1"),
        }
    }

    /// The version as text.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1_6 => "1.6",
            Self::V1_7 => "1.7",
            Self::V2_1 => "2.1",
        }
    }

    /// Folder of golden recordings made on this runtime.
    pub fn recordings(self) -> &'static str {
        match self {
            Self::V1_6 => "recorded-1.6",
            Self::V1_7 => "recorded-1.7",
            Self::V2_1 => "recorded",
        }
    }

    /// Whether this one tells container events as a stream.
    pub fn has_events(self) -> bool {
        self != Self::V1_6
    }
}

const POOL: &str = "main/c/containerd";

const fn package(version: Version) -> Package {
    match version {
        Version::V1_6 => Package {
            pool: POOL,
            file: "containerd_1.6.20~ds1-1+deb12u3_amd64.deb",
            sha256: "8669d264eeb0fcdb4a0b1ba436ab88ec5dafde4a66e1278ec279d830db4c2216",
        },
        Version::V1_7 => Package {
            pool: POOL,
            file: "containerd_1.7.24~ds1-6+deb13u1_amd64.deb",
            sha256: "ed708deb96fe476a3bce4efa5c0538dfbcf717ab9a7c7944ba7260342c25899c",
        },
        Version::V2_1 => Package {
            pool: POOL,
            file: "containerd_2.1.9+ds1-5_amd64.deb",
            sha256: "2dda86ce7033fd612fc50e136679d8174ccad680eb29cd4611e0d2a1b84cf591",
        },
    }
}

/// Returns the folder with `containerd`, its shim and `ctr` of `version`, fetching them on first use.
pub(super) fn binaries(version: Version) -> Result<PathBuf> {
    if version == Version::V1_6 && installed_is("1.6.") {
        return Ok(PathBuf::from("/usr/bin"));
    }
    Ok(package(version).unpacked(&format!("containerd-{}", version.name()))?.join("usr/bin"))
}

/// The newest containerd that can be had: sid's moves, and then trixie's 1.7 (also with an event stream) stands in.
pub fn newest() -> Version {
    match binaries(Version::V2_1) {
        Ok(_) => Version::V2_1,
        Err(error) => {
            crate::tools::say(&format!("containerd 2.1 is not to be had ({error:#}); using 1.7"));
            Version::V1_7
        }
    }
}

fn installed_is(prefix: &str) -> bool {
    let output = Command::new("/usr/bin/containerd").arg("--version").output();
    output.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).split_whitespace().any(|word| word.starts_with(prefix))
    })
}

/// A running containerd.
#[derive(Debug)]
pub struct Containerd {
    process: Process,
}

impl Containerd {
    pub(super) fn start(env: &Env) -> Result<Self> {
        let binaries = binaries(env.version())?;
        let config = env.directory().join("containerd.toml");
        std::fs::write(&config, config_text(env))?;
        let path = format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", binaries.display());
        let mut command = Command::new(binaries.join("containerd"));
        command.arg("--config").arg(&config).env("PATH", path);
        let process = env.spawn("containerd", &mut command)?;
        let mut this = Self { process };
        let probe = || -> Result<bool> {
            let output = env.output(&mut env.ctr(&["version"])?)?;
            Ok(output.status.success() && Path::new(&config).exists())
        };
        this.process.until("containerd answers", Duration::from_secs(90), || probe().unwrap_or(false))?;
        Ok(this)
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }
}

fn config_text(env: &Env) -> String {
    let head = format!(
        "root = '/var/lib/containerd'\nstate = '/run/{id}/state'\noom_score = 0\n\n[grpc]\naddress = '{socket}'\n\n",
        id = env.id(),
        socket = env.socket(),
    );
    let registries = |plugin: &str| match env.registries {
        true => format!("\n[plugins.'{plugin}'.registry]\nconfig_path = '/etc/containerd/certs.d'\n"),
        false => String::new(),
    };
    match env.version() {
        Version::V1_6 | Version::V1_7 => format!(
            "version = 2\n{head}\
             [plugins.'io.containerd.grpc.v1.cri']\n\
             sandbox_image = '{PAUSE_IMAGE}'\n\
             restrict_oom_score_adj = true\n\n\
             [plugins.'io.containerd.grpc.v1.cri'.cni]\n\
             bin_dir = '/usr/lib/cni'\n\
             conf_dir = '/etc/cni/net.d'\n\n\
             [plugins.'io.containerd.internal.v1.opt']\n\
             path = '/run/{id}/opt'\n{registries}",
            id = env.id(),
            registries = registries("io.containerd.grpc.v1.cri"),
        ),
        Version::V2_1 => format!(
            "version = 3\n{head}\
             [plugins.'io.containerd.cri.v1.images'.pinned_images]\n\
             sandbox = '{PAUSE_IMAGE}'\n\n\
             [plugins.'io.containerd.cri.v1.runtime']\n\
             restrict_oom_score_adj = true\n\n\
             [plugins.'io.containerd.cri.v1.runtime'.cni]\n\
             bin_dirs = ['/usr/lib/cni']\n\
             conf_dir = '/etc/cni/net.d'\n\n\
             [plugins.'io.containerd.internal.v1.opt']\n\
             path = '/run/{id}/opt'\n{registries}",
            id = env.id(),
            registries = registries("io.containerd.cri.v1.images"),
        ),
    }
}
