//! The plane's own keys and certificates, in a folder laid out as kubeadm lays it out, and the kubeconfigs made of them.
//!
//! What is missing is made, what ends soon or no longer fits is made anew, everything else is left as it is.
//! The authority and the service-account key are never replaced: all else hangs on them.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use longshore_transport::kubeconfig::NewKubeconfig;
use longshore_transport::pki::kubeadm::{
    APISERVER, APISERVER_KUBELET_CLIENT, AUTHORITY_NAME, AUTHORITY_VALIDITY, CA, CERTIFICATE_MODE, KEY_MODE,
    RENEW_WITHIN, SERVICE_ACCOUNT_KEY, SERVICE_ACCOUNT_PUBLIC_KEY,
};
use longshore_transport::pki::{
    Authority, CertificateFacts, KeyedCertificate, LeafRequest, PkiError, SubjectAltName, certificates_from_pem,
    kubeadm, public_key_pem, signing_key_pair, write_file,
};
use longshore_transport::tls::{ClientCa, TlsConfigError, is_trusted_server};
use longshore_util::clock::SharedClock;

use crate::apiserver::auth::{KeyError, SigningKey};

#[cfg(test)]
mod tests;

/// What stands in the way of the plane's keys and certificates.
#[derive(Debug, thiserror::Error)]
pub enum PlanePkiError {
    /// A file cannot be read or written, or holds nonsense.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The folder cannot be made.
    #[error("making {path}: {source}", path = path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// One half of a pair that is never replaced is missing.
    #[error("{missing} is missing beside {present}; hint: restore it, or remove both to start with new keys", missing = missing.display(), present = present.display())]
    Half {
        /// What is there.
        present: PathBuf,
        /// What is not.
        missing: PathBuf,
    },
    /// There is no such folder yet.
    #[error("{path} is not there; hint: start `longshore plane` or `longshore up` once, it makes the keys", path = path.display())]
    Absent {
        /// The file looked for.
        path: PathBuf,
    },
    /// The authority's time is over.
    #[error("the authority in {path} expired at {not_after}; hint: remove the pki folder to start with a new one", path = path.display())]
    Expired {
        /// Its file.
        path: PathBuf,
        /// When.
        not_after: Timestamp,
    },
    /// The service-account key is of no use.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The authority cannot be used for logins.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// Not a name for a node.
    #[error("{name:?} is no name for a node: {detail}")]
    NodeName {
        /// The name.
        name: String,
        /// Why not.
        detail: String,
    },
}

/// What the apiserver's certificate must be good for.
#[derive(Debug, Clone)]
pub struct ServerNames {
    /// Address of the `kubernetes` service.
    pub service: IpAddr,
    /// Domain of the cluster.
    pub domain: String,
    /// Everything else that clients call it by: addresses, host names.
    pub further: Vec<SubjectAltName>,
}

/// The plane's keys and certificates.
#[derive(Debug)]
pub struct PlanePki {
    folder: PathBuf,
    authority: Arc<Authority>,
    clock: SharedClock,
}

impl PlanePki {
    /// Opens the folder, makes what is missing and renews what ends soon. Blocks on the disk.
    pub fn prepare(folder: &Path, names: &ServerNames, clock: SharedClock) -> Result<Self, PlanePkiError> {
        std::fs::create_dir_all(folder).map_err(|source| PlanePkiError::Folder { path: folder.to_owned(), source })?;
        let certificate = folder.join(CA).with_extension("crt");
        let key = folder.join(CA).with_extension("key");
        // A first start that was cut short leaves the key alone, and nothing that hangs on it.
        let torn = key.exists() && !certificate.exists() && !folder.join(APISERVER).with_extension("crt").exists();
        if !torn && both(&certificate, &key)? {
            let pki = Self::open(folder, clock)?;
            pki.renew(names)?;
            return Ok(pki);
        }
        let authority = Arc::new(Authority::generate(AUTHORITY_NAME, AUTHORITY_VALIDITY, clock.now())?);
        write_pair(&certificate, &key, authority.keyed())?;
        let pki = Self { folder: folder.to_owned(), authority, clock };
        pki.renew(names)?;
        Ok(pki)
    }

