//! `CredentialProviderConfig`: which programs hand out logins, for which images, and how they are spoken to.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore_api::duration::GoDuration;
use longshore_util::{hex, yaml};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::image::login::normalise;

const GROUP: &str = "kubelet.config.k8s.io/";
const WIRE: &str = "credentialprovider.kubelet.k8s.io/";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// A configuration that cannot be used; the agent does not start with it.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// A file or folder cannot be read.
    #[error("credential provider configuration {path}: {source}")]
    Read {
        /// What.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("credential provider configuration {path}: {message}")]
    Content {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A program is not there.
    #[error("credential provider {name}: no program {path}: {source}")]
    Program {
        /// The provider.
        name: String,
        /// Where it was looked for.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// One of the two flags is missing.
    #[error("--image-credential-provider-config and --image-credential-provider-bin-dir go together, {0} is not given")]
    Half(&'static str),
}

/// How a token reaches a program.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TokenAttributes {
    #[serde(default)]
    pub(super) service_account_token_audience: String,
    /// `Token` or `ServiceAccount`.
    #[serde(default)]
    pub(super) cache_type: String,
    pub(super) require_service_account: Option<bool>,
    #[serde(default)]
    pub(super) required_service_account_annotation_keys: Vec<String>,
    #[serde(default)]
    pub(super) optional_service_account_annotation_keys: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variable {
    pub(super) name: String,
    #[serde(default)]
    pub(super) value: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    name: String,
    #[serde(default)]
    match_images: Vec<String>,
    default_cache_duration: Option<GoDuration>,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    args: Option<Vec<String>>,
    #[serde(default)]
    env: Option<Vec<Variable>>,
    token_attributes: Option<TokenAttributes>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    providers: Vec<Entry>,
}

/// One program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProviderConfig {
    pub(super) name: String,
    /// Normalised places.
    pub(super) images: Vec<String>,
    pub(super) cache: Duration,
    /// `apiVersion` of request and answer.
    pub(super) wire: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<Variable>,
    pub(super) token: Option<TokenAttributes>,
}

/// Reads a file, or all such files of a folder in the order of their names; also tells a hash of what was read.
pub(super) fn read(path: &Path, tokens: bool) -> Result<(Vec<ProviderConfig>, String), ProviderError> {
    let mut hash = Sha256::new();
    let mut found: Vec<ProviderConfig> = Vec::new();
    let mut names = BTreeSet::new();
    for file in files(path)? {
        let bytes = std::fs::read(&file).map_err(|source| ProviderError::Read { path: file.clone(), source })?;
        hash.update(&bytes);
        let content = |message| ProviderError::Content { path: file.clone(), message };
        let text = String::from_utf8(bytes).map_err(|error| content(error.to_string()))?;
        for provider in parse(&text, tokens).map_err(content)? {
            if !names.insert(provider.name.clone()) {
                return Err(content(format!("duplicate provider name {:?}", provider.name)));
            }
            found.push(provider);
        }
    }
    Ok((found, format!("sha256:{}", hex::encode(&hash.finalize()))))
}

fn files(path: &Path) -> Result<Vec<PathBuf>, ProviderError> {
    let failed = |source| ProviderError::Read { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let named = file.extension().and_then(|extension| extension.to_str());
        if matches!(named, Some("json" | "yaml" | "yml")) && file.is_file() {
            found.push(file);
        }
    }
    if found.is_empty() {
        let message = "no configuration files (.json, .yaml, .yml) in this directory".to_owned();
        return Err(ProviderError::Content { path: path.to_owned(), message });
    }
    found.sort();
    Ok(found)
}

fn parse(text: &str, tokens: bool) -> Result<Vec<ProviderConfig>, String> {
    let value = yaml::to_value(text).map_err(|error| error.to_string())?;
    let file: File = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let version = file.api_version.strip_prefix(GROUP).filter(|version| VERSIONS.contains(version));
    let Some(version) = version.filter(|_| file.kind == "CredentialProviderConfig") else {
        return Err(format!("{} {} is no {GROUP}v1 CredentialProviderConfig", file.api_version, file.kind));
    };
    if file.providers.is_empty() {
        return Err("providers: Required value: at least 1 item in plugins is required".to_owned());
    }
    let mut faults = Vec::new();
    for (index, entry) in file.providers.iter().enumerate() {
        let found = check(entry, version, tokens).into_iter();
        faults.extend(found.map(|fault| format!("providers[{index}].{fault}")));
    }
    if !faults.is_empty() {
        return Err(faults.join("; "));
    }
    Ok(file.providers.into_iter().map(take).collect())
}

fn take(entry: Entry) -> ProviderConfig {
    let nanos = entry.default_cache_duration.map_or(0, GoDuration::nanos);
    ProviderConfig {
        name: entry.name,
        images: entry.match_images.iter().map(|place| normalise(place)).collect(),
        cache: Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)),
        wire: entry.api_version,
        args: entry.args.unwrap_or_default(),
        env: entry.env.unwrap_or_default(),
        token: entry.token_attributes,
    }
}

