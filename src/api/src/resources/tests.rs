use k8s_openapi::api::core::v1::{Pod, PodSpec};
use serde_json::{Value, json};

use super::*;

fn spec(value: Value) -> PodSpec {
    serde_json::from_value(value).unwrap()
}

fn text(amounts: &Amounts) -> Vec<String> {
    amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect()
}

fn burstable() -> PodSpec {
    spec(json!({"containers": [
        {"name": "a", "resources": {"requests": {"cpu": "100m", "memory": "20Mi"}, "limits": {"memory": "50Mi"}}},
        {"name": "b", "resources": {"requests": {"cpu": "200m"}}}]}))
}

#[test]
fn recorded_burstable_pod() {
    let spec = burstable();
    let policy = CpuPolicy::default();
    assert_eq!(
        sandbox_linux(&spec, policy),
        LinuxResources { cpu_shares: 307, cpu_quota: 0, cpu_period: 100_000, memory_limit: 52_428_800 }
    );
    assert_eq!(container_linux(&spec, &spec.containers[0], policy).cpu_shares, 102);
    assert_eq!(container_linux(&spec, &spec.containers[1], policy).memory_limit, 0);
    assert_eq!(
        pod_cgroup(&spec, Qos::Burstable, policy),
        PodCgroup { cpu_shares: 307, cpu_quota: None, cpu_period: 100_000, memory_limit: None }
    );
    assert_eq!(text(&pod(&spec, Side::Requests)), ["cpu=300m", "memory=20Mi"]);
}

#[test]
fn recorded_guaranteed_pod() {
    let spec = spec(json!({"containers": [{"name": "a", "resources": {
        "requests": {"cpu": "250m", "memory": "32Mi"}, "limits": {"cpu": "250m", "memory": "32Mi"}}}]}));
    let policy = CpuPolicy::default();
    assert_eq!(
        container_linux(&spec, &spec.containers[0], policy),
        LinuxResources { cpu_shares: 256, cpu_quota: 25_000, cpu_period: 100_000, memory_limit: 33_554_432 }
    );
    assert_eq!(
        pod_cgroup(&spec, Qos::Guaranteed, policy),
        PodCgroup { cpu_shares: 256, cpu_quota: Some(25_000), cpu_period: 100_000, memory_limit: Some(33_554_432) }
    );
    let none = CpuPolicy { quota: false, period: PERIOD };
    assert_eq!(container_linux(&spec, &spec.containers[0], none).cpu_period, 0);
}

#[test]
fn nothing_asked_gives_the_least_weight() {
    let spec = spec(json!({"containers": [{"name": "a"}]}));
    assert_eq!(
        sandbox_linux(&spec, CpuPolicy::default()),
        LinuxResources { cpu_shares: 2, cpu_quota: 0, cpu_period: 100_000, memory_limit: 0 }
    );
    assert_eq!(overhead_linux(&spec, CpuPolicy::default()), LinuxResources::default());
}

#[test]
fn a_limit_alone_is_also_the_weight_and_tiny_quotas_are_raised() {
    let spec = spec(json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}}}]}));
    assert_eq!(container_linux(&spec, &spec.containers[0], CpuPolicy::default()).cpu_shares, 2048);
    assert_eq!(cpu_quota(1, PERIOD), 1_000);
    assert_eq!(cpu_shares(i64::MAX), SHARES_MAX);
}

#[test]
fn init_containers_count_by_the_larger_side() {
    let one = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
    let mut side = one("side", "1");
    side["restartPolicy"] = json!("Always");
    let spec = spec(json!({"initContainers": [one("i1", "5"), side, one("i2", "3")],
        "containers": [one("a", "1"), one("b", "500m")]}));
    assert_eq!(text(&pod(&spec, Side::Requests)), ["cpu=5"]);
    let mut spec = spec;
    spec.init_containers.as_mut().unwrap().remove(0);
    assert_eq!(text(&pod(&spec, Side::Requests)), ["cpu=4"]);
}

#[test]
fn overhead_adds_to_requests_and_only_to_limits_that_are_there() {
    let mut spec = burstable();
    spec.overhead = Some(std::collections::BTreeMap::from([
        (CPU.to_owned(), Raw("100m".to_owned())),
        (MEMORY.to_owned(), Raw("10Mi".to_owned())),
    ]));
    assert_eq!(text(&pod_with_overhead(&spec, Side::Requests)), ["cpu=400m", "memory=30Mi"]);
    assert_eq!(text(&pod_with_overhead(&spec, Side::Limits)), ["memory=60Mi"]);
    assert_eq!(overhead_linux(&spec, CpuPolicy::default()).memory_limit, 10 << 20);
}

#[test]
fn oom_scores() {
    let pod = |spec: Value| -> Pod { serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap() };
    let container = |memory: &str| json!({"name": "c", "resources": {"requests": {"memory": memory}}});
    let score = |pod: &Pod, index: usize| oom_score_adj(pod, &pod.spec.as_ref().unwrap().containers[index], 1 << 30);
    let half = pod(json!({"containers": [container("512Mi"), container("1")]}));
    assert_eq!(score(&half, 0), 500);
    assert_eq!(score(&half, 1), 999);
    assert_eq!(score(&pod(json!({"containers": [container("2Gi")]})), 0), 3);
    assert_eq!(score(&pod(json!({"containers": [{"name": "c"}]})), 0), 1000);
    let critical = pod(json!({"priorityClassName": "system-node-critical", "containers": [{"name": "c"}]}));
    assert_eq!(score(&critical, 0), -997);
}

#[test]
fn a_sidecar_is_killed_no_earlier_than_the_app() {
    let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": {
        "initContainers": [{"name": "s", "restartPolicy": "Always"}],
        "containers": [{"name": "c", "resources": {"requests": {"memory": "512Mi"}}}]}}))
    .unwrap();
    let sidecar = &pod.spec.as_ref().unwrap().init_containers.as_ref().unwrap()[0];
    assert_eq!(oom_score_adj(&pod, sidecar, 1 << 30), 500);
}

#[test]
fn a_container_without_a_limit_is_bound_like_its_pod() {
    let spec = spec(json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1"}},
        "containers": [{"name": "a"}, {"name": "b", "resources": {
            "requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}}]}));
    let policy = CpuPolicy::default();
    assert_eq!(
        container_linux(&spec, &spec.containers[0], policy),
        LinuxResources { cpu_shares: 1024, cpu_quota: 100_000, cpu_period: 100_000, memory_limit: 1 << 30 }
    );
    let own = container_linux(&spec, &spec.containers[1], policy);
    assert_eq!((own.cpu_shares, own.cpu_quota, own.memory_limit), (102, 20_000, 1 << 30));
    let group = pod_cgroup(&spec, Qos::Burstable, policy);
    assert_eq!((group.cpu_shares, group.cpu_quota, group.memory_limit), (1024, Some(100_000), Some(1 << 30)));
    assert_eq!(text(&pod(&spec, Side::Requests)), ["cpu=1"]);
    assert_eq!(text(&of_containers(&spec, Side::Requests)), ["cpu=100m"]);
}
