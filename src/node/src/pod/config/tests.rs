use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use longshore_api::dns::parse_resolv_conf;
use longshore_api::security::ImageUser;
use longshore_api::service_env::{ServiceFact, ServicePortFact};
use longshore_cri::v1;
use serde_json::{Value, json};

use super::shown;
use super::*;
use crate::model::{DesiredPod, PodKey, PodUid, SourceKind};
use crate::object::Lookup;

/// The 21 recordings that must be met are the project's; others may stand beside them.
fn recordings() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integration/golden/recorded")
}

fn recorded(case: &str, file: &str) -> Option<Value> {
    let text = std::fs::read_to_string(recordings().join(case).join(file)).ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

fn desired(case: &str, object: &Value) -> DesiredPod {
    let mut object = object.clone();
    let is_static = case == "static-pod";
    let seen = json!({"kubernetes.io/config.seen": "TIME",
        "kubernetes.io/config.source": if is_static { "file" } else { "api" }});
    let annotations = object["metadata"].as_object_mut().unwrap().entry("annotations").or_insert(json!({}));
    annotations.as_object_mut().unwrap().extend(seen.as_object().unwrap().clone());
    // The recorded object is the mirror; the node runs the pod behind it.
    annotations.as_object_mut().unwrap().remove("kubernetes.io/config.mirror");
    object["metadata"]["uid"] = json!("UID1");
    let pod: Pod = serde_json::from_value(object).unwrap();
    let meta = &pod.metadata;
    DesiredPod {
        uid: PodUid::from("UID1"),
        key: PodKey::new(meta.namespace.clone().unwrap(), meta.name.clone().unwrap()),
        source: if is_static { SourceKind::File } else { SourceKind::Api },
        seen: jiff::Timestamp::UNIX_EPOCH,
        pod: Arc::new(pod),
    }
}

fn facts() -> NodeFacts {
    NodeFacts {
        root: "/var/lib/kubelet".into(),
        pod_logs: "/var/log/pods".into(),
        dns: ClusterDns {
            servers: vec!["10.96.0.10".to_owned()],
            domain: "cluster.local".to_owned(),
            host: Some(parse_resolv_conf("nameserver 10.255.255.53\n")),
            node_is_ipv6: false,
        },
        memory: 64 << 30,
        huge_pages: vec!["2MB".to_owned(), "1GB".to_owned()],
        swap_accounting: true,
        host_ips: vec!["NODE_IP".to_owned()],
        ..NodeFacts::default()
    }
}

fn services() -> Vec<ServiceFact> {
    vec![ServiceFact {
        namespace: "default".to_owned(),
        name: "kubernetes".to_owned(),
        cluster_ip: "10.96.0.1".to_owned(),
        ports: vec![ServicePortFact { name: "https".to_owned(), port: 443, protocol: "TCP".to_owned() }],
    }]
}

/// The objects of the case `env-sources`.
fn objects() -> Objects {
    let map: ConfigMap = serde_json::from_value(
        json!({"metadata": {"name": "cm"}, "data": {"k1": "v1", "K_TWO": "two words", "bad-key": "x"}}),
    )
    .unwrap();
    let secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": "sec"}, "data": {"user": "cm9vdA==", "pass": "cCQoeCk="}}))
            .unwrap();
    Objects {
        config_maps: BTreeMap::from([
            ("cm".to_owned(), Lookup::Found(Arc::new(map))),
            ("absent".to_owned(), Lookup::Missing),
        ]),
        secrets: BTreeMap::from([("sec".to_owned(), Lookup::Found(Arc::new(secret)))]),
        files: BTreeMap::new(),
    }
}

fn volumes(pod: &DesiredPod) -> BTreeMap<String, VolumeFact> {
    let spec = pod.pod.spec.as_ref().unwrap();
    let dir = facts().pod_dir("UID1");
    spec.volumes
        .iter()
        .flatten()
        .map(|volume| {
            let (plugin, read_only) = match volume {
                v if v.config_map.is_some() => ("kubernetes.io~configmap", true),
                v if v.secret.is_some() => ("kubernetes.io~secret", true),
                v if v.projected.is_some() => ("kubernetes.io~projected", false),
                _ => ("kubernetes.io~empty-dir", false),
            };
            let path = match &volume.host_path {
                Some(host) => host.path.clone().into(),
                None => dir.join("volumes").join(plugin).join(&volume.name),
            };
            (volume.name.clone(), VolumeFact { path, read_only: read_only || plugin.ends_with("projected") })
        })
        .collect()
}

fn cgroup_parent(pod: &DesiredPod) -> String {
    use longshore_api::qos::{self, Qos};
    match qos::of(&pod.pod) {
        Qos::Guaranteed => "/kubepods/podUID1".to_owned(),
        Qos::Burstable => "/kubepods/burstable/podUID1".to_owned(),
        Qos::BestEffort => "/kubepods/besteffort/podUID1".to_owned(),
    }
}

fn built_container(pod: &DesiredPod, want: &Value) -> Value {
    let name = want["metadata"]["name"].as_str().unwrap();
    let attempt = u32::try_from(want["metadata"]["attempt"].as_u64().unwrap_or(0)).unwrap();
    let facts = facts();
    let spec = pod.pod.spec.as_ref().unwrap();
    let (_, container) = find_container(spec, name).unwrap();
    let objects = objects();
    let services = services();
    let pod_ips = vec!["IP1".to_owned()];
    let env = environment(&EnvInput {
        pod,
        container: &container,
        objects: &objects,
        services: Some(&services),
        pod_ips: &pod_ips,
        facts: &facts,
    })
    .unwrap();
    let dir = facts.pod_dir("UID1");
    let mut sub_paths = BTreeMap::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        if sub_path(mount, &env).unwrap().is_some() {
            let path = dir.join("volume-subpaths").join(&mount.name).join(name).join(index.to_string());
            sub_paths.insert(index, path);
        }
    }
    let mounts = mounts(&MountInput {
        container: &container,
        volumes: &volumes(pod),
        sub_paths: &sub_paths,
        images: &BTreeMap::new(),
        hosts: Some(&dir.join("etc-hosts")),
        termination: Some(&dir.join("containers").join(name).join("XXXXXXXX")),
        recursive_read_only: false,
    })
    .unwrap();
    let target = want["linux"]["security_context"]["namespace_options"]["target_id"].as_str();
    let config = container_config(&ContainerInput {
        pod,
        name,
        attempt,
        image: "sha256:CID2",
        image_user: &ImageUser::Id(0),
        env: &env,
        mounts: &mounts,
        target,
        facts: &facts,
    })
    .unwrap();
    shown::container(&config)
}

