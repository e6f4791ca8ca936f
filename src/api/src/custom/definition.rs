//! What a definition says beside its schemas, and its defaults.

use serde_json::{Map, Value, json};

use super::path::Path;

/// The names of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Names {
    /// Name in paths.
    pub plural: String,
    /// Name on command lines.
    pub singular: String,
    /// Short names for command lines.
    pub short: Vec<String>,
    /// Name in objects.
    pub kind: String,
    /// Name of lists.
    pub list_kind: String,
    /// Categories, e.g. `all`.
    pub categories: Vec<String>,
}

impl Names {
    /// Reads `spec.names` or `status.acceptedNames`.
    pub fn read(names: &Value) -> Self {
        Self {
            plural: text(names, "plural"),
            singular: text(names, "singular"),
            short: texts(names, "shortNames"),
            kind: text(names, "kind"),
            list_kind: text(names, "listKind"),
            categories: texts(names, "categories"),
        }
    }

    /// Writes `status.acceptedNames`.
    pub fn to_value(&self) -> Value {
        let mut names = json!({"plural": self.plural, "kind": self.kind});
        for (key, text) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !text.is_empty() {
                names[key] = json!(text);
            }
        }
        for (key, texts) in [("shortNames", &self.short), ("categories", &self.categories)] {
            if !texts.is_empty() {
                names[key] = json!(texts);
            }
        }
        names
    }
}

/// Where the number of copies stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// Fields on the way to the wanted number.
    pub spec: Vec<String>,
    /// Fields on the way to the present number.
    pub status: Vec<String>,
    /// Fields on the way to the selector's text.
    pub selector: Option<Vec<String>>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its head.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    /// Format, may be empty.
    pub format: String,
    /// What it tells.
    pub description: String,
    /// 0 is always shown.
    pub priority: i64,
    /// Where its cells come from; nothing if that cannot be read.
    pub path: Option<Path>,
}

/// One version of a kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    /// Its name, e.g. `v1`.
    pub name: String,
    /// Whether it is served.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
    /// What its users are told, if it is deprecated.
    pub warning: Option<String>,
    /// Whether `status` has its own path.
    pub has_status: bool,
    /// Whether `scale` has.
    pub scale: Option<Scale>,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Fields by which objects can be selected, e.g. `spec.color`.
    pub selectable: Vec<String>,
}

/// A definition.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// API group.
    pub group: String,
    /// The names it wants.
    pub wanted: Names,
    /// The names it has.
    pub accepted: Names,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// All versions.
    pub versions: Vec<Version>,
    /// Whether others convert between versions.
    pub webhook: bool,
    /// Whether it is served.
    pub established: bool,
    /// Whether all names it wants are its own.
    pub names_accepted: bool,
    /// Whether it is going away.
    pub terminating: bool,
}

impl Definition {
    /// Reads a stored definition.
    pub fn read(object: &Value) -> Self {
        let spec = &object["spec"];
        let group = text(spec, "group");
        let wanted = Names::read(&spec["names"]);
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let condition = |kind: &str| {
            let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
            conditions.into_iter().flatten().any(|own| own["type"] == kind && own["status"] == "True")
        };
        Self {
            name: text(&object["metadata"], "name"),
            uid: text(&object["metadata"], "uid"),
            versions: list(&spec["versions"]).iter().map(|version| Version::read(version, &group, &wanted)).collect(),
            group,
            wanted,
            accepted: Names::read(&object["status"]["acceptedNames"]),
            namespaced: spec["scope"] == "Namespaced",
            webhook: spec["conversion"]["strategy"] == "Webhook",
            established: condition("Established"),
            names_accepted: condition("NamesAccepted"),
            terminating: object.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string),
        }
    }

    /// Returns the version in which objects are stored.
    pub fn storage(&self) -> Option<&Version> {
        self.versions.iter().find(|version| version.storage)
    }

    /// Returns the `apiVersion` of a version.
    pub fn api_version(&self, version: &Version) -> String {
        format!("{}/{}", self.group, version.name)
    }

    /// Whether both serve the same in the same way; other conditions and the like may differ.
    pub fn serves_like(&self, other: &Self) -> bool {
        self.uid == other.uid && self.accepted == other.accepted && self.established == other.established
    }
}

impl Version {
    fn read(version: &Value, group: &str, names: &Names) -> Self {
        let name = text(version, "name");
        let flag = |key: &str| version[key].as_bool().unwrap_or(false);
        let warning = flag("deprecated").then(|| {
            let own = version["deprecationWarning"].as_str().map(str::to_owned);
            own.unwrap_or_else(|| format!("{group}/{name} {} is deprecated", names.kind))
        });
        let subresources = &version["subresources"];
        let scale = subresources.get("scale").filter(|scale| scale.is_object()).map(|scale| Scale {
            spec: fields(&text(scale, "specReplicasPath")),
            status: fields(&text(scale, "statusReplicasPath")),
            selector: scale["labelSelectorPath"].as_str().filter(|path| !path.is_empty()).map(fields),
        });
        let columns = version["additionalPrinterColumns"].as_array().filter(|columns| !columns.is_empty());
        let selectable = version["selectableFields"].as_array().into_iter().flatten();
        Self {
            served: flag("served"),
            storage: flag("storage"),
            warning,
            has_status: subresources.get("status").is_some_and(Value::is_object),
            scale,
            columns: columns.map_or_else(|| vec![Column::age()], |columns| columns.iter().map(Column::read).collect()),
            selectable: selectable.map(|field| fields(&text(field, "jsonPath")).join(".")).collect(),
            name,
        }
    }
}

