//! KubeletConfiguration: decoding with positions, defaults, drop-ins, validation and the effective typed form.
//!
//! The stages work on the JSON form and are pure: [`load`] (or [`baseline`]), [`merge_drop_in`] for each drop-in,
//! [`override_field`] for each flag, [`finish`].

mod fields;
mod nested;
mod schema;
mod types;
mod validate;

use serde_json::{Map, Value, json};

use fields::FIELDS;
use schema::{Type, get, is_zero, set};

pub use nested::{
    AnonymousAuthentication, Authentication, Authorization, CrashLoopBackOff, Logging, LoggingOptions, LoggingStream,
    MemoryReservation, MemorySwap, SecretHeaders, ShutdownTier, Taint, Tracing, UserNamespaces, VModule,
    WebhookAuthentication, WebhookAuthorization, X509Authentication,
};
pub use schema::{ConfigError, PathStep};
pub use types::KubeletConfiguration;

/// The version that is understood.
pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// The kind that is understood.
pub const KIND: &str = "KubeletConfiguration";
/// The fields of the main file that hold paths; relative ones start at the file's directory.
pub const PATH_FIELDS: [&str; 7] = [
    "staticPodPath",
    "authentication.x509.clientCAFile",
    "tlsCertFile",
    "tlsPrivateKeyFile",
    "resolvConf",
    "volumePluginDir",
    "podLogsDir",
];

/// Checks the main file and applies the defaults.
pub fn load(document: Value) -> Result<Value, Vec<ConfigError>> {
    let mut value = checked(document)?;
    apply_defaults(&mut value, true);
    Ok(value)
}

/// The configuration when there is no main file: the defaults of the old flags, which are more open.
pub fn baseline() -> Value {
    let mut value = json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "readOnlyPort": 10255,
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
    });
    apply_defaults(&mut value, true);
    value
}

/// Merges a drop-in file over the configuration so far: maps key by key, lists and scalars replaced, null deletes.
pub fn merge_drop_in(base: &mut Value, drop_in: Value) -> Result<(), Vec<ConfigError>> {
    let drop_in = checked(drop_in)?;
    json_patch::merge(base, &drop_in);
    apply_defaults(base, false);
    Ok(())
}

/// Sets a field by its path, as a flag given on the command line does. Maps of feature gates are merged by key.
pub fn override_field(base: &mut Value, path: &str, value: Value) {
    let merged = match (path, get(base, path), &value) {
        ("featureGates", Some(Value::Object(old)), Value::Object(new)) => {
            let mut gates = old.clone();
            gates.extend(new.clone());
            Some(Value::Object(gates))
        }
        _ => None,
    };
    set(base, path, merged.unwrap_or(value));
}

/// Resolves relative paths of the main file against its directory.
pub fn resolve_paths(value: &mut Value, directory: &str) {
    for path in PATH_FIELDS {
        let relative =
            get(value, path).and_then(Value::as_str).filter(|text| !text.is_empty() && !text.starts_with('/'));
        if let Some(relative) = relative {
            let joined = format!("{}/{}", directory.trim_end_matches('/'), relative.trim_start_matches("./"));
            set(value, path, Value::String(joined));
        }
    }
}

/// Applies what is left of the defaults, validates, and gives the typed form. All faults are reported.
pub fn finish(mut value: Value) -> Result<KubeletConfiguration, Vec<ConfigError>> {
    apply_defaults(&mut value, false);
    let faults = validate::validate(&value);
    if !faults.is_empty() {
        return Err(faults);
    }
    typed(value)
}

fn typed(mut value: Value) -> Result<KubeletConfiguration, Vec<ConfigError>> {
    if let Value::Object(object) = &mut value {
        object.remove("apiVersion");
        object.remove("kind");
    }
    prune_nulls(&mut value);
    serde_json::from_value(value).map_err(|error| vec![ConfigError::at("KubeletConfiguration", error.to_string())])
}

fn prune_nulls(value: &mut Value) {
    if let Value::Object(object) = value {
        object.retain(|_, value| !value.is_null());
        object.values_mut().for_each(prune_nulls);
    }
}

/// Checks version, kind, names and types.
fn checked(document: Value) -> Result<Value, Vec<ConfigError>> {
    let object = match &document {
        Value::Object(object) => object,
        Value::Null => return Err(vec![ConfigError::at(KIND, "the document is empty")]),
        _ => return Err(vec![ConfigError::at(KIND, "the document is not an object")]),
    };
    check_identity(object)?;
    let errors = schema::check(object);
    if errors.is_empty() { Ok(document) } else { Err(errors) }
}

