//! Words of the store: revisions, drafts, entries and events. Bytes are shared, never copied per reader.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::text::Text;
use super::watchers::Nodes;

/// What stands before the revision in a stored object.
const REVISION: &[u8] = b"\"resourceVersion\":\"";

/// A point in the store's history; each write has its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// Returns the revision after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An object about to be written: its JSON with a gap where the store puts the revision.
#[derive(Clone)]
pub struct Draft {
    head: Vec<u8>,
    tail: Option<Vec<u8>>,
}

impl fmt::Debug for Draft {
    // Objects may be Secrets: the size is all that a log may show.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Draft({} bytes)", self.len())
    }
}

impl Draft {
    /// Returns a draft into which the revision is written between `head` and `tail`.
    pub fn with_gap(head: Vec<u8>, tail: Vec<u8>) -> Self {
        Self { head, tail: Some(tail) }
    }

    /// Returns the draft of an object: kind, version and metadata first, the store's revision in `resourceVersion`.
    pub fn of(object: &Value) -> Self {
        let mut head = Vec::with_capacity(512);
        let mut tail = Vec::with_capacity(1024);
        head.push(b'{');
        for key in ["kind", "apiVersion"] {
            if let Some(value) = object.get(key) {
                member(&mut head, key, value);
                head.push(b',');
            }
        }
        head.extend_from_slice(b"\"metadata\":{");
        let empty = Map::new();
        let meta = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
        for key in ["name", "generateName", "namespace", "uid"] {
            if let Some(value) = meta.get(key) {
                member(&mut head, key, value);
                head.push(b',');
            }
        }
        head.extend_from_slice(REVISION);
        tail.push(b'"');
        let first = ["name", "generateName", "namespace", "uid", "resourceVersion"];
        for (key, value) in meta.iter().filter(|(key, _)| !first.contains(&key.as_str())) {
            tail.push(b',');
            member(&mut tail, key, value);
        }
        tail.push(b'}');
        let rest = object.as_object().into_iter().flatten();
        for (key, value) in rest.filter(|(key, _)| !["kind", "apiVersion", "metadata"].contains(&key.as_str())) {
            tail.push(b',');
            member(&mut tail, key, value);
        }
        tail.push(b'}');
        Self::with_gap(head, tail)
    }

    /// Returns the draft again of which these bytes are the rendering at `revision`, without parsing them; none if
    /// they do not begin as [`Draft::of`] writes an object.
    pub fn of_rendered(bytes: &[u8], revision: &str) -> Option<Self> {
        let at = bytes.windows(REVISION.len()).position(|window| window == REVISION)? + REVISION.len();
        let (head, rest) = bytes.split_at_checked(at)?;
        // Two maps are open there, the object and its metadata: no value before it holds braces or quotes of its own.
        let opened = head.iter().filter(|byte| **byte == b'{').count();
        let inner = head.iter().rposition(|byte| *byte == b'{')?;
        if opened != 2
            || !head.get(..inner)?.ends_with(b"\"metadata\":")
            || head.contains(&b'}')
            || head.contains(&b'\\')
        {
            return None;
        }
        let tail = rest.strip_prefix(revision.as_bytes())?;
        tail.starts_with(b"\"").then(|| Self::with_gap(head.to_vec(), tail.to_vec()))
    }

    /// Returns a draft that is stored as it is.
    pub fn plain(bytes: Vec<u8>) -> Self {
        Self { head: bytes, tail: None }
    }

    /// Returns its size without the revision.
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.as_ref().map_or(0, Vec::len)
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the stored bytes as they would be at `revision`; for dry runs an empty revision text may be wanted, so
    /// it is given as text.
    pub fn render(&self, revision: &str) -> Vec<u8> {
        let mut out = self.head.clone();
        if let Some(tail) = &self.tail {
            out.extend_from_slice(revision.as_bytes());
            out.extend_from_slice(tail);
        }
        out
    }
}

fn member(out: &mut Vec<u8>, key: &str, value: &Value) {
    // Writing a `Value` into memory cannot fail.
    drop(serde_json::to_writer(&mut *out, key));
    out.push(b':');
    drop(serde_json::to_writer(&mut *out, value));
}

/// What is stored under a key.
#[derive(Clone)]
pub struct Entry {
    /// The key.
    pub key: Arc<str>,
    /// When it was last written.
    pub revision: Revision,
    /// The object's JSON.
    pub value: Text,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({} at {}, {} bytes)", self.key, self.revision, self.value.len())
    }
}

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was free before.
    Created,
    /// It was replaced.
    Updated,
    /// It was removed.
    Deleted,
}

impl EventKind {
    /// The word a watch stream uses.
    pub fn word(self) -> &'static str {
        match self {
            Self::Created => "ADDED",
            Self::Updated => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }

    pub(super) fn code(self) -> u8 {
        match self {
            Self::Created => 1,
            Self::Updated => 2,
            Self::Deleted => 3,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Created),
            2 => Some(Self::Updated),
            3 => Some(Self::Deleted),
            _ => None,
        }
    }
}

/// One write, as watches see it. The watch frame is encoded once, here, and shared by all watchers; the stored value is
/// a slice of it.
#[derive(Clone)]
pub struct Event {
    /// When.
    pub revision: Revision,
    /// What.
    pub kind: EventKind,
    /// To which key.
    pub key: Arc<str>,
    /// `{"type":…,"object":…}` and a newline.
    frame: Bytes,
    object: Range<usize>,
    /// What was there before, if anything.
    pub previous: Option<Text>,
    nodes: OnceLock<Nodes>,
    views: Arc<Mutex<Cached>>,
}

/// What selectors look at of an event's two states; none where there is none or it is damaged.
#[derive(Debug)]
pub struct Views {
    /// What was there before.
    pub before: Option<Value>,
    /// What is there now; for a deletion, the last state.
    pub now: Option<Value>,
}

