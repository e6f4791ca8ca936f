//! What the end of a container for want of memory is called, and what took the memory.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use longshore_api::resources::{self, MEMORY, Side};

use super::PodTableOptions;
use crate::model::DesiredPod;
use crate::pod::observed::Instance;
use crate::pod::wanted;

/// The kernel's kill and the end of a container that are no further apart belong together.
const TOGETHER: SignedDuration = SignedDuration::from_secs(10);
const KILLED: i32 = 137;
const REASON: &str = "OOMKilled";
/// The runtime's word for an end of which it knows no more than the code.
const UNKNOWN_REASON: &str = "Error";
/// Volumes in memory are named from this share of the limit on, in percent.
const NOTABLE: u64 = 25;

/// Corrects and explains an end: where the bound of the pod was reached, the runtime knows only that the container was
/// killed, but the kernel's log says why.
pub(super) fn judge(options: &PodTableOptions, desired: &DesiredPod, instance: &mut Instance) {
    if instance.reason == UNKNOWN_REASON && instance.exit_code == KILLED && was_told(options, instance) {
        REASON.clone_into(&mut instance.reason);
    }
    if instance.reason == REASON && instance.message.is_empty() {
        let held = options.prepare.memory_volumes(desired);
        if let Some(text) = explain(&desired.pod, &instance.name, &held) {
            instance.message = text;
        }
    }
}

fn was_told(options: &PodTableOptions, instance: &Instance) -> bool {
    let Some(at) = options.kills.last(&instance.id) else { return false };
    Timestamp::from_nanosecond(i128::from(instance.finished_at))
        .is_ok_and(|finished| finished.duration_since(at).abs() <= TOGETHER)
}

/// Names the volumes in memory that hold a notable part of what the container may have.
fn explain(pod: &Pod, container: &str, held: &[(String, u64)]) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let limit = |amounts: &resources::Amounts| u64::try_from(amounts.get(MEMORY)?.value()).ok();
    let (found, _) = wanted::find(pod, container)?;
    let own = limit(&resources::of_container(found, Side::Limits));
    let whole = spec.resources.as_ref().and_then(|own| limit(&resources::amounts(own.limits.as_ref())));
    let limit = own.into_iter().chain(whole).min()?;
    let notable: Vec<String> = held
        .iter()
        .filter(|(_, bytes)| bytes.saturating_mul(100) >= limit.saturating_mul(NOTABLE))
        .map(|(name, bytes)| format!("volume {name:?} holds {} of memory", size(*bytes)))
        .collect();
    if notable.is_empty() {
        return None;
    }
    Some(format!(
        "{}, which counts towards the memory limit of {} and stays through restarts of the container",
        notable.join(", "),
        size(limit)
    ))
}

fn size(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes >= MIB { format!("{}Mi", bytes / MIB) } else { format!("{}Ki", bytes >> 10) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_that_hold_much_of_the_limit_are_named() {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [
            {"name": "c", "resources": {"limits": {"memory": "256Mi"}}}, {"name": "free"}]}}))
        .unwrap();
        let held = [("cache".to_owned(), 240 << 20), ("small".to_owned(), 1 << 20)];
        assert_eq!(
            explain(&pod, "c", &held).unwrap(),
            "volume \"cache\" holds 240Mi of memory, which counts towards the memory limit of 256Mi and stays through restarts of the container"
        );
        assert_eq!(explain(&pod, "c", &held[1..]), None);
        assert_eq!(explain(&pod, "free", &held), None);
    }
}
