//! What the configuration says about the node.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;

use super::{Reserved, Threshold};

/// Settings of the node room, already validated.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// The node's name, lower case.
    pub name: String,
    /// `registerNode`.
    pub register: bool,
    /// `registerSchedulable`; false makes the new Node unschedulable.
    pub schedulable: bool,
    /// `--node-labels`.
    pub labels: BTreeMap<String, String>,
    /// `registerWithTaints`; only used when the Node object is made.
    pub taints: Vec<Taint>,
    /// `providerID`.
    pub provider_id: Option<String>,
    /// `--cloud-provider=external`.
    pub external_cloud: bool,
    /// `--node-ip`.
    pub node_ips: Vec<IpAddr>,
    /// The port of the server; told in `daemonEndpoints`.
    pub port: u16,
    /// `enableControllerAttachDetach`.
    pub controller_attach_detach: bool,
    /// `maxPods`.
    pub max_pods: u32,
    /// `podsPerCore`; 0 = no such limit.
    pub pods_per_core: u32,
    /// `systemReserved` plus `kubeReserved`.
    pub reserved: Reserved,
    /// `evictionHard["memory.available"]`.
    pub evict_memory: Option<Threshold>,
    /// `evictionHard["nodefs.available"]`.
    pub evict_nodefs: Option<Threshold>,
    /// `localStorageCapacityIsolation`.
    pub local_storage: bool,
    /// `nodeStatusUpdateFrequency`.
    pub update_frequency: Duration,
    /// `nodeStatusReportFrequency`.
    pub report_frequency: Duration,
    /// `nodeLeaseDurationSeconds`.
    pub lease_duration: Duration,
    /// `nodeStatusMaxImages`; `None` = no limit.
    pub max_images: Option<usize>,
    /// Whether the machine runs cgroup v1, which earns a warning event.
    pub cgroup_v1: bool,
    /// Features told in `status.declaredFeatures`: only what this agent really does.
    pub declared_features: Vec<String>,
    /// `--root-dir`; its filesystem is the node's ephemeral storage.
    pub root_dir: PathBuf,
    /// Where /proc and /sys are read; `/` but in tests.
    pub machine_root: PathBuf,
}

impl NodeOptions {
    /// Upstream's defaults under a name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            register: true,
            schedulable: true,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            provider_id: None,
            external_cloud: false,
            node_ips: Vec::new(),
            port: 10250,
            controller_attach_detach: true,
            max_pods: 110,
            pods_per_core: 0,
            reserved: Reserved::default(),
            evict_memory: Some(Threshold::Quantity(100 << 20)),
            evict_nodefs: Some(Threshold::Percent(10.0)),
            local_storage: true,
            update_frequency: Duration::from_secs(10),
            report_frequency: Duration::from_secs(300),
            lease_duration: Duration::from_secs(40),
            max_images: Some(50),
            cgroup_v1: false,
            declared_features: Vec::new(),
            root_dir: PathBuf::from("/var/lib/kubelet"),
            machine_root: PathBuf::from("/"),
        }
    }

    /// Size of the root dir's filesystem; the nearest existing parent counts while the dir is not there yet.
    pub(super) fn root_size(&self) -> Option<u64> {
        if !self.local_storage {
            return None;
        }
        let found = self.root_dir.ancestors().find_map(|dir| longshore_host::facts::filesystem_size(dir).ok());
        if found.is_none() {
            tracing::warn!(path = %self.root_dir.display(), "size of the root dir's filesystem is not known");
        }
        found
    }
}
