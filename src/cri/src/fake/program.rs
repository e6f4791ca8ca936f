//! What the processes in a fake's containers do.

use std::time::Duration;

/// What a process does with the stop signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTerm {
    /// It ends after a while.
    Exit {
        /// With this code.
        code: i32,
        /// After this time.
        after: Duration,
    },
    /// Only SIGKILL ends it.
    Ignore,
}

/// What a container's process does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// It ends by itself after this time; never, where there is none.
    pub runs_for: Option<Duration>,
    /// With this code.
    pub exit_code: i32,
    /// What it does with the stop signal.
    pub on_term: OnTerm,
    /// Lines that it prints at its start; written to its log where the options say so.
    pub output: Vec<String>,
}

impl Default for Program {
    /// Runs for ever and ends at once when asked to.
    fn default() -> Self {
        Self {
            runs_for: None,
            exit_code: 0,
            on_term: OnTerm::Exit { code: 0, after: Duration::ZERO },
            output: Vec::new(),
        }
    }
}

impl Program {
    /// Ends by itself with that code after that time.
    pub fn exits(exit_code: i32, runs_for: Duration) -> Self {
        Self { runs_for: Some(runs_for), exit_code, ..Self::default() }
    }

    /// Runs until it is killed.
    pub fn stubborn() -> Self {
        Self { on_term: OnTerm::Ignore, ..Self::default() }
    }
}

/// What a command in a container answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecReply {
    /// Its output.
    pub stdout: Vec<u8>,
    /// Its complaints.
    pub stderr: Vec<u8>,
    /// Its exit code.
    pub exit_code: i32,
}
