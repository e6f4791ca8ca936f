//! What an event is about.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};

use crate::model::DesiredPod;

/// `Normal` or `Warning`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Something that was to be expected.
    Normal,
    /// Something that a human should look at.
    Warning,
}

impl EventType {
    /// The API's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The list of the pod spec that a container stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContainerGroup {
    /// `spec.initContainers`, sidecars too.
    Init,
    /// `spec.containers`.
    Main,
    /// `spec.ephemeralContainers`.
    Ephemeral,
}

impl ContainerGroup {
    /// The field of the pod spec.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Init => "spec.initContainers",
            Self::Main => "spec.containers",
            Self::Ephemeral => "spec.ephemeralContainers",
        }
    }
}

/// The object that an event is about. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub struct EventTarget(Arc<ObjectReference>);

impl EventTarget {
    /// A pod under the uid by which the node runs it: a static pod's events go to its config hash, with or without a mirror.
    pub fn pod(pod: &DesiredPod) -> Self {
        Self(Arc::new(pod_reference(pod)))
    }

    /// One container of a pod.
    pub fn container(pod: &DesiredPod, group: ContainerGroup, name: &str) -> Self {
        let mut reference = pod_reference(pod);
        reference.field_path = Some(format!("{}{{{name}}}", group.field()));
        Self(Arc::new(reference))
    }

    /// A pod object as it stands, for pods that never became desired (refused by a source).
    pub fn pod_object(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        Self(Arc::new(ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            field_path: None,
        }))
    }

    /// The node itself; upstream refers to it by its name in place of a uid.
    pub fn node(name: &str) -> Self {
        Self(Arc::new(ObjectReference {
            kind: Some("Node".into()),
            name: Some(name.into()),
            uid: Some(name.into()),
            ..ObjectReference::default()
        }))
    }

    /// The reference as it is written.
    pub fn reference(&self) -> &ObjectReference {
        &self.0
    }
}

fn pod_reference(pod: &DesiredPod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: Some(pod.key.name.to_string()),
        namespace: Some(pod.key.namespace.to_string()),
        uid: Some(pod.uid.to_string()),
        resource_version: pod.pod.metadata.resource_version.clone(),
        field_path: None,
    }
}
