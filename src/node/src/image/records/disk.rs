//! The records as files, under upstream's names and in upstream's form: a stock agent on the same root reads ours, and we
//! read its. Blocking.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use longshore_util::atomic::{self, AtomicWriteError};
use longshore_util::hex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// Older agents wrote this one; the content is the same.
const OLDER_VERSION: &str = "kubelet.config.k8s.io/v1alpha1";
const INTENT: &str = "ImagePullIntent";
const PULLED: &str = "ImagePulledRecord";
/// A record holds some names and hashes.
const LIMIT: u64 = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SecretEntry {
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) credential_hash: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct AccountEntry {
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) name: String,
}

/// With what an image was pulled under one of its names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Credentials {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) kubernetes_secrets: Vec<SecretEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) kubernetes_service_accounts: Vec<AccountEntry>,
    /// It was pulled without a login or with one of the node: every pod may use it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) node_pods_accessible: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pulled {
    kind: String,
    api_version: String,
    pub(super) last_updated_time: String,
    pub(super) image_ref: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) credential_mapping: BTreeMap<String, Credentials>,
}

impl Pulled {
    pub(super) fn new(image_ref: &str) -> Self {
        Self {
            kind: PULLED.to_owned(),
            api_version: VERSION.to_owned(),
            last_updated_time: String::new(),
            image_ref: image_ref.to_owned(),
            credential_mapping: BTreeMap::new(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Intent {
    kind: String,
    api_version: String,
    image: String,
}

/// The two folders.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    pulling: PathBuf,
    pulled: PathBuf,
}

impl Disk {
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let base = root.join("image_manager");
        let this = Self { pulling: base.join("pulling"), pulled: base.join("pulled") };
        for folder in [&this.pulling, &this.pulled] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        Ok(this)
    }

    /// Images whose pull was begun.
    pub(super) fn intents(&self) -> Vec<String> {
        read::<Intent>(&self.pulling, INTENT).into_iter().map(|intent| intent.image).collect()
    }

    /// What was pulled.
    pub(super) fn records(&self) -> Vec<Pulled> {
        let mut found = read::<Pulled>(&self.pulled, PULLED);
        for record in &mut found {
            VERSION.clone_into(&mut record.api_version);
        }
        found
    }

    pub(super) fn write_intent(&self, image: &str) -> Result<(), AtomicWriteError> {
        let intent = Intent { kind: INTENT.to_owned(), api_version: VERSION.to_owned(), image: image.to_owned() };
        write(&self.pulling.join(name(image)), &intent)
    }

    pub(super) fn remove_intent(&self, image: &str) {
        remove(&self.pulling.join(name(image)));
    }

    pub(super) fn write(&self, record: &Pulled) -> Result<(), AtomicWriteError> {
        write(&self.pulled.join(name(&record.image_ref)), record)
    }

    pub(super) fn remove(&self, image_ref: &str) {
        remove(&self.pulled.join(name(image_ref)));
    }
}

fn name(text: &str) -> String {
    format!("sha256-{}", hex::encode(&Sha256::digest(text.as_bytes())))
}

fn write(path: &Path, value: &impl Serialize) -> Result<(), AtomicWriteError> {
    atomic::write(path, &serde_json::to_vec(value).unwrap_or_default(), 0o600)
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "record of a pull cannot be removed");
    }
}

/// All records of a folder that can be read; one that cannot is told and left alone.
fn read<T: DeserializeOwned>(folder: &Path, kind: &str) -> Vec<T> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(path = %folder.display(), %error, "records of pulls cannot be read");
            return Vec::new();
        }
    };
    let files = entries.flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("sha256-") && !name.ends_with(".tmp")
    };
    let parse = |path: &Path| -> Result<T, String> {
        let meta = std::fs::metadata(path).map_err(|error| error.to_string())?;
        if meta.len() > LIMIT {
            return Err("too big".to_owned());
        }
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        let (found, version) = (value["kind"].as_str(), value["apiVersion"].as_str());
        if found != Some(kind) || !matches!(version, Some(VERSION | OLDER_VERSION)) {
            return Err(format!("it is {} {}", version.unwrap_or_default(), found.unwrap_or_default()));
        }
        serde_json::from_value(value).map_err(|error| error.to_string())
    };
    let told = |path: PathBuf| match parse(&path) {
        Ok(record) => Some(record),
        Err(error) => {
            tracing::warn!(path = %path.display(), error, "record of a pull is not understood");
            None
        }
    };
    files.filter(named).filter_map(told).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn files_have_upstreams_names_form_and_mode() {
        let root = tempfile::tempdir().unwrap();
        let disk = Disk::open(root.path()).unwrap();
        disk.write_intent("reg/a:1").unwrap();
        // sha256 of "reg/a:1"
        let path = root
            .path()
            .join("image_manager/pulling/sha256-333d36aee1bdb1fef6b37c3a2323ea234284c65244ef8c93cfb4e66151eae362");
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            r#"{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"reg/a:1"}"#
        );
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(disk.intents(), ["reg/a:1"]);
        disk.remove_intent("reg/a:1");
        disk.remove_intent("reg/a:1");
        assert!(disk.intents().is_empty());
    }

    #[test]
    fn a_record_comes_back_and_what_is_none_is_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let disk = Disk::open(root.path()).unwrap();
        let mut record = Pulled::new("sha256:1");
        record.last_updated_time = "2026-01-01T00:00:00Z".to_owned();
        let secret =
            SecretEntry { uid: "u".into(), namespace: "n".into(), name: "s".into(), credential_hash: "h".into() };
        let known = Credentials { kubernetes_secrets: vec![secret], ..Credentials::default() };
        record.credential_mapping.insert("reg/a".to_owned(), known);
        disk.write(&record).unwrap();
        let folder = root.path().join("image_manager/pulled");
        for (name, text) in
            [("sha256-1", "broken"), ("sha256-2", r#"{"kind":"Pod","apiVersion":"v1"}"#), ("other", "x")]
        {
            std::fs::write(folder.join(name), text).unwrap();
        }
        assert_eq!(disk.records(), std::slice::from_ref(&record));
        let text = std::fs::read_to_string(folder.join(name("sha256:1"))).unwrap();
        assert_eq!(
            text,
            r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2026-01-01T00:00:00Z","imageRef":"sha256:1","credentialMapping":{"reg/a":{"kubernetesSecrets":[{"uid":"u","namespace":"n","name":"s","credentialHash":"h"}]}}}"#
        );
        let older = text.replace("v1beta1", "v1alpha1");
        std::fs::write(folder.join(name("sha256:1")), older).unwrap();
        assert_eq!(disk.records(), [record]);
    }
}
