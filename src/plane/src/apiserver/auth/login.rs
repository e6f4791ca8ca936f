//! Tells who a request comes from: a service-account token, else a client certificate, else nobody.

use http::header::AUTHORIZATION;
use http::request::Parts;
use longshore_transport::serve::PeerIdentity;
use longshore_transport::tls::ClientCertificateError;

use super::token::TokenError;
use super::{Auth, bootstrap};
use crate::apiserver::identity::{GROUP_AUTHENTICATED, GROUP_UNAUTHENTICATED, USER_ANONYMOUS, UserInfo};

/// Why credentials were refused; for the log, the client hears "Unauthorized".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The client certificate is not good.
    #[error(transparent)]
    Certificate(#[from] ClientCertificateError),
    /// The token is not good.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The `Authorization` header is of another kind.
    #[error("authorization header is not a bearer token")]
    Scheme,
}

impl Auth {
    /// Tells who a request comes from. Wrong credentials are an error even where none would do.
    pub fn login(&self, parts: &Parts) -> Result<UserInfo, LoginError> {
        let peer = parts.extensions.get::<PeerIdentity>();
        if let Some(peer) = peer.filter(|peer| !peer.certificates.is_empty()) {
            let subject = self.client_ca.verify(&peer.certificates, self.clock.now())?;
            let mut groups = subject.organizations;
            groups.push(GROUP_AUTHENTICATED.to_owned());
            return Ok(UserInfo { name: subject.common_name, groups, ..UserInfo::default() });
        }
        let Some(header) = parts.headers.get(AUTHORIZATION) else {
            return Ok(UserInfo::new(USER_ANONYMOUS, &[GROUP_UNAUTHENTICATED]));
        };
        let value = header.to_str().unwrap_or_default().trim();
        let token = match value.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => token.trim(),
            _ => return Err(LoginError::Scheme),
        };
        if bootstrap::parts(token).is_some() {
            let user = bootstrap::user(self.objects.as_ref(), token, self.clock.now());
            return user.ok_or(LoginError::Token(TokenError::Foreign));
        }
        Ok(self.tokens.check(token, &self.tokens.own_audiences())?.0)
    }
}
