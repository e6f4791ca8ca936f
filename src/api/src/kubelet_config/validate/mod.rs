//! The rules of the configuration beyond types. Simple ones are rows of a table; what looks at several fields has a function.

mod evictions;
mod resources;
mod server;

use std::net::IpAddr;

use serde_json::Value;

use super::schema::{ConfigError, get};
use crate::duration::GoDuration;
use crate::gates::Gates;

/// The configuration under test, the gates it gives, and what was found.
struct Rules<'a> {
    config: &'a Value,
    gates: Gates,
    faults: Vec<ConfigError>,
}

/// Whole numbers with their least and largest value.
const RANGES: &[(&str, i64, i64)] = &[
    ("port", 1, 65535),
    ("readOnlyPort", 0, 65535),
    ("healthzPort", 0, 65535),
    ("registryPullQPS", 0, i64::MAX),
    ("registryBurst", 0, i64::MAX),
    ("eventRecordQPS", 0, i64::MAX),
    ("eventBurst", 0, i64::MAX),
    ("kubeAPIQPS", 0, i64::MAX),
    ("kubeAPIBurst", 0, i64::MAX),
    ("oomScoreAdj", -1000, 1000),
    ("nodeLeaseDurationSeconds", 1, i64::MAX),
    ("imageGCHighThresholdPercent", 0, 100),
    ("imageGCLowThresholdPercent", 0, 100),
    ("maxPods", 0, i64::MAX),
    ("podsPerCore", 0, i64::MAX),
    ("nodeStatusMaxImages", -1, i64::MAX),
    ("maxOpenFiles", 0, i64::MAX),
    ("maxParallelImagePulls", 1, i64::MAX),
    ("iptablesMasqueradeBit", 0, 31),
    ("iptablesDropBit", 0, 31),
    ("containerLogMaxFiles", 2, i64::MAX),
    ("containerLogMaxWorkers", 1, i64::MAX),
    ("logging.verbosity", 0, 2_147_483_647),
    ("tracing.samplingRatePerMillion", 0, 1_000_000),
];

/// Durations with their least and largest value in milliseconds.
const DURATIONS: &[(&str, i64, i64)] = &[
    ("imageMinimumGCAge", 0, i64::MAX),
    ("imageMaximumGCAge", 0, i64::MAX),
    ("cpuCFSQuotaPeriod", 1, 1_000),
    ("containerLogMonitorInterval", 3_000, i64::MAX),
    ("logging.flushFrequency", 1, i64::MAX),
    ("crashLoopBackOff.maxContainerRestartPeriod", 1_000, 300_000),
];

