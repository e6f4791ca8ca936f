//! How a call to the runtime fails. Branch on the kind, never on the text.

use std::fmt;

use tonic::{Code, Status};

/// What a failure means to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The sandbox, container or image is not there. Often what a teardown wants to hear.
    NotFound,
    /// It is there already.
    AlreadyExists,
    /// The runtime could not be reached or went away; the call may or may not have been done. Retry with back-off.
    Unavailable,
    /// No answer in time; the call may or may not have been done.
    DeadlineExceeded,
    /// This runtime is too old for the call. Not worth a retry.
    Unimplemented,
    /// The runtime refuses the request as it stands. Not worth a retry.
    InvalidArgument,
    /// The call was given up.
    Cancelled,
    /// Anything else; most failures of containerd are `Unknown`.
    Other(Code),
}

impl From<Code> for ErrorKind {
    fn from(code: Code) -> Self {
        match code {
            Code::NotFound => Self::NotFound,
            Code::AlreadyExists => Self::AlreadyExists,
            Code::Unavailable => Self::Unavailable,
            Code::DeadlineExceeded => Self::DeadlineExceeded,
            Code::Unimplemented => Self::Unimplemented,
            Code::InvalidArgument => Self::InvalidArgument,
            Code::Cancelled => Self::Cancelled,
            code => Self::Other(code),
        }
    }
}

impl ErrorKind {
    /// The gRPC code.
    pub fn code(self) -> Code {
        match self {
            Self::NotFound => Code::NotFound,
            Self::AlreadyExists => Code::AlreadyExists,
            Self::Unavailable => Code::Unavailable,
            Self::DeadlineExceeded => Code::DeadlineExceeded,
            Self::Unimplemented => Code::Unimplemented,
            Self::InvalidArgument => Code::InvalidArgument,
            Self::Cancelled => Code::Cancelled,
            Self::Other(code) => code,
        }
    }
}

/// A call to the runtime that failed. Shown as upstream shows it, since the text reaches events and statuses:
/// `rpc error: code = Unknown desc = ...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CriError {
    /// The call, e.g. `CreateContainer`.
    pub rpc: &'static str,
    /// What it means.
    pub kind: ErrorKind,
    /// The runtime's own words.
    pub message: String,
}

impl CriError {
    /// Builds an error.
    pub fn new(rpc: &'static str, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { rpc, kind, message: message.into() }
    }

    /// Takes over what gRPC answered.
    pub fn from_status(rpc: &'static str, status: &Status) -> Self {
        Self { rpc, kind: status.code().into(), message: status.message().to_owned() }
    }

    /// Says whether the thing asked for is not there.
    pub fn is_not_found(&self) -> bool {
        self.kind == ErrorKind::NotFound
    }

    /// Says whether it exists already.
    pub fn is_already_exists(&self) -> bool {
        self.kind == ErrorKind::AlreadyExists
    }

    /// Says whether the runtime lacks the call.
    pub fn is_unimplemented(&self) -> bool {
        self.kind == ErrorKind::Unimplemented
    }

    /// Says whether the runtime was away.
    pub fn is_unavailable(&self) -> bool {
        self.kind == ErrorKind::Unavailable
    }

    /// Says whether no answer came in time.
    pub fn is_deadline_exceeded(&self) -> bool {
        self.kind == ErrorKind::DeadlineExceeded
    }

    /// The id of the sandbox or container that has the name asked for, when that is why a create failed. The runtime may
    /// still be making it on behalf of an earlier call whose answer was lost. Runtimes have no code of their own for
    /// this (containerd: `Unknown` up to 1.7, then `FailedPrecondition`), so here alone the words must be read.
    pub fn name_reserved_for(&self) -> Option<&str> {
        if !matches!(self.rpc, "RunPodSandbox" | "CreateContainer") {
            return None;
        }
        let owner = self.message.rsplit_once("is reserved for \"")?.1.strip_suffix('"')?;
        (!owner.is_empty()).then_some(owner)
    }

    /// Says whether a create was refused because an earlier call for the same name is still at work (CRI-O names nobody).
    pub fn is_still_being_made(&self) -> bool {
        self.is_already_exists() || self.name_reserved_for().is_some() || self.message.ends_with("name is reserved")
    }

    /// Says whether the call may have been done although it failed: look before doing it again.
    pub fn is_uncertain(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::DeadlineExceeded | ErrorKind::Cancelled)
    }
}

impl fmt::Display for CriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: code = {} desc = {}", code_name(self.kind.code()), self.message)
    }
}

impl std::error::Error for CriError {}

/// The names that gRPC in Go prints, which is what users know from events.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_what_users_know_from_events() {
        let error = CriError::from_status("CreateContainer", &Status::unknown("no such file"));
        assert_eq!(error.to_string(), "rpc error: code = Unknown desc = no such file");
        let error = CriError::from_status("StopContainer", &Status::cancelled("x"));
        assert_eq!(error.to_string(), "rpc error: code = Canceled desc = x");
    }

    #[test]
    fn who_has_a_name_is_read_from_the_words() {
        let message = "failed to reserve container name \"a_b\": name \"a_b\" is reserved for \"0f3\"";
        let error = |rpc, message: &str| CriError::new(rpc, ErrorKind::Other(Code::Unknown), message);
        assert_eq!(error("CreateContainer", message).name_reserved_for(), Some("0f3"));
        assert_eq!(error("StartContainer", message).name_reserved_for(), None);
        assert_eq!(error("RunPodSandbox", "no space left").name_reserved_for(), None);
        assert!(error("CreateContainer", message).is_still_being_made());
        assert!(
            error("CreateContainer", "error reserving ctr name a_b for id 0f3: name is reserved").is_still_being_made()
        );
        assert!(!error("RunPodSandbox", "no space left").is_still_being_made());
    }

    #[test]
    fn kind_and_code_are_inverse() {
        for number in 1..=16 {
            let code = Code::from_i32(number);
            assert_eq!(ErrorKind::from(code).code(), code);
        }
    }
}
