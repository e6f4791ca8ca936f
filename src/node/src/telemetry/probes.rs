//! Metrics of probes; served by themselves at `/metrics/probes`, because they grow with the containers of the node.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::pods::DEFAULT_BUCKETS;
use super::process::StartTimeCollector;

/// Values of the label `result`.
const SUCCESSFUL: &str = "successful";
const FAILED: &str = "failed";
const UNKNOWN: &str = "unknown";

/// One probe of one container.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProbeName {
    /// `Startup`, `Liveness` or `Readiness`.
    pub probe_type: &'static str,
    /// Container.
    pub container: String,
    /// Pod.
    pub pod: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid.
    pub pod_uid: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    probe_type: &'static str,
    result: &'static str,
    container: String,
    pod: String,
    namespace: String,
    pod_uid: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    probe_type: &'static str,
    container: String,
    pod: String,
    namespace: String,
}

/// Families about probes. Clones share their values.
#[derive(Debug, Clone)]
pub struct ProbeMetrics {
    registry: Arc<Mutex<Registry>>,
    results: Family<ResultLabels, Counter>,
    durations: Family<DurationLabels, Histogram>,
}

/// The series of one probe, looked up once.
#[derive(Debug, Clone)]
pub struct ProbeSeries {
    name: ProbeName,
    metrics: ProbeMetrics,
    successful: Option<Counter>,
    failed: Option<Counter>,
    duration: Option<Histogram>,
}

impl ProbeMetrics {
    /// Makes them with a registry of their own.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let results = Family::<ResultLabels, Counter>::default();
        let durations = Family::<DurationLabels, Histogram>::new_with_constructor(|| Histogram::new(DEFAULT_BUCKETS));
        registry.register("prober_probe", "Probes of a container that were run, by their result", results.clone());
        registry.register(
            "prober_probe_duration_seconds",
            "Duration in seconds of a container's probes that gave an answer",
            durations.clone(),
        );
        registry.register_collector(Box::new(StartTimeCollector));
        Self { registry: Arc::new(Mutex::new(registry)), results, durations }
    }

    /// The series of one probe; they appear with its first result.
    pub fn series(&self, name: ProbeName) -> ProbeSeries {
        ProbeSeries { name, metrics: self.clone(), successful: None, failed: None, duration: None }
    }

    /// The text that `/metrics/probes` answers.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::with_capacity(16 * 1024);
        prometheus_text::encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }

    fn counter(&self, name: &ProbeName, result: &'static str) -> Counter {
        self.results.get_or_create_owned(&name.with(result))
    }
}

impl Default for ProbeMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl ProbeName {
    fn with(&self, result: &'static str) -> ResultLabels {
        ResultLabels {
            probe_type: self.probe_type,
            result,
            container: self.container.clone(),
            pod: self.pod.clone(),
            namespace: self.namespace.clone(),
            pod_uid: self.pod_uid.clone(),
        }
    }

    fn duration(&self) -> DurationLabels {
        DurationLabels {
            probe_type: self.probe_type,
            container: self.container.clone(),
            pod: self.pod.clone(),
            namespace: self.namespace.clone(),
        }
    }
}

impl ProbeSeries {
    /// Counts an answer.
    pub fn answered(&mut self, good: bool, seconds: f64) {
        let Self { name, metrics, successful, failed, duration } = self;
        if good {
            successful.get_or_insert_with(|| metrics.counter(name, SUCCESSFUL)).inc();
        } else {
            failed.get_or_insert_with(|| metrics.counter(name, FAILED)).inc();
        }
        duration.get_or_insert_with(|| metrics.durations.get_or_create_owned(&name.duration())).observe(seconds);
    }

    /// Counts a probe that could not be run.
    pub fn unknown(&self) {
        self.metrics.counter(&self.name, UNKNOWN).inc();
    }

    /// Removes the series: their container is gone from the node.
    pub fn remove(&self) {
        for result in [SUCCESSFUL, FAILED, UNKNOWN] {
            self.metrics.results.remove(&self.name.with(result));
        }
        self.metrics.durations.remove(&self.name.duration());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_have_the_usual_names_and_go_with_their_pod() {
        let metrics = ProbeMetrics::new();
        let name = ProbeName {
            probe_type: "Liveness",
            container: "c".into(),
            pod: "p".into(),
            namespace: "n".into(),
            pod_uid: "u".into(),
        };
        let mut series = metrics.series(name);
        series.answered(true, 0.001);
        series.answered(true, 0.001);
        series.answered(false, 0.2);
        series.unknown();
        let text = metrics.encode().unwrap();
        for line in [
            "# TYPE prober_probe_total counter",
            "prober_probe_total{probe_type=\"Liveness\",result=\"successful\",container=\"c\",pod=\"p\",namespace=\"n\",pod_uid=\"u\"} 2",
            "result=\"failed\",container=\"c\",pod=\"p\",namespace=\"n\",pod_uid=\"u\"} 1",
            "result=\"unknown\",container=\"c\",pod=\"p\",namespace=\"n\",pod_uid=\"u\"} 1",
            "prober_probe_duration_seconds_count{probe_type=\"Liveness\",container=\"c\",pod=\"p\",namespace=\"n\"} 3",
            "process_start_time_seconds",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        series.remove();
        assert!(!metrics.encode().unwrap().contains("pod_uid"));
    }
}
