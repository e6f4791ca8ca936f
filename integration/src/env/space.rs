//! The namespaces: a thread steps out of the machine's mount and network namespace, arranges the new ones and hands
//! their descriptors over; any later thread may step in.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, anyhow, bail};
use nix::mount::MsFlags;
use nix::sched::{CloneFlags, setns, unshare};

use super::{NODE_ADDRESS, POD_RANGE};

#[derive(Debug)]
pub(super) struct Space {
    mount: File,
    net: File,
}

impl Space {
    /// Makes both namespaces and arranges folders, the node's network device and the CNI configuration.
    pub(super) fn new(directory: &Path) -> Result<Self> {
        on_thread(|| {
            unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
                .context("make mount and network namespaces")?;
            arrange_mounts(directory)?;
            arrange_network()?;
            Ok(Self { mount: File::open("/proc/thread-self/ns/mnt")?, net: File::open("/proc/thread-self/ns/net")? })
        })?
    }

    pub(super) fn within<T: Send>(&self, job: impl FnOnce() -> T + Send) -> Result<T> {
        on_thread(|| {
            unshare(CloneFlags::CLONE_FS).context("leave the shared working directory")?;
            setns(&self.mount, CloneFlags::CLONE_NEWNS).context("enter the mount namespace")?;
            setns(&self.net, CloneFlags::CLONE_NEWNET).context("enter the network namespace")?;
            Ok(job())
        })?
    }
}

/// A fresh thread, because namespaces are a thread's own and must not leak into the caller's.
fn on_thread<T: Send>(job: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        scope.spawn(job).join().map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            anyhow!("panicked inside the environment: {}", text.unwrap_or_default())
        })
    })
}

fn arrange_mounts(directory: &Path) -> Result<()> {
    let at = |name: &str| directory.join(name).display().to_string();
    sh("mount", &["--make-rprivate", "/"])?;
    // The run's own directory stays reachable under its path although /var is covered next.
    sh("mount", &["--bind", &at(""), &at("")])?;
    let held = File::open(directory)?;
    for top in ["etc", "var"] {
        let options = format!("lowerdir=/{top},upperdir={},workdir={}", at(top), at(&format!("{top}.work")));
        sh("mount", &["-t", "overlay", "-o", &options, "overlay", &format!("/{top}")])?;
    }
    let held = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&held));
    std::fs::create_dir_all(directory)?;
    // By system call: mount(8) would resolve the descriptor back to the covered path.
    nix::mount::mount(Some(held.as_str()), directory, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .with_context(|| format!("bind {}", directory.display()))?;
    sh("mount", &["-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/run"])?;
    std::fs::create_dir_all("/run/lock")?;
    for (inside, name) in [
        ("/tmp", "tmp"),
        ("/var/lib/containerd", "containerd"),
        ("/var/lib/kubelet", "kubelet"),
        ("/var/lib/longshore", "longshore"),
    ] {
        std::fs::create_dir_all(inside)?;
        sh("mount", &["--bind", &at(name), inside])?;
    }
    // Volumes of pods are mounted below and must reach the containers' own namespaces.
    sh("mount", &["--make-rshared", "/"])?;
    sh("chmod", &["1777", "/tmp"])?;
    for empty in ["/var/log/pods", "/var/log/containers", "/etc/cni/net.d", "/etc/kubernetes/manifests", "/var/lib/cni"]
    {
        if Path::new(empty).exists() {
            std::fs::remove_dir_all(empty).with_context(|| format!("empty {empty}"))?;
        }
        std::fs::create_dir_all(empty)?;
    }
    std::fs::write("/etc/resolv.conf", "nameserver 10.255.255.53\n")?;
    std::fs::write("/etc/cni/net.d/10-longshore-test.conflist", cni_config().as_bytes())?;
    Ok(())
}

fn arrange_network() -> Result<()> {
    sh("ip", &["link", "set", "lo", "up"])?;
    // Both ends stay here: the node only needs a device with an address and a default route.
    sh("ip", &["link", "add", "eth0", "type", "veth", "peer", "name", "eth0-far"])?;
    sh("ip", &["link", "set", "eth0-far", "up"])?;
    sh("ip", &["address", "add", &format!("{NODE_ADDRESS}/24"), "dev", "eth0"])?;
    sh("ip", &["link", "set", "eth0", "up"])?;
    sh("ip", &["route", "add", "default", "via", "192.168.77.1"])?;
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("enable forwarding")
}

fn cni_config() -> String {
    serde_json::json!({
        "cniVersion": "1.0.0",
        "name": "longshore-test",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "ipMasq": false,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": POD_RANGE}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
    .to_string()
}

fn sh(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().with_context(|| format!("run {program}"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
