//! Finds out what is wrong with an endpoint, in words that tell what to do.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::time::Duration;

use super::CriClient;
use crate::{CriError, Endpoint, ErrorKind, RuntimeService as _, v1};

/// The node agent's own API version, as every agent sends it.
const API_VERSION: &str = "0.1.0";
/// The CRI version that this client speaks.
const WANTED: &str = "v1";
/// A runtime that lives answers this at once, even when it is busy starting.
const CHECK_DEADLINE: Duration = Duration::from_secs(10);

/// Why an endpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Nothing is there. May come later, when the runtime is still starting.
    #[error(
        "no runtime at {endpoint}: there is no such socket (hint: is the runtime running? systemctl status containerd)"
    )]
    Missing {
        /// Where.
        endpoint: Endpoint,
    },
    /// Something else is there.
    #[error("{endpoint} is not a socket (hint: name the socket on which the runtime listens)")]
    NotASocket {
        /// Where.
        endpoint: Endpoint,
    },
    /// This user may not.
    #[error("no access to {endpoint}: permission denied (hint: run as root)")]
    Denied {
        /// Where.
        endpoint: Endpoint,
    },
    /// The socket is a left-over or its owner died.
    #[error("nobody listens on {endpoint} (hint: is the runtime running? systemctl status containerd)")]
    NobodyListens {
        /// Where.
        endpoint: Endpoint,
    },
    /// Whoever listens does not answer.
    #[error("{endpoint} accepts connections but does not answer within {} s (hint: is it a CRI runtime, and is it healthy?)", CHECK_DEADLINE.as_secs())]
    Silent {
        /// Where.
        endpoint: Endpoint,
    },
    /// A gRPC server without this service, or one that does not speak gRPC.
    #[error(
        "{endpoint} is not a CRI v1 runtime: {source} (hint: containerd may have the CRI plugin switched off: look for \"cri\" in disabled_plugins of its config.toml)"
    )]
    NotCri {
        /// Where.
        endpoint: Endpoint,
        /// What it said.
        source: CriError,
    },
    /// A CRI of another version.
    #[error(
        "{endpoint} ({runtime}) speaks CRI {got:?}, wanted {WANTED:?} (hint: containerd 1.6 or later and CRI-O 1.23 or later do)"
    )]
    WrongVersion {
        /// Where.
        endpoint: Endpoint,
        /// Who.
        runtime: String,
        /// Its version of the API.
        got: String,
    },
    /// It is a CRI and refuses or breaks.
    #[error("{endpoint} answered: {source}")]
    Failed {
        /// Where.
        endpoint: Endpoint,
        /// What it said.
        source: CriError,
    },
}

impl CheckError {
    /// Says whether waiting may help, as while a runtime is starting.
    pub fn may_heal(&self) -> bool {
        match self {
            Self::Missing { .. } | Self::NobodyListens { .. } | Self::Silent { .. } | Self::Failed { .. } => true,
            Self::NotASocket { .. } | Self::Denied { .. } | Self::NotCri { .. } | Self::WrongVersion { .. } => false,
        }
    }
}

impl CriClient {
    /// Asks the runtime for its version, and says what is wrong where it cannot be used. Does not wait for a back-off.
    pub async fn check(&self) -> Result<v1::VersionResponse, CheckError> {
        let endpoint = self.endpoint().clone();
        match tokio::fs::metadata(endpoint.path()).await {
            Ok(found) if !found.file_type().is_socket() => return Err(CheckError::NotASocket { endpoint }),
            Ok(_) => {}
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => return Err(CheckError::Missing { endpoint }),
                io::ErrorKind::PermissionDenied => return Err(CheckError::Denied { endpoint }),
                _ => {}
            },
        }
        match tokio::net::UnixStream::connect(endpoint.path()).await {
            Ok(stream) => drop(stream),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound => return Err(CheckError::Missing { endpoint }),
                io::ErrorKind::ConnectionRefused => return Err(CheckError::NobodyListens { endpoint }),
                io::ErrorKind::PermissionDenied => return Err(CheckError::Denied { endpoint }),
                _ => {}
            },
        }
        self.dialer.forget_failures();
        let asked = self.version(v1::VersionRequest { version: API_VERSION.to_owned() });
        let Ok(answer) = tokio::time::timeout(CHECK_DEADLINE, asked).await else {
            return Err(CheckError::Silent { endpoint });
        };
        match answer {
            Ok(found) if found.runtime_api_version == WANTED => Ok(found),
            Ok(found) => Err(CheckError::WrongVersion {
                endpoint,
                runtime: format!("{} {}", found.runtime_name, found.runtime_version),
                got: found.runtime_api_version,
            }),
            // It listens, so a broken connection means that it does not speak HTTP/2.
            Err(source) if matches!(source.kind, ErrorKind::Unimplemented | ErrorKind::Unavailable) => {
                Err(CheckError::NotCri { endpoint, source })
            }
            Err(source) => Err(CheckError::Failed { endpoint, source }),
        }
    }
}
