//! Messages as the recorder shows them, for comparison with recordings.

use std::collections::BTreeMap;

use longshore_cri::v1;
use serde_json::{Map, Value, json};

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

pub(super) fn sandbox(config: &v1::PodSandboxConfig) -> Value {
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

pub(super) fn container(config: &v1::ContainerConfig) -> Value {
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
