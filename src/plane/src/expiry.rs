//! Drops events after an hour, as a stock cluster does: nothing that pods can make grow stays for ever.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use longshore_api::selector::Outline;
use longshore_util::Tasks;
use serde_json::Value;

use crate::apiserver::error::ApiError;
use crate::apiserver::object::meta;
use crate::apiserver::registry::{DeleteOptions, ListOptions, Registry};
use crate::apiserver::resources::EVENTS;

/// How long an event is kept after it was last written.
const KEPT: SignedDuration = SignedDuration::from_hours(1);

/// How often old ones are looked for.
const EVERY: Duration = Duration::from_secs(120);

/// Where an event says when it was seen.
const TIMES: [&str; 4] = ["series.lastObservedTime", "lastTimestamp", "eventTime", "metadata.creationTimestamp"];

/// So many events are looked at before others have their turn.
const TURN: usize = 200;

pub(crate) fn start(registry: Registry, tasks: &Tasks) {
    let token = tasks.token().clone();
    tasks.essential("event-expiry", async move {
        loop {
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
            if let Err(error) = sweep(&registry).await {
                tracing::warn!(%error, "old events could not be dropped");
            }
        }
    });
}

/// Drops what is old; returns how many that were.
async fn sweep(registry: &Registry) -> Result<usize, ApiError> {
    let limit = registry.clock().now().checked_sub(KEPT).unwrap_or(Timestamp::MIN);
    let outline = Outline::of(TIMES.iter().copied().chain(["metadata.name", "metadata.namespace", "metadata.uid"]));
    let events = registry.list(&EVENTS, "", &ListOptions::default())?;
    let mut dropped = 0;
    for (index, event) in events.items.iter().enumerate() {
        if index % TURN == TURN - 1 {
            tokio::task::yield_now().await;
        }
        let Some(event) = outline.read(&event.bytes()).ok().filter(|event| last_seen(event) < limit) else { continue };
        let event = &event;
        let options = DeleteOptions { uid: Some(meta(event, "uid").to_owned()), ..DeleteOptions::default() };
        match registry.delete(&EVENTS, meta(event, "namespace"), meta(event, "name"), &options).await {
            Ok(_) => dropped += 1,
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(dropped)
}

fn last_seen(event: &Value) -> Timestamp {
    let times = TIMES.iter().map(|path| path.split('.').fold(event, |value, name| &value[name]));
    times.filter_map(|time| time.as_str()?.parse().ok()).max().unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longshore_util::clock::{ManualClock, SharedClock};
    use serde_json::json;

    use super::*;
    use crate::apiserver::registry::{ClusterFacts, WriteOptions};
    use crate::apiserver::resources::NAMESPACES;
    use crate::store::{Limits, MemoryStore};

    #[tokio::test]
    async fn an_event_goes_an_hour_after_it_was_last_seen() {
        let clock = Arc::new(ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
        let shared: SharedClock = clock.clone();
        let store = Arc::new(MemoryStore::new(Limits::default(), Arc::clone(&shared)));
        let registry = Registry::new(store, shared, ClusterFacts::default());
        let own = WriteOptions::default();
        registry.create(&NAMESPACES, "", json!({"metadata": {"name": "a"}}), &own).await.unwrap();
        for (name, last) in [("old", "2026-01-01T00:00:00Z"), ("again", "2026-01-01T00:30:00Z")] {
            let event = json!({"metadata": {"name": name}, "involvedObject": {"namespace": "a"},
                "lastTimestamp": last});
            registry.create(&EVENTS, "a", event, &own).await.unwrap();
        }
        clock.advance(Duration::from_secs(3601));
        assert_eq!(sweep(&registry).await.unwrap(), 1);
        assert!(registry.get(&EVENTS, "a", "again").is_ok());
    }
}
