//! How a failure reaches the user: one chain of causes, printed once, with the next step where there is one.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

/// Exit code for a wrong command line or configuration.
pub(crate) const USAGE: u8 = 64;

/// A failure that names the command which mends it. Used as context of the failure's cause.
#[derive(Debug)]
pub(crate) struct Hint {
    message: String,
    hint: String,
}

impl Hint {
    /// Returns a context saying `message`, with `hint` as next step.
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }

    /// Returns it as an error of its own, without a cause.
    pub(crate) fn error(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self::new(message, hint))
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Hint {}

/// Marks a failure as the user's: wrong flag, wrong configuration.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Prints a failure to stderr and returns the process's exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let mut stderr = std::io::stderr().lock();
    drop(writeln!(stderr, "error: {}", chain(error)));
    if let Some(hint) = error.downcast_ref::<Hint>() {
        drop(writeln!(stderr, "hint: {}", hint.hint));
    }
    if error.downcast_ref::<Usage>().is_some() { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
}

/// Joins the causes; a cause that its parent's text already ends with is not said again.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_hint_is_found_below_other_context() {
        let error = Err::<(), _>(anyhow::anyhow!("no such file"))
            .context(Hint::new("read x", "make x"))
            .context("start")
            .unwrap_err();
        assert_eq!(chain(&error), "start: read x: no such file");
        assert_eq!(error.downcast_ref::<Hint>().unwrap().hint, "make x");
    }

    #[test]
    fn a_cause_is_not_said_twice() {
        let error = anyhow::anyhow!("connection refused").context("connect: connection refused");
        assert_eq!(chain(&error), "connect: connection refused");
    }
}
