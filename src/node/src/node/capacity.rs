//! What the node has and what pods may use of it. Pure, integers; only percentages pass through the same float steps as
//! upstream, so that the byte counts agree.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use longshore_api::resources::{Amounts, amounts};
use longshore_host::facts::MachineFacts;

use super::NodeOptions;

/// Resources by name.
pub(super) type Resources = BTreeMap<String, Quantity>;

/// Kept back from pods: `systemReserved` and `kubeReserved` together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reserved {
    /// In thousandths of a CPU.
    pub cpu_milli: u64,
    /// In bytes.
    pub memory: u64,
    /// In bytes.
    pub ephemeral_storage: u64,
}

/// An eviction threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    /// Bytes.
    Quantity(u64),
    /// Percent of the capacity, e.g. `10.0`.
    Percent(f32),
}

impl Threshold {
    /// In bytes of `capacity`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "upstream's arithmetic: a 32-bit share times a 64-bit capacity, truncated; `as` saturates"
    )]
    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Quantity(bytes) => bytes,
            Self::Percent(percent) => (capacity as f64 * f64::from(percent / 100.0)) as u64,
        }
    }
}

/// Capacity and allocatable in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Thousandths of a CPU: all, and for pods.
    pub cpu_milli: (u64, u64),
    /// Bytes: all, and for pods.
    pub memory: (u64, u64),
    /// Bytes of the root dir's filesystem: all, and for pods.
    pub ephemeral_storage: Option<(u64, u64)>,
    /// Page size and bytes.
    pub hugepages: Vec<(u64, u64)>,
    /// Pods.
    pub pods: u64,
}

impl Capacity {
    /// Works it out. `root_size` is `None` when local storage is not accounted.
    pub fn compute(machine: &MachineFacts, root_size: Option<u64>, options: &NodeOptions) -> Self {
        let cpu = u64::from(machine.cpus) * 1000;
        let hugepages: Vec<(u64, u64)> = machine.hugepages.iter().map(|pages| (pages.page, pages.bytes())).collect();
        let huge: u64 = hugepages.iter().map(|(_, bytes)| *bytes).sum();
        let evict = |threshold: Option<Threshold>, capacity| threshold.map_or(0, |threshold| threshold.of(capacity));
        let memory = machine.memory;
        let memory_kept =
            options.reserved.memory.saturating_add(evict(options.evict_memory, memory)).saturating_add(huge);
        let per_core = u64::from(options.pods_per_core).saturating_mul(u64::from(machine.cpus));
        let max_pods = u64::from(options.max_pods);
        Self {
            cpu_milli: (cpu, cpu.saturating_sub(options.reserved.cpu_milli)),
            memory: (memory, memory.saturating_sub(memory_kept)),
            ephemeral_storage: root_size.map(|size| {
                let kept = options.reserved.ephemeral_storage.saturating_add(evict(options.evict_nodefs, size));
                (size, size.saturating_sub(kept))
            }),
            hugepages,
            pods: if per_core > 0 { per_core.min(max_pods) } else { max_pods },
        }
    }

    /// What pods may use, as amounts to reckon with.
    pub fn allocatable_amounts(&self) -> Amounts {
        amounts(Some(&self.allocatable()))
    }

    /// `status.capacity`.
    pub(super) fn total(&self) -> Resources {
        self.resources(self.cpu_milli.0, self.memory.0, self.ephemeral_storage.map(|(total, _)| total))
    }

    /// `status.allocatable`.
    pub(super) fn allocatable(&self) -> Resources {
        self.resources(self.cpu_milli.1, self.memory.1, self.ephemeral_storage.map(|(_, usable)| usable))
    }

    /// Names of required entries that could not be read.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        let entries = [("cpu", self.cpu_milli.0), ("memory", self.memory.0)];
        entries.into_iter().filter(|(_, value)| *value == 0).map(|(name, _)| name).collect()
    }

    fn resources(&self, cpu: u64, memory: u64, storage: Option<u64>) -> Resources {
        let mut map = Resources::new();
        let mut put = |name: String, value: String| drop(map.insert(name, Quantity(value)));
        put("cpu".into(), milli(cpu));
        put("memory".into(), binary(memory));
        put("pods".into(), self.pods.to_string());
        if let Some(storage) = storage {
            put("ephemeral-storage".into(), binary(storage));
        }
        for (page, bytes) in &self.hugepages {
            put(format!("hugepages-{}", binary(*page)), binary(*bytes));
        }
        map
    }
}

/// `1500` → `1500m`, `2000` → `2`.
fn milli(value: u64) -> String {
    if value.is_multiple_of(1000) { (value / 1000).to_string() } else { format!("{value}m") }
}

/// The largest binary unit that leaves a whole number.
fn binary(value: u64) -> String {
    const UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let (mut value, mut unit) = (value, 0);
    while value > 0 && value.is_multiple_of(1024) && unit + 1 < UNITS.len() {
        value /= 1024;
        unit += 1;
    }
    format!("{value}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use longshore_host::facts::HugePages;

    use super::*;

    fn machine() -> MachineFacts {
        MachineFacts {
            cpus: 2,
            memory: 24_684_084 * 1024,
            hugepages: vec![HugePages { page: 2 << 20, count: 0 }, HugePages { page: 1 << 30, count: 0 }],
            ..MachineFacts::default()
        }
    }

    fn show(resources: &Resources) -> String {
        let parts: Vec<String> = resources.iter().map(|(name, value)| format!("{name}={}", value.0)).collect();
        parts.join(" ")
    }

    #[test]
    fn the_recorded_node_is_reproduced() {
        let capacity = Capacity::compute(&machine(), Some(264_212_084 * 1024), &NodeOptions::new("n"));
        assert_eq!(
            show(&capacity.total()),
            "cpu=2 ephemeral-storage=264212084Ki hugepages-1Gi=0 hugepages-2Mi=0 memory=24684084Ki pods=110"
        );
        assert_eq!(
            show(&capacity.allocatable()),
            "cpu=2 ephemeral-storage=243497856212 hugepages-1Gi=0 hugepages-2Mi=0 memory=24581684Ki pods=110"
        );
    }

    #[test]
    fn reservations_and_huge_pages_are_taken_off_and_never_below_zero() {
        let mut machine = machine();
        machine.hugepages = vec![HugePages { page: 2 << 20, count: 512 }];
        let mut options = NodeOptions::new("n");
        options.reserved = Reserved { cpu_milli: 150, memory: 1 << 30, ephemeral_storage: u64::MAX };
        options.pods_per_core = 10;
        let capacity = Capacity::compute(&machine, Some(1 << 40), &options);
        assert_eq!(
            show(&capacity.allocatable()),
            format!(
                "cpu=1850m ephemeral-storage=0 hugepages-2Mi=1Gi memory={}Ki pods=20",
                24_684_084 - (2 << 20) - 100 * 1024
            )
        );
        options.local_storage = false;
        assert!(!Capacity::compute(&machine, None, &options).total().contains_key("ephemeral-storage"));
    }

    #[test]
    fn an_unreadable_machine_is_noticed() {
        let capacity = Capacity::compute(&MachineFacts::default(), None, &NodeOptions::new("n"));
        assert_eq!(capacity.missing(), ["cpu", "memory"]);
    }
}
