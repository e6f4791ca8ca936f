//! What becomes of events.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Counters of the event recorder. Clones share their values.
#[derive(Debug, Clone, Default)]
pub struct EventMetrics {
    /// Created or counted up in the API.
    pub written: Counter,
    /// Lost because the queue was full or the API stayed away too long.
    pub dropped: Counter,
    /// Held back because there were too many about one object.
    pub filtered: Counter,
    /// Refused by the API.
    pub refused: Counter,
}

impl EventMetrics {
    /// Makes them and puts them into the registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "longshore_events_written",
            "Events created or counted up in the API",
            metrics.written.clone(),
        );
        registry.register(
            "longshore_events_dropped",
            "Events lost: queue full or API away too long",
            metrics.dropped.clone(),
        );
        registry.register(
            "longshore_events_filtered",
            "Events held back: too many about one object",
            metrics.filtered.clone(),
        );
        registry.register("longshore_events_refused", "Events that the API refused", metrics.refused.clone());
        metrics
    }
}
