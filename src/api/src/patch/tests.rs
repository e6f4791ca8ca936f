use proptest::prelude::*;
use serde_json::json;

use super::*;

fn pod(patch: Value, object: Value) -> Result<Value, PatchError> {
    strategic("v1", "Pod", &object, &patch)
}

fn spec(object: Value, patch: Value) -> Value {
    pod(json!({"spec": patch}), json!({"spec": object})).unwrap()["spec"].clone()
}

#[test]
fn recorded_answers_of_a_stock_apiserver_are_reproduced() {
    // Origin: golden/api 13, 14, 42, 44, 45, 46 of the recorded answers; each step starts from the answer before.
    let status =
        |conditions: Value| json!({"status": {"phase": "Running", "conditions": conditions, "qosClass": "BestEffort"}});
    let config_map = merge(&json!({"data": {"a": "2"}}), &json!({"data": {"a": null, "c": "3"}})).unwrap();
    assert_eq!(config_map, json!({"data": {"c": "3"}}));
    let config_map = json(&config_map, &json!([{"op": "add", "path": "/data/d", "value": "4"}])).unwrap();
    assert_eq!(config_map, json!({"data": {"c": "3", "d": "4"}}));
    let refused = json(&config_map, &json!([{"op": "test", "path": "/data/d", "value": "no"}])).unwrap_err();
    assert_eq!(refused, PatchError::Unprocessable);
    assert_eq!(refused.to_string(), "the server rejected our request due to an error in our request");

    let before = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i:1", "env": [{"name": "A", "value": "1"}]}]}});
    let patch = json!({"metadata": {"labels": {"new": "l"}}, "spec": {"containers": [{"name": "c", "image": "i:2"}]}});
    assert_eq!(
        pod(patch, before).unwrap(),
        json!({"metadata": {"labels": {"app": "x", "new": "l"}}, "spec": {"containers": [{"name": "c", "image": "i:2", "env": [{"name": "A", "value": "1"}]}]}})
    );

    let one = status(json!([{"type": "Ready", "status": "False", "reason": "R"}]));
    let patch =
        json!({"status": {"conditions": [{"type": "Other", "status": "True"}, {"type": "Ready", "status": "True"}]}});
    let two = pod(patch, one).unwrap();
    assert_eq!(
        two,
        status(json!([{"type": "Other", "status": "True"}, {"type": "Ready", "status": "True", "reason": "R"}]))
    );
    let patch = json!({"status": {"conditions": [{"type": "Other", "$patch": "delete"}], "$setElementOrder/conditions": [{"type": "Ready"}]}});
    assert_eq!(pod(patch, two).unwrap(), status(json!([{"type": "Ready", "status": "True", "reason": "R"}])));
}

#[test]
fn lists_follow_their_strategy() {
    // Replaced as a whole.
    assert_eq!(
        spec(json!({"tolerations": [{"key": "a"}]}), json!({"tolerations": [{"key": "b"}]})),
        json!({"tolerations": [{"key": "b"}]})
    );
    assert_eq!(
        spec(
            json!({"containers": [{"name": "a", "args": ["1"]}]}),
            json!({"containers": [{"name": "a", "args": ["2"]}]})
        ),
        json!({"containers": [{"name": "a", "args": ["2"]}]})
    );
    // Merged by another key than name.
    assert_eq!(
        spec(
            json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "x"}]}]}),
            json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "UDP"}, {"containerPort": 81}]}]})
        ),
        json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "x", "protocol": "UDP"}, {"containerPort": 81}]}]})
    );
    // Primitives united.
    let meta = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    assert_eq!(pod(meta(json!(["b", "c"])), meta(json!(["a", "b"]))).unwrap(), meta(json!(["a", "b", "c"])));
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}});
    assert_eq!(pod(patch, meta(json!(["a", "b"]))).unwrap(), meta(json!(["b"])));
    // A deployment's template is a pod, too.
    let deployment = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    assert_eq!(
        strategic(
            "apps/v1",
            "Deployment",
            &deployment(json!([{"name": "a"}, {"name": "b", "image": "i"}])),
            &deployment(json!([{"name": "b", "tty": true}]))
        )
        .unwrap(),
        deployment(json!([{"name": "a"}, {"name": "b", "image": "i", "tty": true}]))
    );
}

#[test]
fn directives_replace_and_delete() {
    let containers = json!({"containers": [{"name": "a", "image": "1"}, {"name": "b"}]});
    assert_eq!(
        spec(containers.clone(), json!({"containers": [{"name": "a", "$patch": "delete"}]})),
        json!({"containers": [{"name": "b"}]})
    );
    assert_eq!(
        spec(containers.clone(), json!({"containers": [{"$patch": "replace"}, {"name": "z"}]})),
        json!({"containers": [{"name": "z"}]})
    );
    assert_eq!(spec(containers.clone(), json!({"$patch": "replace", "nodeName": "n"})), json!({"nodeName": "n"}));
    assert_eq!(spec(containers.clone(), json!({"$patch": "delete"})), json!({}));
    assert_eq!(
        spec(containers.clone(), json!({"$patch": "merge", "nodeName": "n"}))["containers"],
        containers["containers"]
    );
    assert_eq!(spec(containers, json!({"containers": null})), json!({}));
    // Directives never stay in the object, also in what is new.
    assert_eq!(
        spec(
            json!({}),
            json!({"volumes": [{"name": "v", "$retainKeys": ["name"], "emptyDir": {}}, {"name": "w", "$patch": "delete"}], "$setElementOrder/volumes": [{"name": "v"}]})
        ),
        json!({"volumes": [{"name": "v", "emptyDir": {}}]})
    );
}

