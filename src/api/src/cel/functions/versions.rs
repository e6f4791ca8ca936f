//! Semantic versions.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::cel::eval::{Found, failed, no_overload};
use crate::cel::value::Val;

/// A part of what stands behind the `-`. Numbers come before words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Word(String),
}

/// A version. What stands behind a `+` is no part of its order.
#[derive(Debug, Clone)]
pub(in crate::cel) struct Version {
    numbers: [u64; 3],
    before: Vec<Part>,
}

impl Version {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, before) = rest.split_once('-').map_or((rest, None), |(patch, before)| (patch, Some(before)));
        let numbers = [number("major", major)?, number("minor", minor)?, number("patch", patch)?];
        let before = before.map(|before| before.split('.').map(part).collect()).transpose()?.unwrap_or_default();
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !part.chars().all(is_letter) {
                return Err(format!("Invalid character(s) found in build meta data {part:?}"));
            }
        }
        Ok(Self { numbers, before })
    }

    /// Reads a version that may have a `v` in front, fewer numbers, and zeros that are not needed.
    fn parse_loosely(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(shortened).collect();
        if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
        Self::parse(&parts.join("."))
    }

    fn order(&self, other: &Self) -> Ordering {
        // One that is finished comes after what came before it.
        let finished = (self.before.is_empty(), other.before.is_empty());
        self.numbers.cmp(&other.numbers).then_with(|| match finished {
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ => self.before.cmp(&other.before),
        })
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.order(other) == Ordering::Equal
    }
}

fn is_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '-'
}

fn shortened(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let short = part.trim_start_matches('0');
    if short.starts_with(|first: char| first.is_ascii_digit()) { short.to_owned() } else { format!("0{short}") }
}

fn number(what: &str, text: &str) -> Result<u64, String> {
    if text.is_empty() || !text.chars().all(|digit| digit.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {what} number {text:?}"));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{what} number must not contain leading zeroes {text:?}"));
    }
    text.parse().map_err(|_| format!("{what} number is out of range {text:?}"))
}

fn part(text: &str) -> Result<Part, String> {
    match text {
        "" => Err("Prerelease is empty".to_owned()),
        text if text.chars().all(|digit| digit.is_ascii_digit()) => number("prerelease", text).map(Part::Number),
        text if text.chars().all(is_letter) => Ok(Part::Word(text.to_owned())),
        text => Err(format!("Invalid character(s) found in prerelease {text:?}")),
    }
}

/// A function without a value in front; nothing if there is none such.
pub(super) fn function<'v>(name: &str, args: &[Val<'v>]) -> Option<Found<'v>> {
    let (text, loosely) = match args {
        [Val::Text(text)] => (text, false),
        [Val::Text(text), Val::Bool(loosely)] => (text, *loosely),
        _ => return None,
    };
    let version = || if loosely { Version::parse_loosely(text) } else { Version::parse(text) };
    Some(match name {
        "semver" => version().map_or_else(failed, |version| Ok(Val::Version(Arc::new(version)))),
        "isSemver" => Ok(Val::Bool(version().is_ok())),
        _ => return None,
    })
}

/// A function of a version.
pub(super) fn method<'v>(version: &Version, name: &str, args: &[Val<'v>]) -> Found<'v> {
    let int = |number: u64| Ok(Val::Int(i64::try_from(number).unwrap_or(i64::MAX)));
    let [major, minor, patch] = version.numbers;
    match (name, args) {
        ("major", []) => int(major),
        ("minor", []) => int(minor),
        ("patch", []) => int(patch),
        ("isGreaterThan", [Val::Version(other)]) => Ok(Val::Bool(version.order(other) == Ordering::Greater)),
        ("isLessThan", [Val::Version(other)]) => Ok(Val::Bool(version.order(other) == Ordering::Less)),
        ("compareTo", [Val::Version(other)]) => Ok(Val::Int(match version.order(other) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        })),
        _ => no_overload(),
    }
}
