//! The port to the container runtime (CRI v1): messages, one trait per service, the gRPC client over a unix socket, and
//! a fake that behaves. Nothing here knows pods; it must never decide anything, only carry calls with their deadlines.

mod client;
pub mod containerd;
mod endpoint;
mod error;
#[cfg(any(test, feature = "fakes"))]
pub mod fake;
pub mod health;
pub mod labels;
mod redact;
mod rpcs;
mod service;

pub use client::{CheckError, ClientOptions, CriClient, RuntimeMetrics};
pub use endpoint::{Endpoint, EndpointError};
pub use error::{CriError, ErrorKind};
pub use service::{EventStream, ImageService, RuntimeService, SharedImages, SharedRuntime, Streaming};
pub use tonic::Code;

/// Messages, enums, gRPC client and server of package `runtime.v1`, generated from `proto/cri-v1.proto`.
#[expect(clippy::all, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}
