//! What the effective configuration says about the servers.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_transport::tls::MinVersion;
use longshore_util::Tasks;

use super::{
    AuthorizationMode, HealthCheck, HealthChecks, ServerDeps, ServerHandle, ServerOptions, StartError, start,
    start_health,
};
use crate::settings::Settings;

impl ServerOptions {
    /// The main server's settings; `None` when it is turned off. `addresses` are named in a self-signed certificate.
    pub fn from_settings(settings: &Settings, node: &str, addresses: Vec<IpAddr>) -> Option<Self> {
        let config = &settings.config;
        let port = u16::try_from(config.port).ok().filter(|port| *port != 0)?;
        if !config.enable_server {
            return None;
        }
        let files = Some((PathBuf::from(&config.tls_cert_file), PathBuf::from(&config.tls_private_key_file)));
        let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        let webhook = &config.authorization.webhook;
        Some(Self {
            node: node.to_owned(),
            bind: SocketAddr::new(address(&config.address), port),
            certificate_files: files.filter(|(certificate, _)| !certificate.as_os_str().is_empty()),
            cert_dir: PathBuf::from(&settings.process.cert_dir),
            addresses,
            // Below 1.2 there is nothing in this TLS library, and nothing that should be.
            min_version: if config.tls_min_version == "VersionTLS13" { MinVersion::Tls13 } else { MinVersion::Tls12 },
            cipher_suites: config.tls_cipher_suites.clone(),
            client_ca_file: path(&config.authentication.x509.client_ca_file),
            token_webhook: config.authentication.webhook.enabled,
            token_ttl: config.authentication.webhook.cache_ttl.as_std(),
            anonymous: config.authentication.anonymous.enabled,
            authorization: match config.authorization.mode.as_str() {
                "AlwaysAllow" => AuthorizationMode::AlwaysAllow,
                _ => AuthorizationMode::Webhook,
            },
            allow_ttl: webhook.cache_authorized_ttl.as_std(),
            deny_ttl: webhook.cache_unauthorized_ttl.as_std(),
            debugging_handlers: config.enable_debugging_handlers,
            stream_idle: config.streaming_connection_idle_timeout.as_std(),
            config: Arc::new(config.to_value()),
        })
    }
}

/// Starts what the configuration asks for: the health port first, so that it answers from the beginning.
pub async fn start_configured(
    settings: &Settings,
    node: &str,
    addresses: Vec<IpAddr>,
    deps: ServerDeps,
    tasks: &Tasks,
) -> Result<Option<ServerHandle>, StartError> {
    if let Some(bind) = health_address(settings) {
        start_health(bind, deps.health.clone(), tasks)?;
    }
    match ServerOptions::from_settings(settings, node, addresses) {
        Some(options) => start(options, deps, tasks).await.map(Some),
        None => Ok(None),
    }
}

/// The checks of `/healthz`; `syncloop` fails when the agent's runtime stands still for longer than upstream allows.
pub fn configured_checks(settings: &Settings, tasks: &Tasks) -> HealthChecks {
    const LEAST: Duration = Duration::from_secs(300);
    let limit = settings.config.sync_frequency.as_std().saturating_mul(2).max(LEAST);
    HealthChecks::new([HealthCheck::beat(tasks, limit)])
}

/// Where health is served; `None` when it is turned off.
pub fn health_address(settings: &Settings) -> Option<SocketAddr> {
    let port = u16::try_from(settings.config.healthz_port).ok().filter(|port| *port != 0)?;
    Some(SocketAddr::new(address(&settings.config.healthz_bind_address), port))
}

/// Validation has seen to it that it is an address.
fn address(text: &str) -> IpAddr {
    text.parse().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
}

#[cfg(test)]
mod tests {
    use longshore_api::flags;

    use super::*;
    use crate::settings;

    #[test]
    fn a_configuration_file_closes_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nport: 20250\nhealthzPort: 20248\n\
            tlsMinVersion: VersionTLS13\nauthentication:\n  x509:\n    clientCAFile: ca.crt\n";
        std::fs::write(&path, text).unwrap();
        let arguments = [format!("--config={}", path.display()), "--cert-dir=/pki".to_owned()];
        let settings = settings::load(&flags::parse(arguments).unwrap()).unwrap();
        let options = ServerOptions::from_settings(&settings, "n", Vec::new()).unwrap();
        assert_eq!(options.bind.to_string(), "0.0.0.0:20250");
        assert_eq!(options.client_ca_file, Some(dir.path().join("ca.crt")));
        assert!(options.token_webhook && !options.anonymous && options.certificate_files.is_none());
        assert_eq!((options.authorization, options.min_version), (AuthorizationMode::Webhook, MinVersion::Tls13));
        assert_eq!(options.cert_dir, PathBuf::from("/pki"));
        assert_eq!(
            (options.token_ttl.as_secs(), options.allow_ttl.as_secs(), options.deny_ttl.as_secs()),
            (120, 300, 30)
        );
        assert_eq!(options.config["kind"], "KubeletConfiguration");
        assert_eq!(health_address(&settings).unwrap().to_string(), "127.0.0.1:20248");
        // Without a file the stock agent is open, and so is this one.
        let settings = settings::load(&flags::parse([""; 0]).unwrap()).unwrap();
        let options = ServerOptions::from_settings(&settings, "n", Vec::new()).unwrap();
        assert!(options.anonymous && options.authorization == AuthorizationMode::AlwaysAllow);
    }
}
