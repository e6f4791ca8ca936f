//! `/metrics` of the apiserver, with the names, labels and buckets of a stock one where it has the family. Label values
//! come from the table of kinds, never from what a client wrote into a path.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry as Families;

use super::identity::Attributes;
use super::negotiate::media_type;
use super::registry::Registry;
use super::resources::REVIEWS;

const DURATIONS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// What was asked for, as the families tell requests apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Asked {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    scope: &'static str,
    component: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    #[prometheus(flatten)]
    asked: Asked,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    request_kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Stored {
    resource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Long {
    verb: &'static str,
}

impl Asked {
    /// Reads it off a request; what is not served has no names.
    pub(super) fn of(registry: &Registry, attributes: &Attributes, headers: &HeaderMap) -> Self {
        let (group, plural) = (attributes.api_group.as_str(), attributes.resource.as_str());
        let (group, version, resource, subresource) = match registry.resource(group, &attributes.version, plural) {
            Some(row) => {
                let below = row.subresource(&attributes.subresource).map_or("", |below| below.name);
                (row.group, row.version, row.plural, below)
            }
            None => match REVIEWS.iter().find(|review| review.group == group && review.plural == plural) {
                Some(review) => (review.group, "v1", review.plural, ""),
                None => ("", "", "", ""),
            },
        };
        let scope = match attributes {
            _ if !attributes.is_resource => "",
            _ if !attributes.name.is_empty() || attributes.verb == "create" => "resource",
            _ if !attributes.namespace.is_empty() => "namespace",
            _ => "cluster",
        };
        let connects = matches!(&*attributes.subresource, "exec" | "attach" | "portforward" | "proxy");
        let verb = match attributes.verb.as_str() {
            _ if connects && attributes.is_resource => "CONNECT",
            "get" => "GET",
            "list" => "LIST",
            "watch" => "WATCH",
            "create" | "post" => "POST",
            "update" | "put" => "PUT",
            "patch" if media_type(headers) == "application/apply-patch+yaml" => "APPLY",
            "patch" => "PATCH",
            "delete" => "DELETE",
            "deletecollection" => "DELETECOLLECTION",
            _ => "other",
        };
        Self { verb, group, version, resource, subresource, scope, component: "apiserver" }
    }

    fn changes(&self) -> bool {
        matches!(self.verb, "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE" | "DELETECOLLECTION")
    }

    fn lasts(&self) -> bool {
        matches!(self.verb, "WATCH" | "CONNECT")
    }

    fn answered(self, code: StatusCode) -> Answered {
        Answered { asked: self, code: code.as_u16() }
    }
}

/// The families.
#[derive(Debug)]
pub(super) struct Metrics {
    families: Mutex<Families>,
    requests: Family<Answered, Counter>,
    durations: Family<Asked, Histogram>,
    inflight: Family<Kind, Gauge>,
    lasting: Family<Long, Gauge>,
    objects: Family<Stored, Gauge>,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let metrics = Self {
            families: Mutex::default(),
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(DURATIONS)),
            inflight: Family::default(),
            lasting: Family::default(),
            objects: Family::default(),
        };
        let mut families = metrics.families.lock();
        let text = "Counter of apiserver requests";
        families.register("apiserver_request", text, metrics.requests.clone());
        let text = "Response latency distribution in seconds, of all but watches and connections";
        families.register("apiserver_request_duration_seconds", text, metrics.durations.clone());
        let text = "Requests being answered, by whether they may change something";
        families.register("apiserver_current_inflight_requests", text, metrics.inflight.clone());
        families.register("apiserver_longrunning_requests", "Watches that are open", metrics.lasting.clone());
        families.register("apiserver_storage_objects", "Number of stored objects", metrics.objects.clone());
        drop(families);
        metrics
    }

    /// Counts a request as being answered until the guard is dropped.
    pub(super) fn begin(&self, asked: &Asked) -> Option<Inflight> {
        if asked.lasts() {
            return None;
        }
        let request_kind = if asked.changes() { "mutating" } else { "readOnly" };
        let gauge = self.inflight.get_or_create(&Kind { request_kind }).clone();
        gauge.inc();
        Some(Inflight(gauge))
    }

    /// Counts an answer.
    pub(super) fn end(&self, asked: Asked, code: StatusCode, took: Duration) {
        if !asked.lasts() {
            self.durations.get_or_create(&asked).observe(took.as_secs_f64());
        }
        self.requests.get_or_create(&asked.answered(code)).inc();
    }

    /// Returns the text (Prometheus text format 0.0.4).
    pub(super) fn encode(&self, registry: &Registry, watches: usize) -> Result<String, std::fmt::Error> {
        for row in registry.stored() {
            let count = i64::try_from(registry.count(row, "")).unwrap_or(i64::MAX);
            self.objects.get_or_create(&Stored { resource: row.full_name() }).set(count);
        }
        let watches = i64::try_from(watches).unwrap_or(i64::MAX);
        self.lasting.get_or_create(&Long { verb: "WATCH" }).set(watches);
        let mut text = String::with_capacity(16 * 1024);
        prometheus_text::encode(&mut text, &self.families.lock())?;
        Ok(text)
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Inflight(Gauge);

impl Drop for Inflight {
    fn drop(&mut self) {
        self.0.dec();
    }
}
