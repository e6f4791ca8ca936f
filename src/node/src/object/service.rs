//! The services of the cluster, watched for the environment of containers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::runtime::watcher::{self, Event};
use longshore_api::service_env::{ServiceFact, ServicePortFact};
use longshore_util::Tasks;
use tokio::sync::watch;

/// Wait between two tries when the watch cannot be made.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

type Known = Option<Arc<Vec<ServiceFact>>>;

/// What is known of services. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Services(watch::Receiver<Known>);

impl Services {
    pub(super) fn start(client: Option<kube::Client>, tasks: &Tasks) -> Self {
        let (sender, receiver) = watch::channel(None);
        if let Some(client) = client {
            let token = tasks.token().clone();
            tasks.essential("services", async move {
                token.run_until_cancelled(Box::pin(follow(client, sender))).await;
            });
        }
        Self(receiver)
    }

    /// The services, as soon as they were read once; waits for that no longer than `patience`.
    pub async fn within(&self, patience: Duration) -> Known {
        let mut receiver = self.0.clone();
        let ready = tokio::time::timeout(patience, receiver.wait_for(Option::is_some)).await;
        match ready {
            Ok(Ok(known)) => known.clone(),
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

type Table = BTreeMap<(String, String), ServiceFact>;

async fn follow(client: kube::Client, sender: watch::Sender<Known>) {
    let mut table = Table::new();
    let mut fresh = Table::new();
    let mut delay = RETRY;
    let mut events = watcher::watcher(Api::<Service>::all(client), watcher::Config::default()).boxed();
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
