use super::super::apply::{Applied, ApplyError, apply};
use super::*;
use crate::schema::schema;

const NOW: &str = "2026-01-01T00:00:00Z";

fn id(kind: &str) -> Root<'static> {
    let version = if kind == "Deployment" { "apps/v1" } else { "v1" };
    Root::Type(schema().kind(version, kind).unwrap())
}

fn write(manager: &str) -> Write<'_> {
    Write { manager, api_version: "v1", subresource: "", now: NOW, untouched: &["status"] }
}

fn put(kind: &str, manager: &str, live: &Value, new: &Value, managed: &Managed) -> Managed {
    update(schema(), id(kind), &write(manager), live, new, managed.clone())
}

fn lay(kind: &str, manager: &str, live: &Value, applied: Value, managed: &Managed) -> Result<Applied, ApplyError> {
    apply(schema(), id(kind), &write(manager), Some(live), &applied, managed.clone(), false)
}

fn fields(managed: &Managed, manager: &str) -> Value {
    let all = managed.to_value();
    let found = all.as_array().unwrap().iter().find(|entry| entry["manager"] == manager);
    found.map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

fn config(data: Value) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c", "uid": "u"}, "data": data})
}

#[test]
fn the_one_who_creates_owns_what_it_wrote_and_the_defaults() {
    let pod = json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"restartPolicy": "Always",
        "nodeSelector": {"x": "y"}, "tolerations": [{"key": "k"}], "containers": [{"name": "c", "image": "i",
        "resources": {}, "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}, "status": {"phase": "Pending"}});
    let managed = put("Pod", "one", &json!({}), &pod, &Managed::default());
    let want = json!({
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {"f:restartPolicy": {}, "f:nodeSelector": {}, "f:tolerations": {}, "f:containers": {
            "k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}, "f:resources": {}, "f:ports": {".": {},
                "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}}}}},
    });
    assert_eq!(fields(&managed, "one"), want);
}

#[test]
fn an_update_takes_what_it_changes_and_frees_what_it_removes() {
    let (first, second) = (config(json!({"a": "1", "b": "1"})), config(json!({"a": "2", "c": "1"})));
    let managed = put("ConfigMap", "one", &json!({}), &first, &Managed::default());
    let managed = put("ConfigMap", "two", &first, &second, &managed);
    assert_eq!(fields(&managed, "one"), json!({"f:data": {}}), "the map itself stays with the one who made it");
    assert_eq!(fields(&managed, "two"), json!({"f:data": {"f:a": {}, "f:c": {}}}));
    let same = put("ConfigMap", "three", &second, &second, &managed);
    assert_eq!(same, managed, "who changes nothing owns nothing");
}

#[test]
fn an_apply_conflicts_with_what_others_own_unless_it_says_the_same() {
    let live = config(json!({"a": "1"}));
    let managed = put("ConfigMap", "one", &json!({}), &live, &Managed::default());
    let ConflictsOf(found) = ConflictsOf::from(lay("ConfigMap", "two", &live, config(json!({"a": "2"})), &managed));
    assert_eq!(found, [("\"one\" using v1".to_owned(), ".data.a".to_owned())]);
    let shared = lay("ConfigMap", "two", &live, config(json!({"a": "1"})), &managed).unwrap();
    assert_eq!(fields(&shared.managed, "two"), json!({"f:data": {"f:a": {}}}));
    assert_eq!(fields(&shared.managed, "one"), json!({"f:data": {".": {}, "f:a": {}}}));
    let forced = config(json!({"a": "2"}));
    let forced = apply(schema(), id("ConfigMap"), &write("two"), Some(&live), &forced, managed.clone(), true).unwrap();
    assert_eq!(forced.object["data"], json!({"a": "2"}));
    assert_eq!(fields(&forced.managed, "one"), json!({"f:data": {}}));
}

struct ConflictsOf(Vec<(String, String)>);

impl From<Result<Applied, ApplyError>> for ConflictsOf {
    fn from(result: Result<Applied, ApplyError>) -> Self {
        match result {
            Err(ApplyError::Conflicts(all)) => {
                Self(all.into_iter().map(|conflict| (conflict.manager, conflict.path)).collect())
            }
            other => panic!("no conflict: {other:?}"),
        }
    }
}

#[test]
fn what_is_applied_no_more_goes_unless_somebody_else_owns_it() {
    let first = lay("ConfigMap", "one", &config(json!({})), config(json!({"a": "1", "b": "1"})), &Managed::default());
    let first = first.unwrap();
    let both = lay("ConfigMap", "two", &first.object, config(json!({"b": "1"})), &first.managed).unwrap();
    let next = lay("ConfigMap", "one", &both.object, config(json!({"c": "1"})), &both.managed).unwrap();
    assert_eq!(next.object["data"], json!({"b": "1", "c": "1"}));
    assert_eq!(fields(&next.managed, "one"), json!({"f:data": {"f:c": {}}}));
    let none = lay("ConfigMap", "one", &next.object, json!({"metadata": {"name": "c"}}), &next.managed).unwrap();
    assert_eq!(none.object["data"], json!({"b": "1"}));
    assert_eq!(fields(&none.managed, "one"), Value::Null);
}

#[test]
fn the_same_applied_again_changes_nothing_not_even_the_time() {
    let applied = config(json!({"a": "1"}));
    let first = lay("ConfigMap", "one", &config(json!({})), applied.clone(), &Managed::default()).unwrap();
    let later = Write { now: "2027-01-01T00:00:00Z", ..write("one") };
    let again =
        apply(schema(), id("ConfigMap"), &later, Some(&first.object), &applied, first.managed.clone(), false).unwrap();
    assert!(again.managed.says_the_same(&first.managed));
    assert_eq!(again.object, first.object);
}

#[test]
fn items_are_merged_by_their_keys_and_keep_their_order() {
    let spec = |containers: Value| json!({"metadata": {"uid": "u"}, "spec": {"containers": containers}});
    let live = spec(json!([{"name": "x", "image": "x"}, {"name": "b", "image": "1"}, {"name": "y", "image": "y"}]));
    let applied = spec(json!([{"name": "n", "image": "n"}, {"name": "b", "tty": true}]));
    let made = lay("Pod", "one", &live, applied.clone(), &Managed::default()).unwrap();
    let names: Vec<&str> =
        made.object["spec"]["containers"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["x", "n", "b", "y"]);
    assert_eq!(made.object["spec"]["containers"][2], json!({"name": "b", "image": "1", "tty": true}));
    let fewer = lay("Pod", "one", &made.object, spec(json!([{"name": "b"}])), &made.managed).unwrap();
    let left: Vec<&Value> = fewer.object["spec"]["containers"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(left, ["x", "b", "y"], "only what it had applied before goes");
    assert!(fewer.object["spec"]["containers"][1].get("tty").is_none());
}

#[test]
fn ports_without_a_protocol_are_those_of_tcp() {
    let spec = |port: Value| json!({"spec": {"containers": [{"name": "c", "ports": [port]}]}});
    let live = spec(json!({"containerPort": 80, "protocol": "TCP", "name": "old"}));
    let made =
        lay("Pod", "one", &live, spec(json!({"containerPort": 80, "name": "web"})), &Managed::default()).unwrap();
    let ports = &made.object["spec"]["containers"][0]["ports"];
    assert_eq!(*ports, json!([{"containerPort": 80, "protocol": "TCP", "name": "web"}]));
}

#[test]
fn lists_and_maps_that_are_owned_as_a_whole_are_replaced() {
    let live = json!({"spec": {"tolerations": [{"key": "a"}], "nodeSelector": {"a": "1"}}});
    let applied = json!({"spec": {"tolerations": [{"key": "b"}], "nodeSelector": {"b": "1"}}});
    let made = lay("Pod", "one", &live, applied.clone(), &Managed::default()).unwrap();
    assert_eq!(made.object, applied);
    let want = json!({"f:spec": {"f:tolerations": {}, "f:nodeSelector": {}}});
    assert_eq!(fields(&made.managed, "one"), want);
}

#[test]
fn kubectl_takes_over_what_it_applied_on_its_own_side() {
    const KEY: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let mut live = config(json!({"a": "1", "b": "changed"}));
    live["metadata"]["annotations"][KEY] = json!(config(json!({"a": "1", "b": "1"})).to_string());
    let managed = put("ConfigMap", "kubectl-client-side-apply", &json!({}), &live, &Managed::default());
    let made = lay("ConfigMap", "kubectl", &live, config(json!({"a": "2"})), &managed).unwrap();
    assert_eq!(made.object["data"]["a"], "2");
    let noted: Value = serde_json::from_str(made.object["metadata"]["annotations"][KEY].as_str().unwrap()).unwrap();
    assert_eq!(noted, config(json!({"a": "2"})), "and notes what it applied");
    let ConflictsOf(found) = ConflictsOf::from(lay("ConfigMap", "kubectl", &live, config(json!({"b": "2"})), &managed));
    assert_eq!(found[0].1, ".data.b", "somebody else changed it since");
    let other = lay("ConfigMap", "other", &live, config(json!({"a": "2"})), &managed);
    assert!(other.is_err(), "only kubectl's own");
}

#[test]
fn what_was_there_before_the_first_apply_has_an_owner_of_its_own() {
    let live = config(json!({"a": "1"}));
    let ConflictsOf(found) =
        ConflictsOf::from(lay("ConfigMap", "one", &live, config(json!({"a": "2"})), &Managed::default()));
    assert_eq!(found[0].0, "\"before-first-apply\" using v1");
    let made = lay("ConfigMap", "one", &live, config(json!({"b": "2"})), &Managed::default()).unwrap();
    assert_eq!(fields(&made.managed, "before-first-apply"), json!({"f:data": {".": {}, "f:a": {}}}));
}

#[test]
fn what_does_not_fit_its_type_is_refused_with_its_path() {
    let misfit = |applied: Value| match lay("Pod", "one", &json!({}), applied, &Managed::default()) {
        Err(ApplyError::Misfit(text)) => text,
        other => panic!("it fits: {other:?}"),
    };
    assert_eq!(misfit(json!({"spec": {"bogus": 1}})), ".spec.bogus: field not declared in schema");
    assert_eq!(
        misfit(json!({"spec": {"containers": [{"image": "i"}]}})),
        ".spec.containers: element 0: associative list with keys has an element that omits key field \"name\" (and \
         doesn't have default value)"
    );
    let twice = misfit(json!({"spec": {"containers": [{"name": "c"}, {"name": "c"}]}}));
    assert_eq!(twice, ".spec.containers: duplicate entries for key [name=\"c\"]");
    assert!(misfit(json!({"spec": {"x": 1, "y": 2}})).starts_with("errors:\n  .spec.x: "));
}

#[test]
fn a_status_is_owned_by_its_subresource() {
    let live = json!({"spec": {"nodeName": "n"}, "status": {"phase": "Pending"}});
    let new = json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}], "podIPs": [{"ip": "1.2.3.4"}]}});
    let status = Write { subresource: "status", untouched: &["spec"], ..write("agent") };
    let managed = update(schema(), id("Pod"), &status, &live, &new, Managed::default());
    let value = managed.to_value();
    assert_eq!((&value[0]["subresource"], &value[0]["operation"]), (&json!("status"), &json!("Update")));
    let want = json!({"f:status": {"f:phase": {}, "f:conditions": {".": {}, "k:{\"type\":\"Ready\"}": {".": {},
        "f:type": {}, "f:status": {}}}, "f:podIPs": {".": {}, "k:{\"ip\":\"1.2.3.4\"}": {".": {}, "f:ip": {}}}}});
    assert_eq!(value[0]["fieldsV1"], want);
    assert_eq!(Managed::read(&value).unwrap(), managed);
}

