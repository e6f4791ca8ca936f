//! Order of merged lists: what the patch (or `$setElementOrder`) names comes in its order, what only the server has
//! stays where it was relative to those.

use std::collections::HashMap;

use serde_json::Value;

/// What an item of a list stands for: its merge key, or the primitive itself when the key is empty.
pub(super) fn identity(item: &Value, key: &str) -> Option<String> {
    if key.is_empty() { Some(item.to_string()) } else { item.get(key).map(Value::to_string) }
}

/// Where items stand in a list. Looked up by what they stand for: lists may be as long as a request allows, and there are
/// several of them.
#[derive(Debug)]
pub(super) struct Places<'k> {
    key: &'k str,
    found: HashMap<String, usize>,
    length: usize,
}

impl<'k> Places<'k> {
    pub(super) fn of(list: &[Value], key: &'k str) -> Self {
        let mut places = Self { key, found: HashMap::with_capacity(list.len()), length: 0 };
        list.iter().for_each(|item| places.push(item));
        places
    }

    /// Counts one more item; the first of those that stand for the same is the one that is found.
    pub(super) fn push(&mut self, item: &Value) {
        if let Some(identity) = identity(item, self.key) {
            self.found.entry(identity).or_insert(self.length);
        }
        self.length += 1;
    }

    /// Returns the place of what an item stands for.
    pub(super) fn find(&self, item: &Value) -> Option<usize> {
        self.found.get(&identity(item, self.key)?).copied()
    }
}

/// Arranges `merged` by the wanted order, with the server's order for the items that it does not name.
pub(super) fn arrange(merged: Vec<Value>, wanted: &[Value], server: &[Value], key: &str) -> Vec<Value> {
    let (wanted, server) = (Places::of(wanted, key), Places::of(server, key));
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| wanted.find(item).is_some());
    named.sort_by_cached_key(|item| wanted.find(item).unwrap_or(usize::MAX));
    others.sort_by_cached_key(|item| server.find(item).unwrap_or(usize::MAX));
    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().peekable();
    for other in others {
        let place = server.find(&other);
        // Named items go first until one that the server had after this one. A named item that is new to the server
        // does not hold it back.
        while let Some(item) = named.peek() {
            let goes_before = match (place, server.find(item)) {
                (Some(place), Some(item)) => place < item,
                _ => false,
            };
            if goes_before {
                break;
            }
            result.extend(named.next());
        }
        result.push(other);
    }
    result.extend(named);
    result
}
