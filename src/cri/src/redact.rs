//! `Debug` of the messages that may carry secrets: registry credentials, and values of environment variables.

use std::fmt;

use crate::v1::{AuthConfig, KeyValue};

const HIDDEN: &str = "<redacted>";

fn hide(value: &str) -> &'static str {
    if value.is_empty() { "" } else { HIDDEN }
}

impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthConfig")
            .field("username", &self.username)
            .field("password", &hide(&self.password))
            .field("auth", &hide(&self.auth))
            .field("server_address", &self.server_address)
            .field("identity_token", &hide(&self.identity_token))
            .field("registry_token", &hide(&self.registry_token))
            .finish()
    }
}

impl fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A variable may come from a Secret, and nothing here tells which ones do.
        f.debug_struct("KeyValue").field("key", &self.key).field("value", &HIDDEN).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let auth = AuthConfig {
            username: "me".to_owned(),
            password: "s3cret".to_owned(),
            auth: "s3cret".to_owned(),
            identity_token: "s3cret".to_owned(),
            registry_token: "s3cret".to_owned(),
            ..AuthConfig::default()
        };
        let variable = KeyValue { key: "TOKEN".to_owned(), value: b"s3cret".to_vec() };
        let shown = format!("{auth:?} {variable:?}");
        assert!(shown.contains("me") && shown.contains("TOKEN"), "{shown}");
        assert!(!shown.contains("s3cret") && !shown.contains("115"), "{shown}");
    }
}
