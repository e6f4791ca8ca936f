use super::*;

#[test]
fn metrics_carry_upstream_names() {
    let telemetry = Telemetry::new();
    telemetry.node.set_name("n1");
    telemetry.pods.running_pods.set(3);
    telemetry.pods.container_started(ContainerType::Container);
    telemetry.pods.desired_pods.get_or_create(&StaticLabel(true)).set(2);
    let text = telemetry.encode().unwrap();
    for line in [
        "kubelet_node_name{node=\"n1\"} 1",
        "# TYPE kubelet_running_pods gauge",
        "kubelet_running_pods 3",
        "kubelet_started_containers_total{container_type=\"container\"} 1",
        "# TYPE kubelet_started_containers_total counter",
        "kubelet_desired_pods{static=\"true\"} 2",
        "# TYPE process_cpu_seconds_total counter",
        "kubelet_pod_start_duration_seconds_bucket{le=\"3600\"} 0",
    ] {
        assert!(text.lines().any(|have| have == line), "{line} not in\n{text}");
    }
    assert!(!text.contains("# EOF"));
}

#[test]
fn counters_that_upstream_names_without_suffix_keep_their_names() {
    let telemetry = Telemetry::new();
    let counter = prometheus_client::metrics::counter::Counter::<u64>::default();
    telemetry.register(|registry| registry.register("kubelet_evictions", "x", counter.clone()));
    counter.inc();
    assert!(telemetry.encode().unwrap().lines().any(|line| line == "kubelet_evictions 1"));
}
