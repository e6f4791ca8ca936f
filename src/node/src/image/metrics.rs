//! Figures of images, their pulls and the programs that give logins, under upstream's names.

use std::sync::atomic::AtomicI64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

const PULL_BUCKETS: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0];
const LAST_PULL_BUCKET: f64 = 3600.0;
const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const MB: u64 = 1 << 20;
/// Upper bounds of sizes and their names.
const SIZES: [(u64, &str); 11] = [
    (10 * MB, "0-10MB"),
    (100 * MB, "10MB-100MB"),
    (500 * MB, "100MB-500MB"),
    (1 << 30, "500MB-1GB"),
    (5 << 30, "1GB-5GB"),
    (10 << 30, "5GB-10GB"),
    (20 << 30, "10GB-20GB"),
    (30 << 30, "20GB-30GB"),
    (40 << 30, "30GB-40GB"),
    (60 << 30, "40GB-60GB"),
    (100 << 30, "60GB-100GB"),
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SizeLabels {
    image_size_in_bytes: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EnsureLabels {
    pull_policy: String,
    present_locally: &'static str,
    pull_required: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabels {
    plugin_name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HashLabels {
    hash: String,
}

/// Figures of the image room. Clones share their values.
#[derive(Debug, Clone)]
pub struct ImageMetrics {
    pulls: Family<SizeLabels, Histogram, fn() -> Histogram>,
    ensured: Family<EnsureLabels, Counter>,
    proofs: Family<ResultLabels, Counter>,
    intents: Gauge<i64, AtomicI64>,
    records: Gauge<i64, AtomicI64>,
    plugins: Family<PluginLabels, Histogram, fn() -> Histogram>,
    plugin_errors: Family<PluginLabels, Counter>,
    plugin_config: Family<HashLabels, Gauge>,
    volumes_requested: Counter,
    volumes_mounted: Counter,
    volumes_failed: Counter,
}

impl Default for ImageMetrics {
    fn default() -> Self {
        Self {
            pulls: Family::new_with_constructor(|| {
                Histogram::new(PULL_BUCKETS.into_iter().chain(std::iter::once(LAST_PULL_BUCKET)))
            }),
            ensured: Family::default(),
            proofs: Family::default(),
            intents: Gauge::default(),
            records: Gauge::default(),
            plugins: Family::new_with_constructor(|| Histogram::new(DEFAULT_BUCKETS)),
            plugin_errors: Family::default(),
            plugin_config: Family::default(),
            volumes_requested: Counter::default(),
            volumes_mounted: Counter::default(),
            volumes_failed: Counter::default(),
        }
    }
}

impl ImageMetrics {
    /// Makes them and puts them into the registry.
    pub fn register(registry: &mut Registry) -> Self {
        let this = Self::default();
        registry.register(
            "kubelet_image_pull_duration_seconds",
            "Duration in seconds to pull an image, by its size",
            this.pulls.clone(),
        );
        registry.register(
            "kubelet_image_manager_ensure_image_requests",
            "Number of times an image was asked to be present",
            this.ensured.clone(),
        );
        registry.register(
            "kubelet_imagemanager_image_mustpull_checks",
            "Number of times it was decided whether a present image must be pulled",
            this.proofs.clone(),
        );
        registry.register(
            "kubelet_imagemanager_ondisk_pullintents",
            "Number of pull intents on disk",
            this.intents.clone(),
        );
        registry.register(
            "kubelet_imagemanager_ondisk_pulledrecords",
            "Number of records of pulled images on disk",
            this.records.clone(),
        );
        registry.register(
            "kubelet_credential_provider_plugin_duration",
            "Duration in seconds of a credential provider's run",
            this.plugins.clone(),
        );
        registry.register(
            "kubelet_credential_provider_plugin_errors",
            "Number of runs of a credential provider that failed",
            this.plugin_errors.clone(),
        );
        registry.register(
            "kubelet_credential_provider_config_info",
            "Hash of the credential provider configuration",
            this.plugin_config.clone(),
        );
        registry.register(
            "kubelet_image_volume_requested",
            "Number of image volumes asked for",
            this.volumes_requested.clone(),
        );
        registry.register(
            "kubelet_image_volume_mounted_succeed",
            "Number of image volumes whose image is present",
            this.volumes_mounted.clone(),
        );
        registry.register(
            "kubelet_image_volume_mounted_errors",
            "Number of image volumes that could not be had",
            this.volumes_failed.clone(),
        );
        this
    }

    pub(super) fn pulled(&self, bytes: u64, took: Duration) {
        let size = SIZES.iter().find(|(bound, _)| bytes < *bound).map_or("GT100GB", |(_, name)| *name);
        self.pulls.get_or_create(&SizeLabels { image_size_in_bytes: size }).observe(took.as_secs_f64());
    }

    pub(super) fn ensured(&self, policy: &str, present: Option<bool>, pull: Option<bool>) {
        let word = |known: Option<bool>| match known {
            Some(true) => "true",
            Some(false) => "false",
            None => "unknown",
        };
        let policy = policy.to_ascii_lowercase();
        let labels = EnsureLabels { pull_policy: policy, present_locally: word(present), pull_required: word(pull) };
        self.ensured.get_or_create(&labels).inc();
    }

    pub(super) fn proof(&self, result: &'static str) {
        self.proofs.get_or_create(&ResultLabels { result }).inc();
    }

    pub(super) fn records(&self, (intents, records): (usize, usize)) {
        self.intents.set(i64::try_from(intents).unwrap_or(i64::MAX));
        self.records.set(i64::try_from(records).unwrap_or(i64::MAX));
    }

    pub(super) fn provider_ran(&self, name: &str, took: Duration, good: bool) {
        let labels = PluginLabels { plugin_name: name.to_owned() };
        self.plugins.get_or_create(&labels).observe(took.as_secs_f64());
        if !good {
            self.plugin_errors.get_or_create(&labels).inc();
        }
    }

    pub(super) fn provider_config(&self, hash: String) {
        self.plugin_config.get_or_create(&HashLabels { hash }).set(1);
    }

    /// An image volume was asked for, and came or not.
    pub fn volume(&self, good: bool) {
        self.volumes_requested.inc();
        if good {
            self.volumes_mounted.inc()
        } else {
            self.volumes_failed.inc()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_carry_upstreams_names_and_sizes() {
        let mut registry = Registry::default();
        let metrics = ImageMetrics::register(&mut registry);
        metrics.pulled(20 * MB, Duration::from_secs(3));
        metrics.pulled(200 << 30, Duration::from_secs(3));
        metrics.ensured("IfNotPresent", Some(true), None);
        metrics.proof("credentialPolicyAllowed");
        metrics.volume(true);
        let mut text = String::new();
        prometheus_client::encoding::prometheus_text::encode(&mut text, &registry).unwrap();
        for line in [
            "kubelet_image_pull_duration_seconds_bucket{image_size_in_bytes=\"10MB-100MB\",le=\"5\"} 1",
            "image_size_in_bytes=\"GT100GB\"",
            "kubelet_image_manager_ensure_image_requests_total{pull_policy=\"ifnotpresent\",present_locally=\"true\",pull_required=\"unknown\"} 1",
            "kubelet_imagemanager_image_mustpull_checks_total{result=\"credentialPolicyAllowed\"} 1",
            "kubelet_image_volume_mounted_succeed_total 1",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
