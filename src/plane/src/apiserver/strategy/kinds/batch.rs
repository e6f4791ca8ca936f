//! Jobs and what makes them at set times.

use k8s_openapi::api::batch::v1 as batch;
use serde_json::{Map, Value, json};

use super::cron;
use crate::apiserver::error::Cause;
use crate::apiserver::object::{child, meta, metadata, text};
use crate::apiserver::strategy::checks::selector_of;
use crate::apiserver::strategy::described::{Check, Described, Fill, Frozen};
use crate::apiserver::strategy::typed;

use Check::{AtLeast, OneOf, Required};
use Fill::Set;

/// Jobs.
pub(crate) static JOBS: Described = Described {
    defaults: &[Set("spec.completionMode", "\"NonIndexed\""), Set("spec.suspend", "false")],
    template: Some("spec.template"),
    fill: Some(job_defaults),
    status: Some("{}"),
    birth: Some(own_selector),
    checks: &[
        AtLeast("spec.parallelism", 0),
        AtLeast("spec.completions", 0),
        AtLeast("spec.activeDeadlineSeconds", 0),
        AtLeast("spec.backoffLimit", 0),
        AtLeast("spec.ttlSecondsAfterFinished", 0),
        AtLeast("spec.backoffLimitPerIndex", 0),
        AtLeast("spec.maxFailedIndexes", 0),
        OneOf("spec.completionMode", &["Indexed", "NonIndexed"]),
        OneOf("spec.podReplacementPolicy", &["Failed", "TerminatingOrFailed"]),
    ],
    rules: Some(|object, causes| job(object, "spec", true, causes)),
    frozen: &[
        Frozen::Immutable("spec.selector"),
        Frozen::Immutable("spec.completionMode"),
        Frozen::Immutable("spec.podFailurePolicy"),
        Frozen::Immutable("spec.backoffLimitPerIndex"),
        Frozen::Immutable("spec.managedBy"),
    ],
    changes: Some(job_changes),
    ..Described::new(typed::<batch::Job>)
};

/// Jobs at set times.
pub(crate) static CRON_JOBS: Described = Described {
    defaults: &[
        Set("spec.concurrencyPolicy", "\"Allow\""),
        Set("spec.suspend", "false"),
        Set("spec.successfulJobsHistoryLimit", "3"),
        Set("spec.failedJobsHistoryLimit", "1"),
    ],
    template: Some("spec.jobTemplate.spec.template"),
    status: Some("{}"),
    checks: &[
        Required("spec.schedule", ""),
        AtLeast("spec.startingDeadlineSeconds", 0),
        OneOf("spec.concurrencyPolicy", &["Allow", "Forbid", "Replace"]),
        AtLeast("spec.successfulJobsHistoryLimit", 0),
        AtLeast("spec.failedJobsHistoryLimit", 0),
    ],
    rules: Some(cron_job),
    ..Described::new(typed::<batch::CronJob>)
};

fn job_defaults(object: &mut Value) {
    let labels = object.pointer("/spec/template/metadata/labels").cloned();
    let spec = child(object, "spec");
    // A job that says neither how many nor how many at once is done once.
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        spec.insert("completions".to_owned(), json!(1));
    }
    spec.entry("parallelism").or_insert_with(|| json!(1));
    if spec.get("backoffLimit").is_none() {
        let limit = if spec.contains_key("backoffLimitPerIndex") { i32::MAX } else { 6 };
        spec.insert("backoffLimit".to_owned(), json!(limit));
    }
    let replace = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    spec.entry("podReplacementPolicy").or_insert_with(|| json!(replace));
    if let Some(labels) = labels {
        let meta = metadata(object);
        if meta.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty) {
            meta.insert("labels".to_owned(), labels);
        }
    }
}

