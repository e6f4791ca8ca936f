//! Pods with users of their own: their range of ids goes into everything that the runtime is asked for, and where the
//! runtime would not keep to it, the pod is refused rather than run with the host's users.

use std::collections::BTreeMap;

use longshore_cri::v1;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::model::DesiredPod;
use crate::node::RuntimeState;
use crate::pod::{Failure, config};
use crate::userns::UserRanges;

const REASON: &str = "FailedCreatePodSandBox";

/// Ranges of ids, and what the runtime can do.
#[derive(Debug)]
pub(super) struct Users {
    ranges: UserRanges,
    runtime: watch::Receiver<RuntimeState>,
    /// Handlers of classes that pods have named.
    classes: Mutex<BTreeMap<String, String>>,
}

impl Users {
    pub(super) fn new(ranges: UserRanges, runtime: watch::Receiver<RuntimeState>) -> Self {
        Self { ranges, runtime, classes: Mutex::default() }
    }

    /// Notes which handler a class names.
    pub(super) fn learn(&self, class: &str, handler: &str) {
        let mut classes = self.classes.lock();
        if classes.get(class).is_none_or(|known| known != handler) {
            classes.insert(class.to_owned(), handler.to_owned());
        }
    }

    /// The handler of a class, once a pod has named it.
    pub(super) fn handler(&self, class: &str) -> Option<String> {
        self.classes.lock().get(class).cloned()
    }

    /// Whether a handler makes mounts below a read-only mount read-only, too.
    pub(super) fn recursive_read_only(&self, handler: &str) -> bool {
        self.runtime.borrow().handlers.iter().any(|known| known.name == handler && known.recursive_read_only_mounts)
    }

    /// Refuses a pod that wants its own users where a handler has none to give.
    pub(super) fn check(&self, pod: &DesiredPod, handler: &str) -> Result<(), Failure> {
        let runtime = self.runtime.borrow();
        if !wanted(pod) || runtime.handlers.iter().any(|known| known.name == handler && known.user_namespaces) {
            return Ok(());
        }
        let who = if handler.is_empty() { "runtime".to_owned() } else { format!("RuntimeClass handler {handler:?}") };
        let message = format!("can't set `spec.hostUsers: false`, {who} does not support user namespaces");
        Err(Failure::new(REASON, message))
    }

    /// The users of a pod that does not share the host's.
    fn of(&self, pod: &DesiredPod) -> Result<Option<v1::UserNamespace>, Failure> {
        if !wanted(pod) {
            return Ok(None);
        }
        let range = self.ranges.of(&pod.uid).map_err(|error| Failure::new(REASON, error.to_string()))?;
        Ok(Some(config::own_users(range.first, range.length)))
    }

    /// Puts them into a sandbox's configuration.
    pub(super) fn put_into_sandbox(&self, pod: &DesiredPod, sandbox: &mut v1::PodSandboxConfig) -> Result<(), Failure> {
        let Some(users) = self.of(pod)? else { return Ok(()) };
        let security = sandbox.linux.as_mut().and_then(|linux| linux.security_context.as_mut());
        if let Some(namespaces) = security.and_then(|security| security.namespace_options.as_mut()) {
            namespaces.userns_options = Some(users);
        }
        Ok(())
    }

    /// Puts them into a container's configuration and its mounts: files are shown with the ids that they have on disk.
    pub(super) fn put_into_container(
        &self,
        pod: &DesiredPod,
        container: &mut v1::ContainerConfig,
    ) -> Result<(), Failure> {
        let Some(users) = self.of(pod)? else { return Ok(()) };
        for mount in &mut container.mounts {
            mount.uid_mappings.clone_from(&users.uids);
            mount.gid_mappings.clone_from(&users.gids);
        }
        let security = container.linux.as_mut().and_then(|linux| linux.security_context.as_mut());
        if let Some(namespaces) = security.and_then(|security| security.namespace_options.as_mut()) {
            namespaces.userns_options = Some(users);
        }
        Ok(())
    }

    /// The pod's folder is gone.
    pub(super) fn release(&self, uid: &crate::model::PodUid) {
        self.ranges.release(uid);
    }
}

