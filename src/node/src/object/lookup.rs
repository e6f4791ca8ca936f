//! The answer to "what is this object?".

use std::fmt;
use std::sync::Arc;

/// What is known of an object. `Debug` shows no content: it may be a secret.
pub enum Lookup<T> {
    /// It is there.
    Found(Arc<T>),
    /// The apiserver says that there is none.
    Missing,
    /// Nobody could tell; the message says why.
    Failed(String),
}

impl<T> Clone for Lookup<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Found(object) => Self::Found(Arc::clone(object)),
            Self::Missing => Self::Missing,
            Self::Failed(message) => Self::Failed(message.clone()),
        }
    }
}

impl<T> fmt::Debug for Lookup<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(_) => f.write_str("Found(<redacted>)"),
            Self::Missing => f.write_str("Missing"),
            Self::Failed(message) => f.debug_tuple("Failed").field(message).finish(),
        }
    }
}
