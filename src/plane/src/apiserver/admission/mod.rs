//! Admission: what the stock server's built-in plug-ins add to or refuse of an object before it is stored.

mod node;
mod pod;
mod ranges;
mod request;
mod service;
mod volume;

use serde_json::Value;

use super::error::ApiError;
use super::identity::UserInfo;
use super::object::meta;
use super::rbac;
use super::registry::{Part, Registry};
use super::resources::{
    CERTIFICATESIGNINGREQUESTS, NAMESPACES, PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, PODS, Resource,
};

pub(crate) use service::service_address;
pub(crate) use volume::{CLAIM_FINALIZER, VOLUME_FINALIZER};

/// Namespaces that the cluster cannot do without.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(crate) fn create(
    registry: &Registry,
    resource: &Resource,
    object: &mut Value,
    user: Option<&UserInfo>,
) -> Result<(), ApiError> {
    node::create(registry, resource, object, user)?;
    rbac::check_escalation(registry.rbac(), resource, object, None, user)?;
    if std::ptr::eq(resource, &CERTIFICATESIGNINGREQUESTS)
        && let Some(user) = user
    {
        request::sign(object, user);
    }
    if std::ptr::eq(resource, &PERSISTENTVOLUMES) || std::ptr::eq(resource, &PERSISTENTVOLUMECLAIMS) {
        volume::create(registry, resource, object)?;
    }
    if std::ptr::eq(resource, &PODS) {
        pod::create(registry, object)?;
    }
    if std::ptr::eq(resource, &PODS) || std::ptr::eq(resource, &PERSISTENTVOLUMECLAIMS) {
        ranges::create(registry, resource, object)?;
    }
    Ok(())
}

pub(crate) fn update(
    registry: &Registry,
    resource: &Resource,
    part: Part,
    object: &Value,
    old: &Value,
    user: Option<&UserInfo>,
) -> Result<(), ApiError> {
    if std::ptr::eq(resource, &CERTIFICATESIGNINGREQUESTS)
        && let Some(verb) = request::verb(part, object, old)
        && !rbac::signer_allowed(registry.rbac(), old, verb, user)
    {
        let text = format!(
            "user not permitted to {verb} requests with signerName {:?}",
            super::object::text(old, "/spec/signerName")
        );
        return Err(ApiError::forbidden(resource, meta(old, "name"), &text));
    }
    rbac::check_escalation(registry.rbac(), resource, object, Some(old), user)?;
    node::update(registry, resource, part, object, old, user)
}

pub(crate) fn delete(
    registry: &Registry,
    resource: &Resource,
    old: &Value,
    user: Option<&UserInfo>,
) -> Result<(), ApiError> {
    if std::ptr::eq(resource, &NAMESPACES) && IMMORTAL.contains(&meta(old, "name")) {
        return Err(ApiError::forbidden(resource, meta(old, "name"), "this namespace may not be deleted"));
    }
    node::delete(registry, resource, old, user)
}
