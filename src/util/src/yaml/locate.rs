//! Finds the line and column of a value by its path, for errors that are noticed after decoding. Reads the text a
//! second time, so it costs nothing unless something is wrong.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A place in a text, counted from one; zero when it is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// One step of a path into a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The value of that key.
    Key(String),
    /// The item at that place of a list.
    Index(usize),
}

/// A document with the place of each key and value.
enum Node {
    Map(Vec<(Spanned<String>, Spanned<Self>)>),
    List(Vec<Spanned<Self>>),
    Leaf,
}

/// Returns where the value at `path` starts: for the value of a key, where the key stands. When the path is not
/// there, the deepest part of it that is. Only the first document is looked at.
pub fn locate(text: &str, path: &[Step]) -> Option<Position> {
    super::on_own_stack(|| find(text, path)).ok().flatten()
}

fn find(text: &str, path: &[Step]) -> Option<Position> {
    let root: Spanned<Node> = serde_saphyr::from_str_with_options(text, super::options()).ok()?;
    let mut found = root.referenced;
    let mut node = &root;
    for step in path {
        match (&node.value, step) {
            (Node::Map(entries), Step::Key(key)) => {
                let Some((name, value)) = entries.iter().find(|(name, _)| name.value == *key) else { break };
                (found, node) = (name.referenced, value);
            }
            (Node::List(items), Step::Index(index)) => {
                let Some(item) = items.get(*index) else { break };
                (found, node) = (item.referenced, item);
            }
            _ => break,
        }
    }
    let line = usize::try_from(found.line()).ok().filter(|line| *line > 0)?;
    Some(Position { line, column: usize::try_from(found.column()).unwrap_or_default() })
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

macro_rules! leaves {
    ($($name:ident: $type:ty),*) => {
        $(fn $name<E>(self, _: $type) -> Result<Node, E> {
            Ok(Node::Leaf)
        })*
    };
}

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    leaves!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128, visit_f64: f64, visit_str: &str, visit_bytes: &[u8]);

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key()? {
            map.push((key, entries.next_value()?));
        }
        Ok(Node::Map(map))
    }
}
