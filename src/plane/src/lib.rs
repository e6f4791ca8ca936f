//! The bundled control plane: a durable store, an apiserver over it and the few loops that make one node work.

pub mod apiserver;
pub mod controllers;
mod expiry;
pub mod pki;
mod plane;
mod renewal;
pub mod store;

pub use plane::{Plane, PlaneError, PlaneOptions};
