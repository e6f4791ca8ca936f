//! Credential providers: programs of the node's owner that hand out logins for images. Owns what they answered, for as
//! long as they said it serves; runs each once for all who ask the same at once.

mod config;
mod run;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use longshore_util::clock::SharedClock;
use longshore_util::hex;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

pub use config::ProviderError;
use config::{ProviderConfig, TokenAttributes};
use run::{Answer, Request, Scope};

use super::backoff::add;
use super::flight::Flights;
use super::login::{Keyring, Login, Origin, Places, Source, covers};
use super::metrics::ImageMetrics;
use crate::model::DesiredPod;
use crate::object::{FRESH, Lookup, Objects, TokenKey};

/// Life of the tokens that programs get.
const TOKEN_SECONDS: i64 = 3600;

/// What the programs work with.
#[derive(Debug)]
pub struct ProviderOptions {
    /// `--image-credential-provider-config`.
    pub config: PathBuf,
    /// `--image-credential-provider-bin-dir`.
    pub programs: PathBuf,
    /// Gate `KubeletServiceAccountTokenForCredentialProviders`.
    pub tokens: bool,
    /// Service accounts and their tokens.
    pub objects: Objects,
    /// Wall-clock time.
    pub clock: SharedClock,
}

/// For what an answer serves: the thing asked for, and the account if the program was told of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CacheKey {
    scope: Scope,
    what: String,
    account: String,
}

struct Cached {
    places: Places,
    until: Timestamp,
}

/// What one program knows. Shared with runs under way.
struct Provider {
    config: ProviderConfig,
    programs: PathBuf,
    clock: SharedClock,
    metrics: ImageMetrics,
    cache: Mutex<HashMap<CacheKey, Cached>>,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("name", &self.config.name).finish_non_exhaustive()
    }
}

type RunKey = (usize, String, String);

/// All programs of the node.
#[derive(Debug)]
pub struct Providers {
    list: Vec<Arc<Provider>>,
    objects: Objects,
    runs: Flights<RunKey, Arc<Result<Places, String>>>,
}

/// The account that a program acts for.
#[derive(Debug, Default)]
struct Account {
    origin: Option<Origin>,
    annotations: BTreeMap<String, String>,
    token: Option<Arc<str>>,
    /// Tells accounts apart in the cache.
    key: String,
}

impl Providers {
    /// Reads the configuration and looks whether the programs are there.
    pub fn load(options: ProviderOptions, metrics: &ImageMetrics) -> Result<Self, ProviderError> {
        let (configs, hash) = config::read(&options.config, options.tokens)?;
        for provider in &configs {
            let path = options.programs.join(&provider.name);
            std::fs::metadata(&path).map_err(|source| ProviderError::Program {
                name: provider.name.clone(),
                path,
                source,
            })?;
        }
        metrics.provider_config(hash);
        let list = configs.into_iter().map(|config| {
            Arc::new(Provider {
                config,
                programs: options.programs.clone(),
                clock: Arc::clone(&options.clock),
                metrics: metrics.clone(),
                cache: Mutex::default(),
            })
        });
        Ok(Self { list: list.collect(), objects: options.objects, runs: Flights::default() })
    }

    /// The logins that the programs give for a repository, in the order of the programs.
    pub(super) async fn logins(&self, pod: &DesiredPod, repository: &str) -> Vec<Login> {
        let mut logins: Vec<Login> = Vec::new();
        for (index, provider) in self.list.iter().enumerate() {
            if !provider.config.images.iter().any(|place| covers(place, repository)) {
                continue;
            }
            let name = &provider.config.name;
            let account = match &provider.config.token {
                None => Account::default(),
                Some(wish) => match self.account(pod, wish).await {
                    Ok(account) => account,
                    Err(why) => {
                        tracing::warn!(pod = %pod.key, provider = name, why, "credential provider is passed over");
                        continue;
                    }
                },
            };
            let source = account.origin.clone().map_or(Source::Node, Source::ServiceAccount);
            match self.places(index, provider, repository, account).await {
                Ok(places) => {
                    let mut keyring = Keyring::default();
                    keyring.add(places, &source);
                    logins.extend(keyring.find(repository));
                }
                Err(error) => tracing::warn!(provider = name, image = repository, error, "credential provider failed"),
            }
        }
        logins
    }

