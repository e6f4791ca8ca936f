//! What a definition may say: names, versions, columns, and schemas that are structural.

use serde_json::{Map, Value, json};

use super::path::Path;
use super::schema_rules;
use crate::names;
use crate::validate::{FieldError, FieldErrorKind};

/// Findings, in order.
#[derive(Debug, Default)]
pub(super) struct Report(pub(super) Vec<FieldError>);

impl Report {
    pub(super) fn put(&mut self, path: impl Into<String>, kind: FieldErrorKind, message: impl Into<String>) {
        self.0.push(FieldError { path: path.into(), message: message.into(), kind });
    }

    pub(super) fn required(&mut self, path: impl Into<String>, detail: &str) {
        let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        self.put(path, FieldErrorKind::Required, message);
    }

    pub(super) fn invalid(&mut self, path: impl Into<String>, value: &Value, detail: &str) {
        self.put(path, FieldErrorKind::Invalid, format!("Invalid value: {value}: {detail}"));
    }

    pub(super) fn forbidden(&mut self, path: impl Into<String>, detail: &str) {
        self.put(path, FieldErrorKind::Forbidden, format!("Forbidden: {detail}"));
    }

    pub(super) fn unsupported(&mut self, path: impl Into<String>, value: &Value, known: &[&str]) {
        let known: Vec<String> = known.iter().map(|known| format!("{known:?}")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", known.join(", "));
        self.put(path, FieldErrorKind::NotSupported, message);
    }
}

/// Checks a definition.
pub fn validate(object: &Value) -> Vec<FieldError> {
    validate_after(object, None)
}

/// Checks a definition that takes the place of an old one. Schemas that stay as they are keep rules that cost more than one
/// may cost today.
pub fn validate_after(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut report = Report::default();
    let spec = &object["spec"];
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(spec, "group"), text(&spec["names"], "plural"));
    let wanted = format!("{plural}.{group}");
    if object["metadata"]["name"] != wanted.as_str() {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        report.invalid("metadata.name", &object["metadata"]["name"], detail);
    }
    protected(object, &group, &mut report);
    if group.is_empty() {
        report.required("spec.group", "");
    } else {
        for detail in names::dns1123_subdomain(&group) {
            report.invalid("spec.group", &json!(group), &detail);
        }
        if group.split('.').count() < 2 {
            report.invalid("spec.group", &json!(group), "should be a domain with at least one dot");
        }
    }
    match spec["scope"].as_str().unwrap_or_default() {
        "" => report.required("spec.scope", ""),
        "Cluster" | "Namespaced" => {}
        _ => report.unsupported("spec.scope", &spec["scope"], &["Cluster", "Namespaced"]),
    }
    if spec["preserveUnknownFields"] == true {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        report.invalid("spec.preserveUnknownFields", &json!(true), detail);
    }
    of_names(&spec["names"], "spec.names", &mut report);
    versions(spec, old, &mut report);
    conversion(&spec["conversion"], &mut report);
    report.0
}

/// Groups of Kubernetes' own take a note that somebody approved.
fn protected(object: &Value, group: &str, report: &mut Report) {
    let is_protected = |end: &str| group == end || group.ends_with(&format!(".{end}"));
    if !is_protected("k8s.io") && !is_protected("kubernetes.io") {
        return;
    }
    const NOTE: &str = "api-approved.kubernetes.io";
    let field = format!("metadata.annotations[{NOTE}]");
    match object["metadata"]["annotations"][NOTE].as_str() {
        None | Some("") => {
            let detail = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
                          https://github.com/kubernetes/enhancements/pull/1111";
            report.required(field, detail);
        }
        Some(value) if value.starts_with("unapproved") || value.contains("://") => {}
        Some(value) => {
            let detail = "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or \
                          a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111";
            report.invalid(field, &json!(value), detail);
        }
    }
}

