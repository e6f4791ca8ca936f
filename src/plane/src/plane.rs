//! Puts the control plane together: store, keys, apiserver, loops; the only place that knows all of them.
//!
//! The data dir holds `store.redb`, `pki/` with kubeadm's names and `admin.kubeconfig`. Everything in it is made on the
//! first start and found again on the next.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_transport::pki::SubjectAltName;
use longshore_transport::serve::{self, BindError, ServeOptions};
use longshore_transport::tls::{self, ReloadableCertificate, ServerTls, TlsConfigError};
use longshore_util::Tasks;
use longshore_util::clock::{SharedClock, SystemClock};
use serde_json::json;

use crate::apiserver::SYSTEM_PRIORITIES;
use crate::apiserver::audit::{Audit, AuditError};
use crate::apiserver::auth::Auth;
use crate::apiserver::connect::NodeConnector;
use crate::apiserver::error::ApiError;
use crate::apiserver::hooks::Hooks;
use crate::apiserver::object::Object;
use crate::apiserver::rbac;
use crate::apiserver::registry::{ClusterFacts, Registry, WriteOptions};
use crate::apiserver::resources::{NAMESPACES, PRIORITYCLASSES};
use crate::apiserver::server::{Api, ApiLimits, ApiService};
use crate::controllers::{self, ControllerOptions};
use crate::expiry;
use crate::pki::{PlanePki, PlanePkiError, ServerNames, write_kubeconfig};
use crate::renewal::Renewal;
use crate::store::{DurableOptions, DurableStore, EtcdOptions, EtcdStore, OpenError, SharedStore};

/// Namespaces that are there from the start.
const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// How a control plane is started.
#[derive(Debug, Clone)]
pub struct PlaneOptions {
    /// Where everything is kept; made if missing.
    pub data_dir: PathBuf,
    /// Where it listens.
    pub bind: SocketAddr,
    /// The address that clients are told; by default the bound one, or the loopback if that is no single address.
    pub advertise: Option<IpAddr>,
    /// Further names and addresses that its certificate is good for.
    pub names: Vec<SubjectAltName>,
    /// The range of service addresses.
    pub cluster: ClusterFacts,
    /// Domain of the cluster.
    pub domain: String,
    /// Whether nodes must show a serving certificate of the plane's authority ([`PlanePki::node_server`] makes one).
    /// Without, any is taken, as upstream does without `--kubelet-certificate-authority`.
    pub check_nodes: bool,
    /// Where who did what is written down; nowhere if none.
    pub audit_log: Option<PathBuf>,
    /// Where objects are kept; without, in a file of the data dir.
    pub etcd: Option<EtcdOptions>,
    /// Wall-clock time.
    pub clock: SharedClock,
}

impl PlaneOptions {
    /// Returns the defaults for a data dir and an address.
    pub fn new(data_dir: impl Into<PathBuf>, bind: SocketAddr) -> Self {
        Self {
            data_dir: data_dir.into(),
            bind,
            advertise: None,
            names: Vec::new(),
            cluster: ClusterFacts::default(),
            domain: "cluster.local".to_owned(),
            check_nodes: false,
            audit_log: None,
            etcd: None,
            clock: Arc::new(SystemClock),
        }
    }
}

/// Why a control plane did not start.
#[derive(Debug, thiserror::Error)]
pub enum PlaneError {
    /// The data dir cannot be made.
    #[error("making {}: {source}", path.display())]
    DataDir {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// Keys or certificates are of no use.
    #[error(transparent)]
    Pki(#[from] PlanePkiError),
    /// The serving certificate is of no use.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// The audit log cannot be written.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The port is not to be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The first objects cannot be stored.
    #[error("preparing the cluster's first objects: {0}")]
    FirstObjects(ApiError),
    /// A blocking step was lost with the runtime.
    #[error("starting was interrupted")]
    Interrupted,
}

/// A running control plane; ends with the tasks it was started on.
#[derive(Debug)]
pub struct Plane {
    /// Where it listens.
    pub address: SocketAddr,
    /// The URL that clients use.
    pub server: String,
    /// The administrator's kubeconfig.
    pub admin_kubeconfig: PathBuf,
    registry: Registry,
    /// The file to be closed at the end; none where objects are in etcd.
    file: Option<Arc<DurableStore>>,
    pki: Arc<PlanePki>,
}

impl Plane {
    /// Starts a control plane. It answers requests when this returns.
    pub async fn start(options: PlaneOptions, tasks: &Tasks) -> Result<Self, PlaneError> {
        make_folder(&options.data_dir)?;
        let clock = Arc::clone(&options.clock);
        let (shared, file) = open_store(&options, tasks).await?;
        let listener = serve::bind(options.bind).await?;
        let address = listener.local_addr().map_err(|source| BindError::Listen { address: options.bind, source })?;
        let advertised = SocketAddr::new(advertised(&options, address), address.port());
        let server = format!("https://{advertised}");
        let admin_kubeconfig = options.data_dir.join("admin.kubeconfig");
        let keys = prepare_keys(&options, advertised.ip(), server.clone(), admin_kubeconfig.clone()).await?;

        let registry = Registry::new(shared, Arc::clone(&clock), options.cluster);
        first_objects(&registry).await.map_err(PlaneError::FirstObjects)?;

        let auth = Arc::new(Auth::new(
            keys.pki.client_ca()?,
            keys.pki.service_account_key()?,
            Arc::new(registry.clone()),
            Arc::clone(registry.rbac()),
            Arc::clone(&clock),
        ));
        let checked = options.check_nodes.then(|| keys.pki.authority_pem());
        let objects = Arc::new(registry.clone());
        let connector = NodeConnector::new(objects, &keys.pki.kubelet_client()?, checked, tasks.clone())?;
        let connector = Arc::new(connector);
        let hooks =
            Hooks { authenticate: auth.clone(), authorize: auth.clone(), review: auth, connect: connector.clone() };
        let audit = options.audit_log.map(|path| Audit::start(path, tasks)).transpose()?;
        let limits = ApiLimits::default();
        let api = Api::new(registry.clone(), hooks, advertised.to_string(), limits, audit, tasks.token().clone());
        let tls = tls::server_config(Arc::clone(&keys.serving), &ServerTls::default())?;
        serve::serve("apiserver", listener, Some(tls), ApiService(api), ServeOptions::for_many(), tasks);
        expiry::start(registry.clone(), tasks);
        let renewal = Renewal { pki: Arc::clone(&keys.pki), names: keys.names, serving: keys.serving, connector };
        renewal.start(tasks);
        let authority_pem = keys.pki.authority_pem().to_owned();
        let authority = Some(keys.pki.authority());
        controllers::start(&registry, &ControllerOptions { authority_pem, authority, apiserver: advertised }, tasks);
        tracing::info!(%server, data = %options.data_dir.display(), "control plane serves");
        Ok(Self { address, server, admin_kubeconfig, registry, file, pki: keys.pki })
    }

    /// Closes the store: accepted writes are done, the file is free for another process. Cancel and join the tasks first;
    /// without this the file is closed with the process, and nothing answered is lost either.
    pub async fn close(&self) {
        if let Some(file) = &self.file {
            file.close().await;
        }
    }

    /// Returns the objects, for work inside this process.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the keys and certificates: kubeconfigs and serving certificates for nodes are made of them.
    pub fn pki(&self) -> &Arc<PlanePki> {
        &self.pki
    }
}

fn make_folder(path: &Path) -> Result<(), PlaneError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| PlaneError::DataDir { path: path.to_owned(), source })
}

