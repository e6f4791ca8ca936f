//! Events: what the agent did to an object and why, for people who read `describe`. Recording never blocks and never
//! fails; one task correlates (counts, merges, filters) and writes to the API.

mod bucket;
mod correlate;
mod record;
mod sink;
mod target;
#[cfg(test)]
mod tests;

pub use record::{EventOptions, EventRecorder};
pub use target::{ContainerGroup, EventTarget, EventType};

pub(crate) use bucket::TokenBucket;
