//! What a machine needs before a node can run on it. Each finding says what was found, what is wanted and which command
//! mends it; nothing here changes the machine but [`install`], which says what it does.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use super::cni;
use super::containerd;
use super::fail::Hint;
use super::process::{find_program, run};
use super::progress::Progress;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As wanted.
    Ok,
    /// Works, but less well.
    Warning,
    /// A node cannot run.
    Blocker,
}

/// One thing looked at.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    pub(crate) name: &'static str,
    pub(crate) found: String,
    pub(crate) wanted: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mend: Option<String>,
    /// The Debian package that mends it.
    #[serde(skip)]
    package: Option<&'static str>,
}

/// What is going to run here.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// A runtime that is there already.
    pub(crate) runtime_endpoint: Option<String>,
    /// Where data will be.
    pub(crate) data: PathBuf,
    /// Addresses that must be free; empty when the node runs already.
    pub(crate) addresses: Vec<(SocketAddr, &'static str)>,
}

/// Looks at everything.
pub(crate) async fn check(wanted: &Wanted) -> Vec<Finding> {
    let mut findings = vec![root(), kernel(), cgroups(), overlay(), swap(), disk(&wanted.data)];
    findings.push(forwarding(wanted.runtime_endpoint.is_none() && cni::system_config().is_none()));
    if wanted.runtime_endpoint.is_none() {
        findings.push(containerd_program().await);
        for (name, program, package) in [
            ("ctr", "ctr", "containerd"),
            ("containerd shim", "containerd-shim-runc-v2", "containerd"),
            ("runc", "runc", "runc"),
        ] {
            findings.push(program_finding(name, program, package, Level::Blocker));
        }
        findings.push(cni_plugins());
        findings.push(program_finding("iptables", "iptables", "iptables", Level::Warning));
        findings.push(program_finding("ip", "ip", "iproute2", Level::Warning));
    }
    findings.extend(wanted.addresses.iter().map(|(address, what)| port(*address, what)));
    findings
}

/// Returns an error that names all blockers, or nothing.
pub(crate) fn blockers(findings: &[Finding]) -> Result<()> {
    let blockers: Vec<&Finding> = findings.iter().filter(|finding| finding.level == Level::Blocker).collect();
    let Some(first) = blockers.first() else { return Ok(()) };
    let list: Vec<String> = blockers
        .iter()
        .map(|finding| format!("{}: {} (wanted: {})", finding.name, finding.found, finding.wanted))
        .collect();
    let mends: Vec<&str> = blockers.iter().filter_map(|finding| finding.mend.as_deref()).collect();
    let hint = if blockers.iter().all(|finding| finding.package.is_some()) {
        "run longshore up --install, or ".to_owned() + &mends.join(" && ")
    } else {
        mends.join("; ")
    };
    let message = if list.len() == 1 { list.join("") } else { list.join("; ") };
    Err(Hint::error(message, if hint.is_empty() { format!("mend {}", first.name) } else { hint }))
}

/// Installs the Debian packages that findings ask for; returns their names.
pub(crate) async fn install(findings: &[Finding], progress: &Progress) -> Result<Vec<&'static str>> {
    let mut packages: Vec<&'static str> =
        findings.iter().filter(|finding| finding.level != Level::Ok).filter_map(|finding| finding.package).collect();
    packages.sort_unstable();
    packages.dedup();
    if packages.is_empty() {
        return Ok(packages);
    }
    let Some(apt) = find_program("apt-get") else {
        bail!("missing {}, and there is no apt-get here to install them with", packages.join(", "));
    };
    progress.say(&format!("  installing {} with apt-get", packages.join(", ")));
    let mut arguments = vec!["-o", "DPkg::Lock::Timeout=120", "install", "-y", "--no-install-recommends"];
    arguments.extend(&packages);
    // Debian starts the service of a fresh containerd package; ours has its own socket, so that does no harm.
    let first = run(&apt, &arguments, Duration::from_secs(600)).await;
    if first.is_err() {
        run(&apt, &["-o", "DPkg::Lock::Timeout=120", "update"], Duration::from_secs(300)).await?;
        run(&apt, &arguments, Duration::from_secs(600)).await.context("install Debian packages")?;
    }
    Ok(packages)
}

