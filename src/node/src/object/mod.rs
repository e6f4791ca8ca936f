//! Objects that pods refer to: configmaps, secrets, runtime classes, services, tokens. Read on demand, kept for a while, never logged.
//!
//! Configmaps and secrets are read one by one when a pod needs them; one read answers all who ask for the same object at
//! the same time, and an answer serves until it is older than the asker accepts. Those that pods have mounted are followed.
//! When the apiserver cannot be reached, what was read before goes on serving. Services are watched, for each container's environment names them all.

mod cache;
mod follow;
mod lookup;
mod service;
mod token;

#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use longshore_util::Tasks;
use longshore_util::clock::SharedClock;

pub use follow::Changed;
pub use lookup::Lookup;
pub use service::{ServiceMemory, Services};
pub use token::{TokenKey, Tokens};

use crate::model::Alone;
use cache::Cache;
use follow::{Changes, Followers};

/// One read of the apiserver takes no longer.
const READ_DEADLINE: Duration = Duration::from_secs(10);

/// How old an answer may be when a pod is started or its volumes are made anew.
pub const FRESH: Duration = Duration::from_secs(2);
/// How old an answer may be when mounted data are brought up to date.
pub const REFRESH: Duration = Duration::from_secs(20);

/// Everything that pods refer to. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Objects {
    config_maps: Cache<ConfigMap>,
    secrets: Cache<Secret>,
    runtime_classes: Cache<RuntimeClass>,
    accounts: Cache<ServiceAccount>,
    services: Services,
    alone: Alone,
    tokens: Tokens,
    changes: Changes,
}

impl Objects {
    /// Starts the watch of services. Without a client (static pods alone) nothing can be read and that is what is said.
    pub fn start(client: Option<kube::Client>, clock: SharedClock, memory: ServiceMemory, tasks: &Tasks) -> Self {
        let changes = Changes::default();
        let followers = Followers::new(changes.clone(), tasks);
        Self {
            config_maps: Cache::new(client.clone(), clock.clone()).followed(followers.clone()),
            secrets: Cache::new(client.clone(), clock.clone()).followed(followers),
            runtime_classes: Cache::new(client.clone(), clock.clone()),
            accounts: Cache::new(client.clone(), clock.clone()),
            alone: memory.alone.clone(),
            services: Services::start(client.clone(), memory, tasks),
            tokens: Tokens::new(client, clock),
            changes,
        }
    }

    /// Reads a configmap that a pod has mounted, and follows it from now on.
    pub async fn mounted_config_map(&self, namespace: &str, name: &str, age: Duration) -> Lookup<ConfigMap> {
        self.config_maps.mounted(namespace, name, age).await
    }

    /// Reads a secret that a pod has mounted, and follows it from now on.
    pub async fn mounted_secret(&self, namespace: &str, name: &str, age: Duration) -> Lookup<Secret> {
        self.secrets.mounted(namespace, name, age).await
    }

    /// Waits until mounted objects have changed, and says which.
    pub async fn changed(&self) -> std::collections::BTreeSet<Changed> {
        self.changes.next().await
    }

    /// Reads a configmap, from memory when what is there is younger than `age`.
    pub async fn config_map(&self, namespace: &str, name: &str, age: Duration) -> Lookup<ConfigMap> {
        self.config_maps.get(namespace, name, age).await
    }

    /// Reads a secret, from memory when what is there is younger than `age`.
    pub async fn secret(&self, namespace: &str, name: &str, age: Duration) -> Lookup<Secret> {
        self.secrets.get(namespace, name, age).await
    }

    /// Reads a runtime class, from memory when what is there is younger than `age`.
    pub async fn runtime_class(&self, name: &str, age: Duration) -> Lookup<RuntimeClass> {
        self.runtime_classes.get("", name, age).await
    }

    /// Reads a service account, from memory when what is there is younger than `age`.
    pub async fn service_account(&self, namespace: &str, name: &str, age: Duration) -> Lookup<ServiceAccount> {
        self.accounts.get(namespace, name, age).await
    }

    /// The services of the cluster.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Whether the node stands alone: what cannot be read now has to do as it was last written.
    pub fn stand_alone(&self) -> bool {
        self.alone.is()
    }

    /// Tokens of service accounts.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Forgets what nobody asked for in a long time.
    pub fn tidy(&self) {
        self.config_maps.tidy();
        self.secrets.tidy();
        self.runtime_classes.tidy();
        self.accounts.tidy();
        self.tokens.tidy();
    }
}