    async fn places(
        &self,
        index: usize,
        provider: &Arc<Provider>,
        repository: &str,
        account: Account,
    ) -> Result<Places, String> {
        if let Some(places) = provider.cached(repository, &account.key) {
            return Ok(places);
        }
        let key = (index, repository.to_owned(), account.key.clone());
        let (provider, repository) = (Arc::clone(provider), repository.to_owned());
        let run = self.runs.join(key, || Box::pin(async move { Arc::new(provider.run(&repository, &account).await) }));
        Result::clone(&*run.await)
    }

    /// Who the program acts for and what it is told of it.
    async fn account(&self, pod: &DesiredPod, wish: &TokenAttributes) -> Result<Account, String> {
        let spec = pod.pod.spec.as_ref();
        let name = spec.and_then(|spec| spec.service_account_name.as_deref()).filter(|name| !name.is_empty());
        let Some(name) = name.filter(|_| !pod.source.is_static()) else {
            let required = wish.require_service_account.unwrap_or(true);
            return if required { Err("the pod has no service account".to_owned()) } else { Ok(Account::default()) };
        };
        let namespace = &*pod.key.namespace;
        let object = match self.objects.service_account(namespace, name, FRESH).await {
            Lookup::Found(object) => object,
            Lookup::Missing => return Err(format!("service account {namespace}/{name} is not there")),
            Lookup::Failed(why) => return Err(why),
        };
        let given = object.metadata.annotations.clone().unwrap_or_default();
        let mut annotations = BTreeMap::new();
        for key in &wish.required_service_account_annotation_keys {
            let value = given.get(key).ok_or_else(|| format!("service account {name} lacks the annotation {key}"))?;
            annotations.insert(key.clone(), value.clone());
        }
        for key in &wish.optional_service_account_annotation_keys {
            annotations.extend(given.get(key).map(|value| (key.clone(), value.clone())));
        }
        let token = TokenKey {
            namespace: namespace.to_owned(),
            account: name.to_owned(),
            pod: pod.key.name.to_string(),
            pod_uid: pod.uid.to_string(),
            audience: wish.service_account_token_audience.clone(),
            expiration_seconds: TOKEN_SECONDS,
        };
        let token = self.objects.tokens().get(&token).await?;
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let mut key = serde_json::json!([namespace, name, uid, annotations]).to_string();
        if wish.cache_type == "Token" {
            key += &hex::encode(&Sha256::digest(token.as_bytes()));
        }
        let origin = Origin { uid, namespace: namespace.to_owned(), name: name.to_owned() };
        Ok(Account { origin: Some(origin), annotations, token: Some(token), key })
    }
}

impl Provider {
    fn cached(&self, repository: &str, account: &str) -> Option<Places> {
        let now = self.clock.now();
        let mut cache = self.cache.lock();
        cache.retain(|_, cached| cached.until > now);
        let scopes = [Scope::Image, Scope::Registry, Scope::Global];
        scopes.into_iter().find_map(|scope| {
            let key = CacheKey { scope, what: what(scope, repository), account: account.to_owned() };
            cache.get(&key).map(|cached| cached.places.clone())
        })
    }

    async fn run(&self, repository: &str, account: &Account) -> Result<Places, String> {
        let request = Request {
            kind: "CredentialProviderRequest",
            api_version: &self.config.wire,
            image: repository,
            service_account_token: account.token.as_deref(),
            service_account_annotations: &account.annotations,
        };
        let begin = Instant::now();
        let answer = run::ask(&self.programs, &self.config, &request).await;
        self.metrics.provider_ran(&self.config.name, begin.elapsed(), answer.is_ok());
        let Answer { scope, cache, places } = answer?;
        let serves = cache.unwrap_or(self.config.cache);
        if serves > Duration::ZERO {
            let key = CacheKey { scope, what: what(scope, repository), account: account.key.clone() };
            let until = add(self.clock.now(), serves);
            self.cache.lock().insert(key, Cached { places: places.clone(), until });
        }
        Ok(places)
    }
}

fn what(scope: Scope, repository: &str) -> String {
    match scope {
        Scope::Image => repository.to_owned(),
        Scope::Registry => repository.split('/').next().unwrap_or_default().to_owned(),
        Scope::Global => String::new(),
    }
}
