//! Turns lines into what the reader gets: filtered, with times in front, cut at the limit. Pure.

use jiff::Timestamp;

use super::parse::{Format, Line};
use super::{LogOptions, LogStream};

/// Whether there is any point in going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    More,
    /// The limit is reached.
    Full,
}

/// The state between two lines.
#[derive(Debug)]
pub(super) struct Output {
    since: Option<Timestamp>,
    timestamps: bool,
    stream: LogStream,
    left: Option<u64>,
    format: Option<Format>,
    /// The next text begins a line of the container.
    fresh: bool,
}

impl Output {
    pub(super) fn new(options: &LogOptions) -> Self {
        Self {
            since: options.since,
            timestamps: options.timestamps,
            stream: options.stream,
            left: options.limit,
            format: None,
            fresh: true,
        }
    }

    /// Adds one line of the file to `out`. Lines that cannot be read are left out.
    pub(super) fn line(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Next {
        if self.format.is_none() {
            self.format = Format::detect(raw);
        }
        let Some(line) = self.format.and_then(|format| format.parse(raw)) else {
            tracing::debug!(bytes = raw.len(), "line of a container log not understood");
            return Next::More;
        };
        if self.leaves_out(&line) {
            return Next::More;
        }
        let before = out.len();
        if self.timestamps && self.fresh {
            out.extend_from_slice(fixed_width(&line.time).as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(&line.text);
        self.fresh = !line.partial;
        let Some(left) = self.left else { return Next::More };
        let added = u64::try_from(out.len() - before).unwrap_or(u64::MAX);
        if added < left {
            self.left = Some(left - added);
            return Next::More;
        }
        out.truncate(before + usize::try_from(left).unwrap_or(usize::MAX));
        self.left = Some(0);
        Next::Full
    }

    fn leaves_out(&self, line: &Line<'_>) -> bool {
        if self.stream != LogStream::All && self.stream != line.stream {
            return true;
        }
        // A time that cannot be read is no reason to hide a line.
        self.since.is_some_and(|since| line.time.parse::<Timestamp>().is_ok_and(|time| time < since))
    }
}

/// A time with exactly nine digits of a second.
fn fixed_width(time: &str) -> String {
    let zone =
        time.char_indices().skip(19).find(|(_, c)| !c.is_ascii_digit() && *c != '.').map_or(time.len(), |(at, _)| at);
    let (head, zone) = time.split_at(zone);
    let (seconds, fraction) = head.split_once('.').unwrap_or((head, ""));
    let fraction = &fraction[..fraction.len().min(9)];
    format!("{seconds}.{fraction:0<9}{zone}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_one_width() {
        for (given, shown) in [
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000000Z"),
            ("2026-01-01T00:00:00.12Z", "2026-01-01T00:00:00.120000000Z"),
            ("2026-01-01T00:00:00.123456789+02:00", "2026-01-01T00:00:00.123456789+02:00"),
        ] {
            assert_eq!(fixed_width(given), shown);
        }
    }
}
