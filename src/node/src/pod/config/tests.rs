use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use longshore_api::dns::parse_resolv_conf;
use longshore_api::security::ImageUser;
use longshore_api::service_env::{ServiceFact, ServicePortFact};
use longshore_cri::v1;
use serde_json::{Map, Value, json};

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

/// A message as the recorder shows it: fields of their zero value are left out, 64-bit numbers are text.
struct Shown(Map<String, Value>);

impl Shown {
    fn new() -> Self {
        Self(Map::new())
    }

    fn put(mut self, key: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        let empty = match &value {
            Value::Null => true,
            Value::Bool(on) => !on,
            Value::Number(number) => number.as_i64() == Some(0),
            Value::String(text) => text.is_empty() || text == "0",
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
        };
        if !empty {
            self.0.insert(key.to_owned(), value);
        }
        self
    }

    /// A message field that was set, be it empty.
    fn set(mut self, key: &str, value: Option<Value>) -> Self {
        if let Some(value) = value {
            self.0.insert(key.to_owned(), value);
        }
        self
    }

    fn end(self) -> Value {
        Value::Object(self.0)
    }
}

fn map(of: &BTreeMap<String, String>) -> Value {
    json!(of)
}

fn long(number: &v1::Int64Value) -> Value {
    Shown::new().put("value", number.value.to_string()).end()
}

fn resources(of: &v1::LinuxContainerResources) -> Value {
    let pages: Vec<Value> = of
        .hugepage_limits
        .iter()
        .map(|page| Shown::new().put("page_size", page.page_size.clone()).put("limit", page.limit.to_string()).end())
        .collect();
    Shown::new()
        .put("cpu_period", of.cpu_period.to_string())
        .put("cpu_quota", of.cpu_quota.to_string())
        .put("cpu_shares", of.cpu_shares.to_string())
        .put("memory_limit_in_bytes", of.memory_limit_in_bytes.to_string())
        .put("memory_swap_limit_in_bytes", of.memory_swap_limit_in_bytes.to_string())
        .put("oom_score_adj", of.oom_score_adj.to_string())
        .put("hugepage_limits", pages)
        .put("unified", map(&of.unified))
        .end()
}

fn namespaces(of: &v1::NamespaceOption) -> Value {
    let name = |mode: i32| match mode {
        1 => "CONTAINER",
        2 => "NODE",
        3 => "TARGET",
        _ => "",
    };
    let users = of.userns_options.as_ref().map(|users| Shown::new().put("mode", name(users.mode)).end());
    Shown::new()
        .put("network", name(of.network))
        .put("pid", name(of.pid))
        .put("ipc", name(of.ipc))
        .put("target_id", of.target_id.clone())
        .set("userns_options", users)
        .end()
}

fn profile(of: &v1::SecurityProfile) -> Value {
    let name = ["", "Unconfined", "Localhost"][usize::try_from(of.profile_type).unwrap()];
    Shown::new().put("profile_type", name).put("localhost_ref", of.localhost_ref.clone()).end()
}

fn shown_sandbox(config: &v1::PodSandboxConfig) -> Value {
    let linux = config.linux.as_ref().unwrap();
    let security = linux.security_context.as_ref().unwrap();
    let groups: Vec<String> = security.supplemental_groups.iter().map(i64::to_string).collect();
    let security = Shown::new()
        .set("namespace_options", security.namespace_options.as_ref().map(namespaces))
        .set("run_as_user", security.run_as_user.as_ref().map(long))
        .set("run_as_group", security.run_as_group.as_ref().map(long))
        .put("privileged", security.privileged)
        .put("supplemental_groups", groups)
        .set("seccomp", security.seccomp.as_ref().map(profile))
        .end();
    let linux = Shown::new()
        .put("cgroup_parent", linux.cgroup_parent.clone())
        .set("security_context", Some(security))
        .put("sysctls", map(&linux.sysctls))
        .set("overhead", linux.overhead.as_ref().map(resources))
        .set("resources", linux.resources.as_ref().map(resources))
        .end();
    let metadata = config.metadata.as_ref().unwrap();
    let metadata = Shown::new()
        .put("name", metadata.name.clone())
        .put("namespace", metadata.namespace.clone())
        .put("uid", metadata.uid.clone())
        .put("attempt", metadata.attempt)
        .end();
    let dns = config.dns_config.as_ref().map(|dns| {
        let mut options = dns.options.clone();
        options.sort();
        Shown::new()
            .put("servers", dns.servers.clone())
            .put("searches", dns.searches.clone())
            .put("options", options)
            .end()
    });
    let ports: Vec<Value> = config
        .port_mappings
        .iter()
        .map(|port| Shown::new().put("container_port", port.container_port).put("host_port", port.host_port).end())
        .collect();
    Shown::new()
        .set("metadata", Some(metadata))
        .put("hostname", config.hostname.clone())
        .put("log_directory", config.log_directory.clone())
        .set("dns_config", dns)
        .put("port_mappings", ports)
        .put("labels", map(&config.labels))
        .put("annotations", map(&config.annotations))
        .set("linux", Some(linux))
        .end()
}

