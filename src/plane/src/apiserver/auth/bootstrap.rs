//! Tokens with which nodes join: `ID.SECRET`, kept in secrets of kube-system, good for what such a secret says.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::objects::ReadObjects;
use crate::apiserver::identity::{GROUP_AUTHENTICATED, UserInfo};
use crate::apiserver::object::text;

const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";

/// Returns id and secret of what looks like such a token: six and sixteen letters or digits.
pub(super) fn parts(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some((id, secret))
}

/// Returns the user of a token that is good now.
pub(super) fn user(objects: &dyn ReadObjects, token: &str, now: Timestamp) -> Option<UserInfo> {
    let (id, secret) = parts(token)?;
    let found = objects.secret(NAMESPACE, &format!("bootstrap-token-{id}"))?;
    if text(&found, "/type") != TYPE || !text(&found, "/metadata/deletionTimestamp").is_empty() {
        return None;
    }
    let field = |key: &str| -> Option<String> {
        let encoded = found.get("data")?.get(key).and_then(Value::as_str)?;
        String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
    };
    if field("token-id")? != id || field("usage-bootstrap-authentication")? != "true" {
        return None;
    }
    // Digests are compared, so that the time it takes tells nothing of how alike the secrets are.
    if Sha256::digest(field("token-secret")?) != Sha256::digest(secret) {
        return None;
    }
    if let Some(until) = field("expiration").filter(|until| !until.is_empty())
        && until.parse::<Timestamp>().ok()? <= now
    {
        return None;
    }
    let mut groups = vec![GROUP.to_owned()];
    for group in field("auth-extra-groups").unwrap_or_default().split(',').map(str::trim) {
        if group.starts_with("system:bootstrappers:") {
            groups.push(group.to_owned());
        }
    }
    groups.push(GROUP_AUTHENTICATED.to_owned());
    Some(UserInfo { name: format!("system:bootstrap:{id}"), groups, ..UserInfo::default() })
}
