//! Decides one write against what is there: pure, shared by both engines.

use std::sync::Arc;

use super::StoreError;
use super::types::{Draft, Entry, Event, EventKind, Revision};

/// A wanted write.
#[derive(Debug)]
pub(super) enum Operation {
    Create { key: Arc<str>, draft: Draft },
    Update { key: Arc<str>, expected: Revision, draft: Draft },
    Delete { key: Arc<str>, expected: Revision, last: Draft },
}

impl Operation {
    pub(super) fn key(&self) -> &Arc<str> {
        match self {
            Self::Create { key, .. } | Self::Update { key, .. } | Self::Delete { key, .. } => key,
        }
    }
}

/// Returns the event that the operation makes at `revision`, given the current entry.
pub(super) fn plan(operation: Operation, current: Option<&Entry>, revision: Revision) -> Result<Event, StoreError> {
    let check = |key: &Arc<str>, expected: Revision| match current {
        None => Err(StoreError::NotFound { key: Arc::clone(key) }),
        Some(entry) if entry.revision != expected => {
            Err(StoreError::Conflict { key: Arc::clone(key), expected, found: entry.revision })
        }
        Some(entry) => Ok(Some(entry.value.clone())),
    };
    match operation {
        Operation::Create { key, draft } => match current {
            Some(_) => Err(StoreError::Exists { key }),
            None => Ok(Event::from_draft(revision, EventKind::Created, key, &draft, None)),
        },
        Operation::Update { key, expected, draft } => {
            let previous = check(&key, expected)?;
            Ok(Event::from_draft(revision, EventKind::Updated, key, &draft, previous))
        }
        Operation::Delete { key, expected, last } => {
            let previous = check(&key, expected)?;
            Ok(Event::from_draft(revision, EventKind::Deleted, key, &last, previous))
        }
    }
}

/// Returns what the writer of an event gets back: the entry as stored, or for a deletion as last seen.
pub(super) fn answer(event: &Event) -> Entry {
    Entry { key: Arc::clone(&event.key), revision: event.revision, value: event.object().into() }
}
