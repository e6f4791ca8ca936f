//! Regular expressions as schemas mean them: Go's dialect, where `\d`, `\w`, `\s` and `\b` are about ASCII.

use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};

/// Largest program of an expression.
const MAX_SIZE: usize = 1 << 20;

/// An expression that is compiled when it is first asked for.
#[derive(Debug, Clone, Default)]
pub struct Pattern {
    /// As written.
    pub text: String,
    compiled: OnceLock<Option<Regex>>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Pattern {
    /// Returns an expression, compiled or not.
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), compiled: OnceLock::new() }
    }

    /// Whether nothing is demanded.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the compiled expression; nothing if it is none.
    pub fn regex(&self) -> Option<&Regex> {
        self.compiled.get_or_init(|| compile(&self.text).ok()).as_ref()
    }
}

/// Compiles an expression.
pub fn compile(text: &str) -> Result<Regex, String> {
    let built =
        RegexBuilder::new(&translated(text)).size_limit(MAX_SIZE).dfa_size_limit(MAX_SIZE).nest_limit(100).build();
    built.map_err(|error| error.to_string())
}

/// Writes an expression of Go's dialect in that of the library.
fn translated(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut characters = text.chars().peekable();
    let mut class = false;
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('d') => out.push_str(if class { "0-9" } else { "[0-9]" }),
                Some('D') => out.push_str("[^0-9]"),
                Some('w') => out.push_str(if class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str(if class { r"\t\n\f\r " } else { r"[\t\n\f\r ]" }),
                Some('S') => out.push_str(r"[^\t\n\f\r ]"),
                Some('b') if !class => out.push_str(r"(?-u:\b)"),
                Some('Q') if !class => {
                    let mut quoted = String::new();
                    while let Some(next) = characters.next() {
                        if next == '\\' && characters.peek() == Some(&'E') {
                            characters.next();
                            break;
                        }
                        quoted.push(next);
                    }
                    out.push_str(&regex::escape(&quoted));
                }
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            '[' if class => {
                // A class by name stays one; any other bracket means itself.
                if characters.peek() == Some(&':') { out.push('[') } else { out.push_str("\\[") }
            }
            '[' => {
                class = true;
                out.push('[');
                if characters.peek() == Some(&'^') {
                    out.extend(characters.next());
                }
                if characters.peek() == Some(&']') {
                    characters.next();
                    out.push_str("\\]");
                }
            }
            ']' if class => {
                // The end of a class by name is no end of the class.
                class = out.ends_with(':')
                    && out.contains("[:")
                    && out.rfind("[:").unwrap_or(0) > out.rfind(":]").unwrap_or(0);
                out.push(']');
            }
            '&' | '~' if class => out.extend(['\\', character]),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_mean_what_they_mean_in_go() {
        for (pattern, yes, no) in [
            (r"^\d+$", "12", "١٢"),
            (r"^[\w.-]+$", "a_b.c-d", "é"),
            (r"^[[:alpha:]]+$", "abc", "a1"),
            (r"^[[:alpha:]_]x$", "_x", "1x"),
            (r"^[^\s]+$", "ab", "a b"),
            (r"^\Qa.b\E$", "a.b", "axb"),
            (r"^[a&&b]+$", "a&b", "c"),
            (r"^[]a]$", "]", "b"),
            (r"^[a[]$", "[", "b"),
            (r"\bfoo\b", "a foo b", "afoo"),
            (r"^(\*|[0-9]+)$", "*", "x"),
        ] {
            let regex = compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert!(regex.is_match(yes), "{pattern} takes {yes}");
            assert!(!regex.is_match(no), "{pattern} refuses {no}");
        }
    }

    #[test]
    fn what_is_none_or_too_large_is_refused() {
        for bad in ["(", "[", "a{1000000}", r"(?=a)", "((a{100}){100}){100}", "\\"] {
            assert!(compile(bad).is_err(), "{bad}");
        }
        assert!(Pattern::new("(").regex().is_none());
    }
}
