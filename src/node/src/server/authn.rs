//! Who asks: client certificate, then bearer token, then, if allowed, nobody in particular. A credential that was shown
//! and failed is never taken for none.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::request::Parts;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::{Api, PostParams};
use longshore_transport::serve::PeerIdentity;
use longshore_transport::tls::{ClientCa, TlsConfigError};
use longshore_util::clock::SharedClock;
use longshore_util::hex;
use sha2::{Digest as _, Sha256};

use super::cache::{Cache, key};
use super::{ServerOptions, StartError};

const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const AUTHENTICATED: &str = "system:authenticated";
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";
/// How a browser's WebSocket carries a token.
const PROTOCOL_TOKEN: &str = "base64url.bearer.authorization.k8s.io.";
const LONGEST_TOKEN: usize = 64 * 1024;

/// Who it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) groups: Vec<String>,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Whether it has shown who it is.
    pub(super) fn is_known(&self) -> bool {
        self.groups.iter().all(|group| group != UNAUTHENTICATED)
    }
}

/// Nobody was let in.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoginError {
    #[error("client certificate: {0}")]
    Certificate(String),
    #[error("token refused")]
    Token,
    #[error("token could not be checked: {0}")]
    Review(String),
    #[error("no credential")]
    None,
}

/// Checks credentials.
pub(super) struct Login {
    client_ca: Option<Arc<ClientCa>>,
    tokens: Option<Tokens>,
    anonymous: bool,
    clock: SharedClock,
}

struct Tokens {
    client: kube::Client,
    ttl: Duration,
    cache: Cache<Option<User>>,
}

impl Login {
    pub(super) fn new(
        options: &ServerOptions,
        client: Option<kube::Client>,
        clock: SharedClock,
    ) -> Result<Self, StartError> {
        let client_ca = options.client_ca_file.as_deref().map(load_ca).transpose()?;
        let tokens = match (options.token_webhook, client) {
            (true, Some(client)) => Some(Tokens { client, ttl: options.token_ttl, cache: Cache::default() }),
            (true, None) => return Err(StartError::TokenWithoutApi),
            (false, _) => None,
        };
        if client_ca.is_none() && tokens.is_none() && !options.anonymous {
            return Err(StartError::NoLogin);
        }
        Ok(Self { client_ca, tokens, anonymous: options.anonymous, clock })
    }

    /// The authority of client certificates, for reloading.
    pub(super) fn client_ca(&self) -> Option<Arc<ClientCa>> {
        self.client_ca.clone()
    }

    pub(super) async fn check(&self, request: &Parts) -> Result<User, LoginError> {
        let mut failed = None;
        match self.certificate(request) {
            Some(Ok(user)) => return Ok(user),
            Some(Err(error)) => failed = Some(error),
            None => {}
        }
        if let Some(tokens) = &self.tokens
            && let Some(token) = token_of(request)
        {
            match tokens.check(&token).await {
                Ok(user) => return Ok(user),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            // A token that nobody can check is a credential all the same, but as upstream it then counts for nothing.
            None if self.anonymous => {
                Ok(User { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..User::default() })
            }
            None => Err(LoginError::None),
        }
    }

    fn certificate(&self, request: &Parts) -> Option<Result<User, LoginError>> {
        let authority = self.client_ca.as_ref()?;
        let peer = request.extensions.get::<PeerIdentity>()?;
        let leaf = peer.certificates.first()?;
        Some(match authority.verify(&peer.certificates, self.clock.now()) {
            Ok(subject) => {
                let print = hex::encode(&Sha256::digest(leaf.as_ref()));
                let extra = BTreeMap::from([(CREDENTIAL.to_owned(), vec![format!("X509SHA256={print}")])]);
                Ok(User {
                    name: subject.common_name,
                    groups: with_authenticated(subject.organizations),
                    extra,
                    ..User::default()
                })
            }
            Err(error) => Err(LoginError::Certificate(error.to_string())),
        })
    }
}

fn load_ca(path: &Path) -> Result<Arc<ClientCa>, TlsConfigError> {
    ClientCa::from_file(path).map(Arc::new)
}

impl Tokens {
    async fn check(&self, token: &str) -> Result<User, LoginError> {
        let key = key([token]);
        let known = match self.cache.get(&key) {
            Some(known) => known,
            None => {
                let answer = self.ask(token).await?;
                self.cache.put(key, answer.clone(), self.ttl);
                answer
            }
        };
        known.ok_or(LoginError::Token)
    }

    /// `None` = refused. Errors are not kept.
    async fn ask(&self, token: &str) -> Result<Option<User>, LoginError> {
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), audiences: None },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let parameters = PostParams::default();
        let answer = retry(|| api.create(&parameters, &review)).await.map_err(LoginError::Review)?;
        let status = answer.status.unwrap_or_default();
        if status.authenticated != Some(true) {
            return Ok(None);
        }
        let user = status.user.unwrap_or_default();
        Ok(Some(User {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: with_authenticated(user.groups.unwrap_or_default()),
            extra: user.extra.unwrap_or_default(),
        }))
    }
}

/// Asks up to five times while the API is away or unwell.
pub(super) async fn retry<T, F>(mut call: impl FnMut() -> F) -> Result<T, String>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    const TRIES: u32 = 5;
    const DEADLINE: Duration = Duration::from_secs(10);
    let mut wait = Duration::from_millis(500);
    let mut attempt = 1;
    loop {
        let text = match tokio::time::timeout(DEADLINE, call()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(kube::Error::Api(status))) if status.code < 500 && status.code != 429 => return Err(status.message),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        if attempt == TRIES {
            return Err(text);
        }
        attempt += 1;
        tokio::time::sleep(wait).await;
        wait = wait.mul_f64(1.5);
    }
}

fn token_of(request: &Parts) -> Option<String> {
    let header = request.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = match header.and_then(|value| value.trim().split_once(' ')) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim().to_owned(),
        _ => protocol_token(request)?,
    };
    (!token.is_empty() && token.len() <= LONGEST_TOKEN).then_some(token)
}

fn protocol_token(request: &Parts) -> Option<String> {
    let protocols = request.headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let encoded =
        protocols.flat_map(|list| list.split(',')).find_map(|word| word.trim().strip_prefix(PROTOCOL_TOKEN))?;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(encoded.trim_end_matches('=')).ok()?;
    String::from_utf8(bytes).ok()
}

/// Takes the token out of a WebSocket's list of protocols, so that it does not travel on to the runtime.
pub(super) fn strip_protocol_token(headers: &mut http::HeaderMap) {
    let lists: Vec<String> = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok().map(str::to_owned))
        .collect();
    if !lists.iter().any(|list| list.contains(PROTOCOL_TOKEN)) {
        return;
    }
    let kept: Vec<&str> = lists
        .iter()
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .filter(|word| !word.starts_with(PROTOCOL_TOKEN))
        .collect();
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Ok(value) = kept.join(", ").parse()
        && !kept.is_empty()
    {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
    }
}

fn with_authenticated(mut groups: Vec<String>) -> Vec<String> {
    if !groups.iter().any(|group| group == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    groups
}
