//! Tells admission what the node is like: the Node object, what the machine gives, the runtime's abilities, pressure.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use longshore_api::resources::amounts;
use longshore_host::facts::MachineFacts;
use longshore_transport::client::Typed;
use longshore_util::{Tasks, spawn};
use tokio::sync::watch;

use super::AgentOptions;
use crate::admit::{self, ResizeRules, Short, SysctlRules};
use crate::node::{NodeHandle, Pressure};
use crate::pod::PodTable;

/// How long a pod whose labels do not fit waits for another look at the node.
const LOOK_WITHIN: Duration = Duration::from_secs(2);
/// Tells whether the kernel enforces AppArmor profiles.
const APP_ARMOR: &str = "/sys/module/apparmor/parameters/enabled";

/// What admission asks.
pub(super) struct Grounds {
    node: NodeHandle,
    client: Option<kube::Client>,
    pressure: watch::Receiver<Pressure>,
    sysctls: Arc<SysctlRules>,
    app_armor: bool,
    pod_resources: bool,
    resize: ResizeRules,
}

impl std::fmt::Debug for Grounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grounds").field("node", &self.node.name()).finish_non_exhaustive()
    }
}

impl Grounds {
    pub(super) fn new(options: &AgentOptions, node: &NodeHandle, pressure: watch::Receiver<Pressure>) -> Self {
        let settings = &options.settings;
        let kernel = MachineFacts::read(Path::new("/")).kernel;
        Self {
            node: node.clone(),
            client: options.client(),
            pressure,
            sysctls: Arc::new(SysctlRules::new(&kernel, &settings.config.allowed_unsafe_sysctls)),
            app_armor: std::fs::read_to_string(APP_ARMOR).is_ok_and(|text| text.starts_with('Y')),
            pod_resources: settings.gates.is_enabled("PodLevelResources"),
            resize: ResizeRules {
                pod_level: settings.gates.is_enabled("InPlacePodLevelResourcesVerticalScaling"),
                plain_init: settings.gates.is_enabled("InPlacePodVerticalScalingInitContainers"),
                shares_swap: options.shares_swap(),
                fixed_cpus: settings.config.cpu_manager_policy == "static"
                    && !settings.gates.is_enabled("InPlacePodVerticalScalingExclusiveCPUs"),
                fixed_memory: settings.config.memory_manager_policy == "Static"
                    && !settings.gates.is_enabled("InPlacePodVerticalScalingExclusiveMemory"),
            },
        }
    }

    fn view(&self, object: &Node) -> admit::Node {
        let spec = object.spec.as_ref();
        // Plug-ins put what they give into the object; what the machine gives is known best here.
        let mut allocatable = amounts(object.status.as_ref().and_then(|status| status.allocatable.as_ref()));
        allocatable.extend(self.node.capacity().allocatable_amounts());
        let pressure = *self.pressure.borrow();
        admit::Node {
            name: self.node.name().to_owned(),
            labels: object.metadata.labels.clone().unwrap_or_default(),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            allocatable,
            short: Short { memory: pressure.memory, disk: pressure.disk, pid: pressure.pid },
            sysctls: Arc::clone(&self.sysctls),
            app_armor: self.app_armor,
            strict_groups: self.node.runtime().borrow().supplemental_groups_policy == Some(true),
            pod_resources: self.pod_resources,
            resize: self.resize,
            shutting_down: false,
        }
    }
}

#[async_trait]
impl admit::Grounds for Grounds {
    fn node(&self) -> admit::Node {
        self.view(&self.node.node_or_own())
    }

    async fn runtime_known(&self) {
        let mut runtime = self.node.runtime();
        drop(runtime.wait_for(|state| state.was_ready).await);
    }

    async fn look_again(&self) -> admit::Node {
        if let Some(client) = &self.client {
            let api: kube::Api<Typed<Node>> = kube::Api::all(client.clone());
            match tokio::time::timeout(LOOK_WITHIN, api.get(self.node.name())).await {
                Ok(Ok(object)) => return self.view(&object),
                Ok(Err(error)) => tracing::debug!(%error, "the node cannot be read for admission"),
                Err(_) => tracing::debug!("the node cannot be read for admission: no answer"),
            }
        }
        admit::Grounds::node(self)
    }
}

/// Has refused pods judged again when the node's labels, taints or resources change, or pressure ends.
pub(super) fn follow(node: &NodeHandle, mut pressure: watch::Receiver<Pressure>, table: &PodTable, tasks: &Tasks) {
    let (mut changes, table, token) = (node.changes(), table.clone(), tasks.token().clone());
    let look = |object: &Option<Arc<Node>>| {
        object.as_ref().map(|object| {
            let spec = object.spec.as_ref();
            let allocatable = object.status.as_ref().and_then(|status| status.allocatable.clone());
            (object.metadata.labels.clone(), spec.and_then(|spec| spec.taints.clone()), allocatable)
        })
    };
    let mut seen = look(&changes.borrow_and_update());
    drop(spawn(tasks, "room", async move {
        loop {
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                Ok(()) = changes.changed() => {
                    let now = look(&changes.borrow_and_update());
                    if now == seen {
                        continue;
                    }
                    seen = now;
                }
                Ok(()) = pressure.changed() => {}
                else => return,
            }
            table.room_appeared();
        }
    }));
}
