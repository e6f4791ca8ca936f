//! Which address others reach this machine at.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

/// The interface of the default route, IPv4 before IPv6.
pub fn default_interface(root: &Path) -> Option<String> {
    v4_default(root).or_else(|| v6_default(root))
}

/// `/proc/net/route`: destination 0, of several the one with the lowest metric.
fn v4_default(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("proc/net/route")).ok()?;
    let routes = text.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [interface, destination, _gateway, flags, _, _, metric, mask, ..] = fields.as_slice() else { return None };
        let up = u32::from_str_radix(flags, 16).ok()? & 1 == 1;
        let is_default = *destination == "00000000" && *mask == "00000000" && up;
        is_default.then_some((metric.parse::<u32>().ok()?, (*interface).to_owned()))
    });
    routes.min_by_key(|(metric, _)| *metric).map(|(_, interface)| interface)
}

/// `/proc/net/ipv6_route`: prefix length 0, not the loopback's own reject route.
fn v6_default(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("proc/net/ipv6_route")).ok()?;
    let routes = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [destination, length, _, _, _, metric, _, _, _flags, interface] = fields.as_slice() else { return None };
        let is_default = *length == "00" && destination.bytes().all(|byte| byte == b'0') && *interface != "lo";
        is_default.then_some((u32::from_str_radix(metric, 16).ok()?, (*interface).to_owned()))
    });
    routes.min_by_key(|(metric, _)| *metric).map(|(_, interface)| interface)
}

/// Addresses of this machine with their interfaces, in the kernel's order; loopback and link-local ones are in it too.
pub fn interface_addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut found = Vec::new();
    for entry in nix::ifaddrs::getifaddrs()? {
        let Some(address) = entry.address else { continue };
        if let Some(v4) = address.as_sockaddr_in() {
            found.push((entry.interface_name, IpAddr::V4(v4.ip())));
        } else if let Some(v6) = address.as_sockaddr_in6() {
            found.push((entry.interface_name, IpAddr::V6(v6.ip())));
        }
    }
    Ok(found)
}
