//! An apiserver that is not ours to start: the agent gets a kubeconfig and nothing else. Connections out of the
//! environment go through threads that stand outside, so that any apiserver that this machine reaches will do.

use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::env::Env;
use crate::tools;

/// For the other side of a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is known of the apiserver before anything runs.
#[derive(Debug, Clone)]
pub struct Foreign {
    /// An administrator's kubeconfig.
    pub admin: PathBuf,
    /// The node's own; the administrator's serves when there is none.
    pub node: Option<PathBuf>,
}

/// The files that a node needs, inside the environment.
#[derive(Debug, Clone)]
pub struct Joined {
    /// The administrator's kubeconfig, with everything in it.
    pub admin: PathBuf,
    /// The node's.
    pub node: PathBuf,
    /// The authority that vouches for the apiserver when it asks the node.
    pub client_authority: PathBuf,
}

impl Foreign {
    /// The apiserver that `LONGSHORE_TEST_KUBECONFIG` names, with `LONGSHORE_TEST_NODE_KUBECONFIG` for the node.
    pub fn from_environment() -> Option<Self> {
        let admin = std::env::var_os("LONGSHORE_TEST_KUBECONFIG")?.into();
        Some(Self { admin, node: std::env::var_os("LONGSHORE_TEST_NODE_KUBECONFIG").map(Into::into) })
    }

    /// Makes the apiserver reachable from the environment and writes the files that a node needs.
    pub fn join(&self, env: &Env) -> Result<Joined> {
        let admin = flatten(&self.admin, &env.directory().join("foreign-admin.kubeconfig"))?;
        let node = match &self.node {
            Some(node) => flatten(node, &env.directory().join("foreign-node.kubeconfig"))?,
            None => admin.clone(),
        };
        for server in [server(&admin)?, server(&node)?] {
            open_way(env, &server)?;
        }
        let client_authority = env.directory().join("foreign-client-ca.crt");
        std::fs::write(&client_authority, authority(&admin)?)?;
        Ok(Joined { admin, node, client_authority })
    }
}

/// Writes a kubeconfig that refers to no other file.
fn flatten(from: &Path, to: &Path) -> Result<PathBuf> {
    let output = kubectl(from)?.args(["config", "view", "--raw", "--flatten", "--minify", "-o", "json"]).output()?;
    ensure!(output.status.success(), "{}: {}", from.display(), String::from_utf8_lossy(&output.stderr));
    std::fs::write(to, output.stdout)?;
    Ok(to.to_owned())
}

fn kubectl(kubeconfig: &Path) -> Result<Command> {
    let mut command = Command::new(tools::python()?.join("kubectl"));
    command.arg("--kubeconfig").arg(kubeconfig);
    Ok(command)
}

/// Host and port of the apiserver.
fn server(kubeconfig: &Path) -> Result<(String, u16)> {
    let config: Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
    let address = config["clusters"][0]["cluster"]["server"].as_str().context("no server")?;
    split(address).with_context(|| format!("{}: server {address:?}: want https://HOST[:PORT]", kubeconfig.display()))
}

fn split(address: &str) -> Option<(String, u16)> {
    let place = address.strip_prefix("https://")?.split('/').next()?;
    if let Ok(address) = place.parse::<SocketAddr>() {
        return Some((address.ip().to_string(), address.port()));
    }
    match place.rsplit_once(':') {
        Some((host, port)) => Some((host.to_owned(), port.parse().ok()?)),
        None => Some((place.to_owned(), 443)),
    }
}

/// Of the certificates that the apiserver shows to nodes: a stock one publishes its authority.
fn authority(admin: &Path) -> Result<String> {
    let published = ["get", "configmap", "extension-apiserver-authentication", "-n", "kube-system"];
    let output = kubectl(admin)?.args(published).args(["-o", "jsonpath={.data.client-ca-file}"]).output()?;
    if output.status.success() && !output.stdout.is_empty() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    use base64::Engine as _;
    let config: Value = serde_json::from_slice(&std::fs::read(admin)?)?;
    let data = config["clusters"][0]["cluster"]["certificate-authority-data"].as_str().unwrap_or_default();
    Ok(String::from_utf8(base64::engine::general_purpose::STANDARD.decode(data)?)?)
}

/// Listens inside, at the very address that the kubeconfig names, and connects from outside.
fn open_way(env: &Env, (host, port): &(String, u16)) -> Result<()> {
    let target = (host.as_str(), *port).to_socket_addrs()?.next().with_context(|| format!("{host} has no address"))?;
    let inside = match host.parse::<IpAddr>() {
        Ok(address) => {
            if !address.is_loopback() {
                env.run(Command::new("ip").args(["address", "replace", host, "dev", "lo"]))?;
            }
            address
        }
        Err(_) => {
            let line = format!("127.0.0.1 {host}\n");
            env.within(|| -> std::io::Result<()> {
                let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
                std::fs::write("/etc/hosts", hosts + &line)
            })??;
            Ipv4Addr::LOCALHOST.into()
        }
    };
    let listener = match env.within(|| TcpListener::bind((inside, *port)))? {
        Ok(listener) => listener,
        // The way is open already: both kubeconfigs name one server.
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => return Ok(()),
        Err(error) => bail!("listen at {inside}:{port} in the environment: {error}"),
    };
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            if let Ok(far) = TcpStream::connect_timeout(&target, PATIENCE) {
                copy(&near, &far);
            }
        }
    });
    Ok(())
}

/// Copies both ways until each side has ended.
fn copy(near: &TcpStream, far: &TcpStream) {
    for (from, to) in [(near, far), (far, near)] {
        let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
        std::thread::spawn(move || {
            drop(std::io::copy(&mut from, &mut to));
            drop(to.shutdown(Shutdown::Write));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_with_and_without_a_port() {
        assert_eq!(split("https://10.0.0.1:6443"), Some(("10.0.0.1".to_owned(), 6443)));
        assert_eq!(split("https://[fd00::1]:6443/x"), Some(("fd00::1".to_owned(), 6443)));
        assert_eq!(split("https://api.example.com"), Some(("api.example.com".to_owned(), 443)));
        assert_eq!(split("http://10.0.0.1:80"), None);
        assert_eq!(split("https://host:port"), None);
    }
}
