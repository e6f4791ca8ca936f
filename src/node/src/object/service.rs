//! The services of the cluster, watched for the environment of containers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::runtime::watcher::{self, Event};
use longshore_api::service_env::{ServiceFact, ServicePortFact};
use longshore_transport::client::Typed;
use longshore_util::{Tasks, atomic};
use tokio::sync::watch;

use crate::model::Alone;

/// Wait between two tries when the watch cannot be made.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Changes that come together are kept together.
const GATHER: Duration = Duration::from_secs(5);

type Known = Option<Arc<Vec<ServiceFact>>>;

/// Where services are kept for a start without the apiserver.
#[derive(Debug, Clone, Default)]
pub struct ServiceMemory {
    /// The file; none = they are not kept.
    pub file: Option<PathBuf>,
    /// Whether the node stands alone: then, and only then, what was kept is used.
    pub alone: Alone,
}

/// What is known of services. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Services {
    known: watch::Receiver<Known>,
    memory: ServiceMemory,
}

impl Services {
    pub(super) fn start(client: Option<kube::Client>, memory: ServiceMemory, tasks: &Tasks) -> Self {
        let (sender, known) = watch::channel(None);
        if let Some(client) = client {
            let token = tasks.token().clone();
            tasks.essential("services", async move {
                token.run_until_cancelled(Box::pin(follow(client, sender))).await;
            });
            if let Some(file) = memory.file.clone() {
                let (known, token) = (known.clone(), tasks.token().clone());
                tasks.essential("service-memory", async move {
                    token.run_until_cancelled(keep(known, file)).await;
                    // The watch has ended, and with it this agent.
                    token.cancelled().await;
                });
            }
        }
        Self { known, memory }
    }

    /// The services, as soon as they were read once; waits for that no longer than `patience`. A node that stands alone
    /// does not wait: it has those that it knew last.
    pub async fn within(&self, patience: Duration) -> Known {
        let mut receiver = self.known.clone();
        let patience = if self.memory.alone.is() { Duration::ZERO } else { patience };
        let ready = tokio::time::timeout(patience, receiver.wait_for(Option::is_some)).await;
        let known = ready.ok().and_then(|known| known.ok()?.clone());
        match known {
            Some(known) => Some(known),
            None => self.remembered().await,
        }
    }

    async fn remembered(&self) -> Known {
        let file = self.memory.file.clone().filter(|_| self.memory.alone.is())?;
        let read = tokio::task::spawn_blocking(move || {
            let content = std::fs::read(&file).map_err(|error| error.to_string())?;
            serde_json::from_slice::<Vec<ServiceFact>>(&content).map_err(|error| error.to_string())
        });
        match read.await.ok()? {
            Ok(services) => Some(Arc::new(services)),
            Err(error) => {
                tracing::debug!(error, "services as they were last known cannot be read");
                Some(Arc::default())
            }
        }
    }
}

/// Writes the services down as they change.
async fn keep(mut known: watch::Receiver<Known>, file: PathBuf) {
    while known.changed().await.is_ok() {
        tokio::time::sleep(GATHER).await;
        let Some(services) = known.borrow_and_update().clone() else { continue };
        let file = file.clone();
        let written = tokio::task::spawn_blocking(move || -> Result<(), String> {
            let content = serde_json::to_vec(&*services).map_err(|error| error.to_string())?;
            atomic::write(&file, &content, 0o600).map_err(|error| error.to_string())
        });
        if let Ok(Err(error)) = written.await {
            tracing::warn!(error, "services cannot be kept for a start without the apiserver");
        }
    }
}

type Table = BTreeMap<(String, String), ServiceFact>;

async fn follow(client: kube::Client, sender: watch::Sender<Known>) {
    let mut table = Table::new();
    let mut fresh = Table::new();
    let mut delay = RETRY;
    let mut events = watcher::watcher(Api::<Typed<Service>>::all(client), watcher::Config::default()).boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => fresh.clear(),
            Ok(Event::InitApply(service)) => put(&mut fresh, &service),
            Ok(Event::InitDone) => {
                table = std::mem::take(&mut fresh);
                delay = RETRY;
                publish(&sender, &table);
            }
            Ok(Event::Apply(service)) => {
                put(&mut table, &service);
                publish(&sender, &table);
            }
            Ok(Event::Delete(service)) => {
                let fact = fact(&service);
                table.remove(&(fact.namespace, fact.name));
                publish(&sender, &table);
            }
            Err(error) => {
                tracing::debug!(%error, "services cannot be watched, trying again");
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(RETRY_MAX);
            }
        }
    }
}

fn put(table: &mut Table, service: &Service) {
    let fact = fact(service);
    table.insert((fact.namespace.clone(), fact.name.clone()), fact);
}

fn publish(sender: &watch::Sender<Known>, table: &Table) {
    sender.send_if_modified(|known| {
        let same = known.as_ref().is_some_and(|known| known.iter().eq(table.values()));
        if !same {
            *known = Some(Arc::new(table.values().cloned().collect()));
        }
        !same
    });
}

fn fact(service: &Service) -> ServiceFact {
    let spec = service.spec.as_ref();
    ServiceFact {
        namespace: service.metadata.namespace.clone().unwrap_or_default(),
        name: service.metadata.name.clone().unwrap_or_default(),
        cluster_ip: spec.and_then(|spec| spec.cluster_ip.clone()).unwrap_or_default(),
        ports: spec
            .and_then(|spec| spec.ports.as_ref())
            .into_iter()
            .flatten()
            .map(|port| ServicePortFact {
                name: port.name.clone().unwrap_or_default(),
                port: port.port,
                protocol: port.protocol.clone().unwrap_or_default(),
            })
            .collect(),
    }
}
