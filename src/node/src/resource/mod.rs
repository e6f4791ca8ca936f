//! Resources of pods on the host: their control groups. Owns the tree below the configured root and nothing else.

mod names;
mod pods;
#[cfg(test)]
mod tests;

pub use names::{CgroupDriver, CgroupNames};
pub use pods::{CgroupTree, NoCgroups};
