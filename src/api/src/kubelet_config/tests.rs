use serde_json::json;

use super::*;

const REFERENCE: &str = include_str!("../../tests/data/kubelet-config.tsv");

fn document(fields: Value) -> Value {
    let Value::Object(mut document) = fields else { panic!("{fields}") };
    document.insert("apiVersion".to_owned(), API_VERSION.into());
    document.insert("kind".to_owned(), KIND.into());
    Value::Object(document)
}

fn config(fields: Value) -> KubeletConfiguration {
    finish(load(document(fields)).unwrap()).unwrap()
}

fn faults(fields: Value) -> Vec<String> {
    let errors = match load(document(fields)) {
        Ok(value) => finish(value).err().unwrap_or_default(),
        Err(errors) => errors,
    };
    errors.iter().map(ToString::to_string).collect()
}

/// The rows of the reference: path, type, default.
fn rows() -> Vec<[&'static str; 3]> {
    let rows = REFERENCE.lines().take_while(|line| !line.starts_with("# ---- CredentialProviderConfig"));
    let rows = rows.filter(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("field\t"));
    let mut split = rows.map(|line| line.split('\t').collect::<Vec<_>>());
    split.by_ref().map(|columns| [columns[0], columns[1], columns[2]]).collect()
}

#[test]
fn every_field_of_the_reference_is_known_with_its_default() {
    let default = config(json!({})).to_value();
    let mut known = FIELDS.iter().filter(|field| !field.path.contains("[]"));
    for [path, kind, text] in rows() {
        let field = known.next().unwrap();
        assert_eq!(field.path, path, "{kind}");
        if path == "apiVersion" || path == "kind" {
            continue;
        }
        let shown = text.split(" (").next().unwrap();
        let value = get(&default, path);
        let got =
            value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).unwrap_or_default();
        let same = match shown {
            "-" | "\"\"" | "nil" | "{}" | "[]" => matches!(got.as_str(), "" | "0" | "0s"),
            "0" => matches!(got.as_str(), "" | "0" | "0s"),
            "65536" if path == "userNamespaces.idsPerPod" => {
                value.is_none() && KubeletConfiguration::default().user_namespaces.ids_per_pod == 65536
            }
            "false" => matches!(got.as_str(), "" | "false"),
            "[pods]" => got == "[\"pods\"]",
            _ if path == "evictionHard" => value.is_some_and(|value| value.as_object().unwrap().len() == 5),
            _ if kind.ends_with("duration") || kind.starts_with("duration") => {
                crate::duration::GoDuration::parse(shown).unwrap().to_string() == got
            }
            other => other == got,
        };
        assert!(same, "{path}: default is {got:?}, the reference says {text:?}");
    }
    assert!(known.next().is_none());
}

#[test]
fn each_field_is_taken_with_a_value_of_its_type() {
    for field in FIELDS.iter().filter(|field| !field.path.contains("[]") && field.kind != Type::List) {
        let value = match field.kind {
            Type::Bool => json!(true),
            Type::Int32 | Type::Int64 | Type::Uint32 => json!(7),
            Type::Float => json!(0.5),
            Type::Text if matches!(field.path, "apiVersion" | "kind") => continue,
            Type::Text | Type::Quantity => json!("7"),
            Type::Duration | Type::DurationOrNanos => json!("7s"),
            Type::Texts => json!(["a"]),
            Type::Numbers => json!([23]),
            Type::TextMap => json!({"a": "b"}),
            Type::BoolMap => json!({"MemoryQoS": true}),
            Type::TextsMap => json!({"a": ["b"]}),
            Type::QuantityMap | Type::List => continue,
        };
        let mut fields = json!({});
        set(&mut fields, field.path, value.clone());
        let loaded = typed(load(document(fields)).unwrap()).unwrap();
        let masked = json!({"a": ["<masked>"]});
        let want = if field.path == "staticPodURLHeader" { &masked } else { &value };
        assert_eq!(get(&loaded.to_value(), field.path), Some(want), "{}", field.path);
        // A wrong type names the field, what was found and what is wanted.
        let mut wrong = json!({});
        set(&mut wrong, field.path, json!([{}]));
        let errors = load(document(wrong)).unwrap_err();
        let text = errors[0].to_string();
        assert!(text.starts_with(field.path) && (text.contains("wanted") || text.contains("quantit")), "{text}");
    }
}

#[test]
fn the_effective_configuration_of_a_stock_agent_comes_out_again() {
    let stock: Value = serde_json::from_str(include_str!("../../tests/data/configz.json")).unwrap();
    let mut stock = stock["kubeletconfig"].clone();
    let ours = finish(load(stock.clone()).unwrap_or_else(|errors| panic!("{errors:?}"))).unwrap();
    // The masked path is relative; ours does not resolve it here.
    assert_eq!(ours.static_pod_path, "PATH");
    let shown = ours.to_value();
    // Objects without any field are left out or kept by upstream without a rule; compare the fields.
    for field in FIELDS.iter().filter(|field| !field.path.contains("[]")) {
        assert_eq!(get(&shown, field.path), get(&stock, field.path), "{}", field.path);
    }
    set(&mut stock, "nosuch", json!(1));
    assert!(load(stock).is_err());
}

