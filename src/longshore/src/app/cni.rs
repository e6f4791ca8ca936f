//! Pod network of a machine that has none: a bridge of our own, with addresses that clash with no route of the machine.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::process::find_program;

/// Folders where distributions and installers put CNI plugins.
pub(crate) const PLUGIN_FOLDERS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];
/// The plugins that our configuration needs.
pub(crate) const PLUGINS: [&str; 4] = ["bridge", "host-local", "loopback", "portmap"];
/// Where a machine's own CNI configuration is.
pub(crate) const SYSTEM_CONFIG: &str = "/etc/cni/net.d";
/// Our bridge.
pub(crate) const BRIDGE: &str = "longshore0";
/// Name of our network: the folder of its address leases.
pub(crate) const NETWORK: &str = "longshore";

/// Ranges to choose from, in this order.
const RANGES: [(Ipv4Addr, u32); 4] = [
    (Ipv4Addr::new(10, 244, 0, 0), 16),
    (Ipv4Addr::new(10, 85, 0, 0), 16),
    (Ipv4Addr::new(10, 88, 0, 0), 16),
    (Ipv4Addr::new(172, 29, 0, 0), 16),
];

/// Returns the folder that holds all the plugins we need.
pub(crate) fn plugin_folder() -> Option<PathBuf> {
    PLUGIN_FOLDERS.iter().map(PathBuf::from).find(|folder| PLUGINS.iter().all(|plugin| folder.join(plugin).exists()))
}

/// Returns, of a folder that holds some plugins, those that it lacks.
pub(crate) fn partial_folder() -> Option<(PathBuf, Vec<&'static str>)> {
    PLUGIN_FOLDERS.iter().map(PathBuf::from).find_map(|folder| {
        let missing: Vec<_> = PLUGINS.into_iter().filter(|plugin| !folder.join(plugin).exists()).collect();
        (missing.len() < PLUGINS.len()).then_some((folder, missing))
    })
}

/// Returns the machine's own configuration file, if there is one.
pub(crate) fn system_config() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(SYSTEM_CONFIG)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "conf" || extension == "conflist" || extension == "json")
        })
        .collect();
    found.sort();
    found.into_iter().next()
}

/// Writes our configuration into `folder` and returns the pod range.
pub(crate) fn write_config(folder: &Path) -> Result<String> {
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    let range = choose_range(&routes);
    let masquerade = find_program("iptables").is_some();
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let file = folder.join("10-longshore.conflist");
    let text = serde_json::to_string_pretty(&config(&range, masquerade))?;
    longshore_util::atomic::write(&file, text.as_bytes(), 0o644)
        .with_context(|| format!("write {}", file.display()))?;
    Ok(range)
}

fn config(range: &str, masquerade: bool) -> serde_json::Value {
    json!({
        "cniVersion": "1.0.0",
        "name": NETWORK,
        "plugins": [
            {
                "type": "bridge",
                "bridge": BRIDGE,
                "isGateway": true,
                "ipMasq": masquerade,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": range}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

/// The first range that overlaps with no route but our own bridge's; the first one if all do.
fn choose_range(routes: &str) -> String {
    let taken: Vec<(u32, u32)> = routes
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let device = *fields.first()?;
            // The kernel writes addresses in network order as it has them in memory.
            let address = u32::from_str_radix(fields.get(1)?, 16).ok()?.swap_bytes();
            let mask = u32::from_str_radix(fields.get(7)?, 16).ok()?.swap_bytes();
            (device != BRIDGE && mask != 0).then_some((address, mask))
        })
        .collect();
    let free = RANGES.iter().find(|(base, bits)| {
        let mask = u32::MAX << (32 - bits);
        let base = u32::from(*base);
        taken.iter().all(|(address, other)| base & mask & other != address & mask & other)
    });
    let (base, bits) = free.unwrap_or(&RANGES[0]);
    format!("{base}/{bits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";

    #[test]
    fn a_taken_range_is_not_chosen() {
        assert_eq!(choose_range(HEAD), "10.244.0.0/16");
        let vpn = format!("{HEAD}tun0\t0000F40A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n");
        assert_eq!(choose_range(&vpn), "10.85.0.0/16");
        let wide = format!("{HEAD}tun0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n");
        assert_eq!(choose_range(&wide), "172.29.0.0/16");
    }

    #[test]
    fn our_own_bridge_and_the_default_route_do_not_count() {
        let routes = format!(
            "{HEAD}longshore0\t0000F40A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n\
             eth0\t00000000\t014DA8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        );
        assert_eq!(choose_range(&routes), "10.244.0.0/16");
    }
}
