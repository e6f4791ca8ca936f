//! Tokens of service accounts, bound to a pod and renewed before they run out.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use longshore_util::clock::SharedClock;
use parking_lot::Mutex;

use super::READ_DEADLINE;

/// A token is renewed at this age whatever its life.
const LONGEST_USE: SignedDuration = SignedDuration::from_hours(24);
/// Share of its life, in percent, after which a token is renewed.
const RENEW_AT_PERCENT: i64 = 80;

/// For whom and for what a token is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenKey {
    /// Namespace of account and pod.
    pub namespace: String,
    /// The service account.
    pub account: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's uid in the API.
    pub pod_uid: String,
    /// Who shall accept it; empty means the apiserver.
    pub audience: String,
    /// Wished life in seconds.
    pub expiration_seconds: i64,
}

/// A token. `Debug` does not show it.
#[derive(Clone)]
struct Token {
    text: Arc<str>,
    made: Timestamp,
    expires: Timestamp,
}

impl Token {
    fn is_valid(&self, now: Timestamp) -> bool {
        now < self.expires
    }

    fn is_due(&self, now: Timestamp) -> bool {
        let life = self.expires.duration_since(self.made);
        let age = now.duration_since(self.made);
        // A clock that stepped back says nothing about the age: renew.
        age.is_negative() || age > LONGEST_USE || age.as_secs() * 100 >= life.as_secs() * RENEW_AT_PERCENT
    }
}

type Slot = Arc<tokio::sync::Mutex<Option<Token>>>;

/// The tokens in use. Cheap to clone.
#[derive(Clone)]
pub struct Tokens {
    client: Option<kube::Client>,
    clock: SharedClock,
    slots: Arc<Mutex<HashMap<TokenKey, Slot>>>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("tokens", &self.slots.lock().len()).finish_non_exhaustive()
    }
}

impl Tokens {
    pub(super) fn new(client: Option<kube::Client>, clock: SharedClock) -> Self {
        Self { client, clock, slots: Arc::default() }
    }

    /// Returns a token that is good for a while; the error is a message for people.
    pub async fn get(&self, key: &TokenKey) -> Result<Arc<str>, String> {
        let slot = Arc::clone(self.slots.lock().entry(key.clone()).or_default());
        let mut known = slot.lock().await;
        let now = self.clock.now();
        if let Some(token) = known.as_ref().filter(|token| !token.is_due(now)) {
            return Ok(Arc::clone(&token.text));
        }
        match self.request(key, now).await {
            Ok(token) => {
                let text = Arc::clone(&token.text);
                *known = Some(token);
                Ok(text)
            }
            Err(error) => match known.as_ref().filter(|token| token.is_valid(now)) {
                Some(token) => {
                    tracing::debug!(namespace = key.namespace, account = key.account, error, "token not renewed yet");
                    Ok(Arc::clone(&token.text))
                }
                None => Err(error),
            },
        }
    }

    async fn request(&self, key: &TokenKey, now: Timestamp) -> Result<Token, String> {
        let failed = |why: String| format!("failed to fetch token: {why}");
        let client = self.client.clone().ok_or_else(|| failed("this node has no apiserver".to_owned()))?;
        let api: Api<ServiceAccount> = Api::namespaced(client, &key.namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(if key.audience.is_empty() { Vec::new() } else { vec![key.audience.clone()] }),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(key.pod.clone()),
                    uid: Some(key.pod_uid.clone()),
                }),
                expiration_seconds: Some(key.expiration_seconds),
            }),
            ..TokenRequest::default()
        };
        let params = PostParams::default();
        let call = api.create_token_request(&key.account, &params, &request);
        let answer = tokio::time::timeout(READ_DEADLINE, call)
            .await
            .map_err(|_| failed(format!("no answer within {} s", READ_DEADLINE.as_secs())))?
            .map_err(|error| failed(error.to_string()))?;
        let status = answer.status.unwrap_or_default();
        let (Some(text), Some(expires)) = (status.token, status.expiration_timestamp) else {
            return Err(failed("the answer has no token".to_owned()));
        };
        Ok(Token { text: text.into(), made: now, expires: expires.0 })
    }

    /// Drops the tokens of a pod.
    pub fn forget_pod(&self, pod_uid: &str) {
        self.slots.lock().retain(|key, _| key.pod_uid != pod_uid);
    }

    pub(super) fn tidy(&self) {
        let now = self.clock.now();
        self.slots.lock().retain(|_, slot| {
            // One that is being asked for right now stays.
            slot.try_lock().map_or(true, |token| token.as_ref().is_some_and(|token| token.is_valid(now)))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_from_after_a_clock_that_stepped_back_is_due_at_once() {
        let made: Timestamp = "2026-01-03T00:00:00Z".parse().unwrap();
        let token = Token { text: "t".into(), made, expires: made + SignedDuration::from_hours(1) };
        assert!(!token.is_due(made));
        assert!(token.is_due(made - SignedDuration::from_hours(48)));
        assert!(token.is_due(made + SignedDuration::from_mins(48)));
    }
}