#[test]
fn zero_means_unset_but_not_for_pointers() {
    let effective = config(
        json!({"syncFrequency": "0s", "maxPods": 0, "registryPullQPS": 0, "healthzPort": 0, "enableServer": false,
        "crashLoopBackOff": {}, "logging": {"flushFrequency": 0, "verbosity": 0}, "memorySwap": {}, "resolvConf": ""}),
    );
    assert_eq!(effective.sync_frequency.to_string(), "1m0s");
    assert_eq!(
        (effective.max_pods, effective.registry_pull_qps, effective.healthz_port, effective.enable_server),
        (110, 0, 0, false)
    );
    assert_eq!(effective.crash_loop_back_off.max_container_restart_period.to_string(), "5m0s");
    assert_eq!((effective.logging.flush_frequency.to_string().as_str(), effective.resolv_conf.as_str()), ("5s", ""));
}

#[test]
fn unknown_fields_name_themselves_and_what_was_meant() {
    assert_eq!(faults(json!({"staticPodpath": "/x"})), ["staticPodpath: unknown field; did you mean staticPodPath?"]);
    assert_eq!(
        faults(json!({"authentication": {"x509": {"clientCaFile": "x"}}})),
        ["authentication.x509.clientCaFile: unknown field; did you mean clientCAFile?"]
    );
    assert_eq!(
        faults(json!({"registerWithTaints": [{"keyy": "a"}]})),
        ["registerWithTaints[0].keyy: unknown field; did you mean key?"]
    );
    assert_eq!(faults(json!({"qqq": 1})), ["qqq: unknown field"]);
}

#[test]
fn wrong_types_name_field_value_and_what_is_wanted() {
    assert_eq!(
        faults(
            json!({"port": "10250", "authentication": 1, "clusterDNS": "10.0.0.1", "evictionHard": {"memory.available": 5}, "syncFrequency": "5", "maxPods": 3_000_000_000u64})
        ),
        [
            "authentication: found 1, wanted an object",
            "clusterDNS: found the text \"10.0.0.1\", wanted a list",
            "evictionHard.memory.available: found 5, wanted text (put it in quotes)",
            "maxPods: found 3000000000, wanted a whole number from -2147483648 to 2147483647",
            "port: found the text \"10250\", wanted a whole number",
            "syncFrequency: time: missing unit in duration \"5\"",
        ]
    );
}

#[test]
fn version_and_kind_are_demanded() {
    let refused = |document: Value| load(document).unwrap_err()[0].to_string();
    assert_eq!(refused(json!({"kind": KIND})), format!("apiVersion: missing, wanted \"{API_VERSION}\""));
    assert_eq!(
        refused(json!({"apiVersion": API_VERSION, "kind": "Pod"})),
        "kind: found \"Pod\", wanted \"KubeletConfiguration\""
    );
    assert_eq!(refused(Value::Null), "KubeletConfiguration: the document is empty");
    assert!(refused(json!([])).contains("not an object"));
}

#[test]
fn drop_ins_merge_in_order() {
    let mut base =
        load(document(json!({"clusterDNS": ["1.1.1.1"], "maxPods": 10, "evictionHard": {"memory.available": "1Gi"}})))
            .unwrap();
    merge_drop_in(&mut base, document(json!({"clusterDNS": ["2.2.2.2"], "evictionHard": {"nodefs.available": "5%"}})))
        .unwrap();
    merge_drop_in(&mut base, document(json!({"maxPods": null, "logging": {"verbosity": 4}}))).unwrap();
    let effective = finish(base).unwrap();
    assert_eq!(effective.cluster_dns, ["2.2.2.2"]);
    assert_eq!((effective.max_pods, effective.logging.verbosity), (110, 4));
    assert_eq!(effective.eviction_hard.len(), 2);
    let mut base = baseline();
    assert!(merge_drop_in(&mut base, json!({"maxPods": 1})).is_err());
}

#[test]
fn without_a_file_the_old_open_defaults_hold() {
    let effective = finish(baseline()).unwrap();
    assert!(effective.authentication.anonymous.enabled && !effective.authentication.webhook.enabled);
    assert_eq!((effective.authorization.mode.as_str(), effective.read_only_port), ("AlwaysAllow", 10255));
    let closed = config(json!({}));
    assert!(!closed.authentication.anonymous.enabled && closed.authentication.webhook.enabled);
    assert_eq!((closed.authorization.mode.as_str(), closed.read_only_port), ("Webhook", 0));
}

#[test]
fn defaults_that_hang_on_other_fields() {
    assert!(!config(json!({"maxParallelImagePulls": 4})).serialize_image_pulls);
    assert!(config(json!({"maxParallelImagePulls": 1})).serialize_image_pulls);
    assert_eq!(config(json!({"nodeStatusUpdateFrequency": "3s"})).node_status_report_frequency.to_string(), "3s");
    let merged = config(json!({"mergeDefaultEvictionSettings": true, "evictionHard": {"memory.available": "1Gi"}}))
        .eviction_hard;
    assert_eq!((merged.len(), merged["memory.available"].as_str()), (5, "1Gi"));
    assert_eq!(config(json!({"evictionHard": {"memory.available": "1Gi"}})).eviction_hard.len(), 1);
}

