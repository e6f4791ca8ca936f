//! The node's heartbeat: a Lease renewed four times within its duration, on a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease as LeaseObject, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use longshore_transport::client::brief;
use longshore_util::backoff::Backoff;
use longshore_util::clock::SharedClock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::csinode::owner;
use super::{NodeOptions, jitter, seed_of};

const NAMESPACE: &str = "kube-node-lease";
const UPDATE_TRIES: u32 = 5;
const JITTER: f64 = 0.04;

/// Keeps the lease.
pub(super) struct Lease {
    api: Api<LeaseObject>,
    name: String,
    duration: Duration,
    clock: SharedClock,
    node: watch::Receiver<Option<Arc<Node>>>,
    latest: Option<LeaseObject>,
    seed: u64,
    /// The last fault, told once.
    told: String,
}

impl Lease {
    pub(super) fn new(
        client: kube::Client,
        options: &NodeOptions,
        clock: SharedClock,
        node: watch::Receiver<Option<Arc<Node>>>,
    ) -> Self {
        Self {
            api: Api::namespaced(client, NAMESPACE),
            name: options.name.clone(),
            duration: options.lease_duration,
            clock,
            node,
            latest: None,
            seed: seed_of(&options.name),
            told: String::new(),
        }
    }

    pub(super) async fn run(mut self, token: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = self.renew() => {}
            }
            let period = jitter(self.duration / 4, JITTER, &mut self.seed);
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = tokio::time::sleep(period) => {}
            }
        }
    }

    /// Brings the lease up to date; returns only when that is done.
    pub(super) async fn renew(&mut self) {
        if self.latest.is_some() && self.update().await {
            return;
        }
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(7), self.seed);
        loop {
            match self.within(self.get_or_create()).await {
                Ok((lease, fresh)) => {
                    self.told.clear();
                    self.latest = Some(lease);
                    // One that stood before is renewed at once.
                    if fresh || self.update().await {
                        return;
                    }
                }
                Err(error) => self.tell(brief(&error)),
            }
            tokio::time::sleep(backoff.next_delay()).await;
        }
    }

    /// Tells a fault once, until another one comes.
    fn tell(&mut self, error: String) {
        if self.told == error {
            tracing::debug!(error, "node lease not found or made");
        } else {
            tracing::warn!(error, "node lease not found or made; trying again");
            self.told = error;
        }
    }

    async fn update(&mut self) -> bool {
        for attempt in 1..=UPDATE_TRIES {
            let Some(latest) = self.latest.clone() else { return false };
            let wanted = self.renewed(latest);
            match self.within(self.api.replace(&self.name, &PostParams::default(), &wanted)).await {
                Ok(lease) => {
                    self.latest = Some(lease);
                    return true;
                }
                Err(error) => {
                    tracing::debug!(error = brief(&error), attempt, "node lease not renewed");
                    if error.is(409) {
                        let Ok(lease) = self.within(self.api.get(&self.name)).await else { continue };
                        self.latest = Some(lease);
                    } else if error.is(404) {
                        return false;
                    }
                }
            }
        }
        tracing::warn!("node lease could not be renewed");
        false
    }

    async fn get_or_create(&self) -> Result<(LeaseObject, bool), kube::Error> {
        if let Some(lease) = self.api.get_opt(&self.name).await? {
            return Ok((lease, false));
        }
        // A lease without its owner would stay behind when the node is deleted: the Node comes first.
        let mut node = self.node.clone();
        let _seen = node.wait_for(Option::is_some).await.map(drop);
        let lease = LeaseObject {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            spec: None,
        };
        let made = self.api.create(&PostParams::default(), &self.renewed(lease)).await?;
        Ok((made, true))
    }

    fn renewed(&self, mut lease: LeaseObject) -> LeaseObject {
        if lease.metadata.owner_references.as_ref().is_none_or(Vec::is_empty) {
            let node = self.node.borrow().clone();
            lease.metadata.owner_references = node.map(|node| vec![owner(&node)]);
        }
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.name.clone());
        spec.lease_duration_seconds = Some(i32::try_from(self.duration.as_secs()).unwrap_or(i32::MAX));
        spec.renew_time = Some(MicroTime(self.clock.now()));
        lease
    }

    /// A call that hangs must not eat the time in which another would succeed.
    async fn within<T>(&self, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, LeaseError> {
        match tokio::time::timeout(self.duration / 4, call).await {
            Ok(answer) => answer.map_err(LeaseError::Api),
            Err(_) => Err(LeaseError::Late),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum LeaseError {
    #[error(transparent)]
    Api(kube::Error),
    #[error("no answer in time")]
    Late,
}

impl LeaseError {
    fn is(&self, code: u16) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == code)
    }
}
