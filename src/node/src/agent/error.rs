//! Why the agent cannot start.

use crate::journal::JournalError;
use crate::node::startup::StartupError;

/// A start that failed; nothing of the node's pods was touched.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The machine is not as it must be, or folders cannot be made.
    #[error(transparent)]
    Startup(#[from] StartupError),
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The ids of pods with users of their own cannot be told.
    #[error(transparent)]
    Users(#[from] crate::userns::SpanError),
    /// Credential providers are not as they must be.
    #[error(transparent)]
    Providers(#[from] crate::image::ProviderError),
    /// Records of pulls cannot be kept.
    #[error("records of image pulls: {0}")]
    PullRecords(std::io::Error),
    /// The server cannot be started.
    #[error(transparent)]
    Server(#[from] crate::server::StartError),
}