#[test]
fn the_oldest_of_many_updaters_become_one() {
    let mut managed = Managed::default();
    let mut live = config(json!({}));
    for number in 0..13 {
        let mut new = live.clone();
        new["data"][format!("k{number}")] = json!("1");
        let (name, now) = (format!("m{number:02}"), format!("2026-01-01T00:00:{number:02}Z"));
        managed = update(schema(), id("ConfigMap"), &Write { now: &now, ..write(&name) }, &live, &new, managed);
        live = new;
    }
    assert_eq!(managed.0.len(), 10);
    let old = fields(&managed, "ancient-changes");
    assert_eq!(old["f:data"].as_object().unwrap().keys().collect::<Vec<_>>(), ["f:k0", "f:k1", "f:k2", "f:k3"]);
}

#[test]
fn owners_that_cannot_be_read_are_none() {
    assert_eq!(Managed::read(&json!([{"manager": "a", "operation": "Steal"}])), None);
    assert_eq!(Managed::read(&json!([{"manager": "a", "operation": "Update", "fieldsV1": {"x": 1}}])), None);
    assert_eq!(Managed::read(&json!("x")), None);
    assert!(Managed::read(&json!([])).unwrap().is_empty());
}

/// With a search for each item the time grows with the square of the length.
#[test]
fn long_lists_are_applied_in_the_time_of_their_length() {
    let spec = |from: usize| {
        let containers: Vec<Value> = (from..from + 20_000).map(|at| json!({"name": format!("n{at}")})).collect();
        json!({"metadata": {"uid": "u"}, "spec": {"containers": containers}})
    };
    let began = std::time::Instant::now();
    let first = lay("Pod", "one", &json!({}), spec(0), &Managed::default()).unwrap();
    let both = lay("Pod", "two", &first.object, spec(10_000), &first.managed).unwrap();
    assert_eq!(both.object["spec"]["containers"].as_array().unwrap().len(), 30_000);
    let one = lay("Pod", "one", &both.object, spec(30_000), &both.managed).unwrap();
    assert_eq!(one.object["spec"]["containers"].as_array().unwrap().len(), 40_000);
    assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
}

