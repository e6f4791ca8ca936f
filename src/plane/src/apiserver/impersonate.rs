//! Acting as somebody else (`Impersonate-User` and its kin): whoever has the right to `impersonate` a user, his groups,
//! uid and extras is that user from here on. Headers that cannot be obeyed are refused, never passed over.

use http::{HeaderMap, StatusCode};

use super::error::ApiError;
use super::hooks::Authorize;
use super::identity::{
    Attributes, Decision, Forbidden, GROUP_AUTHENTICATED, GROUP_SERVICE_ACCOUNTS, GROUP_UNAUTHENTICATED,
    SERVICE_ACCOUNT_USER_PREFIX, USER_ANONYMOUS, UserInfo,
};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const GROUP_OF_LOGIN: &str = "authentication.k8s.io";

/// Returns whom the caller wants to be; none if he is content with himself.
pub(super) fn wanted(
    caller: &UserInfo,
    headers: &HeaderMap,
    rights: &dyn Authorize,
) -> Result<Option<UserInfo>, ApiError> {
    let mut user = UserInfo::default();
    for (name, value) in headers {
        let name = name.as_str();
        if !name.starts_with("impersonate-") {
            continue;
        }
        let value = value.to_str().map_err(|_| bad(format!("{name}: not a text")))?.to_owned();
        match name {
            USER => user.name = value,
            GROUP => user.groups.push(value),
            UID => user.uid = value,
            _ => match name.strip_prefix(EXTRA) {
                Some(key) => user.extra.entry(unescape(key)).or_default().push(value),
                None => return Err(bad(format!("header {name}: not known"))),
            },
        }
    }
    if user == UserInfo::default() {
        return Ok(None);
    }
    if user.name.is_empty() {
        return Err(bad("a group, uid or extra is to be impersonated, but no user (Impersonate-User)".to_owned()));
    }
    let account = user.name.strip_prefix(SERVICE_ACCOUNT_USER_PREFIX).and_then(|rest| rest.split_once(':'));
    let account = account.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
    let ask = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
        let attributes = Attributes {
            verb: "impersonate".to_owned(),
            api_group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            is_resource: true,
            ..Attributes::default()
        };
        match rights.authorize(caller, &attributes) {
            Decision::Allow => Ok(()),
            Decision::Deny { reason } => {
                Err(ApiError::refused(&Forbidden { user: caller, attributes: &attributes, reason: &reason }))
            }
        }
    };
    match &account {
        Some((namespace, name)) => ask("", "serviceaccounts", "", namespace, name)?,
        None => ask("", "users", "", "", &user.name)?,
    }
    for group in &user.groups {
        ask("", "groups", "", "", group)?;
    }
    if !user.uid.is_empty() {
        ask(GROUP_OF_LOGIN, "uids", "", "", &user.uid)?;
    }
    for (key, values) in &user.extra {
        for value in values {
            ask(GROUP_OF_LOGIN, "userextras", key, "", value)?;
        }
    }
    complete(&mut user, account.as_ref().map(|(namespace, _)| namespace.as_str()));
    Ok(Some(user))
}

/// Adds the groups that everybody of that kind is in.
fn complete(user: &mut UserInfo, namespace: Option<&str>) {
    if let Some(namespace) = namespace
        && user.groups.is_empty()
    {
        user.groups = vec![GROUP_SERVICE_ACCOUNTS.to_owned(), format!("{GROUP_SERVICE_ACCOUNTS}:{namespace}")];
    }
    let everybody = if user.name == USER_ANONYMOUS { GROUP_UNAUTHENTICATED } else { GROUP_AUTHENTICATED };
    if !user.is_in(GROUP_AUTHENTICATED) && !user.is_in(GROUP_UNAUTHENTICATED) {
        user.groups.push(everybody.to_owned());
    }
}

/// Keys of extras come percent-encoded, for a header's name cannot hold all that a key may.
fn unescape(key: &str) -> String {
    let mut out = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match hex.filter(|_| first == b'%').and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn bad(text: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "BadRequest", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets impersonate what is listed as `resource/name`.
    #[derive(Debug)]
    struct May(&'static [&'static str]);

    impl Authorize for May {
        fn authorize(&self, _user: &UserInfo, attributes: &Attributes) -> Decision {
            let asked = format!("{}/{}", attributes.resource, attributes.name);
            if attributes.verb == "impersonate" && self.0.contains(&asked.as_str()) {
                Decision::Allow
            } else {
                Decision::Deny { reason: String::new() }
            }
        }
    }

    fn asked(
        headers: &[(&'static str, &'static str)],
        may: &'static [&'static str],
    ) -> Result<Option<UserInfo>, ApiError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        wanted(&UserInfo::new("me", &[]), &map, &May(may))
    }

    #[test]
    fn who_may_is_the_other_and_nobody_else() {
        assert_eq!(asked(&[("accept", "x")], &[]).unwrap(), None);
        let user = asked(&[(USER, "joe"), (GROUP, "dev"), (GROUP, "ops")], &["users/joe", "groups/dev", "groups/ops"]);
        assert_eq!(user.unwrap(), Some(UserInfo::new("joe", &["dev", "ops", GROUP_AUTHENTICATED])));
        let nobody = asked(&[(USER, USER_ANONYMOUS)], &["users/system:anonymous"]).unwrap().unwrap();
        assert_eq!(nobody.groups, [GROUP_UNAUTHENTICATED]);
        let account = asked(&[(USER, "system:serviceaccount:ns:sa")], &["serviceaccounts/sa"]).unwrap().unwrap();
        assert_eq!(account.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", GROUP_AUTHENTICATED]);
        let extra = asked(&[(USER, "joe"), ("impersonate-extra-a%2fb", "1")], &["users/joe", "userextras/1"]).unwrap();
        assert_eq!(extra.unwrap().extra["a/b"], ["1"]);
    }

    #[test]
    fn who_may_not_is_refused_and_told_what_he_lacks() {
        let refused = |headers: &[(&'static str, &'static str)], may| asked(headers, may).unwrap_err();
        let error = refused(&[(USER, "joe"), (GROUP, "system:masters")], &["users/joe"]);
        assert_eq!(error.code, StatusCode::FORBIDDEN);
        assert!(error.message.contains("cannot impersonate resource \"groups\""), "{error}");
        assert_eq!(refused(&[(USER, "joe")], &[]).code, StatusCode::FORBIDDEN);
        assert_eq!(refused(&[(UID, "1")], &["users/joe"]).code, StatusCode::BAD_REQUEST, "no user");
        assert_eq!(refused(&[("impersonate-else", "1")], &[]).code, StatusCode::BAD_REQUEST);
    }
}
