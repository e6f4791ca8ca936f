//! The loops that make a cluster of one node work: what each namespace has, emptying of deleted ones, pods to nodes.
//!
//! All are level-triggered: a feed says which objects may have changed, the loop reads how they are now. They write
//! through the registry like any client and hold nothing that a restart would miss.

use std::net::SocketAddr;
use std::sync::Arc;

use longshore_transport::pki::Authority;
use longshore_util::Tasks;

use crate::apiserver::registry::Registry;

mod binder;
mod certificates;
mod content;
mod definitions;
mod disruption;
mod emptier;
mod events;
mod feed;
mod fit;
mod garbage;
mod gather;
mod orphans;
mod protection;
mod quota;
mod service;

#[cfg(test)]
mod tests;

/// What the loops need to know of the cluster.
#[derive(Debug, Clone)]
pub struct ControllerOptions {
    /// The authority that pods need to trust the apiserver (PEM).
    pub authority_pem: String,
    /// The authority itself, to sign certificates; nobody signs without.
    pub authority: Option<Arc<Authority>>,
    /// Where the apiserver listens.
    pub apiserver: SocketAddr,
}

/// Starts all loops on `tasks`.
pub fn start(registry: &Registry, options: &ControllerOptions, tasks: &Tasks) {
    let content = content::Content::new(registry.clone(), options.authority_pem.clone());
    tasks.essential("namespace-content", content.run(tasks.token().clone()));
    tasks.essential("namespace-emptier", emptier::run(registry.clone(), tasks.token().clone()));
    tasks.essential("kubernetes-service", service::run(registry.clone(), options.apiserver, tasks.token().clone()));
    tasks.essential("custom-kinds", definitions::run(registry.clone(), tasks.token().clone()));
    let binder = binder::Binder::new(registry.clone(), Arc::new(events::Events::new(registry.clone())), tasks.clone());
    tasks.essential("binder", binder.run());
    tasks.essential("garbage-collector", garbage::run(registry.clone(), tasks.token().clone()));
    tasks.essential("claim-protection", protection::run(registry.clone(), tasks.token().clone()));
    if let Some(authority) = &options.authority {
        let signs = certificates::run(registry.clone(), Arc::clone(authority), tasks.token().clone());
        tasks.essential("certificate-signer", signs);
    }
    tasks.essential("resource-quotas", quota::run(registry.clone(), tasks.token().clone()));
    tasks.essential("disruption-budgets", disruption::run(registry.clone(), tasks.token().clone()));
    tasks.essential("cluster-role-gatherer", gather::run(registry.clone(), tasks.token().clone()));
    tasks.essential("orphaned-pods", orphans::run(registry.clone(), tasks.token().clone()));
}