fn finding(level: Level, name: &'static str, found: impl Into<String>, wanted: &'static str) -> Finding {
    Finding { level, name, found: found.into(), wanted, mend: None, package: None }
}

fn mended(mut finding: Finding, mend: impl Into<String>) -> Finding {
    if finding.level != Level::Ok {
        finding.mend = Some(mend.into());
    }
    finding
}

fn root() -> Finding {
    let user = nix::unistd::geteuid();
    let level = if user.is_root() { Level::Ok } else { Level::Blocker };
    mended(finding(level, "user", format!("uid {user}"), "root (uid 0)"), "run it with sudo")
}

fn kernel() -> Finding {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let level = if version >= (5, 6) { Level::Ok } else { Level::Blocker };
    mended(finding(level, "kernel", release, "Linux 5.6 or newer"), "install a newer kernel and reboot")
}

fn cgroups() -> Finding {
    const WANTED: &str = "cgroup v2, or v1 with cpu, memory, devices, freezer and pids";
    let base = Path::new("/sys/fs/cgroup");
    if let Ok(text) = std::fs::read_to_string(base.join("cgroup.controllers")) {
        let missing: Vec<&str> = ["cpu", "memory", "pids"]
            .into_iter()
            .filter(|name| !text.split_whitespace().any(|word| word == *name))
            .collect();
        return if missing.is_empty() {
            finding(Level::Ok, "cgroups", "v2", WANTED)
        } else {
            let found = format!("v2 without {}", missing.join(", "));
            mended(
                finding(Level::Blocker, "cgroups", found, WANTED),
                "enable the controllers on the kernel command line (cgroup_enable=memory) and reboot",
            )
        };
    }
    let missing: Vec<&str> =
        ["cpu", "memory", "devices", "freezer", "pids"].into_iter().filter(|name| !base.join(name).is_dir()).collect();
    if missing.is_empty() {
        finding(Level::Ok, "cgroups", "v1", WANTED)
    } else {
        let found = format!("no {} below /sys/fs/cgroup", missing.join(", "));
        mended(finding(Level::Blocker, "cgroups", found, WANTED), "mount -t cgroup2 none /sys/fs/cgroup")
    }
}

fn overlay() -> Finding {
    let known = std::fs::read_to_string("/proc/filesystems").is_ok_and(|text| text.contains("overlay"));
    let module = Path::new("/sys/module/overlay").exists();
    let (level, found) = if known || module { (Level::Ok, "there") } else { (Level::Blocker, "missing") };
    mended(finding(level, "overlay file system", found, "known to the kernel"), "modprobe overlay")
}

fn swap() -> Finding {
    let text = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let devices: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    let (level, found) = match devices.as_slice() {
        [] => (Level::Ok, "off".to_owned()),
        devices => (Level::Warning, format!("on: {}", devices.join(", "))),
    };
    mended(finding(level, "swap", found, "off: memory limits are not exact with it"), "swapoff -a")
}

/// Pods with addresses of their own reach others through the node. Our own network turns forwarding on with its first
/// pod, that of somebody else may rely on it.
fn forwarding(own_network: bool) -> Finding {
    let value = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap_or_default().trim().to_owned();
    let level = if value == "1" || own_network { Level::Ok } else { Level::Warning };
    let found = match value.as_str() {
        "1" => "on".to_owned(),
        "0" if own_network => "off; turned on with the first pod".to_owned(),
        other => format!("net.ipv4.ip_forward = {other}"),
    };
    mended(finding(level, "IPv4 forwarding", found, "net.ipv4.ip_forward = 1"), "sysctl -w net.ipv4.ip_forward=1")
}