#[test]
fn every_recorded_request_is_built_again() {
    let (mut sandboxes, mut containers) = (0, 0);
    for entry in std::fs::read_dir(recordings()).unwrap() {
        let case = entry.unwrap().file_name().into_string().unwrap();
        let (Some(object), Some(calls)) = (recorded(&case, "object.json"), recorded(&case, "cri.json")) else {
            continue;
        };
        // Its object was recorded before the second step.
        if case == "ephemeral" || case == "resize-cpu" {
            continue;
        }
        let pod = desired(&case, &object);
        for call in calls.as_array().unwrap() {
            let wanted = &call["req"]["config"];
            match call["method"].as_str().unwrap() {
                "RunPodSandbox" => {
                    let got = sandbox_config(&pod, 0, &cgroup_parent(&pod), &facts()).unwrap();
                    assert!(got.warnings.is_empty());
                    assert_eq!(&shown::sandbox(&got.config), wanted, "{case}");
                    sandboxes += 1;
                }
                "CreateContainer" => {
                    let mut wanted = wanted.clone();
                    // Written only once the pod is being deleted; deletion is not part of the recorded object.
                    wanted["annotations"].as_object_mut().unwrap().remove("io.kubernetes.pod.deletionGracePeriod");
                    assert_eq!(built_container(&pod, &wanted), wanted, "{case}");
                    containers += 1;
                }
                _ => {}
            }
        }
    }
    assert!(sandboxes >= 18 && containers >= 18, "{sandboxes} sandboxes, {containers} containers");
}

fn case_pod(case: &str) -> DesiredPod {
    desired(case, &recorded(case, "object.json").unwrap())
}

fn try_environment(
    pod: &DesiredPod,
    objects: &Objects,
    services: Option<&[ServiceFact]>,
) -> Result<Vec<(String, String)>, String> {
    let spec = pod.pod.spec.as_ref().unwrap();
    environment(&EnvInput { pod, container: &spec.containers[0], objects, services, pod_ips: &[], facts: &facts() })
        .map_err(|error| error.message)
}

#[test]
fn a_missing_key_is_named_as_recorded() {
    let pod = case_pod("env-missing-key");
    let mut objects = objects();
    assert_eq!(
        try_environment(&pod, &objects, Some(&[])).unwrap_err(),
        "couldn't find key gone in ConfigMap g-env-missing-key/cm"
    );
    objects.config_maps.insert("cm".to_owned(), Lookup::Missing);
    assert_eq!(try_environment(&pod, &objects, Some(&[])).unwrap_err(), "configmap \"cm\" not found");
}

