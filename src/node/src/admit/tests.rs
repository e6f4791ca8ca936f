use jiff::Timestamp;
use longshore_api::quantity::Quantity;
use serde_json::{Value, json};

use super::*;
use crate::model::{PodKey, SourceKind};

fn amounts(pairs: &[(&str, &str)]) -> Amounts {
    pairs.iter().map(|(name, amount)| ((*name).to_owned(), Quantity::parse(amount).unwrap())).collect()
}

fn node() -> Node {
    Node {
        name: "n1".into(),
        labels: [("disk".to_owned(), "ssd".to_owned())].into(),
        allocatable: amounts(&[("cpu", "2"), ("memory", "4Gi"), ("pods", "3"), ("ephemeral-storage", "10Gi")]),
        sysctls: Arc::new(SysctlRules::new("6.1", &[])),
        app_armor: true,
        strict_groups: true,
        pod_resources: true,
        ..Node::default()
    }
}

fn pod(name: &str, spec: Value) -> DesiredPod {
    let mut spec = spec;
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{"name": "c"}]);
    }
    let pod: Pod =
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": spec}))
            .unwrap();
    DesiredPod {
        uid: name.into(),
        key: PodKey::new("d", name),
        pod: Arc::new(pod),
        source: SourceKind::Api,
        seen: Timestamp::UNIX_EPOCH,
    }
}

fn asking(name: &str, cpu: &str, memory: &str) -> DesiredPod {
    pod(name, json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}))
}