fn disk(data: &Path) -> Finding {
    const GIB: u64 = 1 << 30;
    const WANTED: &str = "2 GiB free for images and containers";
    let there = data.ancestors().find(|path| path.exists()).unwrap_or_else(|| Path::new("/"));
    match nix::sys::statvfs::statvfs(there) {
        Ok(stat) => {
            let free = stat.blocks_available() * stat.fragment_size();
            let level = match free {
                free if free < GIB / 4 => Level::Blocker,
                free if free < 2 * GIB => Level::Warning,
                _ => Level::Ok,
            };
            let found = format!("{:.1} GiB free at {}", free as f64 / GIB as f64, there.display());
            mended(
                finding(level, "disk", found, WANTED),
                format!("free space on {}, or use --data-dir", there.display()),
            )
        }
        Err(error) => mended(
            finding(Level::Warning, "disk", format!("{}: {error}", there.display()), WANTED),
            format!("see what stands there: df {}", there.display()),
        ),
    }
}

async fn containerd_program() -> Finding {
    const WANTED: &str = "containerd 1.6 or newer";
    let mut result = match containerd::installed().await {
        Some(installed) => {
            let minor = installed.version.split('.').nth(1).and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
            let level = if (installed.major, minor) >= (1, 6) { Level::Ok } else { Level::Blocker };
            finding(level, "containerd", format!("{} at {}", installed.version, installed.program.display()), WANTED)
        }
        None => finding(Level::Blocker, "containerd", "not installed", WANTED),
    };
    result.package = Some("containerd");
    mended(result, "apt-get install containerd")
}

fn program_finding(name: &'static str, program: &str, package: &'static str, level: Level) -> Finding {
    let mut result = match find_program(program) {
        Some(path) => finding(Level::Ok, name, path.display().to_string(), "installed"),
        None => finding(level, name, "not installed", "installed"),
    };
    result.package = Some(package);
    mended(result, format!("apt-get install {package}"))
}

fn cni_plugins() -> Finding {
    const WANTED: &str = "bridge, host-local, loopback and portmap in one folder";
    let mut result = match cni::plugin_folder() {
        Some(folder) => finding(Level::Ok, "CNI plugins", folder.display().to_string(), WANTED),
        None => {
            let found = match cni::partial_folder() {
                Some((folder, missing)) => format!("no {} in {}", missing.join(", "), folder.display()),
                None => format!("not in {}", cni::PLUGIN_FOLDERS.join(", ")),
            };
            finding(Level::Blocker, "CNI plugins", found, WANTED)
        }
    };
    result.package = Some("containernetworking-plugins");
    mended(result, "apt-get install containernetworking-plugins")
}

fn port(address: SocketAddr, what: &'static str) -> Finding {
    match TcpListener::bind(address) {
        Ok(_) => finding(Level::Ok, what, format!("{address} is free"), "a free port"),
        Err(error) => {
            let taken = error.kind() == std::io::ErrorKind::AddrInUse;
            let found = if taken { format!("{address} is in use") } else { format!("{address}: {error}") };
            let port = address.port();
            mended(
                finding(Level::Blocker, what, found, "a free port"),
                format!("see who listens: ss -tlnp 'sport = :{port}' (another kubelet or cluster?)"),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_a_blocker_with_the_command_that_shows_who() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        let found = port(address, "apiserver port");
        assert_eq!(found.level, Level::Blocker);
        assert!(found.mend.unwrap().contains(&address.port().to_string()));
    }

    #[test]
    fn blockers_that_packages_mend_point_to_install() {
        let mut missing = finding(Level::Blocker, "runc", "not installed", "installed");
        missing.package = Some("runc");
        let missing = mended(missing, "apt-get install runc");
        let warning = finding(Level::Warning, "swap", "on", "off");
        let error = blockers(&[warning.clone(), missing]).unwrap_err();
        assert_eq!(error.to_string(), "runc: not installed (wanted: installed)");
        assert!(blockers(&[warning]).is_ok());
    }
}
