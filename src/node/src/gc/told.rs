//! What cannot be removed is told once, and again when the cause is another one: collections come every minute for months.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// What was told. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Told {
    all: Arc<Mutex<Rounds>>,
}

#[derive(Debug, Default)]
struct Rounds {
    before: BTreeMap<String, String>,
    now: BTreeMap<String, String>,
}

impl Told {
    /// Notes why something cannot be removed; returns whether that is news.
    pub(super) fn is_news(&self, what: &str, cause: &str) -> bool {
        let mut all = self.all.lock();
        let known = all.now.get(what).or_else(|| all.before.get(what)).is_some_and(|told| told == cause);
        all.now.insert(what.to_owned(), cause.to_owned());
        !known
    }

    /// A collection is over: what did not fail in it is forgotten, and would be news again.
    pub(super) fn round_is_over(&self) {
        let mut all = self.all.lock();
        all.before = std::mem::take(&mut all.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_removed_is_told_once_until_its_cause_changes_or_it_was_gone() {
        let told = Told::default();
        assert!(told.is_news("pods/u1", "pods/u1/volumes/x is still mounted"));
        assert!(!told.is_news("pods/u1", "pods/u1/volumes/x is still mounted"), "twice in one collection");
        for _ in 0..1000 {
            told.round_is_over();
            assert!(!told.is_news("pods/u1", "pods/u1/volumes/x is still mounted"));
            assert!(told.is_news("pods/u1", "busy"));
            assert!(told.is_news("pods/u1", "pods/u1/volumes/x is still mounted"));
        }
        told.round_is_over();
        told.round_is_over();
        assert!(told.is_news("pods/u1", "pods/u1/volumes/x is still mounted"));
    }
}
