//! How rows look on disk. The format's number is in the `meta` table; a change here needs a new one and a migration.
//!
//! `objects`: key → revision (8 bytes, little endian), JSON. `log`: revision → kind (1), time in ms (8), key length (4),
//! key, previous length + 1 or 0 for none (8), previous, JSON.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::super::text::Text;
use super::super::types::{Entry, Event, EventKind, Revision};

/// The format written by this release.
pub(super) const FORMAT: u64 = 1;

pub(super) fn object(entry: &Entry) -> Vec<u8> {
    let mut row = Vec::with_capacity(8 + entry.value.len());
    row.extend_from_slice(&entry.revision.0.to_le_bytes());
    entry.value.pieces().for_each(|piece| row.extend_from_slice(piece));
    row
}

pub(super) fn read_object(key: &str, row: &[u8]) -> Option<Entry> {
    let (revision, value) = row.split_first_chunk::<8>()?;
    Some(Entry {
        key: Arc::from(key),
        revision: Revision(u64::from_le_bytes(*revision)),
        value: Bytes::copy_from_slice(value).into(),
    })
}

pub(super) fn event(event: &Event, at: Timestamp) -> Vec<u8> {
    let object = event.object();
    let previous = event.previous.as_ref();
    let mut row = Vec::with_capacity(32 + event.key.len() + object.len() + previous.map_or(0, Text::len));
    row.push(event.kind.code());
    row.extend_from_slice(&at.as_millisecond().to_le_bytes());
    row.extend_from_slice(&u32::try_from(event.key.len()).unwrap_or(u32::MAX).to_le_bytes());
    row.extend_from_slice(event.key.as_bytes());
    let length = previous.map_or(0, |previous| u64::try_from(previous.len()).unwrap_or(u64::MAX).saturating_add(1));
    row.extend_from_slice(&length.to_le_bytes());
    previous.into_iter().flat_map(Text::pieces).for_each(|piece| row.extend_from_slice(piece));
    row.extend_from_slice(&object);
    row
}

pub(super) fn read_event(revision: u64, row: &[u8]) -> Option<(Event, Timestamp)> {
    let (kind, row) = row.split_first()?;
    let (at, row) = row.split_first_chunk::<8>()?;
    let (length, row) = row.split_first_chunk::<4>()?;
    let (key, row) = row.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    let (length, row) = row.split_first_chunk::<8>()?;
    let (previous, row) = match u64::from_le_bytes(*length).checked_sub(1) {
        None => (None, row),
        Some(length) => {
            let (previous, row) = row.split_at_checked(usize::try_from(length).ok()?)?;
            (Some(Text::from(Bytes::copy_from_slice(previous))), row)
        }
    };
    let at = Timestamp::from_millisecond(i64::from_le_bytes(*at)).ok()?;
    let key = Arc::from(std::str::from_utf8(key).ok()?);
    Some((Event::new(Revision(revision), EventKind::from_code(*kind)?, key, &[row], previous), at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_read_back_and_broken_ones_are_refused() {
        let at = Timestamp::from_millisecond(1_700_000_000_123).unwrap();
        for previous in [None, Some(Bytes::from_static(b"")), Some(Bytes::from_static(b"{\"a\":1}"))] {
            let text = previous.clone().map(Text::from);
            let made = Event::new(Revision(7), EventKind::Updated, "pods/a/b".into(), &[b"{}"], text);
            let row = event(&made, at);
            let (read, when) = read_event(7, &row).unwrap();
            let before = read.previous.as_ref().map(Text::bytes);
            assert_eq!((read.frame(), before, when), (made.frame(), previous, at));
        }
        for cut in 0..29 {
            let row = event(&Event::new(Revision(7), EventKind::Created, "pods/a/b".into(), &[b"{}"], None), at);
            assert!(cut >= row.len() - 2 || read_event(7, &row[..cut]).is_none(), "{cut}");
        }
    }
}
