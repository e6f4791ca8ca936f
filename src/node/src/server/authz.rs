//! What one may do: everything, or what the API says.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};

use super::authn::{User, retry};
use super::cache::{Cache, key};
use super::{AuthorizationMode, ServerOptions, StartError};

/// Requests with more text of the caller's own choice are not kept.
const LONGEST_KEPT: usize = 10_000;

/// What is asked for, once per subresource.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) verb: &'static str,
    pub(super) subresource: &'static str,
    pub(super) node: &'a str,
}

/// Decides.
pub(super) enum Rights {
    All,
    Review(Box<Reviews>),
}

/// Asks the API and remembers.
pub(super) struct Reviews {
    api: Api<SubjectAccessReview>,
    allow_ttl: Duration,
    deny_ttl: Duration,
    cache: Cache<bool>,
}

impl Rights {
    pub(super) fn new(options: &ServerOptions, client: Option<kube::Client>) -> Result<Self, StartError> {
        match (options.authorization, client) {
            (AuthorizationMode::AlwaysAllow, _) => Ok(Self::All),
            (AuthorizationMode::Webhook, None) => Err(StartError::RightsWithoutApi),
            (AuthorizationMode::Webhook, Some(client)) => Ok(Self::Review(Box::new(Reviews {
                api: Api::all(client),
                allow_ttl: options.allow_ttl,
                deny_ttl: options.deny_ttl,
                cache: Cache::default(),
            }))),
        }
    }

    pub(super) async fn allow(&self, user: &User, wanted: Wanted<'_>) -> Result<bool, String> {
        match self {
            Self::All => Ok(true),
            Self::Review(reviews) => reviews.allow(user, wanted).await,
        }
    }
}

impl Reviews {
    async fn allow(&self, user: &User, wanted: Wanted<'_>) -> Result<bool, String> {
        let extra = user.extra.iter().flat_map(|(name, values)| std::iter::once(name).chain(values));
        let callers: Vec<&str> =
            [&user.name, &user.uid].into_iter().chain(&user.groups).chain(extra).map(String::as_str).collect();
        let keep = callers.iter().map(|text| text.len()).sum::<usize>() <= LONGEST_KEPT;
        let key = key(callers.into_iter().chain([wanted.verb, wanted.subresource, wanted.node]));
        if let Some(known) = self.cache.get(&key) {
            return Ok(known);
        }
        let review = review(user, wanted);
        let parameters = PostParams::default();
        let answer = retry(|| self.api.create(&parameters, &review)).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        if keep {
            self.cache.put(key, allowed, if allowed { self.allow_ttl } else { self.deny_ttl });
        }
        Ok(allowed)
    }
}

fn review(user: &User, wanted: Wanted<'_>) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(wanted.verb.to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("nodes".to_owned()),
                subresource: Some(wanted.subresource.to_owned()),
                name: Some(wanted.node.to_owned()),
                ..ResourceAttributes::default()
            }),
            non_resource_attributes: None,
        },
        ..SubjectAccessReview::default()
    }
}