/// Parsed states are kept while an event is news, for all who filter look at it then; later there is no room for them.
enum Cached {
    News(Option<Arc<Views>>),
    Old,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({} {} at {}, {} bytes)", self.kind.word(), self.key, self.revision, self.object.len())
    }
}

impl Event {
    pub(super) fn new(
        revision: Revision,
        kind: EventKind,
        key: Arc<str>,
        parts: &[&[u8]],
        previous: Option<Text>,
    ) -> Self {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        let mut frame = Vec::with_capacity(size + 40);
        frame.extend_from_slice(b"{\"type\":\"");
        frame.extend_from_slice(kind.word().as_bytes());
        frame.extend_from_slice(b"\",\"object\":");
        let start = frame.len();
        for part in parts {
            frame.extend_from_slice(part);
        }
        let end = frame.len();
        frame.extend_from_slice(b"}\n");
        let views = Arc::new(Mutex::new(Cached::News(None)));
        Self { revision, kind, key, frame: frame.into(), object: start..end, previous, nodes: OnceLock::new(), views }
    }

    pub(super) fn from_draft(
        revision: Revision,
        kind: EventKind,
        key: Arc<str>,
        draft: &Draft,
        previous: Option<Text>,
    ) -> Self {
        let stamp = revision.to_string();
        match &draft.tail {
            Some(tail) => Self::new(revision, kind, key, &[&draft.head, stamp.as_bytes(), tail], previous),
            None => Self::new(revision, kind, key, &[&draft.head], previous),
        }
    }

    /// Returns the whole watch frame.
    pub fn frame(&self) -> Bytes {
        self.frame.clone()
    }

    /// Returns the object's JSON; for a deletion, its last state.
    pub fn object(&self) -> Bytes {
        self.frame.slice(self.object.clone())
    }

    /// Returns both states as `read` sees them, which must be the same for all who look at objects of this kind. Many
    /// watchers that filter look at the same event at about the same time: the first of them reads for all.
    pub fn views(&self, read: impl Fn(&[u8]) -> Option<Value>) -> Arc<Views> {
        let mut cached = self.views.lock();
        if let Cached::News(Some(views)) = &*cached {
            return Arc::clone(views);
        }
        let before = self.previous.as_ref().and_then(|before| read(&before.bytes()));
        let views = Arc::new(Views { before, now: read(&self.object()) });
        if let Cached::News(place) = &mut *cached {
            *place = Some(Arc::clone(&views));
        }
        views
    }

    /// Returns on which nodes the pod is and was.
    pub(super) fn nodes(&self) -> &Nodes {
        self.nodes.get_or_init(|| {
            let object = self.object();
            match &self.previous {
                Some(before) => Nodes::of(&self.key, &[&before.bytes(), &object]),
                None => Nodes::of(&self.key, &[&object]),
            }
        })
    }

    /// Forgets what was parsed: the event is no news any more.
    pub(super) fn age(&self) {
        *self.views.lock() = Cached::Old;
    }

    /// Returns the bytes this event holds on to.
    pub(super) fn weight(&self) -> usize {
        self.frame.len() + self.key.len() + 96
    }

    pub(super) fn entry(&self) -> Option<Entry> {
        match self.kind {
            EventKind::Created | EventKind::Updated => {
                Some(Entry { key: Arc::clone(&self.key), revision: self.revision, value: self.object().into() })
            }
            EventKind::Deleted => None,
        }
    }
}

/// What to list.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListRequest<'a> {
    /// Keys start with this.
    pub prefix: &'a str,
    /// Only keys behind this one.
    pub after: Option<&'a str>,
    /// As of this revision; now if none.
    pub at: Option<Revision>,
    /// At most this many.
    pub limit: Option<usize>,
}

/// A list's answer.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// In key order.
    pub entries: Vec<Entry>,
    /// The moment shown.
    pub revision: Revision,
    /// How many more there are behind the last entry.
    pub remaining: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_draft_is_the_object_with_the_revision_inside() {
        let object = json!({"kind": "K", "apiVersion": "v1", "metadata": {"name": "a\"b", "labels": {"x": "y"},
            "resourceVersion": "old"}, "z": [1, null], "data": {"resourceVersion": "mine"}});
        let bytes = Draft::of(&object).render("17");
        let mut want = object.clone();
        want["metadata"]["resourceVersion"] = json!("17");
        assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), want);
        let bare: Value = serde_json::from_slice(&Draft::of(&json!({})).render("1")).unwrap();
        assert_eq!(bare, json!({"metadata": {"resourceVersion": "1"}}));
    }

    #[test]
    fn a_rendered_draft_is_found_again_without_parsing() {
        let object = json!({"kind": "Pod", "metadata": {"name": "a", "uid": "u"}, "data": {"resourceVersion": "mine"}});
        let again = Draft::of_rendered(&Draft::of(&object).render("17"), "17").unwrap();
        assert_eq!(again.render("9"), Draft::of(&object).render("9"));
        // Others may write the members in another order, or names that look like members.
        for other in [
            r#"{"data":{"resourceVersion":"17"},"metadata":{"name":"a","resourceVersion":"17"}}"#,
            r#"{"metadata":{"name":"a","labels":{"resourceVersion":"17"},"resourceVersion":"17"}}"#,
            r#"{"metadata":{"name":"a\"{resourceVersion","resourceVersion":"17"}}"#,
            r#"{"metadata":{"name":"a"}}"#,
            r#"{"metadata":{"name":"a","resourceVersion":"16"}}"#,
        ] {
            assert!(Draft::of_rendered(other.as_bytes(), "17").is_none(), "{other}");
        }
    }
}