fn guaranteed(name: &str, cpu: &str, memory: &str) -> DesiredPod {
    let amounts = json!({"cpu": cpu, "memory": memory});
    pod(name, json!({"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]}))
}

fn manifest(mut pod: DesiredPod) -> DesiredPod {
    pod.source = SourceKind::File;
    pod
}

fn others(pods: &[DesiredPod]) -> Vec<Neighbour> {
    pods.iter().map(Neighbour::of).collect()
}

#[track_caller]
fn refused(pod: &DesiredPod, node: &Node, pods: &[DesiredPod]) -> (String, String) {
    match decide(pod, node, &others(pods)) {
        Decision::Refuse(refusal) => (refusal.reason, refusal.message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_plain_pod_is_admitted() {
    assert_eq!(decide(&pod("p", json!({})), &node(), &[]), Decision::Admit);
}

#[test]
fn resources_are_counted_over_all_pods_and_told_as_recorded() {
    let (reason, message) = refused(&asking("p", "900", "1"), &node(), &[]);
    assert_eq!(reason, "OutOfcpu");
    assert_eq!(message, "Node didn't have enough resource: cpu, requested: 900000, used: 0, capacity: 2000");
    let there = [asking("a", "1500m", "3Gi")];
    assert_eq!(decide(&asking("p", "500m", "1Gi"), &node(), &others(&there)), Decision::Admit);
    assert_eq!(
        refused(&asking("p", "501m", "1Gi"), &node(), &there).1,
        "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000"
    );
    assert_eq!(
        refused(&asking("p", "500m", "1025Mi"), &node(), &there),
        (
            "OutOfmemory".to_owned(),
            "Node didn't have enough resource: memory, requested: 1074790400, used: 3221225472, capacity: 4294967296"
                .to_owned()
        )
    );
    let full = [pod("a", json!({})), pod("b", json!({})), pod("c", json!({}))];
    assert_eq!(
        refused(&asking("p", "3", "1"), &node(), &full),
        (
            "OutOfpods".to_owned(),
            "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3".to_owned()
        )
    );
}

#[test]
fn init_containers_sidecars_and_overhead_count() {
    let own = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let fits = |overhead: &str| {
        let spec = json!({"overhead": {"cpu": overhead},
            "initContainers": [{"name": "i", "resources": own("1")}, {"name": "s", "restartPolicy": "Always", "resources": own("500m")}],
            "containers": [{"name": "c", "resources": own("1")}]});
        decide(&pod("p", spec), &node(), &[]) == Decision::Admit
    };
    assert!(fits("500m"));
    assert!(!fits("501m"));
}

#[test]
fn unknown_extended_resources_are_somebody_elses() {
    let ask = |name: &str| pod("p", json!({"containers": [{"name": "c", "resources": {"requests": {name: "1"}}}]}));
    assert_eq!(decide(&ask("example.com/gpu"), &node(), &[]), Decision::Admit);
    assert_eq!(refused(&ask("hugepages-2Mi"), &node(), &[]).0, "OutOfhugepages-2Mi");
    let mut node = node();
    node.allocatable.extend(amounts(&[("example.com/gpu", "0")]));
    assert_eq!(refused(&ask("example.com/gpu"), &node, &[]).0, "OutOfexample.com/gpu");
}

#[test]
fn labels_name_ports_and_taints() {
    let (reason, message) = refused(&pod("p", json!({"nodeSelector": {"disk": "none-such"}})), &node(), &[]);
    assert_eq!(reason, "NodeAffinity");
    assert_eq!(message, "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector");
    assert_eq!(refused(&pod("p", json!({"nodeName": "n2"})), &node(), &[]).0, "NodeName");

    let port = |address: &str, protocol: &str, number: i32| json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": number, "hostIP": address, "protocol": protocol}]}]});
    let there = [pod("a", port("", "TCP", 80))];
    assert_eq!(refused(&pod("p", port("127.0.0.1", "TCP", 80)), &node(), &there).0, "NodePorts");
    assert_eq!(decide(&pod("p", port("", "UDP", 80)), &node(), &others(&there)), Decision::Admit);
    let bound = [pod("a", port("127.0.0.1", "TCP", 80))];
    assert_eq!(decide(&pod("p", port("127.0.0.2", "TCP", 80)), &node(), &others(&bound)), Decision::Admit);

    let mut node = node();
    let taint = |effect: &str| Taint { key: "k".into(), value: None, effect: effect.into(), time_added: None };
    node.taints = vec![taint("NoSchedule")];
    assert_eq!(decide(&pod("p", json!({})), &node, &[]), Decision::Admit, "only the scheduler minds");
    node.taints = vec![taint("NoExecute")];
    assert_eq!(
        refused(&pod("p", json!({})), &node, &[]),
        (
            "TaintToleration".to_owned(),
            "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate".to_owned()
        )
    );
    assert_eq!(decide(&pod("p", json!({"tolerations": [{"operator": "Exists"}]})), &node, &[]), Decision::Admit);
    assert_eq!(decide(&manifest(pod("p", json!({}))), &node, &[]), Decision::Admit);
}

#[test]
fn system_groups_sysctls_and_features() {
    assert_eq!(refused(&pod("p", json!({"os": {"name": "windows"}})), &node(), &[]).0, "PodOSNotSupported");
    assert_eq!(
        refused(&pod("p", json!({"nodeSelector": {"kubernetes.io/os": "windows"}})), &node(), &[]).0,
        "PodOSSelectorNodeLabelDoesNotMatch"
    );
    let sysctl = json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}});
    assert_eq!(
        refused(&pod("p", sysctl), &node(), &[]),
        ("SysctlForbidden".to_owned(), "forbidden sysctl: \"kernel.msgmax\" not allowlisted".to_owned())
    );
    let mut poor = node();
    poor.strict_groups = false;
    poor.app_armor = false;
    poor.pod_resources = false;
    let strict = pod("p", json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}}));
    assert_eq!(decide(&strict, &node(), &[]), Decision::Admit);
    assert_eq!(refused(&strict, &poor, &[]).0, "SupplementalGroupsPolicyNotSupported");
    let whole = pod("p", json!({"resources": {"requests": {"cpu": "1"}}}));
    assert_eq!(decide(&whole, &node(), &[]), Decision::Admit);
    assert_eq!(refused(&whole, &poor, &[]).0, "PodLevelResourcesNotSupported");

    let profile = |kind: &str| pod("p", json!({"securityContext": {"appArmorProfile": {"type": kind}}}));
    assert_eq!(
        refused(&profile("RuntimeDefault"), &poor, &[]),
        ("AppArmor".to_owned(), "Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned())
    );
    assert_eq!(decide(&profile("Unconfined"), &poor, &[]), Decision::Admit);
    let mut old = pod("p", json!({}));
    Arc::make_mut(&mut old.pod).metadata.annotations =
        Some([("container.apparmor.security.beta.kubernetes.io/c".to_owned(), "localhost/mine".to_owned())].into());
    assert_eq!(refused(&old, &poor, &[]).0, "AppArmor");
    let mut down = node();
    down.shutting_down = true;
    assert_eq!(refused(&pod("p", json!({})), &down, &[]).0, "NodeShutdown");
}

#[test]
fn pressure_keeps_out_what_would_go_first() {
    let mut short = node();
    short.short.memory = true;
    let plain = pod("p", json!({}));
    assert_eq!(
        refused(&plain, &short, &[]),
        ("Evicted".to_owned(), "The node had condition: [MemoryPressure]. ".to_owned())
    );
    assert_eq!(decide(&asking("p", "1", "1"), &short, &[]), Decision::Admit);
    let tolerating = pod("p", json!({"tolerations": [{"key": MEMORY_TAINT, "operator": "Exists"}]}));
    assert_eq!(decide(&tolerating, &short, &[]), Decision::Admit);
    short.short.disk = true;
    assert_eq!(
        refused(&asking("p", "1", "1"), &short, &[]).1,
        "The node had condition: [MemoryPressure DiskPressure]. "
    );
    assert_eq!(decide(&manifest(plain), &short, &[]), Decision::Admit, "static pods are critical");
    assert_eq!(decide(&pod("p", json!({"priority": 2_000_000_000})), &short, &[]), Decision::Admit);
}

#[track_caller]
fn victims(pod: &DesiredPod, pods: &[DesiredPod]) -> Vec<String> {
    let mut node = node();
    node.allocatable.extend(amounts(&[("pods", "10")]));
    match decide(pod, &node, &others(pods)) {
        Decision::MakeRoom { victims, .. } => victims.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn room_is_made_by_the_least_of_the_lowest_classes() {
    let critical = manifest(asking("p", "1", "1Gi"));
    let pods =
        [guaranteed("g", "1", "1Gi"), asking("b1", "400m", "1Mi"), asking("b2", "600m", "1Mi"), pod("e", json!({}))];
    // Those that ask for nothing give nothing: they stay.
    assert_eq!(victims(&critical, &pods), ["b2", "b1"]);
    // The burstable ones are not enough: the guaranteed one alone is.
    let critical = manifest(asking("p", "1500m", "1Gi"));
    assert_eq!(victims(&critical, &pods), ["b2", "g"]);
    // The nearest one that suffices wins over a larger one.
    let pods = [asking("big", "1200m", "1Gi"), asking("small", "800m", "2Gi")];
    assert_eq!(victims(&manifest(asking("p", "700m", "1")), &pods), ["big"], "both suffice: the smaller memory goes");
}

#[test]
fn only_missing_room_is_made_and_only_by_lesser_pods() {
    let there = [asking("a", "2", "1")];
    let wants = asking("p", "1", "1");
    assert_eq!(refused(&wants, &node(), &there).0, "OutOfcpu", "an ordinary pod waits its turn");
    let mut elsewhere = manifest(wants.clone());
    Arc::make_mut(&mut elsewhere.pod).spec.as_mut().unwrap().node_name = Some("n2".into());
    assert_eq!(refused(&elsewhere, &node(), &there).0, "OutOfcpu");
    let equals = [manifest(asking("a", "2", "1"))];
    let (reason, message) = refused(&manifest(wants), &node(), &equals);
    assert_eq!(reason, "UnexpectedAdmissionError");
    assert!(
        message.ends_with("no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]"),
        "{message}"
    );

    let with = |mut pod: DesiredPod, priority: i32| {
        Arc::make_mut(&mut pod.pod).spec.as_mut().unwrap().priority = Some(priority);
        pod
    };
    let high = with(asking("p", "1", "1"), 2_000_001_000);
    assert_eq!(victims(&high, &[with(asking("a", "2", "1"), 2_000_000_000)]), ["a"]);
    let unclaimed = Neighbour { pod: None, ..Neighbour::of(&there[0]) };
    assert!(matches!(decide(&high, &node(), &[unclaimed]), Decision::Refuse(_)), "nobody unknown is made to go");
}