/// A job finds its pods by its own uid, unless it says that it has a selector of its own.
fn own_selector(object: &mut Value) {
    if object.pointer("/spec/manualSelector") == Some(&json!(true)) {
        return;
    }
    let (uid, name) = (meta(object, "uid").to_owned(), meta(object, "name").to_owned());
    let Some(template) = child(object, "spec").get_mut("template") else { return };
    let labels = metadata(template).entry("labels").or_insert_with(|| json!({}));
    for (prefix, key, value) in [
        ("batch.kubernetes.io/", "controller-uid", &uid),
        ("", "controller-uid", &uid),
        ("batch.kubernetes.io/", "job-name", &name),
        ("", "job-name", &name),
    ] {
        labels[format!("{prefix}{key}")] = json!(value);
    }
    let selector = child(object, "spec").entry("selector").or_insert_with(|| json!({}));
    selector["matchLabels"]["batch.kubernetes.io/controller-uid"] = json!(uid);
}

fn job(object: &Value, at: &str, selects: bool, causes: &mut Vec<Cause>) {
    let pointer = format!("/{}", at.replace('.', "/"));
    let Some(spec) = object.pointer(&pointer) else { return };
    if text(spec, "/completionMode") == "Indexed" && spec.get("completions").is_none() {
        causes.push(Cause::required(format!("{at}.completions"), "when completion mode is Indexed"));
    }
    let field = format!("{at}.template.spec.restartPolicy");
    match text(spec, "/template/spec/restartPolicy") {
        "" | "OnFailure" | "Never" => {}
        "Always" => causes.push(Cause::required(field, "valid values: \"OnFailure\", \"Never\"")),
        other => causes.push(Cause::unsupported(field, other, &["OnFailure", "Never"])),
    }
    if !selects {
        return;
    }
    if spec.get("selector").is_none() {
        causes.push(Cause::required("spec.selector", ""));
    } else if let Some(template) = spec.get("template")
        && !selector_of(object, "/spec/selector").matches_object(template)
    {
        let labels = template.pointer("/metadata/labels").unwrap_or(&Value::Null);
        let text = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", labels, text));
    }
}

fn job_changes(object: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let frozen = |pointer: &str, field: &str, causes: &mut Vec<Cause>| {
        if object.pointer(pointer) != old.pointer(pointer) {
            let now = object.pointer(pointer).unwrap_or(&Value::Null);
            causes.push(Cause::invalid(field, now, "field is immutable"));
        }
    };
    // An indexed job may be stretched if both numbers go together.
    let number = |object: &Value, key: &str| object.pointer(&format!("/spec/{key}")).and_then(Value::as_i64);
    let elastic = text(object, "/spec/completionMode") == "Indexed"
        && number(object, "completions") == number(object, "parallelism");
    if !elastic {
        frozen("/spec/completions", "spec.completions", causes);
    }
    // One that has not been started may still be told where its pods shall run.
    let waits = old.pointer("/spec/suspend") == Some(&json!(true)) && old.pointer("/status/startTime").is_none();
    if !waits {
        frozen("/spec/template", "spec.template", causes);
    }
}

fn cron_job(object: &Value, causes: &mut Vec<Cause>) {
    let name = meta(object, "name");
    if name.len() > 52 {
        causes.push(Cause::invalid("metadata.name", &json!(name), "must be no more than 52 characters"));
    }
    let schedule = text(object, "/spec/schedule");
    if !schedule.is_empty() {
        if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
            let text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            causes.push(Cause::invalid("spec.schedule", &json!(schedule), text));
        } else if let Err(text) = cron::check(schedule) {
            causes.push(Cause::invalid("spec.schedule", &json!(schedule), &text));
        }
    }
    if let Some(zone) = object.pointer("/spec/timeZone").and_then(Value::as_str) {
        let at = "spec.timeZone";
        if zone.is_empty() {
            causes.push(Cause::invalid(at, &json!(zone), "timeZone must be nil or non-empty string"));
        } else if zone.eq_ignore_ascii_case("Local") {
            causes.push(Cause::invalid(
                at,
                &json!(zone),
                "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
            ));
        }
    }
    job(object, "spec.jobTemplate.spec", false, causes);
}
