//! Reads a kubeconfig and checks what it names.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::config::KubeConfigOptions;
use serde_json::Value;

use crate::pki::{CertificateFacts, PkiError, certificates_from_pem, private_key_from_pem};

/// A kubeconfig is small; anything larger is the wrong file.
const MAX_FILE: u64 = 4 << 20;

/// What makes a kubeconfig useless. Nothing of it heals by trying again, but the file may be replaced.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The file cannot be read.
    #[error("kubeconfig {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no YAML, or not of a kubeconfig's shape.
    #[error("kubeconfig {path}: {detail}", path = path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What and where.
        detail: String,
    },
    /// A field is missing or names what is not there.
    #[error("kubeconfig {path}: {field}: {detail}", path = path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field, e.g. `users[admin].user.client-key`.
        field: String,
        /// What is wrong.
        detail: String,
    },
    /// The client could not be made of it.
    #[error("kubeconfig {path}: {source}", path = path.display())]
    Client {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<kube::Error>,
    },
}

/// A certificate that is out of its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeconfigProblem {
    /// Over.
    Expired {
        /// Which field.
        field: String,
        /// Whose certificate.
        subject: String,
        /// Since when.
        not_after: Timestamp,
    },
    /// Not yet begun: most often the clock is wrong.
    NotYetValid {
        /// Which field.
        field: String,
        /// Whose certificate.
        subject: String,
        /// Until when.
        not_before: Timestamp,
    },
}

impl std::fmt::Display for KubeconfigProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Expired { field, subject, not_after } => {
                write!(f, "{field}: certificate {subject} expired at {not_after}")
            }
            Self::NotYetValid { field, subject, not_before } => {
                write!(f, "{field}: certificate {subject} is not valid before {not_before}; is the clock right?")
            }
        }
    }
}

/// A kubeconfig that can be used.
#[derive(Debug, Clone)]
pub struct Kubeconfig {
    path: PathBuf,
    server: http::Uri,
    config: kube::Config,
    authority: Option<Checked>,
    identity: Option<Checked>,
    problems: Vec<KubeconfigProblem>,
}

#[derive(Debug, Clone)]
pub(super) struct Checked {
    pub(super) field: String,
    pub(super) facts: CertificateFacts,
}

impl Kubeconfig {
    /// Reads and checks the file's current context.
    pub async fn load(path: &Path, now: Timestamp) -> Result<Self, KubeconfigError> {
        let text = read(path).await?;
        let parse = |detail: String| KubeconfigError::Parse { path: path.to_owned(), detail };
        let mut value = longshore_util::yaml::to_value(&text).map_err(|error| parse(error.to_string()))?;
        if !value.is_object() {
            return Err(parse("not a kubeconfig: want a mapping with clusters, users and contexts".to_owned()));
        }
        let reader = Reader { path, folder: path.parent().unwrap_or_else(|| Path::new("")) };
        let found = reader.check(&mut value).await?;
        let parsed: kube::config::Kubeconfig =
            serde_json::from_value(value).map_err(|error| parse(error.to_string()))?;
        let config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
            .await
            .map_err(|error| parse(error.to_string()))?;
        let problems =
            [&found.authority, &found.identity].into_iter().flatten().filter_map(|checked| problem(checked, now));
        Ok(Self {
            path: path.to_owned(),
            server: config.cluster_url.clone(),
            problems: problems.collect(),
            config,
            authority: found.authority,
            identity: found.identity,
        })
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the apiserver's address.
    pub fn server(&self) -> &http::Uri {
        &self.server
    }

    /// Returns what is wrong with the certificates' times.
    pub fn problems(&self) -> &[KubeconfigProblem] {
        &self.problems
    }

    /// Returns what the client certificate says, if there is one.
    pub fn identity(&self) -> Option<&CertificateFacts> {
        self.identity.as_ref().map(|checked| &checked.facts)
    }

    /// Returns the settings as `kube` has them.
    pub fn config(&self) -> &kube::Config {
        &self.config
    }

    pub(super) fn authority(&self) -> Option<&Checked> {
        self.authority.as_ref()
    }
}

fn problem(checked: &Checked, now: Timestamp) -> Option<KubeconfigProblem> {
    let CertificateFacts { subject, not_before, not_after, .. } = checked.facts.clone();
    let field = checked.field.clone();
    if now > not_after {
        return Some(KubeconfigProblem::Expired { field, subject, not_after });
    }
    (now < not_before).then_some(KubeconfigProblem::NotYetValid { field, subject, not_before })
}

async fn read(path: &Path) -> Result<String, KubeconfigError> {
    let whole = async {
        use tokio::io::AsyncReadExt as _;
        let mut text = String::new();
        tokio::fs::File::open(path).await?.take(MAX_FILE).read_to_string(&mut text).await?;
        Ok(text)
    };
    whole.await.map_err(|source| KubeconfigError::Read { path: path.to_owned(), source })
}

#[derive(Default)]
struct Found {
    authority: Option<Checked>,
    identity: Option<Checked>,
}

struct Reader<'a> {
    path: &'a Path,
    folder: &'a Path,
}