/// An object of as many levels as are taken had owners that could not be read back, and lost them all.
#[test]
fn the_owners_of_the_deepest_object_are_read_back() {
    let node = crate::custom::Node::read(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    let deep = (1..crate::shape::MAX_DEPTH).fold(json!({}), |inner, _| json!({"a": inner}));
    let made = apply(schema(), Root::Custom(&node), &write("one"), None, &deep, Managed::default(), false).unwrap();
    assert_eq!(Managed::read(&made.managed.to_value()), Some(made.managed));
}

proptest::proptest! {
    /// What is kept as it was written says the same as what is read, changed and written again.
    #[test]
    fn fields_that_are_kept_are_those_that_would_be_written(steps in proptest::collection::vec(
        (0u8..3, 0u8..3, proptest::collection::btree_map("[abcd]", "[12]", 0..4)), 1..12))
    {
        let (mut live, mut managed) = (config(json!({})), Managed::default());
        for (time, (who, what, data)) in steps.into_iter().enumerate() {
            let mut new = live.clone();
            match what {
                0 => new["data"] = json!(data),
                1 => new["metadata"]["labels"] = json!(data),
                _ => new["metadata"]["ownerReferences"] = data.keys().map(|uid| json!({"uid": uid, "name": "x"})).collect(),
            }
            let (name, now) = (format!("m{who}"), format!("2026-01-01T00:00:{time:02}Z"));
            let write = Write { now: &now, ..write(&name) };
            let before = managed.to_value();
            managed = update(schema(), id("ConfigMap"), &write, &live, &new, managed);
            let kept = update_fields(schema(), id("ConfigMap"), &write, &live, &new, before).unwrap();
            proptest::prop_assert_eq!(&kept, &managed.to_value());
            managed = Managed::read(&kept).unwrap();
            live = new;
        }
    }

    /// Whatever is applied in turn: an apply of what is there is none, and nobody owns what is not there.
    #[test]
    fn the_books_agree_with_the_object(steps in proptest::collection::vec((0u8..3, proptest::collection::btree_map("[abc]", "[12]", 0..3)), 1..8)) {
        let (mut live, mut managed) = (config(json!({})), Managed::default());
        for (who, data) in steps {
            let applied = config(json!(data));
            let name = format!("m{who}");
            let made = apply(schema(), id("ConfigMap"), &write(&name), Some(&live), &applied, managed.clone(), true).unwrap();
            (live, managed) = (made.object, made.managed);
            for (key, value) in &data {
                proptest::prop_assert_eq!(&live["data"][key], value);
            }
            let again = apply(schema(), id("ConfigMap"), &write(&name), Some(&live), &applied, managed.clone(), false).unwrap();
            proptest::prop_assert_eq!(&again.object, &live);
            let there: Vec<String> = live["data"].as_object().into_iter().flatten().map(|(key, _)| format!("f:{key}")).collect();
            for entry in &managed.0 {
                for (element, _, _) in entry.set.below("f:data").into_iter().flat_map(Set::elements) {
                    proptest::prop_assert!(there.iter().any(|key| key == element), "{} owns {}", entry.manager.name, element);
                }
            }
        }
    }
}
