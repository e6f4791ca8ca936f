//! Service-account tokens: made on request, bound to a pod, a secret or nothing, good while what they name exists.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use longshore_util::clock::SharedClock;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::jwt::{KeyError, SigningKey, peek};
use super::objects::ReadObjects;
use crate::apiserver::hooks::Issuer;
use crate::apiserver::identity::{GROUP_AUTHENTICATED, GROUP_SERVICE_ACCOUNTS, SERVICE_ACCOUNT_USER_PREFIX, UserInfo};
use crate::apiserver::object::text;

/// How far the clocks of two machines may be apart.
const LEEWAY: i64 = 10;

/// Why a token was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is not one of ours: no token, or another key's.
    #[error("invalid bearer token")]
    Foreign,
    /// It is ours but not good, or no longer.
    #[error("[invalid bearer token, {0}]")]
    Bad(String),
}

/// An object that a token names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// Its name.
    pub name: String,
    /// Its uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// What is said under `kubernetes.io`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Private {
    /// The account's namespace.
    pub namespace: String,
    /// The node that the pod runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    /// The pod it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    /// The secret it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    /// The account.
    #[serde(default)]
    pub serviceaccount: Reference,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// For whom.
    pub aud: Vec<String>,
    /// Good until (seconds since 1970).
    pub exp: i64,
    /// Made at.
    pub iat: i64,
    /// By whom.
    pub iss: String,
    /// Its own id.
    pub jti: String,
    /// The account and what the token is bound to.
    #[serde(rename = "kubernetes.io")]
    pub private: Private,
    /// Good from.
    pub nbf: i64,
    /// The user's name.
    pub sub: String,
}

/// Makes and checks tokens.
#[derive(Debug)]
pub struct Tokens {
    key: SigningKey,
    issuer: String,
    objects: Arc<dyn ReadObjects>,
    clock: SharedClock,
}

impl Tokens {
    /// Returns a maker with this key, for this issuer.
    pub fn new(key: SigningKey, issuer: String, objects: Arc<dyn ReadObjects>, clock: SharedClock) -> Self {
        Self { key, issuer, objects, clock }
    }

    /// Returns the audiences of the apiserver itself.
    pub fn own_audiences(&self) -> Vec<String> {
        vec![self.issuer.clone()]
    }

    /// Returns who signs the tokens, and how that is checked.
    pub fn issuer(&self) -> Issuer {
        Issuer { name: self.issuer.clone(), algorithm: self.key.algorithm(), key: self.key.public_jwk() }
    }

    /// Makes a token and says until when it is good.
    pub fn issue(
        &self,
        audiences: Vec<String>,
        seconds: i64,
        private: Private,
    ) -> Result<(String, Timestamp), KeyError> {
        let now = self.clock.now().as_second();
        let sub = user_name(&private.namespace, &private.serviceaccount.name);
        let claims = Claims {
            aud: audiences,
            exp: now.saturating_add(seconds),
            iat: now,
            iss: self.issuer.clone(),
            jti: uuid::Uuid::new_v4().to_string(),
            private,
            nbf: now,
            sub,
        };
        let until = Timestamp::from_second(claims.exp).map_err(|error| KeyError::Unsupported(error.to_string()))?;
        let claims = serde_json::to_value(&claims).map_err(|error| KeyError::Unsupported(error.to_string()))?;
        Ok((self.key.sign(&claims)?, until))
    }

    /// Checks a token for one of `audiences` and returns the user, with the audiences that both have.
    pub fn check(&self, token: &str, audiences: &[String]) -> Result<(UserInfo, Vec<String>), TokenError> {
        let issuer = peek(token).and_then(|claims| claims.get("iss")?.as_str().map(str::to_owned));
        if issuer.as_deref() != Some(self.issuer.as_str()) {
            return Err(TokenError::Foreign);
        }
        let bad = |detail: &str| TokenError::Bad(detail.to_owned());
        let claims = self.key.verify(token).ok_or(TokenError::Foreign)?;
        let claims: Claims = serde_json::from_value(claims).map_err(|error| TokenError::Bad(error.to_string()))?;
        let common: Vec<String> = claims.aud.iter().filter(|own| audiences.contains(own)).cloned().collect();
        if common.is_empty() {
            let text = format!("token audiences {:?} is invalid for the target audiences {audiences:?}", claims.aud);
            return Err(TokenError::Bad(text));
        }
        let now = self.clock.now().as_second();
        if now > claims.exp.saturating_add(LEEWAY) {
            return Err(bad("service account token has expired"));
        }
        if now < claims.nbf.saturating_sub(LEEWAY) {
            return Err(bad("service account token is not valid yet"));
        }
        self.check_objects(&claims.private)?;
        Ok((user(&claims), common))
    }

    /// A token ends with the objects it names, however long it was made for.
    fn check_objects(&self, private: &Private) -> Result<(), TokenError> {
        let bad = |detail: String| TokenError::Bad(detail);
        let Private { namespace, serviceaccount, pod, secret, node: _ } = private;
        let found = self.objects.service_account(namespace, &serviceaccount.name);
        let found = found.ok_or_else(|| bad(format!("serviceaccounts {:?} not found", serviceaccount.name)))?;
        if text(&found, "/metadata/uid") != serviceaccount.uid {
            return Err(bad("service account UID does not match claim".to_owned()));
        }
        if let Some(pod) = pod {
            let found = self.objects.pod(namespace, &pod.name);
            check_bound("pod", pod, found.as_ref(), self.clock.now())?;
        }
        if let Some(secret) = secret {
            let found = self.objects.secret(namespace, &secret.name);
            check_bound("secret", secret, found.as_ref(), self.clock.now())?;
        }
        Ok(())
    }
}

fn check_bound(kind: &str, wanted: &Reference, found: Option<&Value>, now: Timestamp) -> Result<(), TokenError> {
    let bad = |detail: &str| TokenError::Bad(format!("{kind} {:?} bound to the token {detail}", wanted.name));
    let found = found.ok_or_else(|| bad("is gone"))?;
    if text(found, "/metadata/uid") != wanted.uid {
        return Err(bad("was replaced by another"));
    }
    // A pod may still need its token while it shuts down: the minute that stock allows after its end.
    let deadline = text(found, "/metadata/deletionTimestamp").parse::<Timestamp>().ok();
    match deadline.and_then(|at| at.checked_add(std::time::Duration::from_secs(60)).ok()) {
        Some(end) if end < now => Err(bad("has been deleted")),
        _ => Ok(()),
    }
}

fn user_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_USER_PREFIX}{namespace}:{name}")
}

fn user(claims: &Claims) -> UserInfo {
    let Private { namespace, node, pod, secret: _, serviceaccount } = &claims.private;
    let mut extra = BTreeMap::new();
    let mut add = |key: &str, value: &str| {
        if !value.is_empty() {
            extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
        }
    };
    add("credential-id", &format!("JTI={}", claims.jti));
    if let Some(node) = node {
        add("node-name", &node.name);
        add("node-uid", &node.uid);
    }
    if let Some(pod) = pod {
        add("pod-name", &pod.name);
        add("pod-uid", &pod.uid);
    }
    UserInfo {
        name: user_name(namespace, &serviceaccount.name),
        uid: serviceaccount.uid.clone(),
        groups: vec![
            GROUP_SERVICE_ACCOUNTS.to_owned(),
            format!("{GROUP_SERVICE_ACCOUNTS}:{namespace}"),
            GROUP_AUTHENTICATED.to_owned(),
        ],
        extra,
    }
}
