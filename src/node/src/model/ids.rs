//! Newtypes for ids, so that one kind is never taken for another.

use std::fmt;
use std::sync::Arc;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps an id as given by its owner.
            pub fn new(id: impl Into<Arc<str>>) -> Self {
                Self(id.into())
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self(id.into())
            }
        }

        impl From<String> for $name {
            fn from(id: String) -> Self {
                Self(id.into())
            }
        }
    };
}

id!(
    /// The uid under which the node runs a pod: `metadata.uid` of an API pod, the config hash of a static pod.
    PodUid
);
id!(
    /// The uid that the apiserver gave to the mirror of a static pod; never used towards the runtime.
    MirrorUid
);
id!(
    /// A pod sandbox as the runtime names it.
    SandboxId
);
id!(
    /// A container as the runtime names it, without the `containerd://` prefix.
    ContainerId
);

/// Namespace and name of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodKey {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name; a static pod's name ends with the node's name.
    pub name: Arc<str>,
}

impl PodKey {
    /// Builds a key from its two parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object; `None` without a name.
    pub fn of(pod: &k8s_openapi::api::core::v1::Pod) -> Option<Self> {
        let name = pod.metadata.name.as_deref()?;
        Some(Self::new(pod.metadata.namespace.as_deref().unwrap_or("default"), name))
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