fn wanted(pod: &DesiredPod) -> bool {
    pod.pod.spec.as_ref().is_some_and(|spec| spec.host_users == Some(false))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::model::{PodKey, SourceKind};
    use crate::node::RuntimeHandler;
    use crate::userns::Span;

    fn users(folder: &Path, can: bool) -> Users {
        let handlers = ["", "vm"]
            .map(|name| RuntimeHandler {
                name: name.to_owned(),
                recursive_read_only_mounts: name == "vm",
                user_namespaces: can && name.is_empty(),
            })
            .to_vec();
        let state = RuntimeState { handlers, ..RuntimeState::unknown() };
        Users::new(UserRanges::open(folder.to_owned(), Span::usual(65536)), watch::channel(state).1)
    }

    fn pod(host_users: Option<bool>) -> DesiredPod {
        let object = json!({"metadata": {"name": "p", "namespace": "d", "uid": "u"},
            "spec": {"hostUsers": host_users, "containers": [{"name": "c", "image": "i"}]}});
        DesiredPod {
            uid: "u".into(),
            key: PodKey::new("d", "p"),
            pod: Arc::new(serde_json::from_value(object).unwrap()),
            source: SourceKind::Api,
            seen: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn sandbox(users: &Users, pod: &DesiredPod) -> v1::UserNamespace {
        let mut made = config::sandbox_config(pod, 0, "/p", &config::NodeFacts::default()).unwrap().config;
        users.put_into_sandbox(pod, &mut made).unwrap();
        made.linux.unwrap().security_context.unwrap().namespace_options.unwrap().userns_options.unwrap()
    }

    #[test]
    fn what_a_handler_can_is_known_once_its_class_is() {
        let folder = tempfile::tempdir().unwrap();
        let users = users(folder.path(), true);
        assert!(users.recursive_read_only("vm") && !users.recursive_read_only("") && !users.recursive_read_only("gpu"));
        assert_eq!(users.handler("strong"), None);
        users.learn("strong", "vm");
        assert_eq!(users.handler("strong").as_deref(), Some("vm"));
    }

    #[test]
    fn sandbox_container_and_mounts_have_the_same_range() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("u")).unwrap();
        let (users, pod) = (users(folder.path(), true), pod(Some(false)));
        users.check(&pod, "").unwrap();
        let want = v1::IdMapping { host_id: 65536, container_id: 0, length: 65536 };
        let own = sandbox(&users, &pod);
        assert_eq!((own.mode(), &own.uids, &own.gids), (v1::NamespaceMode::Pod, &vec![want], &vec![want]));
        let mut container = v1::ContainerConfig {
            mounts: vec![v1::Mount::default(), v1::Mount::default()],
            linux: Some(v1::LinuxContainerConfig {
                security_context: Some(v1::LinuxContainerSecurityContext {
                    namespace_options: Some(v1::NamespaceOption::default()),
                    ..v1::LinuxContainerSecurityContext::default()
                }),
                ..v1::LinuxContainerConfig::default()
            }),
            ..v1::ContainerConfig::default()
        };
        users.put_into_container(&pod, &mut container).unwrap();
        assert!(container.mounts.iter().all(|mount| mount.uid_mappings == [want] && mount.gid_mappings == [want]));
        let security = container.linux.unwrap().security_context.unwrap();
        assert_eq!(security.namespace_options.unwrap().userns_options, Some(own));
    }

    #[test]
    fn a_pod_with_the_hosts_users_takes_no_range() {
        let folder = tempfile::tempdir().unwrap();
        let users = users(folder.path(), false);
        for pod in [pod(None), pod(Some(true))] {
            users.check(&pod, "vm").unwrap();
            assert_eq!(sandbox(&users, &pod).mode(), v1::NamespaceMode::Node);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_handler_that_cannot_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let own = pod(Some(false));
        let refused = |can, handler| users(folder.path(), can).check(&own, handler).unwrap_err().message;
        assert_eq!(refused(false, ""), "can't set `spec.hostUsers: false`, runtime does not support user namespaces");
        assert_eq!(
            refused(true, "vm"),
            "can't set `spec.hostUsers: false`, RuntimeClass handler \"vm\" does not support user namespaces"
        );
    }
}
