//! Writes kubeconfig files in kubeadm's shape: one cluster, one user, everything inline.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::pki::{KeyedCertificate, PkiError, kubeadm, write_file};

/// What goes into a kubeconfig file.
#[derive(Debug, Clone)]
pub struct NewKubeconfig<'a> {
    /// The apiserver's URL.
    pub server: &'a str,
    /// PEM of the authority that signed the apiserver's certificate.
    pub authority_pem: &'a str,
    /// The user's name in the file, e.g. `kubernetes-admin`.
    pub user: &'a str,
    /// The user's certificate and key.
    pub identity: &'a KeyedCertificate,
}

impl NewKubeconfig<'_> {
    /// Returns the file's text.
    pub fn to_yaml(&self) -> String {
        let Self { server, user, .. } = self;
        let cluster = kubeadm::AUTHORITY_NAME;
        let authority = STANDARD.encode(self.authority_pem);
        let certificate = STANDARD.encode(&self.identity.certificate_pem);
        let key = STANDARD.encode(&self.identity.key_pem);
        format!(
            "apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: {authority}
    server: {server}
  name: {cluster}
contexts:
- context:
    cluster: {cluster}
    user: {user}
  name: {user}@{cluster}
current-context: {user}@{cluster}
kind: Config
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
"
        )
    }

    /// Writes the file, readable by its owner only.
    pub fn write(&self, path: &Path) -> Result<(), PkiError> {
        write_file(path, self.to_yaml().as_bytes(), kubeadm::KEY_MODE)
    }
}
