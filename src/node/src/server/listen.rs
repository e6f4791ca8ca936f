//! Takes the ports and serves on them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longshore_transport::serve::{self, ServeOptions, StrangerLimits};
use longshore_transport::tls::{
    ClientCa, ClientCertificates, ReloadableCertificate, ServerTls, TlsConfigError, server_config,
};
use longshore_util::Tasks;
use tokio_util::sync::CancellationToken;

use super::authn::Login;
use super::authz::Rights;
use super::router::{self, Shared};
use super::{HealthChecks, ServerDeps, ServerOptions, StartError, certificate};

/// How often certificate files are looked at.
const RELOAD: Duration = Duration::from_secs(60);
/// The health port is tried again this often.
const RELISTEN: Duration = Duration::from_secs(5);
const LEAST_WATCHDOG: Duration = Duration::from_secs(1);
const MAX_CONNECTIONS: usize = 512;
/// Whoever has not logged in must not keep out who has.
const STRANGERS: StrangerLimits = StrangerLimits { most: 64, first_request: Duration::from_secs(10) };
const MAX_HEALTH_CONNECTIONS: usize = 32;

/// The running server.
#[derive(Debug, Clone)]
pub struct ServerHandle {
    address: SocketAddr,
}

impl ServerHandle {
    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Starts the main port. A port that is taken or a certificate that cannot be read is an error at once.
pub async fn start(options: ServerOptions, deps: ServerDeps, tasks: &Tasks) -> Result<ServerHandle, StartError> {
    longshore_transport::tls::install_provider();
    let login = Login::new(&options, deps.client.clone(), deps.clock.clone())?;
    let rights = Rights::new(&options, deps.client.clone())?;
    let certificate = {
        let (options, clock) = (options.clone(), deps.clock.clone());
        let made = tokio::task::spawn_blocking(move || certificate::serving(&options, &clock)).await;
        made.map_err(|error| StartError::Thread(std::io::Error::other(error)))??
    };
    let client_ca = login.client_ca();
    let tls = ServerTls {
        client_certificates: if client_ca.is_some() { ClientCertificates::Requested } else { ClientCertificates::None },
        min_version: options.min_version,
        cipher_suites: options.cipher_suites.clone(),
        http2: true,
    };
    let config = server_config(Arc::clone(&certificate), &tls)?;
    let listener = serve::bind(options.bind).await?;
    let address = listener.local_addr().map_err(|source| serve::BindError::Listen { address: options.bind, source })?;
    tasks.essential("certificate-reload", reload(certificate, client_ca, tasks.token().clone()));
    let shared = Arc::new(Shared { options, deps, login, rights, tasks: tasks.clone() });
    let limits =
        ServeOptions { max_connections: MAX_CONNECTIONS, strangers: Some(STRANGERS), ..ServeOptions::default() };
    serve::serve("kubelet-server", listener, Some(config), router::build(shared), limits, tasks);
    tracing::info!(%address, "serving the node's API");
    Ok(ServerHandle { address })
}

async fn reload(certificate: Arc<ReloadableCertificate>, client_ca: Option<Arc<ClientCa>>, token: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            () = tokio::time::sleep(RELOAD) => {}
        }
        note("serving certificate", certificate.reload());
        if let Some(client_ca) = &client_ca {
            note("client authority", client_ca.reload());
        }
    }
}

fn note(what: &str, result: Result<bool, TlsConfigError>) {
    match result {
        Ok(true) => tracing::info!(what, "read anew"),
        Ok(false) => {}
        Err(error) => tracing::warn!(what, %error, "cannot be read anew; the old one stays"),
    }
}

/// Starts the health port on a thread and a runtime of its own; a port that is taken is tried again and again.
pub fn start_health(bind: SocketAddr, checks: HealthChecks, tasks: &Tasks) -> Result<(), StartError> {
    let token = tasks.token().clone();
    let body = move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, "health server not started");
                return;
            }
        };
        runtime.block_on(async {
            tokio::join!(watchdog(checks.clone(), token.clone()), listen_for_health(bind, checks, token))
        });
    };
    let thread = std::thread::Builder::new().name("health".to_owned()).stack_size(512 * 1024).spawn(body);
    thread.map(drop).map_err(StartError::Thread)
}

/// Tells the service manager that all is well, if it watches; it restarts the agent when that stays away.
async fn watchdog(checks: HealthChecks, token: CancellationToken) {
    let Some(limit) = longshore_host::notify::watchdog() else { return };
    if limit <= LEAST_WATCHDOG {
        tracing::warn!(?limit, "the service manager's watchdog is too eager to be served; set WatchdogSec above 1 s");
        return;
    }
    loop {
        if checks.is_well() {
            longshore_host::notify::alive();
        }
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            () = tokio::time::sleep(limit / 2) => {}
        }
    }
}

async fn listen_for_health(bind: SocketAddr, checks: HealthChecks, token: CancellationToken) {
    let mut warned = false;
    loop {
        match serve::bind(bind).await {
            Ok(listener) => {
                tracing::debug!(address = %bind, "serving health");
                // A tree of its own: its tasks live on this thread's runtime.
                let tasks = Tasks::new();
                let limits = ServeOptions { max_connections: MAX_HEALTH_CONNECTIONS, ..ServeOptions::default() };
                serve::serve("health-server", listener, None, router::health(checks), limits, &tasks);
                token.cancelled().await;
                tasks.cancel();
                let _late = tokio::time::timeout(Duration::from_secs(1), tasks.join()).await;
                return;
            }
            Err(error) if !warned => {
                warned = true;
                tracing::warn!(%error, "health port not to be had; trying again");
            }
            Err(_) => {}
        }
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            () = tokio::time::sleep(RELISTEN) => {}
        }
    }
}
