//! The node agent: takes pods from its sources and makes the runtime run them. Rooms are listed in docs/architecture.md.

pub mod admit;
pub mod agent;
pub mod control;
pub mod event;
pub mod gc;
pub mod hands;
pub mod image;
pub mod journal;
pub mod logs;
pub mod mirror;
pub mod model;
pub mod node;
pub mod object;
pub mod observe;
pub mod oom;
pub mod pod;
pub mod probe;
pub mod resource;
pub mod server;
pub mod settings;
pub mod source;
pub mod status;
pub mod telemetry;
pub mod userns;
pub mod volume;

#[cfg(test)]
pub(crate) mod test_api;