fn of_names(names: &Value, path: &str, report: &mut Report) {
    let label = |key: String, value: &str, report: &mut Report| {
        for detail in names::dns1035_label(value) {
            report.invalid(key.clone(), &json!(value), &detail);
        }
    };
    for (key, lowered) in [("plural", false), ("singular", false), ("kind", true), ("listKind", true)] {
        let field = format!("{path}.{key}");
        match names[key].as_str().unwrap_or_default() {
            "" => report.required(field, ""),
            value if lowered => {
                for detail in names::dns1035_label(&value.to_lowercase()) {
                    report.invalid(
                        field.clone(),
                        &json!(value),
                        &format!("may have mixed case, but should otherwise match: {detail}"),
                    );
                }
            }
            value => label(field, value, report),
        }
    }
    for list in ["shortNames", "categories"] {
        for (index, value) in names[list].as_array().into_iter().flatten().enumerate() {
            label(format!("{path}.{list}[{index}]"), value.as_str().unwrap_or_default(), report);
        }
    }
    if names["kind"] == names["listKind"] && names["kind"].is_string() {
        report.invalid(format!("{path}.listKind"), &names["listKind"], "kind and listKind may not be the same");
    }
}

fn versions(spec: &Value, old: Option<&Value>, report: &mut Report) {
    let none = Vec::new();
    let versions = spec["versions"].as_array().unwrap_or(&none);
    if versions.is_empty() {
        report.required("spec.versions", "must have exactly one version marked as storage version");
        return;
    }
    let mut seen: Vec<&Value> = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = version["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            report.required(format!("{path}.name"), "");
        }
        for detail in names::dns1035_label(name).iter().filter(|_| !name.is_empty()) {
            report.invalid(format!("{path}.name"), &json!(name), detail);
        }
        if seen.contains(&&version["name"]) {
            report.invalid("spec.versions", &json!(names_of(versions)), "must contain unique version names");
        }
        seen.push(&version["name"]);
        if version["deprecated"] != true && version["deprecationWarning"].is_string() {
            report.invalid(
                format!("{path}.deprecationWarning"),
                &version["deprecationWarning"],
                "can only be set for deprecated versions",
            );
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        if schema.is_object() {
            let mut before = old.and_then(|old| old["spec"]["versions"].as_array()).into_iter().flatten();
            let kept = before.any(|old| old["name"] == version["name"] && old["schema"]["openAPIV3Schema"] == *schema);
            schema_rules::root(schema, &format!("{path}.schema.openAPIV3Schema"), kept, report);
        } else {
            report.required(format!("{path}.schema.openAPIV3Schema"), "schemas are required");
        }
        columns(&version["additionalPrinterColumns"], &format!("{path}.additionalPrinterColumns"), report);
        subresources(&version["subresources"], schema, &format!("{path}.subresources"), report);
        selectable(&version["selectableFields"], schema, &format!("{path}.selectableFields"), report);
    }
    match versions.iter().filter(|version| version["storage"] == true).count() {
        1 => {}
        _ => report.invalid(
            "spec.versions",
            &json!(names_of(versions)),
            "must have exactly one version marked as storage version",
        ),
    }
}

fn names_of(versions: &[Value]) -> Vec<&str> {
    versions.iter().filter_map(|version| version["name"].as_str()).collect()
}

fn columns(columns: &Value, path: &str, report: &mut Report) {
    for (index, column) in columns.as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}[{index}]");
        if column["name"].as_str().unwrap_or_default().is_empty() {
            report.required(format!("{path}.name"), "");
        }
        let kinds = ["boolean", "date", "integer", "number", "string"];
        match column["type"].as_str().unwrap_or_default() {
            "" => report.required(format!("{path}.type"), &format!("must be one of {}", kinds.join(","))),
            kind if kinds.contains(&kind) => {}
            _ => {
                report.invalid(format!("{path}.type"), &column["type"], &format!("must be one of {}", kinds.join(",")));
            }
        }
        let formats = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
        let format = column["format"].as_str().unwrap_or_default();
        if !format.is_empty() && !formats.contains(&format) {
            report.invalid(
                format!("{path}.format"),
                &column["format"],
                &format!("must be one of {}", formats.join(",")),
            );
        }
        match column["jsonPath"].as_str().unwrap_or_default() {
            "" => report.required(format!("{path}.jsonPath"), ""),
            text => {
                if let Err(error) = Path::parse(text) {
                    report.invalid(format!("{path}.jsonPath"), &json!(text), &error.to_string());
                }
            }
        }
    }
}

