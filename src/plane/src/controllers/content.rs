//! What each namespace has from the start: the service account `default` and the cluster's authority.

use std::collections::BTreeSet;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use crate::apiserver::error::ApiError;
use crate::apiserver::object::{child, text};
use crate::apiserver::registry::{Part, Registry, WriteOptions};
use crate::apiserver::resources::{CONFIGMAPS, NAMESPACES, SERVICEACCOUNTS};

const ACCOUNT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";
const ROOT_CA_NOTE: &str = "kubernetes.io/description";
const ROOT_CA_TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
    endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
    distributions of Kubernetes clusters.";

#[derive(Debug)]
pub(super) struct Content {
    registry: Registry,
    authority_pem: String,
}

impl Content {
    pub(super) fn new(registry: Registry, authority_pem: String) -> Self {
        Self { registry, authority_pem }
    }

    pub(super) async fn run(self, token: CancellationToken) {
        let mut namespaces = Feed::new(&self.registry, &NAMESPACES);
        let mut accounts = Feed::new(&self.registry, &SERVICEACCOUNTS);
        let mut configmaps = Feed::new(&self.registry, &CONFIGMAPS);
        loop {
            let dirty: BTreeSet<String> = tokio::select! {
                biased;
                () = token.cancelled() => return,
                keys = namespaces.next() => keys.into_iter().map(|(_, name)| name).collect(),
                keys = accounts.next() => named(&keys, ACCOUNT),
                keys = configmaps.next() => named(&keys, ROOT_CA),
            };
            for namespace in dirty {
                match self.ensure(&namespace).await {
                    Ok(()) => {}
                    // It is going away, or has gone.
                    Err(error) if error.is_not_found() || error.reason == "Forbidden" => {}
                    Err(error) => tracing::warn!(%namespace, %error, "namespace lacks what each should have"),
                }
            }
        }
    }

    async fn ensure(&self, namespace: &str) -> Result<(), ApiError> {
        let Some(found) = self.registry.find(&NAMESPACES, "", namespace)? else { return Ok(()) };
        if !text(&found, "/metadata/deletionTimestamp").is_empty() {
            return Ok(());
        }
        let own = WriteOptions::default();
        if self.registry.find(&SERVICEACCOUNTS, namespace, ACCOUNT)?.is_none() {
            let account = json!({"metadata": {"name": ACCOUNT}});
            unless_there(self.registry.create(&SERVICEACCOUNTS, namespace, account, &own).await)?;
        }
        match self.registry.find(&CONFIGMAPS, namespace, ROOT_CA)? {
            None => {
                let configmap = json!({
                    "metadata": {"name": ROOT_CA, "annotations": {ROOT_CA_NOTE: ROOT_CA_TEXT}},
                    "data": {"ca.crt": self.authority_pem},
                });
                unless_there(self.registry.create(&CONFIGMAPS, namespace, configmap, &own).await)
            }
            Some(found) if found.get("data") == Some(&json!({"ca.crt": self.authority_pem})) => Ok(()),
            Some(_) => {
                let change = |mut configmap| {
                    let data = child(&mut configmap, "data");
                    data.clear();
                    data.insert("ca.crt".to_owned(), json!(self.authority_pem));
                    Ok(Some(configmap))
                };
                self.registry.modify(&CONFIGMAPS, namespace, ROOT_CA, Part::Main, &own, change).await.map(drop)
            }
        }
    }
}

fn named(keys: &BTreeSet<(String, String)>, wanted: &str) -> BTreeSet<String> {
    keys.iter().filter(|(_, name)| name == wanted).map(|(namespace, _)| namespace.clone()).collect()
}

fn unless_there<T>(made: Result<T, ApiError>) -> Result<(), ApiError> {
    match made {
        Err(error) if !error.is_already_exists() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}
