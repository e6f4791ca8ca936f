//! Order of merged lists: what the patch (or `$setElementOrder`) names comes in its order, what only the server has
//! stays where it was relative to those.

use serde_json::Value;

/// Says whether two items stand for the same: equal merge keys, or equal primitives when the key is empty.
pub(super) fn same(a: &Value, b: &Value, key: &str) -> bool {
    if key.is_empty() {
        return a == b;
    }
    match (a.get(key), b.get(key)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

/// The place of an item in a list.
pub(super) fn index(list: &[Value], item: &Value, key: &str) -> Option<usize> {
    list.iter().position(|other| same(other, item, key))
}

/// Arranges `merged` by the wanted order, with the server's order for the items that it does not name.
pub(super) fn arrange(merged: Vec<Value>, wanted: &[Value], server: &[Value], key: &str) -> Vec<Value> {
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| index(wanted, item, key).is_some());
    let rank = |list: &[Value], item: &Value| index(list, item, key).unwrap_or(usize::MAX);
    named.sort_by_cached_key(|item| rank(wanted, item));
    others.sort_by_cached_key(|item| rank(server, item));
    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().peekable();
    for other in others {
        let place = index(server, &other, key);
        // Named items go first until one that the server had after this one. A named item that is new to the server
        // does not hold it back.
        while let Some(item) = named.peek() {
            let goes_before = match (place, index(server, item, key)) {
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
