//! Durations as Go writes them (`1h2m3.5s`), which is how configuration files and flags give them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// A signed duration in nanoseconds; text form as in Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GoDuration(i64);

/// Text that is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not of the form number and unit.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// A unit that Go does not know.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl GoDuration {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// Builds from nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Builds from whole seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// The nanoseconds.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// As a standard duration; a negative one counts as zero.
    pub fn as_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Self, DurationError> {
        let invalid = || DurationError::Invalid(text.to_owned());
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: i128 = 0;
        while !rest.is_empty() {
            let digits = |text: &str| text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
            let whole_end = digits(rest);
            let whole = &rest[..whole_end];
            rest = &rest[whole_end..];
            let mut fraction = "";
            if let Some(after) = rest.strip_prefix('.') {
                let end = digits(after);
                (fraction, rest) = after.split_at(end);
            }
            if whole.is_empty() && fraction.is_empty() {
                return Err(invalid());
            }
            let unit_end = rest.find(|character: char| character == '.' || character.is_ascii_digit());
            let (unit, after) = rest.split_at(unit_end.unwrap_or(rest.len()));
            if unit.is_empty() {
                return Err(DurationError::MissingUnit(text.to_owned()));
            }
            let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
                return Err(DurationError::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() });
            };
            rest = after;
            // 18 digits are more than an i64 of nanoseconds holds, whatever the unit.
            if whole.len() > 18 {
                return Err(invalid());
            }
            let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
            let mut part = 0;
            for digit in fraction.bytes().rev() {
                part = (i128::from(digit - b'0') * factor + part) / 10;
            }
            total += whole * factor + part;
        }
        let total = if negative { -total } else { total };
        i64::try_from(total).map(Self).map_err(|_| invalid())
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        Self::parse(text)
    }
}

impl fmt::Display for GoDuration {
    /// Like Go: `2m0s`, `1.5s`, `100ms`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let scaled = |f: &mut fmt::Formatter<'_>, unit: u64, name: &str| {
            let (whole, part) = (nanos / unit, nanos % unit);
            write!(f, "{whole}")?;
            if part > 0 {
                let width = unit.ilog10() as usize;
                let digits = format!("{part:0width$}");
                write!(f, ".{}", digits.trim_end_matches('0'))?;
            }
            f.write_str(name)
        };
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => scaled(f, 1, "ns"),
            1_000..1_000_000 => scaled(f, 1_000, "µs"),
            1_000_000..1_000_000_000 => scaled(f, 1_000_000, "ms"),
            _ => {
                let (seconds, part) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
                let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
                if hours > 0 {
                    write!(f, "{hours}h")?;
                }
                if hours > 0 || minutes > 0 {
                    write!(f, "{minutes}m")?;
                }
                write!(f, "{seconds}")?;
                if part > 0 {
                    write!(f, ".{}", format!("{part:09}").trim_end_matches('0'))?;
                }
                f.write_str("s")
            }
        }
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    /// Takes text, or nanoseconds as a number.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DurationVisitor)
    }
}

struct DurationVisitor;

impl Visitor<'_> for DurationVisitor {
    type Value = GoDuration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration like 1m30s")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<GoDuration, E> {
        GoDuration::parse(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, nanos: i64) -> Result<GoDuration, E> {
        Ok(GoDuration(nanos))
    }

    fn visit_u64<E: de::Error>(self, nanos: u64) -> Result<GoDuration, E> {
        i64::try_from(nanos).map(GoDuration).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_read_and_written_as_in_go() {
        for (text, want) in [
            ("0", "0s"),
            ("0s", "0s"),
            ("2m", "2m0s"),
            ("4h", "4h0m0s"),
            ("90s", "1m30s"),
            ("1.5s", "1.5s"),
            ("100ms", "100ms"),
            ("1h0m0.25s", "1h0m0.25s"),
            ("-1s", "-1s"),
            ("1500us", "1.5ms"),
            ("3ns", "3ns"),
            (".5s", "500ms"),
            ("2562047h47m16.854775807s", "2562047h47m16.854775807s"),
        ] {
            assert_eq!(GoDuration::parse(text).unwrap().to_string(), want, "{text}");
        }
    }

    #[test]
    fn bad_text_has_gos_words() {
        let error = |text: &str| GoDuration::parse(text).unwrap_err().to_string();
        assert_eq!(error("5"), "time: missing unit in duration \"5\"");
        assert_eq!(error("5x"), "time: unknown unit \"x\" in duration \"5x\"");
        for text in ["", "-", ".s", "s", "99999999999999999999h", "1h-2m"] {
            assert!(GoDuration::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_duration_survives(nanos in any::<i64>().prop_filter("Go's own edge", |nanos| *nanos != i64::MIN)) {
            let duration = GoDuration::from_nanos(nanos);
            prop_assert_eq!(GoDuration::parse(&duration.to_string()).unwrap(), duration);
        }
    }
}
