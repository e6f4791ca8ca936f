//! Metrics: one registry for the agent, families grouped by the subsystem that sets them. Names, labels, types and buckets
//! that exist upstream are kept as they are there (`kubelet_*`); ours start with `longshore_`.

mod events;
mod node;
mod pods;
mod probes;
mod process;
mod registry;
mod resizes;
mod server;
#[cfg(test)]
mod tests;

pub use events::EventMetrics;
pub use node::NodeMetrics;
pub use pods::{ContainerType, PodMetrics, StaticLabel};
pub use probes::{ProbeMetrics, ProbeName, ProbeSeries};
pub use registry::{SharedTelemetry, Telemetry};
pub use resizes::ResizeMetrics;
pub use server::{RequestLabels, ServerMetrics};
