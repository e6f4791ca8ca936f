//! The part of an object that selectors look at, read without building the rest.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::field::paths;
use crate::scalars::visit_scalars;

/// Paths of an object that are read; all else is skipped, but must be JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outline {
    /// Below here everything is read.
    whole: bool,
    members: BTreeMap<String, Self>,
}

impl Outline {
    /// Returns an outline of these paths.
    pub fn of<'a>(wanted: impl IntoIterator<Item = &'a str>) -> Self {
        let mut outline = Self::default();
        wanted.into_iter().for_each(|path| outline.add(path));
        outline
    }

    /// Returns what selectors of these fields look at: labels, name and namespace are always among it.
    pub fn selectable<'a>(fields: impl IntoIterator<Item = &'a str>) -> Self {
        let mut outline = Self::of(["metadata.name", "metadata.namespace", "metadata.labels"]);
        fields.into_iter().flat_map(paths).for_each(|path| outline.add(&path));
        outline
    }

    fn add(&mut self, path: &str) {
        let place = path.split('.').fold(self, |place, name| place.members.entry(name.to_owned()).or_default());
        place.whole = true;
    }

    /// Reads that part of an object's text.
    ///
    /// # Errors
    /// When the text is not JSON.
    pub fn read(&self, text: &[u8]) -> Result<Value, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_slice(text);
        let value = self.deserialize(&mut reader)?;
        reader.end()?;
        Ok(value)
    }
}

impl<'de> DeserializeSeed<'de> for &Outline {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        if self.whole { serde::Deserialize::deserialize(reader) } else { reader.deserialize_any(self) }
    }
}

impl<'de> Visitor<'de> for &Outline {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(found) = map.next_key_seed(Member(self))? {
            match found {
                Some((name, inner)) => drop(object.insert(name.clone(), map.next_value_seed(inner)?)),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(object))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        // No path leads through a list.
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    visit_scalars!();
}

/// Finds the name of a member among those that are read.
struct Member<'o>(&'o Outline);

impl<'de, 'o> DeserializeSeed<'de> for Member<'o> {
    type Value = Option<(&'o String, &'o Outline)>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_str(self)
    }
}

impl<'o> Visitor<'_> for Member<'o> {
    type Value = Option<(&'o String, &'o Outline)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.members.get_key_value(name))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{FieldSelector, LabelSelector, known_fields};
    use super::*;

    #[test]
    fn only_the_wanted_members_are_read_and_the_last_of_equal_ones_counts() {
        let outline = Outline::selectable(["spec.nodeName", "status.podIPs"]);
        let text = br#"{"kind":"Pod","metadata":{"name":"a","uid":"u","labels":{"x":"y"}},"spec":{"nodeName":"n","hostname":"h"},
            "spec":{"containers":[{"nodeName":"z"}],"nodeName":"m"},"status":{"podIPs":[{"ip":"10.0.0.1"}],"phase":"Running"}}"#;
        let want = json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"nodeName": "m"},
            "status": {"podIPs": [{"ip": "10.0.0.1"}]}});
        assert_eq!(outline.read(text).unwrap(), want);
    }

    #[test]
    fn what_is_no_json_is_refused_and_other_json_is_taken() {
        let outline = Outline::selectable(["spec.nodeName"]);
        for bad in ["", "{", r#"{"a":1}x"#, r#"{"spec":{"nodeName":"n"},"z":[1,}"#, r#"{"metadata":{"name":tru}}"#] {
            assert!(outline.read(bad.as_bytes()).is_err(), "{bad}");
        }
        for (good, want) in [
            ("null", json!(null)),
            ("[1,{}]", json!(null)),
            ("1.5", json!(1.5)),
            ("-1", json!(-1)),
            (r#"{"spec":"text","metadata":7}"#, json!({"spec": "text", "metadata": 7})),
        ] {
            assert_eq!(outline.read(good.as_bytes()).unwrap(), want, "{good}");
        }
    }

    /// Of every kind, each field that selects finds the same in the outline as in the whole object.
    #[test]
    fn selectors_find_in_the_outline_what_they_find_in_the_whole() {
        let object = json!({"metadata": {"name": "n", "namespace": "s", "labels": {"l": "v"}, "annotations": {"l": "no"}},
            "type": "t", "reason": "r", "reportingComponent": "c", "source": {"component": ""},
            "regarding": {"kind": "Pod", "namespace": "s", "name": "p", "uid": "u", "apiVersion": "v1",
                "resourceVersion": "7", "fieldPath": "f"},
            "spec": {"nodeName": "x", "restartPolicy": "Always", "schedulerName": "d", "serviceAccountName": "a",
                "hostNetwork": true, "unschedulable": true, "clusterIP": "10.0.0.1", "type": "ClusterIP", "signerName": "g"},
            "status": {"phase": "Running", "podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}], "nominatedNodeName": "m",
                "replicas": 3, "succeeded": 4}});
        let text = object.to_string();
        for resource in [
            "pods",
            "nodes",
            "namespaces",
            "secrets",
            "services",
            "replicasets.apps",
            "jobs.batch",
            "events",
            "certificatesigningrequests.certificates.k8s.io",
            "configmaps",
        ] {
            let part = Outline::selectable(known_fields(resource).iter().copied()).read(text.as_bytes()).unwrap();
            let fields = known_fields(resource).iter().chain(&["metadata.name", "metadata.namespace"]);
            for field in fields {
                for value in [
                    "x",
                    "Always",
                    "d",
                    "a",
                    "true",
                    "false",
                    "10.0.0.1",
                    "10.0.0.2",
                    "ClusterIP",
                    "g",
                    "m",
                    "t",
                    "r",
                    "c",
                    "s",
                    "n",
                    "p",
                    "u",
                    "v1",
                    "7",
                    "f",
                    "Pod",
                    "3",
                    "4",
                    "0",
                    "Running",
                    "",
                ] {
                    let selector = FieldSelector::equal(field, value);
                    assert_eq!(selector.matches(&part), selector.matches(&object), "{resource} {field}={value}");
                }
            }
            for labels in ["l=v", "l=no", "!l", "l in (v,w)", "k notin (v)"] {
                let selector = LabelSelector::parse(labels).unwrap();
                assert_eq!(selector.matches_object(&part), selector.matches_object(&object), "{resource} {labels}");
            }
        }
    }
}
