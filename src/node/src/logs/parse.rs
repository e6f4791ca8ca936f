//! Lines of log files: the CRI's form, and the JSON form that Docker wrote. Pure; takes any bytes.

use std::borrow::Cow;

use super::LogStream;

/// One line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// RFC 3339, as written.
    pub(super) time: Cow<'a, str>,
    pub(super) stream: LogStream,
    /// What the container wrote; ends with a newline unless more of its line follows.
    pub(super) text: Cow<'a, [u8]>,
    pub(super) partial: bool,
}

/// How a file is written; the first line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Cri,
    Json,
}

impl Format {
    /// Recognises the form of a line.
    pub(super) fn detect(line: &[u8]) -> Option<Self> {
        [Self::Cri, Self::Json].into_iter().find(|format| format.parse(line).is_some())
    }

    /// Reads a line, with or without its newline; `None` when it is not of this form.
    pub(super) fn parse(self, line: &[u8]) -> Option<Line<'_>> {
        match self {
            Self::Cri => cri(line),
            Self::Json => json(line),
        }
    }
}

/// `<time> <stdout|stderr> <tags> <text>`; of the tags, split by colons, the first says whether the line is whole.
fn cri(line: &[u8]) -> Option<Line<'_>> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let time = std::str::from_utf8(parts.next()?).ok()?;
    if !looks_like_time(time) {
        return None;
    }
    let stream = stream_of(parts.next()?)?;
    let tags = parts.next()?;
    let text = parts.next().unwrap_or_default();
    let partial = tags.split(|byte| *byte == b':').next() == Some(b"P");
    let mut text = text.to_vec();
    if !partial {
        text.push(b'\n');
    }
    Some(Line { time: Cow::Borrowed(time), stream, text: Cow::Owned(text), partial })
}

#[derive(serde::Deserialize)]
struct JsonLine {
    log: String,
    stream: String,
    time: String,
}

fn json(line: &[u8]) -> Option<Line<'static>> {
    if line.first() != Some(&b'{') {
        return None;
    }
    let line: JsonLine = serde_json::from_slice(line).ok()?;
    if !looks_like_time(&line.time) {
        return None;
    }
    Some(Line {
        stream: stream_of(line.stream.as_bytes())?,
        time: Cow::Owned(line.time),
        partial: !line.log.ends_with('\n'),
        text: Cow::Owned(line.log.into_bytes()),
    })
}

fn stream_of(word: &[u8]) -> Option<LogStream> {
    match word {
        b"stdout" => Some(LogStream::Stdout),
        b"stderr" => Some(LogStream::Stderr),
        _ => None,
    }
}

/// Cheap look: `2026-01-01T00:00:00…`; a full parse is made only when times are compared.
fn looks_like_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20
        && bytes[..4].iter().all(u8::is_ascii_digit)
        && [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')].iter().all(|(at, want)| bytes[*at] == *want)
        && bytes.iter().all(u8::is_ascii)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_both_forms() {
        let line = cri(b"2026-01-01T00:00:00.1Z stdout F hello  world\n").unwrap();
        assert_eq!((line.text.as_ref(), line.partial, line.stream), (&b"hello  world\n"[..], false, LogStream::Stdout));
        let line = cri(b"2026-01-01T00:00:00.1+02:00 stderr P:x \xff\xfe").unwrap();
        assert_eq!((line.text.as_ref(), line.partial, line.stream), (&b"\xff\xfe"[..], true, LogStream::Stderr));
        assert_eq!(cri(b"2026-01-01T00:00:00Z stdout F \n").unwrap().text.as_ref(), b"\n");
        assert_eq!(cri(b"2026-01-01T00:00:00Z stdout F\n").unwrap().text.as_ref(), b"\n");
        let line = json(br#"{"log":"a\n","stream":"stderr","time":"2026-01-01T00:00:00.5Z"}"#).unwrap();
        assert_eq!((line.text.as_ref(), line.partial), (&b"a\n"[..], false));
        for bad in
            [&b""[..], b"\n", b"x stdout F y", b"2026-01-01T00:00:00Z other F y", b"2026-01-01T00:00:00Z stdout", b"{}"]
        {
            assert_eq!(Format::detect(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop((cri(&line), json(&line)));
        }
    }
}
