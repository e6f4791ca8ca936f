//! Renews certificates that end soon while the plane runs, so that one which is never restarted goes on for years.

use std::sync::Arc;
use std::time::Duration;

use longshore_transport::tls::ReloadableCertificate;
use longshore_util::Tasks;

use crate::apiserver::connect::NodeConnector;
use crate::pki::{PlanePki, PlanePkiError, ServerNames};

/// How often the certificates are looked at; they are renewed a season before they end.
const EVERY: Duration = Duration::from_secs(12 * 60 * 60);

/// Everything that uses a certificate of the plane.
#[derive(Debug)]
pub(crate) struct Renewal {
    pub(crate) pki: Arc<PlanePki>,
    pub(crate) names: ServerNames,
    pub(crate) serving: Arc<ReloadableCertificate>,
    pub(crate) connector: Arc<NodeConnector>,
}

impl Renewal {
    pub(crate) fn start(self, tasks: &Tasks) {
        let token = tasks.token().clone();
        tasks.essential("certificate-renewal", async move {
            loop {
                tokio::select! {
                    biased;
                    () = token.cancelled() => return,
                    () = tokio::time::sleep(EVERY) => {}
                }
                match self.pass().await {
                    Ok(false) => {}
                    Ok(true) => tracing::info!("certificates renewed"),
                    Err(error) => tracing::error!(%error, "certificates could not be renewed"),
                }
            }
        });
    }

    /// Renews what ends soon and puts it to use; returns whether there was anything.
    async fn pass(&self) -> Result<bool, PlanePkiError> {
        let (pki, names) = (Arc::clone(&self.pki), self.names.clone());
        let work = move || -> Result<_, PlanePkiError> { Ok((pki.renew(&names)?, pki.kubelet_client()?)) };
        let done = tokio::task::spawn_blocking(work).await;
        // Lost only when the runtime goes down.
        let Ok(done) = done else { return Ok(false) };
        let (renewed, client) = done?;
        if renewed {
            self.serving.reload()?;
            self.connector.renew(&client)?;
        }
        Ok(renewed)
    }
}

#[cfg(test)]
mod tests {
    use longshore_util::clock::{ManualClock, SharedClock, SystemClock};

    use super::*;
    use crate::apiserver::registry::{ClusterFacts, Registry};
    use crate::store::{Limits, MemoryStore};

    #[tokio::test]
    async fn a_plane_that_runs_for_a_year_serves_with_a_fresh_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new("2026-11-29T12:00:00Z".parse().unwrap()));
        let names = ServerNames {
            service: "10.96.0.1".parse().unwrap(),
            domain: "cluster.local".to_owned(),
            further: vec!["127.0.0.1".into()],
        };
        let pki = Arc::new(PlanePki::prepare(folder.path(), &names, clock.clone()).unwrap());
        let (certificate, key) = pki.serving_files();
        let serving = ReloadableCertificate::from_files(&certificate, &key).unwrap();
        let system: SharedClock = Arc::new(SystemClock);
        let store = Arc::new(MemoryStore::new(Limits::default(), Arc::clone(&system)));
        let objects = Arc::new(Registry::new(store, system, ClusterFacts::default()));
        let connector = NodeConnector::new(objects, &pki.kubelet_client().unwrap(), None, Tasks::new()).unwrap();
        let renewal = Renewal { pki, names, serving: Arc::clone(&serving), connector: Arc::new(connector) };

        let first = serving.facts().unwrap().not_after;
        assert!(!renewal.pass().await.unwrap());
        clock.advance(Duration::from_secs(300 * 86400));
        assert!(renewal.pass().await.unwrap());
        let second = serving.facts().unwrap().not_after;
        assert!((second.as_second() - first.as_second()) / 86400 >= 299);
        assert!(!renewal.pass().await.unwrap());
    }
}