fn check_identity(object: &Map<String, Value>) -> Result<(), Vec<ConfigError>> {
    for (field, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let message = match object.get(field) {
            Some(Value::String(found)) if found == wanted => continue,
            Some(found) => format!("found {found}, wanted \"{wanted}\""),
            None => format!("missing, wanted \"{wanted}\""),
        };
        return Err(vec![ConfigError::at(field, message)]);
    }
    Ok(())
}

/// Fills what is unset. `evictionHard` gets its defaults only with the main file: a drop-in may take them away.
fn apply_defaults(value: &mut Value, with_eviction: bool) {
    for field in FIELDS.iter().filter(|field| !field.path.contains("[]")) {
        let Some(default) = field.default_value() else { continue };
        let unset = match get(value, field.path) {
            None => true,
            Some(present) => !field.nullable && is_zero(field.kind, present),
        };
        if !unset {
            continue;
        }
        let default = match field.path {
            // One who shortens the update alone wants the report as often.
            "nodeStatusReportFrequency" => match get(value, "nodeStatusUpdateFrequency") {
                Some(update) if !is_zero(Type::Duration, update) && *update != json!("10s") => update.clone(),
                _ => default,
            },
            "serializeImagePulls" => {
                let parallel = get(value, "maxParallelImagePulls").and_then(Value::as_i64).unwrap_or(0);
                Value::Bool(parallel < 2)
            }
            _ => default,
        };
        set(value, field.path, default);
    }
    apply_eviction_defaults(value, with_eviction);
}

fn apply_eviction_defaults(value: &mut Value, with_absent: bool) {
    const DEFAULTS: [(&str, &str); 5] = [
        ("memory.available", "100Mi"),
        ("nodefs.available", "10%"),
        ("nodefs.inodesFree", "5%"),
        ("imagefs.available", "15%"),
        ("imagefs.inodesFree", "5%"),
    ];
    let merge = get(value, "mergeDefaultEvictionSettings").and_then(Value::as_bool).unwrap_or(false);
    let present = match get(value, "evictionHard") {
        Some(Value::Object(present)) => Some(present.clone()),
        _ => None,
    };
    let mut thresholds = match present {
        Some(present) if merge => present,
        None if with_absent => Map::new(),
        Some(_) | None => return,
    };
    for (signal, threshold) in DEFAULTS {
        thresholds.entry(signal).or_insert_with(|| threshold.into());
    }
    set(value, "evictionHard", Value::Object(thresholds));
}

impl KubeletConfiguration {
    /// The JSON form as `/configz` shows it: v1beta1, zero values left out where upstream does, headers masked.
    pub fn to_value(&self) -> Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        for field in FIELDS.iter().filter(|field| !field.nullable && !field.path.contains("[]")) {
            let is_shown = matches!(field.kind, Type::Duration | Type::DurationOrNanos | Type::Quantity);
            if !is_shown && get(&value, field.path).is_some_and(|value| is_zero(field.kind, value)) {
                remove(&mut value, field.path);
            }
        }
        // Upstream leaves this default to the place of use, so it does not show.
        if self.user_namespaces.ids_per_pod == 65536 {
            remove(&mut value, "userNamespaces");
        }
        if let Some(Value::Object(headers)) = value.get_mut("staticPodURLHeader") {
            headers.values_mut().for_each(|value| *value = json!(["<masked>"]));
        }
        set(&mut value, "apiVersion", API_VERSION.into());
        set(&mut value, "kind", KIND.into());
        value
    }

    /// The paths of fields that were set to something else than their default and that no room acts on. `acted` names
    /// fields or whole objects (`authentication`).
    pub fn set_but_not_acted_on(&self, acted: &[&str]) -> Vec<&'static str> {
        let (mine, default) = (self.to_value(), Self::default().to_value());
        let is_acted = |path: &str| acted.iter().any(|known| path == *known || path.starts_with(&format!("{known}.")));
        let fields = FIELDS.iter().map(|field| field.path).filter(|path| !path.contains("[]") && !is_acted(path));
        fields.filter(|path| get(&mine, path) != get(&default, path)).collect()
    }
}

impl Default for KubeletConfiguration {
    /// What a main file without any field gives.
    fn default() -> Self {
        let mut value = json!({});
        apply_defaults(&mut value, true);
        #[expect(clippy::expect_used, reason = "the table and the types are constants; a test decodes them")]
        typed(value).expect("the defaults of the table have the types of their fields")
    }
}

fn remove(value: &mut Value, path: &str) {
    let (parent, name) = path.rsplit_once('.').map_or((None, path), |(parent, name)| (Some(parent), name));
    let parent = match parent {
        None => Some(value),
        Some(parent) => parent.split('.').try_fold(value, |value, key| value.get_mut(key)),
    };
    if let Some(Value::Object(parent)) = parent {
        parent.remove(name);
    }
}

#[cfg(test)]
mod tests;