/// Texts that must be one of a set. An absent or empty text is caught by the defaults, or allowed.
const CHOICES: &[(&str, &[&str])] = &[
    ("tlsMinVersion", &["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]),
    ("authorization.mode", &["AlwaysAllow", "Webhook"]),
    (
        "imagePullCredentialsVerificationPolicy",
        &["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"],
    ),
    ("cgroupDriver", &["cgroupfs", "systemd"]),
    ("cpuManagerPolicy", &["none", "static"]),
    ("memoryManagerPolicy", &["None", "Static"]),
    ("topologyManagerPolicy", &["none", "best-effort", "restricted", "single-numa-node"]),
    ("topologyManagerScope", &["container", "pod"]),
    ("hairpinMode", &["promiscuous-bridge", "hairpin-veth", "none"]),
    ("memorySwap.swapBehavior", &["NoSwap", "LimitedSwap"]),
    ("configMapAndSecretChangeDetectionStrategy", &["Get", "Cache", "Watch"]),
    ("logging.format", &["text", "json"]),
    ("memoryReservationPolicy", &["None", "TieredReservation"]),
];

/// Checks all rules; every fault is reported.
pub(super) fn validate(config: &Value) -> Vec<ConfigError> {
    let set = get(config, "featureGates").and_then(Value::as_object).into_iter().flatten();
    let set = set.filter_map(|(name, value)| Some((name.as_str(), value.as_bool()?)));
    let (gates, errors) = match Gates::resolve(set) {
        Ok(gates) => (gates, Vec::new()),
        Err(errors) => (Gates::default(), errors),
    };
    let faults = errors.into_iter().map(|error| ConfigError::at("featureGates", error)).collect();
    let mut rules = Rules { config, gates, faults };
    rules.tables();
    rules.server();
    rules.images();
    rules.evictions();
    rules.resources();
    rules.node();
    rules.faults
}

impl Rules<'_> {
    fn fault(&mut self, path: &str, message: impl Into<String>) {
        self.faults.push(ConfigError::at(path, message));
    }

    fn text(&self, path: &str) -> &str {
        get(self.config, path).and_then(Value::as_str).unwrap_or_default()
    }

    fn integer(&self, path: &str) -> Option<i64> {
        get(self.config, path).and_then(Value::as_i64)
    }

    fn is_true(&self, path: &str) -> bool {
        get(self.config, path).and_then(Value::as_bool).unwrap_or(false)
    }

    fn duration(&self, path: &str) -> Option<GoDuration> {
        get(self.config, path).and_then(duration_of)
    }

    /// The entries of a map.
    fn entries(&self, path: &str) -> Vec<(&str, &Value)> {
        let entries = get(self.config, path).and_then(Value::as_object);
        entries.into_iter().flatten().map(|(key, value)| (key.as_str(), value)).collect()
    }

    fn texts(&self, path: &str) -> Vec<&str> {
        let items = get(self.config, path).and_then(Value::as_array);
        items.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    fn tables(&mut self) {
        for (path, least, most) in RANGES {
            match self.integer(path) {
                Some(value) if value < *least || value > *most => self.fault(path, out_of_range(value, *least, *most)),
                _ => {}
            }
        }
        for (path, least, most) in DURATIONS {
            let Some(value) = self.duration(path) else { continue };
            let bound = |millis: i64| GoDuration::from_nanos(millis.saturating_mul(1_000_000));
            if value < bound(*least) || value > bound(*most) {
                let upper = if *most == i64::MAX { String::new() } else { format!(" and at most {}", bound(*most)) };
                self.fault(path, format!("{value} must be at least {}{upper}", bound(*least)));
            }
        }
        for (path, choices) in CHOICES {
            let value = self.text(path);
            if !value.is_empty() && !choices.contains(&value) {
                let message = format!("{value:?} is not known, wanted one of {}", choices.join(", "));
                self.fault(path, message);
            }
        }
    }

    fn images(&mut self) {
        if self.integer("imageGCLowThresholdPercent") >= self.integer("imageGCHighThresholdPercent") {
            self.fault("imageGCLowThresholdPercent", "must be below imageGCHighThresholdPercent");
        }
        let (least, most) = (self.duration("imageMinimumGCAge"), self.duration("imageMaximumGCAge"));
        if most.is_some_and(|most| most > GoDuration::ZERO && Some(most) <= least) {
            self.fault("imageMaximumGCAge", "must be above imageMinimumGCAge, or 0");
        }
        if self.integer("maxParallelImagePulls").is_some_and(|pulls| pulls > 1) && self.is_true("serializeImagePulls") {
            self.fault("maxParallelImagePulls", "more than 1 needs serializeImagePulls to be false");
        }
        let policy = self.text("imagePullCredentialsVerificationPolicy");
        let allowlist = self.texts("preloadedImagesVerificationAllowlist");
        let mut faults = Vec::new();
        if !allowlist.is_empty() && policy != "NeverVerifyAllowlistedImages" {
            faults.push(
                "can only be set with imagePullCredentialsVerificationPolicy NeverVerifyAllowlistedImages".to_owned(),
            );
        }
        for image in allowlist {
            let name = image.strip_suffix("/*").unwrap_or(image);
            let last = name.rsplit('/').next().unwrap_or(name);
            if image.trim() != image
                || name.is_empty()
                || name.contains('*')
                || name.contains('@')
                || last.contains(':')
            {
                faults.push(format!(
                    "{image:?}: wanted an image name without tag or digest, with a wildcard only as final \"/*\""
                ));
            }
        }
        for fault in faults {
            self.fault("preloadedImagesVerificationAllowlist", fault);
        }
    }

    fn node(&mut self) {
        if self.is_true("runOnce") {
            self.fault("runOnce", "is not supported any more");
        }
        let (total, critical) = ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods");
        let (whole, part) = (self.duration(total).unwrap_or_default(), self.duration(critical).unwrap_or_default());
        for (path, value) in [(total, whole), (critical, part)] {
            if value != GoDuration::ZERO && value < GoDuration::from_secs(1) {
                self.fault(path, format!("{value} must be 0 or at least 1s"));
            }
        }
        if part > whole {
            self.fault(critical, format!("{part} must not exceed shutdownGracePeriod {whole}"));
        }
        let by_priority = get(self.config, "shutdownGracePeriodByPodPriority").and_then(Value::as_array);
        if by_priority.is_some_and(|tiers| !tiers.is_empty()) && (whole, part) != (GoDuration::ZERO, GoDuration::ZERO) {
            self.fault("shutdownGracePeriodByPodPriority", "cannot be combined with shutdownGracePeriod");
        }
        if self.is_true("enableSystemLogQuery") && !self.is_true("enableSystemLogHandler") {
            self.fault("enableSystemLogQuery", "needs enableSystemLogHandler");
        }
        self.logging();
        self.taints();
        let version = self.text("showHiddenMetricsForVersion");
        let is_version = version
            .split_once('.')
            .is_some_and(|(major, minor)| major.parse::<u16>().is_ok() && minor.parse::<u16>().is_ok());
        if !version.is_empty() && !is_version {
            let message = format!("{version:?} is not of the form X.Y");
            self.fault("showHiddenMetricsForVersion", message);
        }
        let endpoint = self.text("tracing.endpoint");
        if let Some((scheme, _)) =
            endpoint.split_once("://").filter(|(scheme, _)| !matches!(*scheme, "dns" | "unix" | "unix-abstract"))
        {
            let message = format!("unsupported scheme: {scheme}. Options are none, dns, unix, or unix-abstract");
            self.fault("tracing.endpoint", message);
        }
    }

    fn logging(&mut self) {
        let patterns = get(self.config, "logging.vmodule").and_then(Value::as_array).cloned().unwrap_or_default();
        if !patterns.is_empty() && self.text("logging.format") != "text" {
            self.fault("logging.vmodule", "only supported for text log format");
        }
        for pattern in patterns {
            let pattern = pattern["filePattern"].as_str().unwrap_or_default();
            if pattern.is_empty() || pattern.contains(['=', ',']) {
                self.fault("logging.vmodule", format!("{pattern:?}: file pattern must not be empty nor hold = or ,"));
            }
        }
        if !self.gates.is_enabled("LoggingAlphaOptions") {
            for stream in ["text", "json"] {
                let split = format!("logging.options.{stream}.splitStream");
                let buffer = format!("logging.options.{stream}.infoBufferSize");
                if self.is_true(&split) {
                    self.fault(&split, "needs the feature gate LoggingAlphaOptions");
                }
                if !matches!(self.text(&buffer), "" | "0") {
                    self.fault(&buffer, "needs the feature gate LoggingAlphaOptions");
                }
            }
        }
    }

    fn taints(&mut self) {
        let taints = get(self.config, "registerWithTaints").and_then(Value::as_array).cloned().unwrap_or_default();
        for taint in taints {
            let text = |field: &str| taint[field].as_str().unwrap_or_default();
            let mut why = crate::names::qualified_name(text("key"));
            why.extend(crate::names::label_value(text("value")));
            if !matches!(text("effect"), "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
                why.push(format!("{:?} is no effect of taints", text("effect")));
            }
            if !taint["timeAdded"].is_null() {
                why.push("timeAdded must be unset".to_owned());
            }
            for why in why {
                self.fault("registerWithTaints", why);
            }
        }
    }
}

fn duration_of(value: &Value) -> Option<GoDuration> {
    match value {
        Value::Number(nanos) => nanos.as_i64().map(GoDuration::from_nanos),
        other => other.as_str().and_then(|text| GoDuration::parse(text).ok()),
    }
}

fn out_of_range(value: i64, least: i64, most: i64) -> String {
    if most == i64::MAX {
        return format!("{value} must be at least {least}");
    }
    format!("{value} must be between {least} and {most}, inclusive")
}

fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}
