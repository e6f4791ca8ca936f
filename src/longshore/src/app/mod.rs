//! The composition root: the only place that knows node and plane and puts them together.

pub(crate) mod agent;
pub(crate) mod cni;
pub(crate) mod containerd;
pub(crate) mod demo;
pub(crate) mod fail;
pub(crate) mod kubelet;
pub(crate) mod logging;
pub(crate) mod memory;
pub(crate) mod paths;
pub(crate) mod plane;
pub(crate) mod preflight;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod remove;
pub(crate) mod runtime;
pub(crate) mod up;
