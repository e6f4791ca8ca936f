//! The test environment: a real containerd of a chosen version in its own mount and network namespace, with images,
//! CNI and folders of its own, so that two runs never meet and nothing on the machine is touched.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use longshore_integration::env::{Env, Version};
//! let env = Env::start(Version::V1_6)?; // containerd answers at env.endpoint(), seen inside only
//! env.block_on(|| async { Ok(()) })?;   // async code inside: sockets and children are the environment's
//! # Ok(()) }
//! ```
//! By hand: `cargo run -p longshore-integration --bin testenv -- --containerd 2.1 -- COMMAND`.

pub mod churn;
pub mod cluster;
pub mod cost;
pub mod env;
pub mod etcd;
pub mod foreign;
pub mod fuzz;
pub mod golden;
pub mod history;
pub mod load;
pub mod machine;
pub mod pods;
pub mod registry;
pub mod tools;
