//! The API client: a kubeconfig read with errors that name file and field, and `kube` clients made of it.
//!
//! [`Kubeconfig::load`] fails on what cannot work; certificates out of their time are [`Kubeconfig::problems`] only, for
//! the clock of a machine that has just started may be the one that is wrong.

use std::time::Duration;

mod connect;
mod deadline;
mod explain;
mod file;
mod limit;
mod typed;

pub use connect::{ClientOptions, Clients, ClientsOptions};
pub use explain::{brief, explain, is_unreachable};
pub use file::{Kubeconfig, KubeconfigError, KubeconfigProblem};
pub use limit::Rate;
pub use typed::Typed;

#[cfg(test)]
mod tests;

/// Until a request without a watch has its answer's head, and between two pieces of its body.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
