//! What a reader may ask for, as it stands in the query of `/containerLogs`.

use jiff::{SignedDuration, Timestamp};

/// Which output is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogStream {
    /// Both.
    #[default]
    All,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Go on while the container runs.
    pub follow: bool,
    /// The instance before this one.
    pub previous: bool,
    /// Each line with its time in front.
    pub timestamps: bool,
    /// Nothing older.
    pub since: Option<Timestamp>,
    /// This many lines from the end.
    pub tail: Option<u64>,
    /// No more output than this.
    pub limit: Option<u64>,
    /// Which output.
    pub stream: LogStream,
}

/// Why a query is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// A value is not of its kind: answered with 400.
    #[error("{{\"message\": \"Unable to decode query.\"}}")]
    Malformed,
    /// Values that do not go together or are out of range: answered with 422.
    #[error("{{\"message\": \"Invalid request.\"}}")]
    Invalid,
}

impl LogOptions {
    /// Reads the pairs of a query. Unknown names are left alone, as upstream does; of doubles the first counts.
    pub fn parse(pairs: &[(String, String)], now: Timestamp) -> Result<Self, OptionsError> {
        let get = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let mut options = Self {
            follow: flag(get("follow")),
            previous: flag(get("previous")),
            timestamps: flag(get("timestamps")),
            ..Self::default()
        };
        let tail = match get("tail").filter(|tail| !tail.is_empty()) {
            Some("all") => None,
            Some(tail) => Some(tail),
            None => get("tailLines"),
        };
        let tail = number(tail)?;
        let limit = number(get("limitBytes"))?;
        let seconds = number(get("sinceSeconds"))?;
        let time = match get("sinceTime").filter(|time| !time.is_empty()) {
            Some(text) => Some(text.parse::<Timestamp>().map_err(|_| OptionsError::Malformed)?),
            None => None,
        };
        options.stream = match get("stream") {
            None | Some("" | "All") => LogStream::All,
            Some("Stdout") => LogStream::Stdout,
            Some("Stderr") => LogStream::Stderr,
            Some(_) => return Err(OptionsError::Invalid),
        };
        let bad = tail.is_some_and(|tail| tail < 0)
            || limit.is_some_and(|limit| limit < 1)
            || seconds.is_some_and(|seconds| seconds < 1)
            || (seconds.is_some() && time.is_some())
            || (tail.is_some() && options.stream != LogStream::All);
        if bad {
            return Err(OptionsError::Invalid);
        }
        options.tail = tail.and_then(|tail| u64::try_from(tail).ok());
        options.limit = limit.and_then(|limit| u64::try_from(limit).ok());
        options.since = match seconds {
            Some(seconds) => Some(now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN)),
            None => time,
        };
        Ok(options)
    }
}

/// Upstream's query decoder takes everything but `false` and `0` for true.
fn flag(value: Option<&str>) -> bool {
    value.is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
}

fn number(value: Option<&str>) -> Result<Option<i64>, OptionsError> {
    match value.filter(|value| !value.is_empty()) {
        Some(text) => text.parse().map(Some).map_err(|_| OptionsError::Malformed),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &[(&str, &str)]) -> Result<LogOptions, OptionsError> {
        let pairs: Vec<_> = query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        LogOptions::parse(&pairs, "2026-01-01T00:01:00Z".parse().unwrap())
    }

    #[test]
    fn queries_are_read() {
        let options = parse(&[
            ("follow", "true"),
            ("previous", "0"),
            ("timestamps", ""),
            ("tail", "5"),
            ("limitBytes", "7"),
            ("x", "y"),
        ]);
        assert_eq!(
            options,
            Ok(LogOptions { follow: true, timestamps: true, tail: Some(5), limit: Some(7), ..LogOptions::default() })
        );
        assert_eq!(parse(&[("tail", "all"), ("tailLines", "3")]).unwrap().tail, None);
        assert_eq!(parse(&[("tailLines", "0")]).unwrap().tail, Some(0));
        let since = parse(&[("sinceSeconds", "60")]).unwrap().since.unwrap();
        assert_eq!(since.to_string(), "2026-01-01T00:00:00Z");
        assert_eq!(parse(&[("sinceTime", "2026-01-01T01:00:00+01:00")]).unwrap().since.unwrap(), since);
    }

    #[test]
    fn bad_queries_are_refused() {
        for (query, error) in [
            (&[("tailLines", "x")][..], OptionsError::Malformed),
            (&[("sinceTime", "yesterday")], OptionsError::Malformed),
            (&[("tailLines", "-1")], OptionsError::Invalid),
            (&[("limitBytes", "0")], OptionsError::Invalid),
            (&[("sinceSeconds", "0")], OptionsError::Invalid),
            (&[("sinceSeconds", "1"), ("sinceTime", "2026-01-01T00:00:00Z")], OptionsError::Invalid),
            (&[("stream", "stdout")], OptionsError::Invalid),
            (&[("stream", "Stdout"), ("tailLines", "1")], OptionsError::Invalid),
        ] {
            assert_eq!(parse(query), Err(error), "{query:?}");
        }
    }
}
