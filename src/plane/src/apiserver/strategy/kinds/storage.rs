//! Classes of storage and what is attached where.

use k8s_openapi::api::storage::v1 as storage;

use crate::apiserver::strategy::described::{Check, Described, Fill, Frozen};
use crate::apiserver::strategy::typed;

use Check::{OneOf, Required};
use Fill::Set;

/// Classes of storage.
pub(crate) static STORAGE_CLASSES: Described = Described {
    defaults: &[Set("reclaimPolicy", "\"Delete\""), Set("volumeBindingMode", "\"Immediate\"")],
    checks: &[
        Required("provisioner", ""),
        OneOf("reclaimPolicy", &["Delete", "Retain"]),
        OneOf("volumeBindingMode", &["Immediate", "WaitForFirstConsumer"]),
    ],
    frozen: &[
        Frozen::Forbidden("parameters", "updates to parameters are forbidden."),
        Frozen::Forbidden("provisioner", "updates to provisioner are forbidden."),
        Frozen::Forbidden("reclaimPolicy", "updates to reclaimPolicy are forbidden."),
        Frozen::Immutable("volumeBindingMode"),
    ],
    generation: &[],
    ..Described::new(typed::<storage::StorageClass>)
};

/// What is attached to a node, or shall be.
pub(crate) static VOLUME_ATTACHMENTS: Described = Described {
    status: Some("{\"attached\":false}"),
    checks: &[Required("spec.attacher", ""), Required("spec.nodeName", "")],
    rules: Some(|object, causes| {
        let source = |key: &str| object.pointer(&format!("/spec/source/{key}")).is_some();
        if !source("persistentVolumeName") && !source("inlineVolumeSpec") {
            let text = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
            causes.push(crate::apiserver::error::Cause::required("spec.source", text));
        }
    }),
    frozen: &[Frozen::Immutable("spec")],
    ..Described::new(typed::<storage::VolumeAttachment>)
};