#[test]
fn a_variable_comes_from_a_file_of_the_pod() {
    let mut object = recorded("minimal", "object.json").unwrap();
    let key = |optional: bool| json!({"volumeName": "v", "path": "a/b.env", "key": "K", "optional": optional});
    let mut of = |optional: bool, file: Option<EnvFile>| {
        object["spec"]["containers"][0]["env"] = json!([{"name": "A", "valueFrom": {"fileKeyRef": key(optional)}}]);
        let pod = desired("minimal", &object);
        let place = ("v".to_owned(), "a/b.env".to_owned());
        assert!(references(&pod.pod.spec.as_ref().unwrap().containers[0]).files.contains(&place));
        let files = file.map(|file| (place, file)).into_iter().collect();
        try_environment(&pod, &Objects { files, ..objects() }, Some(&[]))
    };
    let read = |name: &str| Some(EnvFile::Read([(name.to_owned(), "x y".to_owned())].into()));
    assert_eq!(of(false, read("K")), Ok(vec![("A".to_owned(), "x y".to_owned())]));
    let what = "file \"a/b.env\" of volume \"v\"";
    assert_eq!(of(false, read("L")), Err(format!("couldn't find key K in {what}")));
    assert_eq!(of(false, Some(EnvFile::Missing)), Err(format!("{what} not found")));
    assert_eq!(of(true, read("L")), Ok(Vec::new()));
    assert_eq!(of(true, Some(EnvFile::Missing)), Ok(Vec::new()));
    assert_eq!(of(true, Some(EnvFile::Failed("line 1: bad".into()))), Err(format!("{what}: line 1: bad")));
}

#[test]
fn a_stop_signal_is_passed_on_where_the_gate_is_on() {
    let mut object = recorded("minimal", "object.json").unwrap();
    object["spec"]["containers"][0]["lifecycle"] = json!({"stopSignal": "SIGRTMIN+3"});
    let pod = desired("minimal", &object);
    let of = |stop_signals: bool| {
        let facts = NodeFacts { stop_signals, ..facts() };
        let name = pod.pod.spec.as_ref().unwrap().containers[0].name.clone();
        let input = ContainerInput {
            pod: &pod,
            name: &name,
            attempt: 0,
            image: "i",
            image_user: &ImageUser::Id(0),
            env: &[],
            mounts: &[],
            target: None,
            facts: &facts,
        };
        container_config(&input).unwrap().stop_signal()
    };
    assert_eq!((of(true), of(false)), (v1::Signal::Sigrtminplus3, v1::Signal::RuntimeDefault));
}

#[test]
fn unread_services_hold_api_pods_back_but_not_static_ones() {
    assert!(
        try_environment(&case_pod("minimal"), &objects(), None)
            .unwrap_err()
            .contains("services have not yet been read")
    );
    assert_eq!(try_environment(&case_pod("static-pod"), &objects(), None), Ok(Vec::new()));
}

#[test]
fn own_variables_hide_service_variables_and_see_them() {
    let mut object = recorded("minimal", "object.json").unwrap();
    object["spec"]["containers"][0]["env"] = json!([
        {"name": "A", "value": "$(KUBERNETES_SERVICE_HOST)"},
        {"name": "KUBERNETES_SERVICE_PORT", "value": "1"},
        {"name": "B", "value": "$(KUBERNETES_SERVICE_PORT)"}]);
    let env = try_environment(&desired("minimal", &object), &objects(), Some(&services())).unwrap();
    let get =
        |name: &str| env.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect::<Vec<_>>();
    assert_eq!(get("A"), ["10.96.0.1"]);
    assert_eq!(get("KUBERNETES_SERVICE_PORT"), ["1"]);
    assert_eq!(get("B"), ["1"]);
}

#[test]
fn sub_paths_stay_inside() {
    let mount = |path: &str, expression: &str| {
        let mut mount = json!({"name": "v", "mountPath": "/x"});
        if !path.is_empty() {
            mount["subPath"] = json!(path);
        }
        if !expression.is_empty() {
            mount["subPathExpr"] = json!(expression);
        }
        sub_path(&serde_json::from_value(mount).unwrap(), &[("N".to_owned(), "p1".to_owned())])
            .map_err(|error| error.message)
    };
    assert_eq!(mount("", ""), Ok(None));
    assert_eq!(mount("a/b", ""), Ok(Some("a/b".into())));
    assert_eq!(mount("", "logs/$(N)"), Ok(Some("logs/p1".into())));
    assert!(mount("", "$(NOPE)").is_err());
    assert!(mount("/etc", "").unwrap_err().contains("absolute"));
    assert!(mount("a/../../b", "").unwrap_err().contains("'..'"));
}

