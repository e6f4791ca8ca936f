//! Rules of resource reservations, cgroups, the resource managers and sysctls.

use serde_json::Value;

use super::Rules;
use super::evictions::amount;
use crate::duration::GoDuration;
use crate::kubelet_config::schema::get;
use crate::quantity::Quantity;

impl Rules<'_> {
    pub(super) fn resources(&mut self) {
        self.reservations();
        self.enforcement();
        self.managers();
        self.numa_memory();
        self.sysctls();
        self.qos_reserved();
        if !self.text("systemCgroups").is_empty() && self.text("cgroupRoot").is_empty() {
            self.fault("systemCgroups", "needs cgroupRoot");
        }
        match Quantity::parse(self.text("containerLogMaxSize")) {
            Ok(_) => {}
            Err(error) => self.fault("containerLogMaxSize", error.to_string()),
        }
        let factor = get(self.config, "memoryThrottlingFactor").and_then(Value::as_f64);
        if factor.is_some_and(|factor| factor <= 0.0 || factor > 1.0) {
            self.fault("memoryThrottlingFactor", "must be above 0 and at most 1");
        }
        if self.text("memoryReservationPolicy") == "TieredReservation" && !self.gates.is_enabled("MemoryQoS") {
            self.fault("memoryReservationPolicy", "TieredReservation needs the feature gate MemoryQoS");
        }
        if let Some(ids) = self.integer("userNamespaces.idsPerPod")
            && (ids < 65536 || ids % 65536 != 0 || ids > 4_294_967_295)
        {
            self.fault("userNamespaces.idsPerPod", format!("{ids} must be a multiple of 65536 below 4294967296"));
        }
    }

    fn reservations(&mut self) {
        for path in ["systemReserved", "kubeReserved"] {
            let entries: Vec<(String, Value)> =
                self.entries(path).into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
            for (resource, value) in entries {
                if !matches!(resource.as_str(), "cpu" | "memory" | "ephemeral-storage" | "pid") {
                    self.fault(path, format!("cannot reserve {resource:?} resource"));
                } else if amount(&value).is_none_or(|amount| amount.is_negative()) {
                    self.fault(path, format!("{resource}: {value} is not an amount of at least 0"));
                }
            }
        }
        let cpus = self.text("reservedSystemCPUs").to_owned();
        if !cpus.is_empty() {
            if !self.text("systemReservedCgroup").is_empty() || !self.text("kubeReservedCgroup").is_empty() {
                self.fault("reservedSystemCPUs", "cannot be combined with systemReservedCgroup or kubeReservedCgroup");
            }
            if !is_cpu_list(&cpus) {
                self.fault("reservedSystemCPUs", format!("unable to parse {cpus:?} as a list of CPU ids like 0-3,7"));
            }
        }
    }

    fn enforcement(&mut self) {
        const PATH: &str = "enforceNodeAllocatable";
        let levels: Vec<String> = self.texts(PATH).into_iter().map(str::to_owned).collect();
        let has = |level: &str| levels.iter().any(|named| named == level);
        for (index, level) in levels.iter().enumerate() {
            if levels[..index].contains(level) {
                self.fault(PATH, format!("duplicated enforcements {level:?}"));
            }
            match level.as_str() {
                "none" if levels.len() > 1 => self.fault(PATH, "may not contain additional enforcements when none is specified"),
                "none" | "pods" => {}
                "system-reserved" | "system-reserved-compressible" | "kube-reserved" | "kube-reserved-compressible" => {
                    let cgroup = if level.starts_with("system") { "systemReservedCgroup" } else { "kubeReservedCgroup" };
                    if self.text(cgroup).is_empty() {
                        self.fault(PATH, format!("{level} needs {cgroup}"));
                    }
                }
                other => self.fault(PATH, format!(
                    "{other:?} is not known, wanted none, pods, system-reserved, kube-reserved, system-reserved-compressible or kube-reserved-compressible"
                )),
            }
        }
        for level in ["system-reserved", "kube-reserved"] {
            if has(level) && has(&format!("{level}-compressible")) {
                self.fault(PATH, format!("{level} and {level}-compressible exclude each other"));
            }
        }
        if !self.is_true("cgroupsPerQOS") && levels.iter().any(|level| level != "none") {
            self.fault(PATH, "is not supported unless cgroupsPerQOS is set to true");
        }
    }

    fn managers(&mut self) {
        let is_static = self.text("cpuManagerPolicy") == "static";
        if !self.entries("cpuManagerPolicyOptions").is_empty() && !is_static {
            self.fault("cpuManagerPolicyOptions", "needs cpuManagerPolicy static");
        }
        let period = self.duration("cpuManagerReconcilePeriod").unwrap_or_default();
        if is_static && period <= GoDuration::ZERO {
            self.fault("cpuManagerReconcilePeriod", format!("{period} must be above 0 with cpuManagerPolicy static"));
        }
        let options: Vec<String> =
            self.entries("topologyManagerPolicyOptions").into_iter().map(|(key, _)| key.to_owned()).collect();
        for option in options {
            if !matches!(option.as_str(), "prefer-closest-numa-nodes" | "max-allowable-numa-nodes") {
                self.fault("topologyManagerPolicyOptions", format!("unknown option {option:?}"));
            }
        }
    }

    fn numa_memory(&mut self) {
        const PATH: &str = "reservedMemory";
        let entries = get(self.config, PATH).and_then(Value::as_array).cloned().unwrap_or_default();
        let mut seen = Vec::new();
        for entry in entries {
            let node = entry["numaNode"].as_i64().unwrap_or(0);
            let limits = entry["limits"].as_object().cloned().unwrap_or_default();
            if limits.is_empty() {
                self.fault(PATH, format!("NUMA node {node} may not be specified without memory limits"));
            }
            for (name, value) in limits {
                if name != "memory" && !name.starts_with("hugepages-") {
                    self.fault(
                        PATH,
                        format!(
                            "the limit type {name:?} for NUMA node {node} is invalid, wanted memory or hugepages-<size>"
                        ),
                    );
                }
                if amount(&value).is_some_and(|amount| amount.is_zero()) || value == 0 {
                    self.fault(PATH, format!("the limit value {name:?} for NUMA node {node} must not be zero"));
                }
                if seen.contains(&(node, name.clone())) {
                    self.fault(
                        PATH,
                        format!("the reserved memory has a duplicate value for NUMA node {node} and {name}"),
                    );
                }
                seen.push((node, name));
            }
        }
    }

    fn sysctls(&mut self) {
        let names: Vec<String> = self.texts("allowedUnsafeSysctls").into_iter().map(str::to_owned).collect();
        for name in names {
            let dotted = name.replace('/', ".");
            let plain = dotted.strip_suffix(".*").or_else(|| dotted.strip_suffix('*')).unwrap_or(&dotted);
            let is_namespaced = plain == "kernel.sem"
                || ["kernel.shm", "kernel.msg", "fs.mqueue", "net."].iter().any(|prefix| plain.starts_with(prefix))
                || plain == "net";
            let is_name =
                !plain.is_empty() && plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
            if !is_name || !is_namespaced {
                self.fault(
                    "allowedUnsafeSysctls",
                    format!(
                        "{name:?} is not a namespaced sysctl (kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.*, net.*)"
                    ),
                );
            }
        }
    }
}

/// `0-3,7`
fn is_cpu_list(text: &str) -> bool {
    text.split(',').all(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        matches!((first.trim().parse::<u32>(), last.trim().parse::<u32>()), (Ok(first), Ok(last)) if first <= last)
    })
}
