//! Files of variables that containers write for each other (`fileKeyRef`, upstream's gate `EnvFiles`): a strict part of what a
//! shell reads, so that a file means the same to both.

use std::collections::BTreeMap;

use crate::names;

/// Longest file in bytes.
pub const MAX_BYTES: usize = 64 * 1024;

/// A file that is not one of variables.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct EnvFileError {
    /// Where, from 1.
    pub line: usize,
    /// What is wrong and what is wanted.
    pub problem: &'static str,
}

/// Reads lines of the form `NAME='value'`. Empty lines and those that begin with `#` are skipped, blanks before a name too;
/// between the quotes everything counts as it stands, line ends too, and after them only blanks and a comment may follow.
/// Of a name that comes twice the last value counts.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, EnvFileError> {
    let mut out = BTreeMap::new();
    let mut rest = text;
    let mut line = 1;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r']);
        if let Some(next) = rest.strip_prefix('\n') {
            line += 1;
            rest = next;
            continue;
        }
        if rest.is_empty() {
            return Ok(out);
        }
        if rest.starts_with('#') {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
            continue;
        }
        let wrong = |problem| EnvFileError { line, problem };
        let (name, after) = rest.split_once('=').ok_or_else(|| wrong("wanted NAME='value'"))?;
        if !names::is_env_name(name) || name.contains(['\n', ' ']) {
            return Err(wrong("the name of a variable has to stand right before ="));
        }
        let after =
            after.strip_prefix('\'').ok_or_else(|| wrong("a value has to stand in single quotes right after ="))?;
        let (value, after) = after.split_once('\'').ok_or_else(|| wrong("the closing single quote is missing"))?;
        line += value.matches('\n').count();
        let after = after.trim_start_matches([' ', '\t', '\r']);
        if !(after.is_empty() || after.starts_with(['\n', '#'])) {
            return Err(EnvFileError { line, problem: "nothing may follow the closing quote" });
        }
        out.insert(name.to_owned(), value.to_owned());
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_quotes_are_taken_as_they_stand() {
        let text = "# first\n\n  A='1 # \"$B\" \\'\nB='two\nlines' # said so\r\nC=''\nA='2'";
        let read = parse(text).unwrap();
        let wanted = [("A", "2"), ("B", "two\nlines"), ("C", "")];
        assert_eq!(read, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert_eq!(parse("").unwrap(), BTreeMap::new());
    }

    #[test]
    fn what_a_shell_would_read_otherwise_is_refused_with_its_line() {
        for (text, line) in [
            ("A=1", 1),
            ("A = '1'", 1),
            ("\nA= '1'", 2),
            ("A='1'\nexport B='2'", 2),
            ("A='1\n2'\nB='", 3),
            ("A='1'2", 1),
            ("A='1' B='2'", 1),
            ("='1'", 1),
            ("A", 1),
            ("é='1'", 1),
        ] {
            assert_eq!(parse(text).unwrap_err().line, line, "{text:?}");
        }
    }
}
