//! Logins for registries: where they come from, which of them are for an image, and in which order they are tried.

mod config;
mod files;
mod place;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use longshore_cri::v1;
use longshore_util::hex;
use sha2::{Digest as _, Sha256};

pub(crate) use config::Places;
pub use files::NodeFiles;
pub(crate) use place::{covers, normalise};

/// Docker clients keep the login of the default registry under this name.
const DEFAULT_PLACE: &str = "index.docker.io";
const DEFAULT_DOMAIN: &str = "docker.io/";

/// An object of the API, named so that another one of the same name later is not taken for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// Its uid.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Whose login it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// The node's: every pod may use it.
    Node,
    /// A pull secret's.
    Secret(Origin),
    /// One that a plugin gave for a pod's service account.
    ServiceAccount(Origin),
}

/// A login and whose it is. `Debug` shows no secret.
#[derive(Debug, Clone, PartialEq)]
pub struct Login {
    /// What the registry is told.
    pub auth: v1::AuthConfig,
    /// Where it comes from.
    pub source: Source,
}

impl Login {
    /// SHA-256 of the login in upstream's JSON form, in hex: tells in records that two secrets hold the same.
    pub(crate) fn hash(&self) -> String {
        #[derive(serde::Serialize)]
        struct Form<'a> {
            #[serde(skip_serializing_if = "str::is_empty")]
            username: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            password: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            auth: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            serveraddress: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            identitytoken: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            registrytoken: &'a str,
        }
        let auth = &self.auth;
        let form = Form {
            username: &auth.username,
            password: &auth.password,
            auth: &auth.auth,
            serveraddress: &auth.server_address,
            identitytoken: &auth.identity_token,
            registrytoken: &auth.registry_token,
        };
        hex::encode(&Sha256::digest(serde_json::to_vec(&form).unwrap_or_default()))
    }
}

/// Logins by place; the most specific place is tried first.
#[derive(Debug, Default)]
pub(crate) struct Keyring(BTreeMap<String, Vec<Login>>);

impl Keyring {
    /// Puts logins in; one that is there already is not doubled.
    pub(crate) fn add(&mut self, places: Places, source: &Source) {
        for (place, auth) in places {
            let known = self.0.entry(normalise(&place)).or_default();
            let login = Login { auth, source: source.clone() };
            if !known.contains(&login) {
                known.push(login);
            }
        }
    }

    /// The logins for a repository such as `docker.io/library/busybox`, in the order in which they are tried.
    pub(crate) fn find(&self, repository: &str) -> Vec<Login> {
        // Longer names sort behind their beginnings, so that backwards the more specific ones come first.
        let fitting = self.0.iter().rev().filter(|(place, _)| covers(place, repository));
        let found: Vec<Login> = fitting.flat_map(|(_, logins)| logins.iter().cloned()).collect();
        if found.is_empty() && repository.starts_with(DEFAULT_DOMAIN) {
            return self.0.get(DEFAULT_PLACE).cloned().unwrap_or_default();
        }
        found
    }
}

/// The logins in a pull secret; the error says why it is of no use.
pub(crate) fn of_secret(secret: &Secret) -> Result<Places, String> {
    let data = |key: &str| {
        let found = secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.as_slice());
        found.ok_or_else(|| format!("it has no {key}"))
    };
    match secret.type_.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => config::config_json(data(".dockerconfigjson")?),
        Some("kubernetes.io/dockercfg") => config::dockercfg(data(".dockercfg")?),
        other => Err(format!("type {:?} holds no logins", other.unwrap_or("Opaque"))),
    }
}

/// Who a secret is.
pub(crate) fn origin(secret: &Secret) -> Origin {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let meta = &secret.metadata;
    Origin { uid: text(&meta.uid), namespace: text(&meta.namespace), name: text(&meta.name) }
}
