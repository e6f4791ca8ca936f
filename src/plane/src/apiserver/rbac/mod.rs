//! Rights by roles: who has which roles, and what those allow.
//!
//! The index is brought up to date by a watch on the stored roles and bindings each time it is asked, so a right that was
//! taken away is gone with the answer to the request that took it.

pub(crate) mod bootstrap;
mod escalation;
mod index;
mod rules;

pub(crate) use escalation::{check as check_escalation, signer_allowed};
pub use index::Index;
pub use rules::Rule;
