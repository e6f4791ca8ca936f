//! Answers who a token is, and what somebody may do: the nodes' ports ask both of every request they get.

use async_trait::async_trait;
use http::StatusCode;
use http::request::Parts;
use serde_json::{Map, Value, json};

use super::{Auth, bootstrap};
use crate::apiserver::error::ApiError;
use crate::apiserver::hooks::{Authenticate, Authorize, Issuer, Reviewer};
use crate::apiserver::identity::{Attributes, Decision, UserInfo};
use crate::apiserver::object::{child, list, metadata, text};
use crate::apiserver::rbac;
use crate::apiserver::resources::Review;

impl Authenticate for Auth {
    fn authenticate(&self, parts: &Parts) -> Result<UserInfo, ApiError> {
        self.login(parts).map_err(|error| {
            tracing::info!(path = parts.uri.path(), %error, "login refused");
            ApiError::unauthorized()
        })
    }
}

impl Authorize for Auth {
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        self.decide(user, attributes)
    }
}

#[async_trait]
impl Reviewer for Auth {
    async fn review(
        &self,
        user: &UserInfo,
        review: &'static Review,
        namespace: &str,
        mut object: Value,
    ) -> Result<Value, ApiError> {
        let status = match review.kind {
            "TokenReview" => self.token_review(&object)?,
            "SelfSubjectReview" => json!({"userInfo": user_info(user)}),
            "SelfSubjectRulesReview" => self.own_rules(user, &object)?,
            "SelfSubjectAccessReview" => self.access(review, user, &object)?,
            "LocalSubjectAccessReview" => {
                if text(&object, "/spec/resourceAttributes/namespace") != namespace {
                    let detail = format!("must match metadata.namespace: {namespace}");
                    return Err(invalid(review, "spec.resourceAttributes.namespace", &detail));
                }
                self.access(review, &subject(review, &object)?, &object)?
            }
            _ => self.access(review, &subject(review, &object)?, &object)?,
        };
        child(&mut object, "status").clear();
        child(&mut object, "status").extend(status.as_object().cloned().unwrap_or_default());
        metadata(&mut object);
        Ok(object)
    }

    async fn token(
        &self,
        user: &UserInfo,
        namespace: &str,
        account: &Value,
        request: Value,
    ) -> Result<Value, ApiError> {
        self.token_request(user, namespace, account, request)
    }

    fn issuer(&self) -> Issuer {
        self.tokens.issuer()
    }
}

impl Auth {
    fn token_review(&self, object: &Value) -> Result<Value, ApiError> {
        let token = text(object, "/spec/token");
        if token.is_empty() {
            return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
        }
        let wanted: Vec<String> =
            list(object, "/spec/audiences").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if bootstrap::parts(token).is_some() {
            return Ok(match bootstrap::user(self.objects.as_ref(), token, self.clock.now()) {
                Some(user) => json!({"authenticated": true, "user": user_info(&user)}),
                None => json!({"user": {}, "error": "invalid bearer token"}),
            });
        }
        let audiences = if wanted.is_empty() { self.tokens.own_audiences() } else { wanted };
        Ok(match self.tokens.check(token, &audiences) {
            Ok((user, common)) => json!({"authenticated": true, "user": user_info(&user), "audiences": common}),
            Err(error) => json!({"user": {}, "error": error.to_string()}),
        })
    }

    /// All that a user may do in a namespace, as far as roles say it.
    fn own_rules(&self, user: &UserInfo, object: &Value) -> Result<Value, ApiError> {
        let namespace = text(object, "/spec/namespace");
        if namespace.is_empty() {
            return Err(ApiError::bad_request("no namespace on request"));
        }
        let rules = self.rbac.rules(user, namespace);
        let shown = |paths: bool| -> Vec<Value> {
            rules.iter().filter(|rule| rule.is_of_paths() == paths).map(rbac::Rule::shown).collect()
        };
        Ok(json!({"resourceRules": shown(false), "nonResourceRules": shown(true), "incomplete": false}))
    }

    fn access(&self, review: &Review, user: &UserInfo, object: &Value) -> Result<Value, ApiError> {
        let asked = attributes(review, object)?;
        Ok(match self.decide(user, &asked) {
            Decision::Allow => match self.reason(user, &asked) {
                reason if reason.is_empty() => json!({"allowed": true}),
                reason => json!({"allowed": true, "reason": reason}),
            },
            Decision::Deny { reason } if reason.is_empty() => json!({"allowed": false}),
            Decision::Deny { reason } => json!({"allowed": false, "reason": reason}),
        })
    }
}

fn user_info(user: &UserInfo) -> Value {
    let mut info = Map::new();
    info.insert("username".to_owned(), json!(user.name));
    if !user.uid.is_empty() {
        info.insert("uid".to_owned(), json!(user.uid));
    }
    info.insert("groups".to_owned(), json!(user.groups));
    if !user.extra.is_empty() {
        info.insert("extra".to_owned(), json!(user.extra));
    }
    Value::Object(info)
}

fn subject(review: &Review, object: &Value) -> Result<UserInfo, ApiError> {
    let groups: Vec<String> =
        list(object, "/spec/groups").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let name = text(object, "/spec/user").to_owned();
    if name.is_empty() && groups.is_empty() {
        return Err(invalid(review, "spec.user", "at least one of user or group must be specified"));
    }
    Ok(UserInfo { name, groups, uid: text(object, "/spec/uid").to_owned(), ..UserInfo::default() })
}

fn attributes(review: &Review, object: &Value) -> Result<Attributes, ApiError> {
    let spec = |key: &str| object.pointer(&format!("/spec/{key}")).filter(|value| value.is_object());
    let field = |of: &Value, key: &str| of.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    match (spec("resourceAttributes"), spec("nonResourceAttributes")) {
        (Some(asked), None) => Ok(Attributes {
            verb: field(asked, "verb"),
            api_group: field(asked, "group"),
            version: field(asked, "version"),
            resource: field(asked, "resource"),
            subresource: field(asked, "subresource"),
            namespace: field(asked, "namespace"),
            name: field(asked, "name"),
            path: String::new(),
            is_resource: true,
            field_selector: field_selector(asked),
        }),
        (None, Some(asked)) => {
            Ok(Attributes { verb: field(asked, "verb"), path: field(asked, "path"), ..Attributes::default() })
        }
        _ => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            Err(invalid(review, "spec.resourceAttributes", detail))
        }
    }
}

/// The selector of a review comes raw or as requirements; both become the form that a query has.
fn field_selector(asked: &Value) -> String {
    let raw = text(asked, "/fieldSelector/rawSelector");
    if !raw.is_empty() {
        return raw.to_owned();
    }
    let terms = list(asked, "/fieldSelector/requirements").iter().filter_map(|term| match list(term, "/values") {
        [value] if text(term, "/operator") == "In" => Some(format!("{}={}", text(term, "/key"), value.as_str()?)),
        _ => None,
    });
    terms.collect::<Vec<_>>().join(",")
}

pub(super) fn invalid(review: &Review, field: &str, detail: &str) -> ApiError {
    invalid_kind(review.group, review.kind, field, &format!("Invalid value: {detail}"))
}

pub(super) fn invalid_kind(group: &str, kind: &str, field: &str, detail: &str) -> ApiError {
    let message = format!("{kind}.{group} \"\" is invalid: {field}: {detail}");
    let cause = json!({"reason": "FieldValueInvalid", "message": detail, "field": field});
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
        .with(json!({"group": group, "kind": kind, "causes": [cause]}))
}
