//! What both ends of a connection need: keys and certificates, TLS, the accept loop, upgrades and the API client.

pub mod body;
pub mod client;
pub mod kubeconfig;
pub mod pki;
pub mod serve;
pub mod tls;
pub mod upgrade;

#[cfg(test)]
mod fixture;