async fn open_store(
    options: &PlaneOptions,
    tasks: &Tasks,
) -> Result<(SharedStore, Option<Arc<DurableStore>>), PlaneError> {
    if let Some(etcd) = &options.etcd {
        return Ok((Arc::new(EtcdStore::open(etcd.clone(), tasks).await?), None));
    }
    let options = DurableOptions::new(options.data_dir.join("store.redb"), Arc::clone(&options.clock));
    let opened = tokio::task::spawn_blocking(move || DurableStore::open(&options)).await;
    let file = Arc::new(opened.map_err(|_| PlaneError::Interrupted)??);
    Ok((file.clone(), Some(file)))
}

struct Keys {
    pki: Arc<PlanePki>,
    names: ServerNames,
    serving: Arc<ReloadableCertificate>,
}

async fn prepare_keys(
    options: &PlaneOptions,
    advertised: IpAddr,
    server: String,
    kubeconfig: PathBuf,
) -> Result<Keys, PlaneError> {
    let folder = options.data_dir.join("pki");
    let mut further = options.names.clone();
    for address in [advertised, IpAddr::V4(Ipv4Addr::LOCALHOST)] {
        further.push(SubjectAltName::Ip(address));
    }
    further.push(SubjectAltName::Dns("localhost".to_owned()));
    let service = options.cluster.service_address(0).unwrap_or(options.cluster.service_base);
    let names = ServerNames { service: IpAddr::V4(service), domain: options.domain.clone(), further };
    let clock = Arc::clone(&options.clock);
    let work = move || -> Result<Keys, PlaneError> {
        let pki = PlanePki::prepare(&folder, &names, clock)?;
        if let Err(error) = write_kubeconfig(&kubeconfig, &pki.admin_kubeconfig(&server)?) {
            // On a full disk reads go on, for whoever has the file of an earlier start.
            if !(is_full(&error) && kubeconfig.exists()) {
                return Err(error.into());
            }
            tracing::warn!(%error, "the administrator's kubeconfig stays as it was");
        }
        let (certificate, key) = pki.serving_files();
        let serving = ReloadableCertificate::from_files(&certificate, &key)?;
        Ok(Keys { pki: Arc::new(pki), names, serving })
    };
    tokio::task::spawn_blocking(work).await.map_err(|_| PlaneError::Interrupted)?
}

/// Whether there was no space left.
fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|error| {
        error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::StorageFull)
    })
}

fn advertised(options: &PlaneOptions, bound: SocketAddr) -> IpAddr {
    options.advertise.unwrap_or_else(|| match bound.ip() {
        address if address.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        address => address,
    })
}

/// Makes what every cluster has.
async fn first_objects(registry: &Registry) -> Result<(), ApiError> {
    let write = async {
        for name in SYSTEM_NAMESPACES {
            let namespace = json!({"metadata": {"name": name}});
            made(registry.create(&NAMESPACES, "", namespace, &WriteOptions::default()).await)?;
        }
        for (name, value) in SYSTEM_PRIORITIES {
            let what = if name == "system-node-critical" { "node" } else { "cluster" };
            let text = format!("Used for system critical pods that must run in the cluster on the {what}.");
            let class = json!({"metadata": {"name": name}, "value": value, "description": text});
            made(registry.create(&PRIORITYCLASSES, "", class, &WriteOptions::default()).await)?;
        }
        rbac::bootstrap::ensure(registry).await
    };
    match write.await {
        // Reads and deletes go on with what there is: that is how room is made.
        Err(error) if error.code == http::StatusCode::INSUFFICIENT_STORAGE => {
            tracing::warn!(%error, "the cluster's first objects could not be completed");
            Ok(())
        }
        other => other,
    }
}

/// What is there already stays as it is.
fn made(outcome: Result<Object, ApiError>) -> Result<(), ApiError> {
    match outcome {
        Err(error) if !error.is_already_exists() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
