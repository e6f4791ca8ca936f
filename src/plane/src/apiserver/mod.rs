//! The apiserver: who asks, whether they may, and the answer out of the store.

mod admission;
pub mod auth;
pub mod error;
pub mod hooks;
pub mod identity;
pub mod object;
pub mod patch;
pub mod registry;
pub mod resources;
mod rules;
mod strategy;

pub use error::{ApiError, Cause};
pub use registry::Registry;
