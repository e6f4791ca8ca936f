use super::*;

fn field_of(api_version: &str, kind: &str, path: &str) -> &'static Field {
    let mut at = schema().kind(api_version, kind).unwrap();
    let mut found = None;
    for name in path.split('.') {
        let field = schema().field(at, name).unwrap_or_else(|| panic!("{kind} has no {path}"));
        if let Leaf::Object(inner) = field.leaf {
            at = inner;
        }
        found = Some(field);
    }
    found.unwrap()
}

#[test]
fn every_line_of_the_table_is_read() {
    let lines = table::lines(include_str!("types.txt"));
    let written = lines.filter(|line| !line.starts_with("@ ") && !line.starts_with("= ")).count();
    let read: usize = schema().types.iter().map(|found| found.fields.len()).sum();
    assert_eq!((read, schema().types.len()), (written, 526));
}

#[test]
fn numbers_are_unique_within_a_type() {
    for found in &schema().types {
        let mut numbers: Vec<u32> = found.fields.iter().map(|field| field.number).collect();
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{}", found.name);
    }
}

#[test]
fn kinds_are_found_by_version_and_name() {
    let pod = schema().get(schema().kind("v1", "Pod").unwrap());
    assert_eq!((pod.package, pod.name, pod.is_kind), ("core/v1", "Pod", true));
    assert_eq!(schema().get(schema().kind("apps/v1", "Deployment").unwrap()).package, "apps/v1");
    assert!(schema().kind("v1", "Deployment").is_none());
    assert!(schema().kind("v1", "PodSpec").is_none(), "a type without kind and version is no kind");
    assert!(schema().named("core/v1", "PodSpec").is_some());
}

#[test]
fn fields_of_embedded_types_stand_among_the_owners() {
    let path = field_of("v1", "Pod", "spec.volumes.hostPath");
    assert_eq!(path.leaf, Leaf::Object(schema().named("core/v1", "HostPathVolumeSource").unwrap()));
    assert!(field_of("v1", "Pod", "spec.containers.livenessProbe.httpGet").pointer);
    let volume = schema().named("core/v1", "Volume").unwrap();
    assert!(schema().fields(volume).iter().any(|field| field.name == "emptyDir"));
    assert!(schema().fields(volume).iter().all(|field| !field.is_embedded()));
}

#[test]
fn lists_know_how_they_are_merged() {
    let ports = field_of("v1", "Pod", "spec.containers.ports");
    assert_eq!(ports.keys().unwrap().collect::<Vec<_>>(), ["containerPort", "protocol"]);
    assert_eq!((ports.merges(), ports.merge_key()), (true, Some("containerPort")));
    assert_eq!(field_of("v1", "Pod", "spec.containers.ports.protocol").default_value(), Some(r#""TCP""#));
    assert!(field_of("v1", "Pod", "metadata.finalizers").is_set());
    assert!(field_of("v1", "Pod", "spec.nodeSelector").is_atomic());
    assert!(field_of("v1", "Pod", "spec.tolerations").keys().is_none());
    assert!(schema().get(schema().named("meta/v1", "LabelSelector").unwrap()).atomic);
}

/// The typed structures of the pinned release must know each field, and the table each of theirs.
#[test]
fn the_table_has_what_the_typed_structures_have() {
    fn full(id: TypeId, depth: usize) -> serde_json::Value {
        let mut object = serde_json::Map::new();
        for field in schema().fields(id) {
            let Some(one) = sample(field.leaf, depth) else { continue };
            let value = match field.shape {
                Shape::One => one,
                Shape::List | Shape::Items => serde_json::json!([one]),
                Shape::Map => serde_json::json!({"k": one}),
                Shape::MapOfItems => serde_json::json!({"k": [one]}),
            };
            object.insert(field.name.to_owned(), value);
        }
        object.into()
    }
    fn sample(leaf: Leaf, depth: usize) -> Option<serde_json::Value> {
        Some(match leaf {
            Leaf::Text => "t".into(),
            Leaf::Bool => true.into(),
            Leaf::Int32 | Leaf::Int64 | Leaf::IntOrText => 1.into(),
            Leaf::Double => 1.5.into(),
            Leaf::Bytes => "eA==".into(),
            Leaf::Quantity => "1".into(),
            Leaf::Time => "2026-01-01T00:00:00Z".into(),
            Leaf::MicroTime => "2026-01-01T00:00:00.000000Z".into(),
            Leaf::Raw | Leaf::FieldSet | Leaf::Json => serde_json::json!({"a": 1}),
            Leaf::SchemaOrBool | Leaf::SchemaOrList | Leaf::SchemaOrTexts => return None,
            Leaf::Object(_) if depth > 12 => return None,
            Leaf::Object(inner) => full(inner, depth + 1),
        })
    }
    fn lost<T: serde::de::DeserializeOwned + serde::Serialize>(api_version: &str, kind: &str) -> Vec<String> {
        let sent = full(schema().kind(api_version, kind).unwrap(), 0);
        let typed: T = crate::shape::read(&sent).unwrap();
        let mut found = Vec::new();
        differ(&sent, &serde_json::to_value(typed).unwrap(), kind, &mut found);
        found
    }
    fn differ(sent: &serde_json::Value, kept: &serde_json::Value, path: &str, found: &mut Vec<String>) {
        match (sent, kept) {
            (serde_json::Value::Object(sent), serde_json::Value::Object(kept)) => {
                for (key, value) in sent {
                    match kept.get(key) {
                        Some(kept) => differ(value, kept, &format!("{path}.{key}"), found),
                        None => found.push(format!("{path}.{key}")),
                    }
                }
            }
            (serde_json::Value::Array(sent), serde_json::Value::Array(kept)) => {
                for (sent, kept) in sent.iter().zip(kept) {
                    differ(sent, kept, path, found);
                }
            }
            _ => {}
        }
    }
    use k8s_openapi::api::{apps::v1 as apps, batch::v1 as batch, core::v1 as core};
    assert_eq!(lost::<core::Pod>("v1", "Pod"), Vec::<String>::new());
    assert_eq!(lost::<core::Node>("v1", "Node"), Vec::<String>::new());
    assert_eq!(lost::<core::Service>("v1", "Service"), Vec::<String>::new());
    assert_eq!(lost::<core::PersistentVolume>("v1", "PersistentVolume"), Vec::<String>::new());
    assert_eq!(lost::<core::Event>("v1", "Event"), Vec::<String>::new());
    assert_eq!(lost::<apps::Deployment>("apps/v1", "Deployment"), Vec::<String>::new());
    assert_eq!(lost::<apps::StatefulSet>("apps/v1", "StatefulSet"), Vec::<String>::new());
    assert_eq!(lost::<batch::CronJob>("batch/v1", "CronJob"), Vec::<String>::new());
}

/// Drops nulls in maps: where Go writes null for an absent list, we write nothing.
pub(super) fn drop_nulls(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
