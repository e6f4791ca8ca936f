//! The CSINode object: stands for every node, lists no driver until one registers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSINode, CSINodeSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, PostParams};

/// In-tree plugins whose volumes are CSI drivers' by now.
const MIGRATED: &str = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,\
    kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume";

/// Makes it if it is not there.
pub(super) async fn ensure(client: &kube::Client, node: &Node) -> Result<(), kube::Error> {
    let api: Api<CSINode> = Api::all(client.clone());
    let Some(name) = node.metadata.name.clone() else { return Ok(()) };
    if api.get_opt(&name).await?.is_some() {
        return Ok(());
    }
    let annotations =
        BTreeMap::from([("storage.alpha.kubernetes.io/migrated-plugins".to_owned(), MIGRATED.to_owned())]);
    let object = CSINode {
        metadata: ObjectMeta {
            name: Some(name),
            annotations: Some(annotations),
            owner_references: Some(vec![owner(node)]),
            ..ObjectMeta::default()
        },
        spec: CSINodeSpec { drivers: Vec::new() },
    };
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop),
    }
}

/// A reference that makes an object go with its Node.
pub(super) fn owner(node: &Node) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.metadata.name.clone().unwrap_or_default(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }
}
