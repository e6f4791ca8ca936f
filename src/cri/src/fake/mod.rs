//! A runtime for tests that behaves: sandboxes and containers with their states, names that stay reserved, images,
//! events, exits; and a gate with failpoints that stands before it, or before a real runtime ([`Gate::before`]).
//! Both can be served over a unix socket ([`serve`]). Everything is recorded, nothing is ever decided by chance.
//!
//! ```text
//! test ── FakeRuntime (= Gate + control) ──> World            in-process
//! agent ── socket ── serve ── Gate ──> CriClient ── socket ── containerd    in between
//! ```

mod failpoints;
mod gate;
mod images;
mod make;
mod program;
mod runtime;
mod serve;
mod subject;
mod view;
mod world;

pub use failpoints::{Call, Failpoints, Failure, On};
pub use gate::{Gate, Proxy};
pub use program::{ExecReply, OnTerm, Program};
pub use serve::{ServeError, Served, serve};
pub use world::{FakeOptions, FakeRuntime};
