use serde_json::json;

use super::*;
use crate::kubelet_config;

const REFERENCE: &str = include_str!("../../tests/data/kubelet-flags.tsv");

fn overrides(arguments: &[&str]) -> BTreeMap<&'static str, Value> {
    parse(arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}")).overrides
}

fn error(arguments: &[&str]) -> String {
    parse(arguments).unwrap_err().to_string()
}

#[test]
fn every_flag_of_the_reference_is_known() {
    let mut known = table::FLAGS.iter();
    let effective = kubelet_config::finish(kubelet_config::baseline()).unwrap().to_value();
    let document = json!({"apiVersion": kubelet_config::API_VERSION, "kind": kubelet_config::KIND});
    for row in REFERENCE.lines().filter(|line| line.starts_with("--")) {
        let columns: Vec<&str> = row.split('\t').collect();
        let flag = known.next().unwrap();
        assert_eq!(flag.name, columns[0].trim_start_matches("--"));
        assert_eq!(flag.deprecated, columns[3].starts_with("deprecated"), "{}", flag.name);
        if let Some(field) = columns[5].strip_prefix("sets config field ") {
            assert_eq!(flag.field, field.split(' ').next().unwrap());
        }
        let default = if matches!(columns[2], "\"\"" | "{}") { "" } else { columns[2] };
        assert_eq!(flag.default, default);
        if flag.field.is_empty() || flag.default.is_empty() || flag.default == "see_config" {
            continue;
        }
        // The default as a flag is the default without a file.
        let given = parse([format!("--{}={}", flag.name, flag.default)]).unwrap();
        let mut with_flag = document.clone();
        json_patch::merge(&mut with_flag, &kubelet_config::baseline());
        given.apply(&mut with_flag);
        assert_eq!(kubelet_config::finish(with_flag).unwrap().to_value(), effective, "{}", flag.name);
    }
    assert!(known.next().is_none());
}

#[test]
fn the_defaults_of_the_process_are_those_of_the_table() {
    let process = ProcessFlags::default();
    let of = |name: &str| table::FLAGS.iter().find(|flag| flag.name == name).unwrap().default;
    assert_eq!((process.cert_dir.as_str(), process.root_dir.as_str()), (of("cert-dir"), of("root-dir")));
    assert_eq!(process.maximum_dead_containers_per_container.to_string(), of("maximum-dead-containers-per-container"));
    assert_eq!(process.maximum_dead_containers.to_string(), of("maximum-dead-containers"));
    assert_eq!(process.minimum_container_ttl.to_string(), of("minimum-container-ttl-duration"));
}

#[test]
fn pflag_habits() {
    let flags = parse([
        "--root-dir",
        "/x",
        "--fail-swap-on=false",
        "--pod_manifest_path=/m",
        "-v=3",
        "--rotate-certificates",
        "--max-pods",
        "5",
    ])
    .unwrap();
    assert_eq!(flags.process.root_dir, "/x");
    assert_eq!(
        flags.overrides,
        BTreeMap::from([
            ("failSwapOn", json!(false)),
            ("logging.verbosity", json!(3)),
            ("maxPods", json!(5)),
            ("rotateCertificates", json!(true)),
            ("staticPodPath", json!("/m")),
        ])
    );
    assert_eq!(parse(["-v", "2"]).unwrap().overrides["logging.verbosity"], 2);
    assert_eq!(parse(["-v4"]).unwrap().overrides["logging.verbosity"], 4);
    assert_eq!(flags.given, ["root-dir", "fail-swap-on", "pod-manifest-path", "v", "rotate-certificates", "max-pods"]);
    assert!(parse(["--help"]).unwrap().help && parse(["-h"]).unwrap().help);
    assert_eq!(parse(["--version"]).unwrap().version, Some(VersionRequest::Print));
    assert_eq!(parse(["--version=raw"]).unwrap().version, Some(VersionRequest::Raw));
    assert_eq!(parse(["--version=v1.30.0"]).unwrap().version, Some(VersionRequest::Report("v1.30.0".into())));
}