impl Column {
    fn read(column: &Value) -> Self {
        let path = text(column, "jsonPath");
        let mut description = text(column, "description");
        if description.is_empty() {
            description = format!("Custom resource definition column (in JSONPath format): {path}");
        }
        Self {
            name: text(column, "name"),
            kind: text(column, "type"),
            format: text(column, "format"),
            description,
            priority: column["priority"].as_i64().unwrap_or(0),
            path: Path::parse(&path).ok(),
        }
    }

    /// The column of kinds that name none.
    fn age() -> Self {
        Self {
            name: "Age".to_owned(),
            kind: "date".to_owned(),
            format: String::new(),
            description: "CreationTimestamp is a timestamp representing the server time when this object was created. It is \
                          not guaranteed to be set in happens-before order across separate operations. Clients may not set \
                          this value. It is represented in RFC3339 form and is in UTC."
                .to_owned(),
            priority: 0,
            path: Path::parse(".metadata.creationTimestamp").ok(),
        }
    }
}

/// Splits a simple path, `.spec.replicas`.
pub(super) fn fields(path: &str) -> Vec<String> {
    path.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value, key: &str) -> Vec<String> {
    value[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Fills in what a definition that is sent may leave out.
pub fn defaults(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let lacks =
            |names: &Map<String, Value>, key: &str| names.get(key).and_then(Value::as_str).is_none_or(str::is_empty);
        if !kind.is_empty() && lacks(names, "singular") {
            names.insert("singular".to_owned(), json!(kind.to_lowercase()));
        }
        if !kind.is_empty() && lacks(names, "listKind") {
            names.insert("listKind".to_owned(), json!(format!("{kind}List")));
        }
    }
    let conversion = spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    if let Some(service) = conversion.pointer_mut("/webhook/clientConfig/service").and_then(Value::as_object_mut) {
        service.entry("port").or_insert_with(|| json!(443));
    }
}

/// Adds the version in which objects are stored now to those in which some may be stored.
pub fn note_storage(object: &mut Value) {
    let storage =
        object["spec"]["versions"].as_array().into_iter().flatten().find(|version| version["storage"] == true);
    let Some(name) = storage.map(|version| version["name"].clone()) else { return };
    let Some(status) = object.as_object_mut().map(|map| map.entry("status").or_insert_with(|| json!({}))) else {
        return;
    };
    let Some(status) = status.as_object_mut() else { return };
    let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
    if !stored.is_array() {
        *stored = json!([]);
    }
    if let Some(stored) = stored.as_array_mut().filter(|stored| !stored.contains(&name)) {
        stored.push(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Value {
        json!({"metadata": {"name": "things.example.com", "uid": "u"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                    "selectableFields": [{"jsonPath": ".spec.color"}],
                    "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}]},
                {"name": "v1beta1", "served": true, "storage": false, "deprecated": true}]}})
    }

    #[test]
    fn names_and_conversion_have_defaults() {
        let mut object = sample();
        defaults(&mut object);
        assert_eq!(object["spec"]["names"]["singular"], "thing");
        assert_eq!(object["spec"]["names"]["listKind"], "ThingList");
        assert_eq!(object["spec"]["conversion"], json!({"strategy": "None"}));
        let before = object.clone();
        defaults(&mut object);
        assert_eq!(object, before);
    }

    #[test]
    fn versions_say_how_they_are_served() {
        let definition = Definition::read(&sample());
        let [v1, beta] = definition.versions.as_slice() else { panic!() };
        assert!(v1.has_status && v1.warning.is_none());
        assert_eq!(v1.scale.as_ref().unwrap().spec, ["spec", "replicas"]);
        assert_eq!(v1.selectable, ["spec.color"]);
        assert_eq!(v1.columns[0].description, "Custom resource definition column (in JSONPath format): .spec.color");
        assert_eq!(beta.warning.as_deref(), Some("example.com/v1beta1 Thing is deprecated"));
        assert_eq!(beta.columns[0].name, "Age");
        assert!(!definition.established && definition.namespaced);
        assert_eq!(definition.storage().unwrap().name, "v1");
    }

    #[test]
    fn what_is_no_definition_reads_as_an_empty_one() {
        for odd in [json!(null), json!([]), json!({"spec": 1}), json!({"spec": {"versions": {"a": 1}, "names": []}})] {
            assert!(Definition::read(&odd).versions.is_empty());
            defaults(&mut odd.clone());
            note_storage(&mut odd.clone());
        }
    }

    #[test]
    fn each_version_that_stored_is_remembered_once() {
        let mut object = sample();
        note_storage(&mut object);
        object["spec"]["versions"][0]["storage"] = json!(false);
        object["spec"]["versions"][1]["storage"] = json!(true);
        note_storage(&mut object);
        note_storage(&mut object);
        assert_eq!(object["status"]["storedVersions"], json!(["v1", "v1beta1"]));
    }
}