fn subresources(subresources: &Value, _schema: &Value, path: &str, report: &mut Report) {
    let scale = &subresources["scale"];
    if !scale.is_object() {
        return;
    }
    for (key, place, needed) in [
        ("specReplicasPath", &[".spec."][..], true),
        ("statusReplicasPath", &[".status."][..], true),
        ("labelSelectorPath", &[".spec.", ".status."][..], false),
    ] {
        let field = format!("{path}.scale.{key}");
        let text = scale[key].as_str().unwrap_or_default();
        if text.is_empty() {
            if needed {
                report.required(field, "");
            }
        } else if !Path::parse(text).is_ok_and(|path| path.is_simple()) {
            report.invalid(field, &json!(text), "should be a valid JSONPath of field names");
        } else if !place.iter().any(|place| text.starts_with(place)) {
            let places: Vec<&str> = place.iter().map(|place| place.trim_end_matches('.')).collect();
            report.invalid(field, &json!(text), &format!("should be a json path under {}", places.join(" or ")));
        }
    }
}

fn selectable(fields: &Value, schema: &Value, path: &str, report: &mut Report) {
    let none = Vec::new();
    let fields = fields.as_array().unwrap_or(&none);
    if fields.len() > 8 {
        report.put(path, FieldErrorKind::TooMany, format!("Too many: {}: must have at most 8 items", fields.len()));
    }
    for (index, field) in fields.iter().enumerate() {
        let field_path = format!("{path}[{index}].jsonPath");
        let text = field["jsonPath"].as_str().unwrap_or_default();
        if text.is_empty() {
            report.required(field_path, "");
            continue;
        }
        if text.starts_with(".metadata.") {
            report.invalid(field_path, &json!(text), "is an invalid path: must not point to fields in metadata");
            continue;
        }
        let names = super::definition::fields(text);
        let found = names.iter().try_fold(schema, |at, name| at.get("properties")?.get(name));
        match found.and_then(|found| found["type"].as_str()) {
            Some("string" | "boolean" | "integer") => {}
            Some(_) => report.invalid(field_path, &json!(text), "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."),
            None => {
                let at = names.join(".");
                report.invalid(field_path, &json!(text), &format!("is an invalid path: does not refer to a valid field: {at}"));
            }
        }
        if fields.get(..index).is_some_and(|before| before.contains(field)) {
            report.put(
                field_path_of(path, index),
                FieldErrorKind::Duplicate,
                format!("Duplicate value: {}", json!(text)),
            );
        }
    }
}

fn field_path_of(path: &str, index: usize) -> String {
    format!("{path}[{index}].jsonPath")
}

fn conversion(conversion: &Value, report: &mut Report) {
    match conversion["strategy"].as_str().unwrap_or_default() {
        "" => report.required("spec.conversion.strategy", ""),
        "None" => {
            if conversion["webhook"].is_object() {
                report.forbidden("spec.conversion.webhook", "should not be set when strategy is not set to Webhook");
            }
        }
        "Webhook" => {
            let webhook = &conversion["webhook"];
            if !webhook["clientConfig"].is_object() {
                report.required("spec.conversion.webhook.clientConfig", "required when strategy is set to Webhook");
            }
            if webhook["conversionReviewVersions"].as_array().is_none_or(Vec::is_empty) {
                report.required("spec.conversion.webhook.conversionReviewVersions", "");
            }
        }
        _ => report.unsupported("spec.conversion.strategy", &conversion["strategy"], &["None", "Webhook"]),
    }
}

/// Checks a change of a definition.
pub fn validate_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let mut report = Report::default();
    let established = old["status"]["conditions"]
        .as_array()
        .is_some_and(|all| all.iter().any(|own| own["type"] == "Established" && own["status"] == "True"));
    let mut frozen = |path: &str, pointer: &str| {
        let (now, before) = (object.pointer(pointer), old.pointer(pointer));
        if now != before {
            report.invalid(path, now.unwrap_or(&Value::Null), "field is immutable");
        }
    };
    if established {
        frozen("spec.scope", "/spec/scope");
        frozen("spec.names.kind", "/spec/names/kind");
    }
    frozen("spec.group", "/spec/group");
    frozen("spec.names.plural", "/spec/names/plural");
    let empty = Map::new();
    let stored = object["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
    let versions = object["spec"]["versions"].as_array().cloned().unwrap_or_default();
    for (index, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| version.as_object().unwrap_or(&empty).get("name") == Some(name)) {
            report.invalid(
                format!("status.storedVersions[{index}]"),
                name,
                &format!("missing from spec.versions; {} was previously a storage version, and must remain in spec.versions until \
                    a storage migration ensures no data remains persisted in {} and removes {} from status.storedVersions",
                    name.as_str().unwrap_or_default(), name.as_str().unwrap_or_default(), name.as_str().unwrap_or_default()),
            );
        }
    }
    report.0
}