    /// Opens a folder that [`Self::prepare`] has made. Blocks on the disk.
    pub fn open(folder: &Path, clock: SharedClock) -> Result<Self, PlanePkiError> {
        let now = clock.now();
        let certificate = folder.join(CA).with_extension("crt");
        let key = folder.join(CA).with_extension("key");
        if !both(&certificate, &key)? {
            return Err(PlanePkiError::Absent { path: certificate });
        }
        let authority = Arc::new(Authority::from_pem(&read(&certificate)?, &read(&key)?)?);
        let facts = CertificateFacts::from_der(authority.certificate())?;
        if now > facts.not_after {
            return Err(PlanePkiError::Expired { path: certificate, not_after: facts.not_after });
        }
        if facts.ends_within(RENEW_WITHIN, now) {
            tracing::warn!(path = %certificate.display(), not_after = %facts.not_after, "the authority ends soon");
        }
        Ok(Self { folder: folder.to_owned(), authority, clock })
    }

    /// Makes what is missing and renews what ends soon; returns whether anything was written. Blocks on the disk.
    pub fn renew(&self, names: &ServerNames) -> Result<bool, PlanePkiError> {
        let (private, public) = (self.folder.join(SERVICE_ACCOUNT_KEY), self.folder.join(SERVICE_ACCOUNT_PUBLIC_KEY));
        if private.exists() && !public.exists() {
            write_file(&public, public_key_pem(&read(&private)?)?.as_bytes(), KEY_MODE)?;
        } else if !both(&private, &public)? {
            let (private_pem, public_pem) = signing_key_pair()?;
            write_file(&private, private_pem.as_bytes(), KEY_MODE)?;
            write_file(&public, public_pem.as_bytes(), KEY_MODE)?;
        }
        let server = self.leaf(APISERVER, &kubeadm::apiserver(names.service, &names.domain, &names.further))?;
        let client = self.leaf(APISERVER_KUBELET_CLIENT, &kubeadm::apiserver_kubelet_client())?;
        Ok(server || client)
    }

    /// Leaves a good certificate alone and makes one otherwise; returns whether it did.
    fn leaf(&self, stem: &str, request: &LeafRequest) -> Result<bool, PlanePkiError> {
        let (certificate, key) = self.pair(stem);
        match self.check(&certificate, &key, request) {
            Ok(()) => Ok(false),
            Err(reason) => {
                tracing::info!(path = %certificate.display(), reason, "making a certificate");
                write_pair(&certificate, &key, &self.authority.issue(request, self.clock.now())?)?;
                Ok(true)
            }
        }
    }

