//! Types of the API as `kube` clients send and receive them, read in one way.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use longshore_api::shape;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};

/// An object of the API that is read by way of a JSON value. Whatever it comes in (an answer, a watch's event, the buffer of
/// an event whose type stands behind the object), one copy of the code reads its type, and there are a hundred types below a
/// pod: this makes the program two megabytes smaller. What does not fit is named with its path.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Typed<K>(pub K);

impl<K> Deref for Typed<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

impl<K> DerefMut for Typed<K> {
    fn deref_mut(&mut self) -> &mut K {
        &mut self.0
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Typed<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        shape::read(&value).map(Self).map_err(D::Error::custom)
    }
}

impl<K: Resource> Resource for Typed<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &K::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &K::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::WatchEvent;
    use kube::core::ObjectList;
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_of_lists_and_events_are_what_they_were() {
        let object = json!({
            "metadata": {"name": "a", "labels": {"x": "1"}},
            "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]},
            "status": {"startTime": "2026-11-30T00:00:00Z"},
        });
        let plain: Pod = serde_json::from_value(object.clone()).unwrap();
        let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [object]}).to_string();
        let list: ObjectList<Typed<Pod>> = serde_json::from_str(&list).unwrap();
        assert_eq!(list.items, [Typed(plain.clone())]);
        assert_eq!(list.items[0].meta().name.as_deref(), Some("a"));
        assert_eq!(serde_json::to_value(&list.items[0]).unwrap(), serde_json::to_value(&plain).unwrap());
        // The type may stand before the object or behind it.
        for event in
            [format!(r#"{{"type":"ADDED","object":{object}}}"#), format!(r#"{{"object":{object},"type":"ADDED"}}"#)]
        {
            let WatchEvent::Added(found) = serde_json::from_str::<WatchEvent<Typed<Pod>>>(&event).unwrap() else {
                panic!("{event} is read as another event")
            };
            assert_eq!(found.0, plain);
        }
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_path() {
        let event =
            r#"{"type":"ADDED","object":{"spec":{"containers":[{"name":"c","ports":[{"containerPort":"80"}]}]}}}"#;
        let error = serde_json::from_str::<WatchEvent<Typed<Pod>>>(event).unwrap_err().to_string();
        let wanted = "spec.containers[0].ports[0].containerPort: invalid type: string \"80\", expected i32";
        assert!(error.starts_with(wanted), "{error}");
    }
}
