//! The bundled control plane: a durable store, an apiserver over it and the few loops that make one node work.

pub mod apiserver;
pub mod pki;
pub mod store;