    fn check(&self, certificate: &Path, key: &Path, request: &LeafRequest) -> Result<(), &'static str> {
        let now = self.clock.now();
        if !certificate.exists() && !key.exists() {
            return Err("there is none yet");
        }
        let unreadable = |_| "it cannot be read";
        let keyed = KeyedCertificate {
            certificate_pem: read(certificate).map_err(unreadable)?,
            key_pem: read(key).map_err(unreadable)?,
        };
        let chain = certificates_from_pem(keyed.certificate_pem.as_bytes(), "").map_err(unreadable)?;
        let leaf = chain.first().ok_or("it cannot be read")?;
        let facts = CertificateFacts::from_der(leaf).map_err(unreadable)?;
        if longshore_transport::tls::ReloadableCertificate::from_pem(&keyed).is_err() {
            return Err("its key is another's");
        }
        if facts.ends_within(RENEW_WITHIN, now) {
            return Err("it ends soon");
        }
        if facts.common_name != request.common_name || !facts.serves(&request.names) {
            return Err("it lacks names");
        }
        let ours = match request.names.first() {
            Some(SubjectAltName::Dns(name)) => is_trusted_server(self.authority.certificate(), leaf, name, now),
            Some(SubjectAltName::Ip(address)) => {
                is_trusted_server(self.authority.certificate(), leaf, &address.to_string(), now)
            }
            None => ClientCa::from_pem(self.authority_pem()).is_ok_and(|ca| ca.verify(&chain, now).is_ok()),
        };
        if ours { Ok(()) } else { Err("another authority signed it") }
    }

    fn pair(&self, stem: &str) -> (PathBuf, PathBuf) {
        (self.folder.join(format!("{stem}.crt")), self.folder.join(format!("{stem}.key")))
    }

    /// Returns the authority, to sign what clients ask for.
    pub fn authority(&self) -> Arc<Authority> {
        Arc::clone(&self.authority)
    }

    /// Returns the authority's certificate as PEM: what clients trust, and `kube-root-ca.crt` publishes.
    pub fn authority_pem(&self) -> &str {
        &self.authority.keyed().certificate_pem
    }

    /// Returns the files of the apiserver's serving certificate: certificate and key.
    pub fn serving_files(&self) -> (PathBuf, PathBuf) {
        self.pair(APISERVER)
    }

    /// Returns the client certificate with which the apiserver talks to nodes.
    pub fn kubelet_client(&self) -> Result<KeyedCertificate, PlanePkiError> {
        let (certificate, key) = self.pair(APISERVER_KUBELET_CLIENT);
        Ok(KeyedCertificate { certificate_pem: read(&certificate)?, key_pem: read(&key)? })
    }

    /// Returns the judge of client certificates.
    pub fn client_ca(&self) -> Result<Arc<ClientCa>, PlanePkiError> {
        Ok(Arc::new(ClientCa::from_pem(self.authority_pem())?))
    }

    /// Returns the key that signs service-account tokens.
    pub fn service_account_key(&self) -> Result<SigningKey, PlanePkiError> {
        let private = read(&self.folder.join(SERVICE_ACCOUNT_KEY))?;
        let public = read(&self.folder.join(SERVICE_ACCOUNT_PUBLIC_KEY))?;
        Ok(SigningKey::from_pem(&private, &public)?)
    }

    /// Returns a kubeconfig with an administrator's rights, as a YAML text.
    pub fn admin_kubeconfig(&self, server: &str) -> Result<String, PlanePkiError> {
        let identity = self.authority.issue(&kubeadm::admin(), self.clock.now())?;
        Ok(self.kubeconfig(server, "kubernetes-admin", &identity))
    }

    /// Returns a kubeconfig with the rights of one node's agent, as a YAML text.
    pub fn node_kubeconfig(&self, name: &str, server: &str) -> Result<String, PlanePkiError> {
        check_node_name(name)?;
        let identity = self.authority.issue(&kubeadm::node(name), self.clock.now())?;
        Ok(self.kubeconfig(server, &format!("system:node:{name}"), &identity))
    }

    /// Makes a serving certificate for a node's port; with it the apiserver can check whom it talks to.
    pub fn node_server(&self, name: &str, names: Vec<SubjectAltName>) -> Result<KeyedCertificate, PlanePkiError> {
        check_node_name(name)?;
        Ok(self.authority.issue(&kubeadm::node_server(name, names), self.clock.now())?)
    }

    fn kubeconfig(&self, server: &str, user: &str, identity: &KeyedCertificate) -> String {
        NewKubeconfig { server, authority_pem: self.authority_pem(), user, identity }.to_yaml()
    }
}

/// Writes a kubeconfig, readable by its owner only.
pub fn write_kubeconfig(path: &Path, text: &str) -> Result<(), PlanePkiError> {
    Ok(write_file(path, text.as_bytes(), KEY_MODE)?)
}

fn check_node_name(name: &str) -> Result<(), PlanePkiError> {
    match longshore_api::names::dns1123_subdomain(name).into_iter().next() {
        None => Ok(()),
        Some(detail) => Err(PlanePkiError::NodeName { name: name.to_owned(), detail }),
    }
}

/// Whether both files of a pair are there; one alone is an error.
fn both(first: &Path, second: &Path) -> Result<bool, PlanePkiError> {
    match (first.exists(), second.exists()) {
        (true, true) => Ok(true),
        (false, false) => Ok(false),
        (true, false) => Err(PlanePkiError::Half { present: first.to_owned(), missing: second.to_owned() }),
        (false, true) => Err(PlanePkiError::Half { present: second.to_owned(), missing: first.to_owned() }),
    }
}

fn write_pair(certificate: &Path, key: &Path, keyed: &KeyedCertificate) -> Result<(), PkiError> {
    write_file(key, keyed.key_pem.as_bytes(), KEY_MODE)?;
    write_file(certificate, keyed.certificate_pem.as_bytes(), CERTIFICATE_MODE)
}

fn read(path: &Path) -> Result<String, PkiError> {
    std::fs::read_to_string(path).map_err(|source| PkiError::Read { path: path.to_owned(), source })
}
