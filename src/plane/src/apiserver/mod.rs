//! The apiserver: who asks, whether they may, and the answer out of the store.

mod admission;
pub mod audit;
pub mod auth;
mod compress;
pub mod connect;
pub(crate) mod custom;
mod discovery;
pub mod error;
mod health;
pub mod hooks;
pub mod identity;
mod impersonate;
mod known;
mod limits;
mod metrics;
mod negotiate;
pub mod object;
mod openapi;
pub mod patch;
pub(crate) mod quota;
pub mod rbac;
pub mod registry;
mod request;
pub mod resources;
mod rest;
mod rules;
pub mod server;
mod strategy;
mod table;
mod watch;

#[cfg(test)]
mod tests;

pub use error::{ApiError, Cause};
pub use registry::Registry;

pub(crate) use admission::{CLAIM_FINALIZER, VOLUME_FINALIZER};
pub(crate) use strategy::{SYSTEM_PRIORITIES, percent, selects};