#[test]
fn retained_keys_make_unions_exclusive() {
    let volumes = json!({"volumes": [{"name": "v", "emptyDir": {}}]});
    let patch = json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]});
    assert_eq!(spec(volumes.clone(), patch), json!({"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}));
    let mismatch = json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "hostPath": {"path": "/x"}}]}});
    assert_eq!(pod(mismatch, json!({"spec": volumes.clone()})), Err(PatchError::Unprocessable));
    let malformed = json!({"spec": {"volumes": [{"name": "v", "$retainKeys": "name"}]}});
    assert_eq!(pod(malformed, json!({"spec": volumes})).unwrap_err().to_string(), "invalid patch format of retainKeys");
}

#[test]
fn order_is_the_patchs_with_the_servers_own_items_in_place() {
    let named = |names: &str| json!(names.chars().map(|name| json!({"name": name})).collect::<Vec<_>>());
    let names = |value: &Value| {
        value["containers"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect::<String>()
    };
    let order = |server: &str, patch: &str, wanted: &str| {
        names(&spec(
            json!({"containers": named(server)}),
            json!({"containers": named(patch), "$setElementOrder/containers": named(wanted)}),
        ))
    };
    assert_eq!(order("abc", "", "cba"), "cba");
    assert_eq!(order("abc", "d", "dcb"), "dacb");
    assert_eq!(order("abxc", "d", "adcb"), "adxcb");
    assert_eq!(order("ab", "c", "bc"), "abc");
    let refused = |patch: Value| {
        pod(json!({"spec": patch}), json!({"spec": {"containers": named("ab")}})).unwrap_err().to_string()
    };
    assert_eq!(
        refused(json!({"containers": named("cd"), "$setElementOrder/containers": named("dc")})),
        "invalid patch format of setElementOrder list"
    );
    assert_eq!(refused(json!({"$setElementOrder/containers": 1})), "invalid patch format of setElementOrder list");
}

#[test]
fn malformed_patches_have_the_stock_texts() {
    let refused =
        |patch: Value| pod(patch, json!({"spec": {"containers": [{"name": "a"}], "nodeName": "n"}})).unwrap_err();
    assert_eq!(
        refused(json!({"spec": {"containers": [{"image": "x"}]}})).to_string(),
        "map: map[image:x] does not contain declared merge key: name"
    );
    assert_eq!(
        refused(json!({"spec": {"$patch": "burn", "a": 1}})).to_string(),
        "unknown patch type: burn in map: map[$patch:burn a:1]"
    );
    assert_eq!(refused(json!({"spec": {"containers": [["x"]]}})), PatchError::Unprocessable);
    assert!(matches!(refused(json!([])), PatchError::BadRequest(_)));
    assert!(matches!(json(&json!({}), &json!({"op": "add"})), Err(PatchError::BadRequest(_))));
    assert!(matches!(json(&json!({}), &json!([{"op": "remove", "path": "/a"}])), Err(PatchError::Unprocessable)));
}

#[test]
fn copies_cannot_blow_an_object_up() {
    let mut operations = vec![json!({"op": "add", "path": "/a", "value": ["0123456789"]})];
    operations.extend((0..40).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/-"})));
    assert!(matches!(json(&json!({}), &json!(operations)), Err(PatchError::TooLarge(_))));
    let many = vec![json!({"op": "test", "path": "", "value": {}}); MAX_OPERATIONS + 1];
    assert!(matches!(json(&json!({}), &json!(many)), Err(PatchError::TooLarge(_))));
}

#[test]
fn content_types_tell_the_kinds_apart() {
    assert_eq!(PatchKind::from_content_type("application/merge-patch+json; charset=utf-8"), Some(PatchKind::Merge));
    assert_eq!(PatchKind::from_content_type("application/strategic-merge-patch+json"), Some(PatchKind::Strategic));
    assert_eq!(PatchKind::from_content_type("text/plain"), None);
    assert_eq!(merge_key("v1", "Pod", &["spec", "containers", "env"]), Some("name"));
    assert_eq!(merge_key("v1", "Pod", &["spec", "tolerations"]), None);
    assert_eq!(merge_key("v1", "Pod", &["metadata", "finalizers"]), Some(""));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3).prop_map(Value::from),
        "[ab]".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof![
            Just("spec"),
            Just("containers"),
            Just("env"),
            Just("name"),
            Just("volumes"),
            Just("metadata"),
            Just("finalizers"),
            Just("$patch"),
            Just("$retainKeys"),
            Just("$setElementOrder/containers"),
            Just("$deleteFromPrimitiveList/finalizers"),
            Just("a")
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::vec((key.prop_map(str::to_owned), inner), 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// A thousand levels and more could not be read back, and dropping a hundred thousand takes more stack than a thread has.
#[test]
fn a_json_patch_cannot_nest_deeper_than_is_read_back() {
    let copy = json!({"op": "copy", "from": "/a", "path": "/a/a"});
    let refused = json(&json!({"a": {}}), &Value::Array(vec![copy; 120])).unwrap_err();
    assert_eq!(refused, PatchError::BadRequest("the patched object has more than 100 levels".to_owned()));
    let nested = (0..90).fold(json!(1), |inner, _| json!({"a": inner}));
    let add = |path: &str| json(&json!({"a": {"a": [1]}}), &json!([{"op": "add", "path": path, "value": nested}]));
    assert!(add("/a/b").is_ok() && add("/a/a/-").is_ok());
    let deep = (0..9).fold(nested, |inner, _| json!({"a": inner}));
    assert!(json(&json!({}), &json!([{"op": "add", "path": "/a", "value": deep}])).is_ok());
    let one_more = json!([{"op": "add", "path": "/a", "value": {"a": deep}}]);
    assert!(matches!(json(&json!({}), &one_more), Err(PatchError::BadRequest(_))));
}

/// Each of ten thousand operations would take a megabyte from here to there and look through it.
#[test]
fn moves_cannot_go_on_for_minutes() {
    let object = json!({"a": vec!["0123456789"; 100_000]});
    let there_and_back =
        [json!({"op": "move", "from": "/a", "path": "/b"}), json!({"op": "move", "from": "/b", "path": "/a"})];
    let many = |pairs: usize| json(&object, &json!(vec![there_and_back.clone(); pairs].concat()));
    assert_eq!(many(10).unwrap(), object);
    assert!(matches!(many(4000), Err(PatchError::TooLarge(_))));
    let shifts = vec![json!({"op": "remove", "path": "/a/0"}); 9000];
    assert!(matches!(json(&object, &json!(shifts)), Err(PatchError::TooLarge(_))));
    assert!(json(&object, &json!(shifts[..500])).is_ok());
}

/// With a search for each item the time grows with the square of the length.
#[test]
fn long_lists_are_merged_in_the_time_of_their_length() {
    let named = |from: usize| -> Value { (from..from + 40_000).map(|at| json!({"name": format!("n{at}")})).collect() };
    let text = |from: usize| -> Value { (from..from + 40_000).map(|at| json!(format!("n{at}"))).collect() };
    let object = json!({"metadata": {"finalizers": text(0)}, "spec": {"containers": named(0)}});
    let gone: Value = (0..40_000).map(|at| json!({"name": format!("n{at}"), "$patch": "delete"})).collect();
    let began = std::time::Instant::now();
    let made =
        pod(json!({"metadata": {"finalizers": text(20_000)}, "spec": {"containers": named(20_000)}}), object.clone());
    let made = made.unwrap();
    let length = |pointer: &str| made.pointer(pointer).and_then(Value::as_array).unwrap().len();
    assert_eq!((length("/metadata/finalizers"), length("/spec/containers")), (60_000, 60_000));
    let order = json!({"spec": {"$setElementOrder/containers": named(0), "containers": named(0)},
        "metadata": {"$deleteFromPrimitiveList/finalizers": text(1)}});
    let made = pod(order, object.clone()).unwrap();
    assert_eq!((&made["spec"], &made["metadata"]["finalizers"]), (&object["spec"], &json!(["n0"])));
    assert_eq!(pod(json!({"spec": {"containers": gone}}), object).unwrap()["spec"]["containers"], json!([]));
    assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn a_list_of_texts_takes_no_maps() {
    let meta = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    let refused = pod(meta(json!([{"$patch": "x"}])), meta(json!(["a"]))).unwrap_err();
    assert_eq!(refused.to_string(), "list element types are not identical", "and no directive gets into the object");
}

fn has_directive(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_directive),
        Value::Object(map) => map.iter().any(|(key, value)| key.starts_with('$') || has_directive(value)),
        _ => false,
    }
}

proptest! {
    #[test]
    fn merging_never_panics(object in value(), patch in value()) {
        drop(strategic("v1", "Pod", &object, &patch));
        drop(json(&object, &patch));
        drop(merge(&object, &patch));
    }

    #[test]
    fn no_directive_survives(patch in value()) {
        if let Ok(merged) = strategic("v1", "Pod", &json!({}), &patch) {
            prop_assert!(!has_directive(&merged), "{}", merged);
        }
    }

    #[test]
    fn patching_with_itself_changes_nothing(names in proptest::collection::btree_set("[a-f]", 0..5)) {
        let containers: Vec<Value> = names.iter().map(|name| json!({"name": name, "env": [{"name": "X", "value": name}]})).collect();
        let object = json!({"spec": {"containers": containers}});
        prop_assert_eq!(strategic("v1", "Pod", &object, &object).unwrap(), object);
    }
}
