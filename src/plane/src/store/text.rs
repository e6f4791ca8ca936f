//! Texts of stored objects, in which pieces that many objects have in common are kept once: the lists of owned fields,
//! tolerations, probes and labels of a replica set's pods are the same to the byte, and half of what a pod is.
//!
//! What is shared is found in the text by a few names of members. No meaning is put into them: whatever is cut out is put
//! back at the same place, byte by byte.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

/// Members whose values are worth sharing.
const SHARED: [&[u8]; 12] = [
    b"annotations",
    b"env",
    b"fieldsV1",
    b"labels",
    b"livenessProbe",
    b"matchLabels",
    b"nodeInfo",
    b"ownerReferences",
    b"readinessProbe",
    b"securityContext",
    b"tolerations",
    b"volumeMounts",
];

/// Shorter values are not worth a place of their own.
const LEAST: usize = 96;

/// A stored object's JSON.
#[derive(Clone)]
pub struct Text {
    /// What is its own.
    own: Bytes,
    inserts: Option<Arc<[Insert]>>,
}

/// A piece that stands before the byte `at` of what is an object's own.
struct Insert {
    at: usize,
    piece: Arc<[u8]>,
}

impl fmt::Debug for Text {
    // Objects may be Secrets: the size is all that a log may show.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes)", self.len())
    }
}

impl From<Bytes> for Text {
    fn from(own: Bytes) -> Self {
        Self { own, inserts: None }
    }
}

impl Text {
    /// Returns its length.
    pub fn len(&self) -> usize {
        self.own.len() + self.inserts().iter().map(|insert| insert.piece.len()).sum::<usize>()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns it in one; a copy where pieces are shared.
    pub fn bytes(&self) -> Bytes {
        if self.inserts.is_none() {
            return self.own.clone();
        }
        let mut out = BytesMut::with_capacity(self.len());
        self.write(&mut out);
        out.freeze()
    }

    /// Writes it behind what is there.
    pub fn write(&self, out: &mut BytesMut) {
        self.pieces().for_each(|piece| out.extend_from_slice(piece));
    }

    /// Returns it in pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.inserts().iter().map(|insert| insert.at));
        let inserts = self.inserts().iter().map(Some).chain(std::iter::once(None));
        starts.zip(inserts).flat_map(|(from, insert)| {
            let end = insert.map_or(self.own.len(), |insert| insert.at);
            [self.own.get(from..end).unwrap_or_default(), insert.map_or(&[], |insert| &*insert.piece)]
        })
    }

    fn inserts(&self) -> &[Insert] {
        self.inserts.as_deref().unwrap_or_default()
    }
}

/// The pieces that are shared, each once.
#[derive(Default)]
pub(super) struct Pool {
    pieces: HashSet<Arc<[u8]>>,
    /// From so many on those that nobody has any more are looked for.
    full: usize,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} pieces)", self.pieces.len())
    }
}

impl Pool {
    /// Returns an object's text as it is kept.
    pub(super) fn pack(&mut self, text: &[u8]) -> Text {
        let found = worth_sharing(text);
        let shared: usize = found.iter().map(ExactSizeIterator::len).sum();
        let (mut own, mut inserts, mut from) = (Vec::with_capacity(text.len() - shared), Vec::new(), 0);
        for range in found {
            own.extend_from_slice(&text[from..range.start]);
            from = range.end;
            inserts.push(Insert { at: own.len(), piece: self.share(&text[range]) });
        }
        own.extend_from_slice(&text[from..]);
        Text { own: own.into(), inserts: (!inserts.is_empty()).then(|| inserts.into()) }
    }

    fn share(&mut self, piece: &[u8]) -> Arc<[u8]> {
        if let Some(known) = self.pieces.get(piece) {
            return Arc::clone(known);
        }
        if self.pieces.len() >= self.full {
            self.pieces.retain(|piece| Arc::strong_count(piece) > 1);
            self.full = (self.pieces.len() * 2).max(1024);
        }
        let new: Arc<[u8]> = piece.into();
        self.pieces.insert(Arc::clone(&new));
        new
    }
}

/// Finds the values of those members, in order and apart. Of what is not JSON it may find anything.
fn worth_sharing(text: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((name, end)) = next_string(text, at) {
        at = end;
        let opens = text.get(end) == Some(&b':') && matches!(text.get(end + 1), Some(b'{' | b'['));
        if opens
            && SHARED.contains(&&text[name])
            && let Some(last) = end_of_value(text, end + 1)
        {
            if last - (end + 1) >= LEAST {
                found.push(end + 1..last);
            }
            at = last;
        }
    }
    found
}

/// Finds the next string: what is in it, and the place behind its end.
fn next_string(text: &[u8], from: usize) -> Option<(Range<usize>, usize)> {
    let start = from + memchr::memchr(b'"', text.get(from..)?)? + 1;
    let mut at = start;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some((start..at, at + 1));
        }
        at += 2;
    }
}

/// Finds the place behind the map or list that begins at `from`.
fn end_of_value(text: &[u8], from: usize) -> Option<usize> {
    let (mut depth, mut at) = (0usize, from);
    loop {
        match text.get(at)? {
            b'"' => {
                at = next_string(text, at)?.1;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn long(word: &str) -> String {
        format!("{{\"a\":\"{}\",\"b\":[1,{{\"c\":\"}}]\\\"{{\"}}]}}", word.repeat(80))
    }

    #[test]
    fn equal_pieces_are_kept_once_and_texts_come_back_as_they_were() {
        let mut pool = Pool::default();
        let text = |name: &str| {
            let (fields, env) = (long("f"), long("e"));
            format!(
                "{{\"metadata\":{{\"name\":\"{name}\",\"managedFields\":[{{\"fieldsV1\":{fields}}},{{\"fieldsV1\":{fields}}}]}},\"env\":{env},\"labels\":{{}}}}"
            )
        };
        let texts: Vec<String> = ["one", "two", "three"].map(text).to_vec();
        let packed: Vec<Text> = texts.iter().map(|text| pool.pack(text.as_bytes())).collect();
        assert_eq!(pool.pieces.len(), 2);
        for (text, packed) in texts.iter().zip(&packed) {
            assert_eq!(packed.bytes(), text.as_bytes());
            assert_eq!((packed.len(), packed.inserts().len()), (text.len(), 3));
            assert!(packed.own.len() < 120, "{:?}", packed.own);
        }
        drop(packed);
        pool.full = 0;
        pool.pack(format!("{{\"env\":{}}}", long("x")).as_bytes());
        assert_eq!(pool.pieces.len(), 1, "what nobody has any more is gone");
    }

    #[test]
    fn names_inside_of_strings_are_no_members() {
        let data = format!(
            "{{\"data\":{{\"text\":\"\\\"env\\\":{}\"}}}}",
            long("x").replace('\\', "\\\\").replace('"', "\\\"")
        );
        assert!(serde_json::from_str::<serde_json::Value>(&data).is_ok());
        assert!(worth_sharing(data.as_bytes()).is_empty());
    }

    proptest! {
        #[test]
        fn whatever_is_packed_comes_back(parts in proptest::collection::vec(
            prop_oneof![Just("\"env\":"), Just("{"), Just("}"), Just("["), Just("]"), Just("\""), Just("\\"), Just(","),
                Just("\"labels\":{\"x\":\"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\"}"),
                Just("\"fieldsV1\":[")], 0..40))
        {
            let text = parts.concat();
            prop_assert_eq!(Pool::default().pack(text.as_bytes()).bytes(), text.as_bytes());
        }
    }
}
