//! Login and rights: who a client is (certificate, token), what it may do, and the reviews that ask the same.
//!
//! Nothing is cached beyond what a stored object's revision makes safe, so a deleted pod's token and a removed right end
//! at once.

use std::sync::Arc;

use longshore_transport::tls::ClientCa;
use longshore_util::clock::SharedClock;

use super::rbac;

mod bootstrap;
mod jwt;
mod login;
mod node;
mod objects;
mod request;
mod review;
mod rights;
mod token;

pub use jwt::{KeyError, SigningKey};
pub use login::LoginError;
pub use objects::ReadObjects;
pub use token::{Claims, TokenError, Tokens};

#[cfg(test)]
mod tests;

/// Issuer of service-account tokens, as a stock cluster of the domain cluster.local has it.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Login, rights and reviews over the stored objects.
#[derive(Debug)]
pub struct Auth {
    client_ca: Arc<ClientCa>,
    tokens: Tokens,
    objects: Arc<dyn ReadObjects>,
    rbac: Arc<rbac::Index>,
    pods: objects::PodIndex,
    clock: SharedClock,
}

impl Auth {
    /// Puts the parts together.
    pub fn new(
        client_ca: Arc<ClientCa>,
        key: SigningKey,
        objects: Arc<dyn ReadObjects>,
        rbac: Arc<rbac::Index>,
        clock: SharedClock,
    ) -> Self {
        let tokens = Tokens::new(key, ISSUER.to_owned(), Arc::clone(&objects), Arc::clone(&clock));
        Self { client_ca, tokens, rbac, pods: objects::PodIndex::default(), objects, clock }
    }

    /// Returns the token maker and checker.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }
}
