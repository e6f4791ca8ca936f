//! Where a runtime listens, as flags and config files write it.

use std::fmt;
use std::path::{Path, PathBuf};

/// A runtime's unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    path: PathBuf,
}

/// Why a text is no endpoint. Not worth a retry: the configuration must change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Nothing was given.
    #[error("the runtime endpoint is empty (hint: use unix:///run/containerd/containerd.sock)")]
    Empty,
    /// A scheme that CRI runtimes on Linux do not use.
    #[error("runtime endpoint {endpoint:?}: scheme {scheme:?} is not supported (hint: use unix:///path/to/socket)")]
    Scheme {
        /// What was given.
        endpoint: String,
        /// Its scheme.
        scheme: String,
    },
    /// A relative path would depend on the working directory.
    #[error("runtime endpoint {endpoint:?}: the socket's path must be absolute")]
    Relative {
        /// What was given.
        endpoint: String,
    },
}

impl Endpoint {
    /// Reads `unix:///path`, `unix:/path` or a plain absolute path.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(EndpointError::Empty);
        }
        let path = match text.split_once(':') {
            Some(("unix", rest)) => rest.strip_prefix("//").unwrap_or(rest),
            Some((scheme, _)) if !text.starts_with('/') => {
                return Err(EndpointError::Scheme { endpoint: text.to_owned(), scheme: scheme.to_owned() });
            }
            _ => text,
        };
        if !path.starts_with('/') {
            return Err(EndpointError::Relative { endpoint: text.to_owned() });
        }
        Ok(Self { path: PathBuf::from(path) })
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_and_plain_path_name_the_same_socket() {
        let url = Endpoint::parse("unix:///run/c.sock").unwrap();
        for same in ["/run/c.sock", " unix:/run/c.sock\n"] {
            assert_eq!(Endpoint::parse(same).unwrap(), url, "{same:?}");
        }
        assert_eq!(url.to_string(), "unix:///run/c.sock");
        assert_eq!(Endpoint::parse("/run/a:b.sock").unwrap().path(), Path::new("/run/a:b.sock"));
    }

    #[test]
    fn what_cannot_work_is_refused_with_a_hint() {
        assert_eq!(Endpoint::parse("  "), Err(EndpointError::Empty));
        for (text, word) in [
            ("tcp://127.0.0.1:1", "\"tcp\""),
            ("npipe:////./pipe/x", "\"npipe\""),
            ("unix://run/c.sock", "absolute"),
            ("run/c.sock", "absolute"),
        ] {
            let error = Endpoint::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
