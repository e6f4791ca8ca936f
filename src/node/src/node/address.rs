//! The addresses under which the node is reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use longshore_host::facts;

use super::NodeOptions;

/// Name lookups must not hold up the start: the default route answers without them.
const LOOKUP: Duration = Duration::from_millis(500);

/// Why there is no address.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum AddressError {
    #[error("node IP {0} is not an address of this machine; hint: check --node-ip")]
    NotLocal(IpAddr),
    #[error(
        "node IP {0} cannot be reached from other machines (loopback, multicast or link-local); hint: check --node-ip"
    )]
    Unusable(IpAddr),
    #[error("no network interface has an address")]
    None,
}

/// Finds them: the configured ones, else the name's, else the default route's interface.
pub(super) async fn find(options: &NodeOptions) -> Result<Vec<IpAddr>, AddressError> {
    let local = facts::interface_addresses().unwrap_or_default();
    let fixed: Vec<IpAddr> = options.node_ips.iter().copied().filter(|address| !address.is_unspecified()).collect();
    if !fixed.is_empty() {
        for address in &fixed {
            validate(*address, &local)?;
        }
        return Ok(fixed);
    }
    if let Ok(address) = options.name.parse::<IpAddr>() {
        return Ok(vec![address]);
    }
    let v6 = options.node_ips.contains(&IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    let named = lookup(&options.name).await;
    let route = facts::default_interface(&options.machine_root);
    choose(&named, &local, route.as_deref(), v6).map(|address| vec![address])
}

async fn lookup(name: &str) -> Vec<IpAddr> {
    match tokio::time::timeout(LOOKUP, tokio::net::lookup_host((name, 0))).await {
        Ok(Ok(found)) => found.map(|socket| socket.ip()).collect(),
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

fn choose(named: &[IpAddr], local: &[(String, IpAddr)], route: Option<&str>, v6: bool) -> Result<IpAddr, AddressError> {
    let usable = |address: &IpAddr| validate(*address, local).is_ok();
    let named = prefer(named.iter().copied().filter(usable), v6);
    let on = |wanted: Option<&str>| {
        let matching = local.iter().filter(|(interface, _)| wanted.is_none_or(|wanted| wanted == interface));
        prefer(matching.map(|(_, address)| *address).filter(usable), v6)
    };
    named
        .or_else(|| route.and_then(|interface| on(Some(interface))))
        // No default route (an isolated network): any address of the machine is better than none.
        .or_else(|| on(None))
        // No network at all: a machine by itself still reaches its own node.
        .or_else(|| {
            local.iter().map(|(_, address)| *address).find(|address| *address == IpAddr::V4(Ipv4Addr::LOCALHOST))
        })
        .ok_or(AddressError::None)
}

/// The first of the preferred family, else the first.
fn prefer(addresses: impl Iterator<Item = IpAddr>, v6: bool) -> Option<IpAddr> {
    let mut other = None;
    for address in addresses {
        if address.is_ipv6() == v6 {
            return Some(address);
        }
        other = other.or(Some(address));
    }
    other
}

fn validate(address: IpAddr, local: &[(String, IpAddr)]) -> Result<(), AddressError> {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if address.is_loopback() || address.is_multicast() || link_local || address.is_unspecified() {
        return Err(AddressError::Unusable(address));
    }
    if !local.iter().any(|(_, have)| *have == address) {
        return Err(AddressError::NotLocal(address));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn local() -> Vec<(String, IpAddr)> {
        [
            ("lo", "127.0.0.1"),
            ("lo", "::1"),
            ("docker0", "172.17.0.1"),
            ("eth0", "10.0.0.5"),
            ("eth0", "fd00::5"),
            ("eth0", "fe80::1"),
        ]
        .map(|(interface, address)| (interface.to_owned(), ip(address)))
        .to_vec()
    }

    #[test]
    fn name_then_default_route_then_any() {
        let local = local();
        assert_eq!(choose(&[ip("127.0.1.1"), ip("10.0.0.5")], &local, Some("docker0"), false), Ok(ip("10.0.0.5")));
        assert_eq!(choose(&[ip("127.0.1.1"), ip("8.8.8.8")], &local, Some("eth0"), false), Ok(ip("10.0.0.5")));
        assert_eq!(choose(&[], &local, Some("eth0"), true), Ok(ip("fd00::5")));
        assert_eq!(choose(&[], &local, None, false), Ok(ip("172.17.0.1")));
        assert_eq!(choose(&[], &local[..2], None, false), Ok(ip("127.0.0.1")));
        assert_eq!(choose(&[], &[], None, false), Err(AddressError::None));
    }

    #[tokio::test]
    async fn a_node_ip_must_be_of_this_machine() {
        let mut options = NodeOptions::new("n");
        options.node_ips = vec![ip("203.0.113.77")];
        assert_eq!(find(&options).await, Err(AddressError::NotLocal(ip("203.0.113.77"))));
        options.node_ips = vec![ip("127.0.0.1")];
        assert_eq!(find(&options).await, Err(AddressError::Unusable(ip("127.0.0.1"))));
    }
}