fn shown_container(config: &v1::ContainerConfig) -> Value {
    let linux = config.linux.as_ref().unwrap();
    let security = linux.security_context.as_ref().unwrap();
    let groups: Vec<String> = security.supplemental_groups.iter().map(i64::to_string).collect();
    let capabilities = security.capabilities.as_ref().map(|capabilities| {
        Shown::new()
            .put("add_capabilities", capabilities.add_capabilities.clone())
            .put("drop_capabilities", capabilities.drop_capabilities.clone())
            .end()
    });
    let security = Shown::new()
        .set("capabilities", capabilities)
        .put("privileged", security.privileged)
        .set("namespace_options", security.namespace_options.as_ref().map(namespaces))
        .set("run_as_user", security.run_as_user.as_ref().map(long))
        .set("run_as_group", security.run_as_group.as_ref().map(long))
        .put("readonly_rootfs", security.readonly_rootfs)
        .put("supplemental_groups", groups)
        .put("no_new_privs", security.no_new_privs)
        .put("masked_paths", security.masked_paths.clone())
        .put("readonly_paths", security.readonly_paths.clone())
        .set("seccomp", security.seccomp.as_ref().map(profile))
        .end();
    let linux = Shown::new()
        .set("resources", linux.resources.as_ref().map(resources))
        .set("security_context", Some(security))
        .end();
    let mut envs: Vec<(String, String)> =
        config.envs.iter().map(|env| (env.key.clone(), String::from_utf8(env.value.to_vec()).unwrap())).collect();
    envs.sort();
    let envs: Vec<Value> = envs.into_iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
    let mounts: Vec<Value> = config
        .mounts
        .iter()
        .map(|mount| {
            Shown::new()
                .put("container_path", mount.container_path.clone())
                .put("host_path", mount.host_path.clone())
                .put("readonly", mount.readonly)
                .end()
        })
        .collect();
    let metadata = config.metadata.as_ref().unwrap();
    let image = config.image.as_ref().unwrap();
    Shown::new()
        .set("metadata", Some(Shown::new().put("name", metadata.name.clone()).put("attempt", metadata.attempt).end()))
        .set("image", Some(json!({"image": image.image, "user_specified_image": image.user_specified_image})))
        .put("command", config.command.clone())
        .put("args", config.args.clone())
        .put("working_dir", config.working_dir.clone())
        .put("envs", envs)
        .put("mounts", mounts)
        .put("labels", map(&config.labels))
        .put("annotations", map(&config.annotations))
        .put("log_path", config.log_path.clone())
        .put("stdin", config.stdin)
        .put("tty", config.tty)
        .set("linux", Some(linux))
        .end()
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
    shown_container(&config)
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
                    assert_eq!(&shown_sandbox(&got.config), wanted, "{case}");
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
    let build = |mount: Value| {
        let container: Container = serde_json::from_value(json!({"name": "c", "volumeMounts": [mount]})).unwrap();
        mounts(&MountInput {
            container: &container,
            volumes: &volumes,
            sub_paths: &BTreeMap::new(),
            hosts: Some(Path::new("/hosts")),
            termination: None,
            recursive_read_only: false,
        })
        .map_err(|error| error.message)
    };
    assert_eq!(
        build(json!({"name": "x", "mountPath": "/x"})).unwrap_err(),
        "cannot find volume \"x\" to mount into container \"c\""
    );
    assert!(build(json!({"name": "v", "mountPath": "/x", "mountPropagation": "Bidirectional"})).is_err());
    assert!(build(json!({"name": "v", "mountPath": "/x", "readOnly": true, "recursiveReadOnly": "Enabled"})).is_err());
    // A container that brings its own hosts file keeps it.
    assert_eq!(build(json!({"name": "v", "mountPath": "/etc/hosts"})).unwrap().len(), 1);
    assert_eq!(build(json!({"name": "v", "mountPath": "rel"})).unwrap()[0].container_path, "/rel");
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
    assert_eq!(unified["memory.oom.group"], "1");
    let security = linux.security_context.unwrap();
    assert_eq!((security.run_as_user, security.run_as_username.as_str()), (None, "app"));
}
