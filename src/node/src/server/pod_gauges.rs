//! Counts pods and containers at each scrape: a gauge that is reckoned when it is read cannot drift.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

use crate::model::PodView;
use crate::telemetry::{PodMetrics, StaticLabel};

const STATES: [&str; 4] = ["created", "running", "exited", "unknown"];

/// Sets the gauges to what the table shows.
pub(super) fn set(metrics: &PodMetrics, pods: &[PodView]) {
    let mut running = 0;
    let mut desired = BTreeMap::from([(false, 0), (true, 0)]);
    let mut active = desired.clone();
    let mut states: BTreeMap<&'static str, i64> = STATES.map(|state| (state, 0)).into();
    for view in pods {
        let is_static = view.desired.source.is_static();
        *desired.entry(is_static).or_default() += 1;
        let status = view.status.as_deref();
        let phase = status.and_then(|status| status.phase.as_deref());
        if !matches!(phase, Some("Succeeded" | "Failed")) {
            *active.entry(is_static).or_default() += 1;
        }
        let mut any = false;
        for container in status.into_iter().flat_map(containers) {
            let Some(state) = state(container) else { continue };
            any |= state == "running";
            *states.entry(state).or_default() += 1;
        }
        running += i64::from(any);
    }
    metrics.running_pods.set(running);
    metrics.mirror_pods.set(count(pods.iter().filter(|view| view.mirror.is_some()).count()));
    for (state, value) in states {
        metrics.set_containers(state, value);
    }
    for (is_static, value) in desired {
        metrics.desired_pods.get_or_create(&StaticLabel(is_static)).set(value);
    }
    for (is_static, value) in active {
        metrics.active_pods.get_or_create(&StaticLabel(is_static)).set(value);
    }
}

fn count(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let lists = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten()
}

/// `None` for a container that has never been made.
fn state(container: &ContainerStatus) -> Option<&'static str> {
    let state = container.state.as_ref()?;
    if state.running.is_some() {
        return Some("running");
    }
    let has_ended =
        state.terminated.is_some() || container.last_state.as_ref().is_some_and(|last| last.terminated.is_some());
    has_ended.then_some("exited")
}