impl Reader<'_> {
    fn wrong(&self, field: &str, detail: impl Into<String>) -> KubeconfigError {
        KubeconfigError::Field { path: self.path.to_owned(), field: field.to_owned(), detail: detail.into() }
    }

    /// Follows the current context, makes the paths in it absolute and looks at the certificates.
    async fn check(&self, config: &mut Value) -> Result<Found, KubeconfigError> {
        let current = config.get("current-context").and_then(Value::as_str).unwrap_or_default().to_owned();
        if current.is_empty() {
            return Err(self.wrong("current-context", "is not set"));
        }
        let context = self.entry(config, "contexts", "context", &current, "current-context")?.clone();
        let context_field = format!("contexts[{current}].context");
        let cluster = context.get("cluster").and_then(Value::as_str).unwrap_or_default();
        let field = format!("clusters[{cluster}].cluster");
        let entry = self.entry(config, "clusters", "cluster", cluster, &format!("{context_field}.cluster"))?;
        self.server(entry, &format!("{field}.server"))?;
        let mut found = Found::default();
        if let Some((field, pem)) = self.material(entry, &field, "certificate-authority").await? {
            let certificates = certificates_from_pem(&pem, &field).map_err(|error| self.pki(&field, error))?;
            found.authority = self.facts(&field, &certificates)?;
        }
        let user = context.get("user").and_then(Value::as_str).unwrap_or_default();
        if user.is_empty() {
            return Ok(found);
        }
        let field = format!("users[{user}].user");
        let entry = self.entry(config, "users", "user", user, &format!("{context_field}.user"))?;
        let certificate = self.material(entry, &field, "client-certificate").await?;
        let key = self.material(entry, &field, "client-key").await?;
        let token_file = self.absolute(entry, "tokenFile");
        if let Some(path) = token_file {
            let read = tokio::fs::read(&path).await;
            read.map_err(|error| self.wrong(&format!("{field}.tokenFile"), format!("{}: {error}", path.display())))?;
        }
        match (certificate, key) {
            (None, None) => {}
            (Some((field, _)), None) => return Err(self.wrong(&field, "there is no client-key for it")),
            (None, Some((field, _))) => return Err(self.wrong(&field, "there is no client-certificate for it")),
            (Some((field, pem)), Some((key_field, key_pem))) => {
                let chain = certificates_from_pem(&pem, &field).map_err(|error| self.pki(&field, error))?;
                found.identity = self.facts(&field, &chain)?;
                let key = private_key_from_pem(&key_pem, &key_field).map_err(|error| self.pki(&key_field, error))?;
                rustls::sign::CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider()).map_err(
                    |error| match error {
                        rustls::Error::InconsistentKeys(_) => {
                            self.wrong(&key_field, format!("is not the key of {field}"))
                        }
                        error => self.wrong(&field, format!("cannot be used with its key: {error}")),
                    },
                )?;
            }
        }
        Ok(found)
    }

    fn entry<'v>(
        &self,
        config: &'v mut Value,
        list: &str,
        inner: &str,
        name: &str,
        named_by: &str,
    ) -> Result<&'v mut Value, KubeconfigError> {
        let entries = config.get_mut(list).and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default();
        entries
            .iter_mut()
            .find(|entry| entry.get("name").and_then(Value::as_str) == Some(name))
            .and_then(|entry| entry.get_mut(inner))
            .filter(|entry| entry.is_object())
            .ok_or_else(|| self.wrong(named_by, format!("{list} has no {name:?}")))
    }

    fn server(&self, cluster: &Value, field: &str) -> Result<(), KubeconfigError> {
        let server = cluster.get("server").and_then(Value::as_str).unwrap_or_default();
        if server.is_empty() {
            return Err(self.wrong(field, "is not set"));
        }
        let url: http::Uri = server.parse().map_err(|error| self.wrong(field, format!("{server:?}: {error}")))?;
        if !matches!(url.scheme_str(), Some("https" | "http")) || url.host().is_none_or(str::is_empty) {
            return Err(self.wrong(field, format!("{server:?}: want https://HOST:PORT")));
        }
        Ok(())
    }

    /// Returns field name and bytes of `NAME-data` or the file `NAME`.
    async fn material(
        &self,
        entry: &mut Value,
        field: &str,
        name: &str,
    ) -> Result<Option<(String, Vec<u8>)>, KubeconfigError> {
        if let Some(data) = entry.get(format!("{name}-data")).and_then(Value::as_str).filter(|data| !data.is_empty()) {
            let field = format!("{field}.{name}-data");
            let bytes = STANDARD.decode(data).map_err(|error| self.wrong(&field, format!("not base64: {error}")))?;
            return Ok(Some((field, bytes)));
        }
        let Some(path) = self.absolute(entry, name) else { return Ok(None) };
        let field = format!("{field}.{name}");
        let bytes =
            tokio::fs::read(&path).await.map_err(|error| self.wrong(&field, format!("{}: {error}", path.display())))?;
        Ok(Some((field, bytes)))
    }

    /// Paths in a kubeconfig are relative to the file, not to the process.
    fn absolute(&self, entry: &mut Value, name: &str) -> Option<PathBuf> {
        let value = entry.get_mut(name)?;
        let path = self.folder.join(value.as_str().filter(|path| !path.is_empty())?);
        *value = Value::String(path.to_str()?.to_owned());
        Some(path)
    }

    fn facts(
        &self,
        field: &str,
        certificates: &[rustls_pki_types::CertificateDer<'static>],
    ) -> Result<Option<Checked>, KubeconfigError> {
        let facts: Result<Vec<_>, _> = certificates.iter().map(|der| CertificateFacts::from_der(der)).collect();
        let facts = facts.map_err(|error| self.pki(field, error))?;
        // Of a bundle the one that lasts longest counts: an old authority may stay in it. A chain's leaf is first.
        let facts = if facts.first().is_some_and(|first| first.is_authority) {
            facts.into_iter().max_by_key(|facts| facts.not_after)
        } else {
            facts.into_iter().next()
        };
        Ok(facts.map(|facts| Checked { field: field.to_owned(), facts }))
    }

    fn pki(&self, field: &str, error: PkiError) -> KubeconfigError {
        let detail = match error {
            PkiError::Pem { detail, .. } => detail,
            error => error.to_string(),
        };
        self.wrong(field, detail)
    }
}