#[test]
fn mounts_refuse_unknown_volumes_and_unprivileged_propagation() {
    let volumes = BTreeMap::from([("v".to_owned(), VolumeFact { path: "/h".into(), read_only: false })]);
    let build_where = |recursive_read_only: bool, mount: Value| {
        let container: Container = serde_json::from_value(json!({"name": "c", "volumeMounts": [mount]})).unwrap();
        mounts(&MountInput {
            container: &container,
            volumes: &volumes,
            sub_paths: &BTreeMap::new(),
            images: &BTreeMap::new(),
            hosts: Some(Path::new("/hosts")),
            termination: None,
            recursive_read_only,
        })
        .map_err(|error| error.message)
    };
    let build = |mount: Value| build_where(false, mount);
    assert_eq!(
        build(json!({"name": "x", "mountPath": "/x"})).unwrap_err(),
        "cannot find volume \"x\" to mount into container \"c\""
    );
    assert!(build(json!({"name": "v", "mountPath": "/x", "mountPropagation": "Bidirectional"})).is_err());
    assert!(build(json!({"name": "v", "mountPath": "/x", "readOnly": true, "recursiveReadOnly": "Enabled"})).is_err());
    for (supported, mode, want) in
        [(true, "Enabled", true), (true, "IfPossible", true), (false, "IfPossible", false), (true, "Disabled", false)]
    {
        let mount = json!({"name": "v", "mountPath": "/x", "readOnly": true, "recursiveReadOnly": mode});
        assert_eq!(build_where(supported, mount).unwrap()[0].recursive_read_only, want, "{mode} {supported}");
    }
    // A container that brings its own hosts file keeps it.
    assert_eq!(build(json!({"name": "v", "mountPath": "/etc/hosts"})).unwrap().len(), 1);
    assert_eq!(build(json!({"name": "v", "mountPath": "rel"})).unwrap()[0].container_path, "/rel");
}

#[test]
fn a_local_profile_without_a_name_is_refused() {
    for field in ["seccompProfile", "appArmorProfile"] {
        for profile in [json!({"type": "Localhost"}), json!({"type": "Localhost", "localhostProfile": ""})] {
            let mut pod = case_pod("minimal");
            let security = serde_json::from_value(json!({field: profile})).unwrap();
            Arc::make_mut(&mut pod.pod).spec.as_mut().unwrap().containers[0].security_context = Some(security);
            let error = container_config(&ContainerInput {
                pod: &pod,
                name: "c",
                attempt: 0,
                image: "i",
                image_user: &ImageUser::Id(0),
                env: &[],
                mounts: &[],
                target: None,
                facts: &facts(),
            })
            .unwrap_err();
            assert_eq!(error.message, format!("localhostProfile must be set if {field} type is Localhost."));
            assert_eq!(error.reason, CONFIG_ERROR);
        }
    }
}

#[test]
fn an_ephemeral_container_sees_the_processes_of_its_target() {
    let mut pod = case_pod("minimal");
    Arc::make_mut(&mut pod.pod).spec.as_mut().unwrap().ephemeral_containers =
        Some(serde_json::from_value(json!([{"name": "dbg", "image": "i", "targetContainerName": "c"}])).unwrap());
    let config = container_config(&ContainerInput {
        pod: &pod,
        name: "dbg",
        attempt: 0,
        image: "i",
        image_user: &ImageUser::Id(0),
        env: &[],
        mounts: &[],
        target: Some("c-1"),
        facts: &facts(),
    })
    .unwrap();
    let options = config.linux.unwrap().security_context.unwrap().namespace_options.unwrap();
    assert_eq!((options.pid(), options.target_id.as_str()), (v1::NamespaceMode::Target, "c-1"));
}

#[test]
fn cgroup_v2_forbids_swap_and_kills_together() {
    let pod = case_pod("minimal");
    let facts = NodeFacts { cgroup_v2: true, swap_accounting: false, ..facts() };
    let config = container_config(&ContainerInput {
        pod: &pod,
        name: "c",
        attempt: 0,
        image: "i",
        image_user: &ImageUser::Name("app".to_owned()),
        env: &[],
        mounts: &[],
        target: None,
        facts: &facts,
    })
    .unwrap();
    let linux = config.linux.unwrap();
    let unified = linux.resources.unwrap().unified;
    assert_eq!(unified["memory.swap.max"], "0");
    // With LimitedSwap a burstable container gets its share.
    let pod = case_pod("burstable");
    let node = NodeSwap { memory: 1 << 40, swap: 1 << 39 };
    let facts = NodeFacts { swap: Some(node), ..facts };
    let spec = pod.pod.spec.as_ref().unwrap();
    let shares: Vec<i64> = spec
        .containers
        .iter()
        .map(|own| container_size(&pod, own, &facts).unified["memory.swap.max"].parse().unwrap())
        .collect();
    assert!(shares.iter().any(|bytes| *bytes > 0), "{shares:?}");
    assert_eq!(unified["memory.oom.group"], "1");
    let security = linux.security_context.unwrap();
    assert_eq!((security.run_as_user, security.run_as_username.as_str()), (None, "app"));
}
