//! Answers `serviceaccounts/NAME/token`.

use http::StatusCode;
use serde_json::{Value, json};

use super::Auth;
use super::review::invalid_kind;
use super::token::{Private, Reference};
use crate::apiserver::error::ApiError;
use crate::apiserver::identity::UserInfo;
use crate::apiserver::object::{child, list, meta, text, time};
use crate::apiserver::resources::{PODS, SECRETS, SERVICEACCOUNTS};

/// Seconds that a token is good for when nothing is asked.
const DEFAULT_SECONDS: i64 = 3600;
/// Fewer would make clients ask all the time.
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;

impl Auth {
    pub(super) fn token_request(
        &self,
        user: &UserInfo,
        namespace: &str,
        account: &Value,
        mut request: Value,
    ) -> Result<Value, ApiError> {
        let name = meta(account, "name");
        for (field, want) in [("name", name), ("namespace", namespace)] {
            let given = meta(&request, field);
            if !given.is_empty() && given != want {
                let text = format!("metadata.{field} {given:?} does not match the {field} on the URL ({want})");
                return Err(ApiError::bad_request(text));
            }
        }
        let mut audiences: Vec<String> =
            list(&request, "/spec/audiences").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if audiences.is_empty() {
            audiences = self.tokens.own_audiences();
        }
        let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(DEFAULT_SECONDS);
        let refuse = |detail: &str| {
            let text = format!("Invalid value: {seconds}: {detail}");
            Err(invalid_kind("authentication.k8s.io", "TokenRequest", "spec.expirationSeconds", &text))
        };
        if seconds < MIN_SECONDS {
            return refuse("may not specify a duration less than 10 minutes");
        }
        if seconds > MAX_SECONDS {
            return refuse("may not specify a duration larger than 2^32 seconds");
        }
        let mut private = Private {
            namespace: namespace.to_owned(),
            serviceaccount: Reference { name: name.to_owned(), uid: meta(account, "uid").to_owned() },
            ..Private::default()
        };
        let pod = self.bind(&request, &mut private)?;
        let own = self.tokens.own_audiences();
        let strange = audiences.iter().find(|audience| !own.contains(audience));
        let strange = strange.filter(|audience| !pod.as_ref().is_some_and(|pod| asks_for(pod, audience)));
        restrict_node(user, &SERVICEACCOUNTS.full_name(), name, &private, strange)?;

        let (token, until) = self.tokens.issue(audiences.clone(), seconds, private).map_err(ApiError::internal)?;
        if let Some(map) = request.as_object_mut() {
            map.insert("kind".to_owned(), json!("TokenRequest"));
            map.insert("apiVersion".to_owned(), json!("authentication.k8s.io/v1"));
        }
        let head = child(&mut request, "metadata");
        head.clear();
        head.insert("name".to_owned(), json!(name));
        head.insert("namespace".to_owned(), json!(namespace));
        head.insert("uid".to_owned(), json!(meta(account, "uid")));
        head.insert("creationTimestamp".to_owned(), json!(time(self.clock.now())));
        let spec = child(&mut request, "spec");
        spec.insert("audiences".to_owned(), json!(audiences));
        spec.insert("expirationSeconds".to_owned(), json!(seconds));
        spec.entry("boundObjectRef").or_insert(Value::Null);
        request["status"] = json!({"token": token, "expirationTimestamp": time(until)});
        Ok(request)
    }

    /// Binds the token to what the request names; returns the pod, if it is one.
    fn bind(&self, request: &Value, private: &mut Private) -> Result<Option<Value>, ApiError> {
        let Some(wanted) = request.pointer("/spec/boundObjectRef").filter(|wanted| wanted.is_object()) else {
            return Ok(None);
        };
        let (name, uid) = (text(wanted, "/name"), text(wanted, "/uid"));
        let namespace = private.namespace.clone();
        let kind = (text(wanted, "/apiVersion"), text(wanted, "/kind"));
        let (found, resource) = match kind {
            ("v1", "Pod") => (self.objects.pod(&namespace, name), &PODS),
            ("v1", "Secret") => (self.objects.secret(&namespace, name), &SECRETS),
            (version, kind) => {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token to object of type {version}, Kind={kind}"
                )));
            }
        };
        let found = found.ok_or_else(|| ApiError::not_found(resource, name))?;
        let own = meta(&found, "uid");
        if !uid.is_empty() && uid != own {
            let text = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. \
                 The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(resource, name, resource.kind, &text));
        }
        let reference = Reference { name: name.to_owned(), uid: own.to_owned() };
        if kind.1 == "Secret" {
            private.secret = Some(reference);
            return Ok(None);
        }
        let account = &private.serviceaccount.name;
        if text(&found, "/spec/serviceAccountName") != account {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
            )));
        }
        let node = text(&found, "/spec/nodeName");
        if !node.is_empty() {
            let uid = self.objects.node(node).map(|node| meta(&node, "uid").to_owned()).unwrap_or_default();
            private.node = Some(Reference { name: node.to_owned(), uid });
        }
        private.pod = Some(reference);
        Ok(Some(found))
    }
}

/// Whether a pod has a volume that needs tokens of an audience. What a CSI driver needs is not looked up.
fn asks_for(pod: &Value, audience: &str) -> bool {
    list(pod, "/spec/volumes").iter().any(|volume| {
        let sources = list(volume, "/projected/sources").iter();
        let tokens = sources.filter_map(|source| source.get("serviceAccountToken"));
        volume.get("csi").is_some()
            || volume.get("persistentVolumeClaim").is_some()
            || volume.get("ephemeral").is_some()
            || tokens.into_iter().any(|token| text(token, "/audience") == audience)
    })
}

/// A node gets tokens only for the pods that run on it, and for audiences that these ask for.
fn restrict_node(
    user: &UserInfo,
    resource: &str,
    name: &str,
    private: &Private,
    strange: Option<&String>,
) -> Result<(), ApiError> {
    let Some(node) = user.node_name() else { return Ok(()) };
    let reason = match (&private.pod, &private.node) {
        (None, _) => "node requested token not bound to a pod".to_owned(),
        (Some(_), Some(own)) if own.name == node => match strange {
            None => return Ok(()),
            Some(audience) => format!("audience {audience:?} not found in pod spec volume"),
        },
        (Some(_), _) => "node requested token bound to a pod scheduled on a different node".to_owned(),
    };
    let message = format!("{resource} {name:?} is forbidden: {reason}");
    Err(ApiError::new(StatusCode::FORBIDDEN, "Forbidden", message).with(json!({"name": name, "kind": resource})))
}
