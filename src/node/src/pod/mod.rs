//! Pods: the desired table, one worker per pod, the pure plan, and the hands that carry it out.
//!
//! ```text
//! sources --Set/Remove--> table --inbox--> worker --plan--> actions --> runtime
//! observe --wake--------> table --bell---> worker --compose--> status writer
//! ```
//! A worker owns what it observed and the facts of its pod; others ring its bell. It must never start anything after
//! its pod was told to end, and never make another pod wait.

pub mod config;
mod container;
#[cfg(any(test, feature = "fakes"))]
pub mod fakes;
mod grants;
mod hooks;
mod inbox;
mod local;
mod observed;
mod plan;
mod ports;
mod predecessors;
mod probing;
mod read;
pub(crate) mod remembered;
mod resize;
mod sandbox;
mod signal;
mod slots;
mod status;
mod stop;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod turns;
mod wanted;
mod worker;

pub use observed::{Instance, InstanceState, LinuxUser, Observed, Sandbox};
pub use ports::{ContainerRequest, Failure, PodBounds, PodCgroups, Prepare, PulledImage, StatusSink, StatusUpdate};
pub use table::{Found, PodTable, PodTableOptions};
pub use worker::NetworkState;

pub use plan::BackoffRule;

pub(crate) use plan::BackoffEntry;