fn check(entry: &Entry, version: &str, tokens: bool) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |text: &str| faults.push(text.to_owned());
    let name = entry.name.as_str();
    if name.is_empty() {
        fault("name: Required value");
    } else if name.contains(['/', ' ']) || matches!(name, "." | "..") {
        fault("name: Invalid value: provider name cannot contain path separators or spaces, nor be '.' or '..'");
    }
    match entry.api_version.strip_prefix(WIRE) {
        Some(wire) if VERSIONS.contains(&wire) => {}
        _ if entry.api_version.is_empty() => fault("apiVersion: Required value"),
        _ => fault("apiVersion: Unsupported value"),
    }
    if entry.match_images.is_empty() {
        fault("matchImages: Required value: at least 1 item in matchImages is required");
    }
    if entry.match_images.iter().any(|image| image.is_empty() || image.contains(char::is_whitespace)) {
        fault("matchImages: Invalid value: an item cannot be parsed");
    }
    match entry.default_cache_duration {
        None => fault("defaultCacheDuration: Required value"),
        Some(duration) if duration.nanos() < 0 => {
            fault("defaultCacheDuration: Invalid value: must be greater than or equal to 0");
        }
        Some(_) => {}
    }
    let Some(token) = &entry.token_attributes else { return faults };
    let mut fault = |text: &str| faults.push(format!("tokenAttributes{text}"));
    if !tokens {
        fault(": Forbidden: needs the feature gate KubeletServiceAccountTokenForCredentialProviders");
    }
    if version != "v1" || entry.api_version != format!("{WIRE}v1") {
        fault(": Forbidden: only with apiVersion v1 of file and provider");
    }
    if token.service_account_token_audience.is_empty() {
        fault(".serviceAccountTokenAudience: Required value");
    }
    if !matches!(token.cache_type.as_str(), "Token" | "ServiceAccount") {
        fault(".cacheType: Unsupported value: must be Token or ServiceAccount");
    }
    if token.require_service_account.is_none() {
        fault(".requireServiceAccount: Required value");
    }
    let (required, optional) =
        (&token.required_service_account_annotation_keys, &token.optional_service_account_annotation_keys);
    if token.require_service_account == Some(false) && !required.is_empty() {
        fault(".requiredServiceAccountAnnotationKeys: Forbidden: only when requireServiceAccount is true");
    }
    let all: Vec<&String> = required.iter().chain(optional).collect();
    if all.iter().collect::<BTreeSet<_>>().len() != all.len() {
        fault(".requiredServiceAccountAnnotationKeys: Invalid value: a key stands twice");
    }
    if all.iter().any(|key| !longshore_api::names::qualified_name(key).is_empty()) {
        fault(".requiredServiceAccountAnnotationKeys: Invalid value: a key is no qualified name");
    }
    faults
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn entry() -> Value {
        json!({
            "name": "p", "matchImages": ["https://*.example.com/v2/"], "defaultCacheDuration": "10m",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        })
    }

    fn file(entries: &[Value]) -> String {
        json!({"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": entries})
            .to_string()
    }

    fn with(changes: &Value) -> Result<Vec<ProviderConfig>, String> {
        let mut entry = entry();
        for (key, value) in changes.as_object().unwrap() {
            entry[key] = value.clone();
        }
        parse(&file(&[entry]), true)
    }

    #[test]
    fn a_provider_is_read_with_its_defaults() {
        let found = with(&json!({"args": ["a"], "env": [{"name": "X", "value": "y"}]})).unwrap();
        assert_eq!((found[0].images[0].as_str(), found[0].cache), ("*.example.com", Duration::from_secs(600)));
        assert_eq!((found[0].args.len(), found[0].env[0].value.as_str()), (1, "y"));
        assert!(with(&json!({"args": null, "env": null})).is_ok());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let token = |changes: Value| {
            let mut token = json!({
                "serviceAccountTokenAudience": "a", "cacheType": "Token", "requireServiceAccount": true,
            });
            for (key, value) in changes.as_object().unwrap() {
                token[key] = value.clone();
            }
            json!({ "tokenAttributes": token })
        };
        assert!(with(&token(json!({}))).is_ok());
        for (changes, want) in [
            (json!({"name": ""}), "providers[0].name: Required"),
            (json!({"name": "a/b"}), "providers[0].name: Invalid"),
            (json!({"name": ".."}), "providers[0].name: Invalid"),
            (json!({"matchImages": []}), "providers[0].matchImages: Required"),
            (json!({"matchImages": ["a b"]}), "providers[0].matchImages: Invalid"),
            (json!({"defaultCacheDuration": null}), "providers[0].defaultCacheDuration: Required"),
            (json!({"defaultCacheDuration": "-1s"}), "providers[0].defaultCacheDuration: Invalid"),
            (json!({"apiVersion": ""}), "providers[0].apiVersion: Required"),
            (json!({"apiVersion": "credentialprovider.kubelet.k8s.io/v2"}), "providers[0].apiVersion: Unsupported"),
            (json!({"more": 1}), "unknown field `more`"),
            (token(json!({"serviceAccountTokenAudience": ""})), "Audience: Required"),
            (token(json!({"cacheType": "x"})), "cacheType: Unsupported"),
            (token(json!({"requireServiceAccount": null})), "requireServiceAccount: Required"),
            (
                token(json!({"requireServiceAccount": false, "requiredServiceAccountAnnotationKeys": ["a"]})),
                "AnnotationKeys: Forbidden",
            ),
            (
                token(json!({
                    "requiredServiceAccountAnnotationKeys": ["a"], "optionalServiceAccountAnnotationKeys": ["a"],
                })),
                "stands twice",
            ),
            (token(json!({"optionalServiceAccountAnnotationKeys": ["a b"]})), "no qualified name"),
        ] {
            let error = with(&changes).unwrap_err();
            assert!(error.contains(want), "{changes}: {error}");
        }
        assert!(parse(&file(&[]), true).unwrap_err().contains("Required"));
        assert!(parse("{}", true).is_err());
    }

    #[test]
    fn tokens_need_their_gate_and_the_newest_version() {
        let token = json!({"tokenAttributes": {
            "serviceAccountTokenAudience": "a", "cacheType": "Token", "requireServiceAccount": true,
        }});
        let mut entry = entry();
        entry["tokenAttributes"] = token["tokenAttributes"].clone();
        assert!(parse(&file(std::slice::from_ref(&entry)), false).unwrap_err().contains("feature gate"));
        entry["apiVersion"] = json!("credentialprovider.kubelet.k8s.io/v1beta1");
        assert!(parse(&file(&[entry]), true).unwrap_err().contains("Forbidden"));
    }

    #[test]
    fn a_folder_is_read_in_order_and_names_are_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert!(read(path, true).unwrap_err().to_string().contains("no configuration files"));
        let named = |name: &str| {
            let mut entry = entry();
            entry["name"] = json!(name);
            file(&[entry])
        };
        std::fs::write(path.join("b.yaml"), named("second")).unwrap();
        std::fs::write(path.join("a.json"), named("first")).unwrap();
        std::fs::write(path.join("c.txt"), "nonsense").unwrap();
        let (found, hash) = read(path, true).unwrap();
        assert_eq!(found.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["first", "second"]);
        assert!(hash.starts_with("sha256:") && hash.len() == 71);
        std::fs::write(path.join("d.yml"), named("first")).unwrap();
        assert!(read(path, true).unwrap_err().to_string().contains("duplicate provider name"));
        assert!(matches!(read(Path::new("/nowhere"), true), Err(ProviderError::Read { .. })));
    }
}
