//! Flags that put the plane's objects into etcd; names and defaults are kube-apiserver's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use longshore_plane::store::EtcdOptions;
use longshore_transport::pki::KeyedCertificate;
use longshore_transport::tls::{ServerTrust, client_config, install_provider};
use longshore_util::clock::SystemClock;

use crate::app::fail::Usage;

/// Where etcd is and how to log in.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// Keep objects in etcd: URLs of its members, separated by commas
    #[arg(long, value_name = "URL,...", value_delimiter = ',')]
    etcd_servers: Vec<String>,
    /// All keys in etcd begin with this
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    etcd_prefix: String,
    /// Authorities that may have signed etcd's certificate
    #[arg(long, value_name = "FILE")]
    etcd_cafile: Option<PathBuf>,
    /// Certificate to log in to etcd with
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    etcd_certfile: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
    /// Drop etcd's history when it is older than this many seconds; 0 leaves that to others
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    etcd_compaction_interval: u64,
}

impl Flags {
    /// Returns the store's options, or none if objects stay in the data dir.
    pub(super) fn options(&self) -> Result<Option<EtcdOptions>> {
        if self.etcd_servers.is_empty() {
            if self.etcd_cafile.is_some() || self.etcd_certfile.is_some() {
                return Err(Usage("--etcd-cafile and --etcd-certfile want --etcd-servers".to_owned()).into());
            }
            return Ok(None);
        }
        let tls = match &self.etcd_cafile {
            Some(authorities) => {
                install_provider();
                let identity = match (&self.etcd_certfile, &self.etcd_keyfile) {
                    (Some(certificate), Some(key)) => {
                        Some(KeyedCertificate { certificate_pem: read(certificate)?, key_pem: read(key)? })
                    }
                    _ => None,
                };
                let trust = ServerTrust::Authorities(read(authorities)?);
                Some(client_config(&trust, identity.as_ref()).context("TLS towards etcd")?)
            }
            None => None,
        };
        let age = Duration::from_secs(self.etcd_compaction_interval);
        Ok(Some(EtcdOptions {
            tls,
            prefix: self.etcd_prefix.clone(),
            compaction: (!age.is_zero()).then_some(age),
            ..EtcdOptions::new(self.etcd_servers.clone(), Arc::new(SystemClock))
        }))
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}