#[test]
fn rules_refuse_what_cannot_work() {
    for (fields, want) in [
        (json!({"port": 70000}), "port: 70000 must be between 1 and 65535, inclusive"),
        (json!({"runOnce": true}), "runOnce: is not supported any more"),
        (json!({"address": "x"}), "address: \"x\" is not an IP address"),
        (json!({"cgroupDriver": "x"}), "cgroupDriver: \"x\" is not known, wanted one of cgroupfs, systemd"),
        (json!({"cpuCFSQuotaPeriod": "2s"}), "cpuCFSQuotaPeriod: 2s must be at least 1ms and at most 1s"),
        (
            json!({"podLogsDir": "/a/../b"}),
            "podLogsDir: \"/a/../b\" must be an absolute, normalized path of ASCII characters",
        ),
        (
            json!({"evictionSoft": {"memory.available": "1Gi"}}),
            "evictionSoft: grace period must be specified for the soft eviction threshold memory.available",
        ),
        (json!({"evictionHard": {"memory.free": "1Gi"}}), "evictionHard: unknown eviction signal memory.free"),
        (
            json!({"maxParallelImagePulls": 2, "serializeImagePulls": true}),
            "maxParallelImagePulls: more than 1 needs serializeImagePulls to be false",
        ),
        (json!({"featureGates": {"NoSuchThing": true}}), "featureGates: unrecognized feature gate: NoSuchThing"),
        (
            json!({"imageGCLowThresholdPercent": 90}),
            "imageGCLowThresholdPercent: must be below imageGCHighThresholdPercent",
        ),
        (
            json!({"shutdownGracePeriodCriticalPods": "5s"}),
            "shutdownGracePeriodCriticalPods: 5s must not exceed shutdownGracePeriod 0s",
        ),
        (
            json!({"enforceNodeAllocatable": ["system-reserved"]}),
            "enforceNodeAllocatable: system-reserved needs systemReservedCgroup",
        ),
        (
            json!({"allowedUnsafeSysctls": ["kernel.panic"]}),
            "allowedUnsafeSysctls: \"kernel.panic\" is not a namespaced sysctl (kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.*, net.*)",
        ),
        (
            json!({"reservedSystemCPUs": "3-1"}),
            "reservedSystemCPUs: unable to parse \"3-1\" as a list of CPU ids like 0-3,7",
        ),
        (json!({"tlsCipherSuites": ["X"]}), "tlsCipherSuites: cipher suite X not supported or doesn't exist"),
        (
            json!({"userNamespaces": {"idsPerPod": 1000}}),
            "userNamespaces.idsPerPod: 1000 must be a multiple of 65536 below 4294967296",
        ),
        (json!({"kubeReserved": {"gpu": "1"}}), "kubeReserved: cannot reserve \"gpu\" resource"),
        (json!({"containerLogMaxFiles": 1}), "containerLogMaxFiles: 1 must be at least 2"),
    ] {
        assert_eq!(faults(fields), [want]);
    }
    for fine in [
        json!({"evictionHard": {"memory.available": "5%", "nodefs.available": "0%"}}),
        json!({"cgroupsPerQOS": false, "enforceNodeAllocatable": ["none"]}),
        json!({"allowedUnsafeSysctls": ["net.core.somaxconn", "kernel.msg*", "net.*"]}),
        json!({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}], "registerWithTaints": [{"key": "a", "effect": "NoSchedule"}]}),
    ] {
        assert_eq!(faults(fine), Vec::<String>::new());
    }
}

#[test]
fn fields_that_nothing_acts_on_are_named() {
    let effective = config(
        json!({"maxPods": 5, "clusterDomain": "x", "authentication": {"anonymous": {"enabled": true}}, "syncFrequency": "1m"}),
    );
    assert_eq!(effective.set_but_not_acted_on(&["authentication", "clusterDomain"]), ["maxPods"]);
    assert!(KubeletConfiguration::default().set_but_not_acted_on(&[]).is_empty());
}

#[test]
fn secrets_are_not_shown() {
    let effective = config(json!({"staticPodURLHeader": {"Authorization": ["hunter2"]}}));
    assert!(!format!("{effective:?}{}", effective.to_value()).contains("hunter2"));
}

#[test]
fn paths_of_the_main_file_start_at_its_directory() {
    let mut value =
        load(document(json!({"staticPodPath": "manifests", "tlsCertFile": "/abs", "resolvConf": ""}))).unwrap();
    resolve_paths(&mut value, "/etc/x");
    assert_eq!(value["staticPodPath"], "/etc/x/manifests");
    assert_eq!((value["tlsCertFile"].as_str(), value["resolvConf"].as_str()), (Some("/abs"), Some("")));
}
