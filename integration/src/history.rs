//! Recorded histories of writes, reads and watches, and what must hold of them: no answered write lost, the order of
//! revisions is the order of everybody's events, no gap, no event twice.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

/// What happened to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// When, by the server's count.
    pub revision: u64,
    /// The object's name.
    pub key: String,
    /// The value that it got, or had when it was deleted. No two writes use the same.
    pub value: u64,
    /// The value that its writer had read before; 0 if there was no object.
    pub previous: u64,
    /// Whether the object went.
    pub deleted: bool,
}

/// A write as its writer knows it after the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// The object's name.
    pub key: String,
    /// The value written, or the one deleted.
    pub value: u64,
    /// What the answer said; a deletion's says nothing.
    pub revision: Option<u64>,
    /// Whether it was a deletion.
    pub deleted: bool,
}

/// What one watch told without a break: everything behind `from`.
#[derive(Debug, Clone, Default)]
pub struct Segment {
    /// Where it began.
    pub from: u64,
    /// In the order in which it came.
    pub changes: Vec<Change>,
}

/// Checks the history as the store keeps it: each change follows the one before, each answered write is there once.
pub fn check_store(history: &[Change], answered: &[Answered]) -> Result<()> {
    let mut current: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut last, mut writes, mut deletes) = (0, BTreeMap::new(), BTreeSet::new());
    for change in history {
        ensure!(change.revision > last, "{change:?} after revision {last}");
        last = change.revision;
        let there = current.get(&*change.key).copied().unwrap_or(0);
        if change.deleted {
            ensure!(change.value == there, "{change:?}: the object had {there}");
            deletes.insert(change.value);
            current.remove(&*change.key);
        } else {
            ensure!(change.previous == there, "an update was lost: {change:?} was made of another value than {there}");
            ensure!(writes.insert(change.value, change).is_none(), "twice: {change:?}");
            current.insert(&change.key, change.value);
        }
    }
    for answer in answered {
        if answer.deleted {
            ensure!(deletes.contains(&answer.value), "an answered deletion is lost: {answer:?}");
            continue;
        }
        let Some(change) = writes.get(&answer.value) else { anyhow::bail!("an answered write is lost: {answer:?}") };
        ensure!(change.key == answer.key && Some(change.revision) == answer.revision, "{answer:?} but {change:?}");
    }
    Ok(())
}

/// Checks that a watch told exactly what the store's history has behind its beginning, up to its last event.
pub fn check_watch(history: &[Change], segment: &Segment) -> Result<()> {
    let Some(end) = segment.changes.last().map(|change| change.revision) else { return Ok(()) };
    let wanted: Vec<&Change> =
        history.iter().filter(|change| change.revision > segment.from && change.revision <= end).collect();
    for (told, wanted) in segment.changes.iter().zip(&wanted) {
        ensure!(told == *wanted, "a watch from {} told {told:?} where {wanted:?} comes next", segment.from);
    }
    let (told, wanted) = (segment.changes.len(), wanted.len());
    ensure!(told == wanted, "a watch from {} told {told} events up to {end}, not {wanted}", segment.from);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(revision: u64, value: u64, previous: u64) -> Change {
        Change { revision, key: "a".to_owned(), value, previous, deleted: false }
    }

    fn answered(revision: u64, value: u64) -> Answered {
        Answered { key: "a".to_owned(), value, revision: Some(revision), deleted: false }
    }

    #[test]
    fn a_sound_history_passes() {
        let gone = Change { deleted: true, ..change(5, 2, 1) };
        let history = [change(2, 1, 0), change(4, 2, 1), gone, change(7, 3, 0)];
        check_store(&history, &[answered(4, 2), answered(7, 3)]).unwrap();
        check_watch(&history, &Segment { from: 2, changes: history[1..3].to_vec() }).unwrap();
    }

    #[test]
    fn what_must_not_be_is_found() {
        let history = [change(2, 1, 0), change(4, 2, 1)];
        let lost = check_store(&history, &[answered(5, 9)]).unwrap_err();
        assert!(lost.to_string().contains("lost"), "{lost}");
        assert!(check_store(&history, &[answered(3, 2)]).is_err(), "another revision than answered");
        assert!(check_store(&[change(2, 1, 0), change(4, 2, 7)], &[]).is_err(), "made of what was not there");
        assert!(check_store(&[change(4, 1, 0), change(2, 2, 1)], &[]).is_err(), "backwards");
        let watch = |changes: &[Change]| check_watch(&history, &Segment { from: 0, changes: changes.to_vec() });
        assert!(watch(&history[1..]).is_err(), "gap");
        assert!(watch(&[change(2, 1, 0), change(2, 1, 0), change(4, 2, 1)]).is_err(), "twice");
    }
}