#[test]
fn repeated_lists_append_and_maps_merge() {
    assert_eq!(
        overrides(&["--cluster-dns=1.1.1.1,2.2.2.2", "--cluster-dns", "3.3.3.3", "--enforce-node-allocatable=none"]),
        BTreeMap::from([
            ("clusterDNS", json!(["1.1.1.1", "2.2.2.2", "3.3.3.3"])),
            ("enforceNodeAllocatable", json!(["none"]))
        ])
    );
    assert_eq!(
        overrides(&[
            "--eviction-hard=memory.available<1Gi,nodefs.available<5%",
            "--feature-gates=A=true",
            "--feature-gates=B=false",
            "--system-reserved=cpu=1"
        ]),
        BTreeMap::from([
            ("evictionHard", json!({"memory.available": "1Gi", "nodefs.available": "5%"})),
            ("featureGates", json!({"A": true, "B": false})),
            ("systemReserved", json!({"cpu": "1"})),
        ])
    );
    assert_eq!(overrides(&["--eviction-hard="])["evictionHard"], json!({}));
    assert_eq!(
        overrides(&[
            "--register-with-taints=a=b:NoSchedule,c:NoExecute",
            "--reserved-memory=0:memory=1Gi;1:memory=2Gi,hugepages-1Gi=1Gi",
            "--manifest-url-header=A:x",
            "--manifest-url-header=A:y,B:z",
            "--vmodule=a*=3"
        ]),
        BTreeMap::from([
            ("logging.vmodule", json!([{"filePattern": "a*", "verbosity": 3}])),
            (
                "registerWithTaints",
                json!([{"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "c", "value": "", "effect": "NoExecute"}])
            ),
            (
                "reservedMemory",
                json!([{"numaNode": 0, "limits": {"memory": "1Gi"}}, {"numaNode": 1, "limits": {"memory": "2Gi", "hugepages-1Gi": "1Gi"}}])
            ),
            ("staticPodURLHeader", json!({"A": ["x", "y"], "B": ["z"]})),
        ])
    );
    let labels = parse(["--node-labels=a=b,node.kubernetes.io/x=y", "--node-labels=c=d"]).unwrap().process.node_labels;
    assert_eq!(labels.len(), 3);
}

#[test]
fn errors_say_what_to_do() {
    assert_eq!(
        error(&["--pod-manifest-paht=x"]),
        "unknown flag: --pod-manifest-paht (did you mean --pod-manifest-path?)"
    );
    assert_eq!(error(&["--zzzzzzz"]), "unknown flag: --zzzzzzz");
    assert_eq!(
        error(&["--network-plugin=cni"]),
        "unknown flag: --network-plugin (CNI is configured in the container runtime)"
    );
    assert_eq!(error(&["--root-dir"]), "flag needs an argument: --root-dir");
    assert_eq!(
        error(&["--port=x"]),
        "invalid argument \"x\" for \"--port\" flag: strconv.ParseInt: parsing \"x\": invalid syntax"
    );
    assert_eq!(error(&["--address=x"]), "invalid argument \"x\" for \"--address\" flag: failed to parse IP");
    assert_eq!(error(&["run"]), "unknown command \"run\": the agent takes flags only");
    assert_eq!(error(&["--fail-swap-on", "false"]), "unknown command \"false\": the agent takes flags only");
    assert_eq!(
        error(&["--cloud-provider=aws"]),
        "invalid argument \"aws\" for \"--cloud-provider\" flag: only \"external\" or nothing is supported"
    );
    assert!(error(&["--node-labels=foo.kubernetes.io/x=y"]).starts_with("unknown 'kubernetes.io' or 'k8s.io' labels"));
    assert!(error(&["--housekeeping-interval=5"]).contains("missing unit"));
    for odd in ["--", "---x", "--=x", "-", "-x", ""] {
        assert!(parse([odd]).is_err(), "{odd}");
    }
}

#[test]
fn deprecated_flags_warn_once() {
    let flags = parse(["--max-pods=1", "--max-pods=2", "--root-dir=/x"]).unwrap();
    assert_eq!(flags.warnings.len(), 1);
    assert!(flags.warnings[0].starts_with("Flag --max-pods has been deprecated"));
    assert_eq!(flags.overrides["maxPods"], 2);
}

#[test]
fn flags_win_over_the_file_and_gates_merge() {
    let document = json!({"apiVersion": kubelet_config::API_VERSION, "kind": kubelet_config::KIND, "maxPods": 7,
        "featureGates": {"EventedPLEG": true, "MemoryQoS": true}});
    let mut value = kubelet_config::load(document).unwrap();
    parse(["--max-pods=9", "--feature-gates=MemoryQoS=false", "--registry-qps=0"]).unwrap().apply(&mut value);
    let effective = kubelet_config::finish(value).unwrap();
    assert_eq!((effective.max_pods, effective.registry_pull_qps), (9, 0));
    assert_eq!(
        effective.feature_gates,
        BTreeMap::from([("EventedPLEG".to_owned(), true), ("MemoryQoS".to_owned(), false)])
    );
}

#[test]
fn help_names_every_flag() {
    let help = help();
    assert!(table::FLAGS.iter().all(|flag| help.contains(&format!("--{}", flag.name))));
}

#[test]
fn own_flags_that_nothing_acts_on_are_named() {
    let flags = parse(["--lock-file=/x", "--root-dir=/y", "--max-pods=3"]).unwrap();
    assert_eq!(flags.set_but_not_acted_on(&["root-dir"]), ["lock-file"]);
}
