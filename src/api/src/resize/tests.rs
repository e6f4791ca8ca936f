use serde_json::{Value, json};

use super::*;

fn spec(value: Value) -> PodSpec {
    serde_json::from_value(value).unwrap()
}

fn own(value: Value) -> ResourceRequirements {
    serde_json::from_value(value).unwrap()
}

fn one(resources: Value) -> PodSpec {
    spec(json!({"containers": [{"name": "c", "resources": resources}]}))
}

#[test]
fn how_an_amount_is_written_makes_no_difference() {
    let a = Sizes::of(&one(json!({"requests": {"cpu": "1", "memory": "1Gi"}})));
    let b = Sizes::of(&one(json!({"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {}})));
    assert!(a.same(&b));
    assert_eq!(a.change(&b), Change::default());
    assert!(!a.same(&Sizes::of(&one(json!({"requests": {"cpu": "1"}})))));
}

#[test]
fn sizes_are_put_into_a_pod_and_claims_stay() {
    let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": {
        "resources": {"limits": {"cpu": "2"}},
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1m"}}}],
        "containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}], "requests": {"cpu": "1"}}}]}}))
    .unwrap();
    let pod = Arc::new(pod);
    let mut sizes = Sizes::of_pod(&pod);
    assert!(Arc::ptr_eq(&sizes.apply(&pod), &pod), "nothing to do");
    sizes.pod = Some(own(json!({"limits": {"cpu": "3"}})));
    sizes.containers.insert("c".into(), own(json!({"requests": {"cpu": "2"}})));
    let sized = sizes.apply(&pod);
    let spec = sized.spec.as_ref().unwrap();
    assert_eq!(spec.containers[0].resources.as_ref().unwrap().claims.as_ref().unwrap()[0].name, "gpu");
    assert!(Sizes::of(spec).same(&sizes));
}

#[test]
fn the_policy_of_the_changed_resource_decides_over_a_restart() {
    let container: Container = serde_json::from_value(json!({"name": "c", "resizePolicy": [
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "RestartContainer"}]}))
    .unwrap();
    assert!(!restarts(&container, Change { cpu: true, memory: false }));
    assert!(restarts(&container, Change { cpu: true, memory: true }));
    let plain = Container { resize_policy: None, ..container };
    assert!(!restarts(&plain, Change { cpu: true, memory: true }));
}

#[test]
fn requests_alone_are_a_change_too() {
    let before = own(json!({"requests": {"memory": "200Mi"}, "limits": {"memory": "400Mi"}}));
    let after = own(json!({"requests": {"memory": "400Mi"}, "limits": {"memory": "400Mi"}}));
    assert_eq!(change(&before, &after), Change { cpu: false, memory: true });
}

#[test]
fn one_resource_is_changed_at_a_time() {
    let before = own(json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}));
    let after = own(json!({"requests": {"cpu": "2", "memory": "3Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}}));
    let memory = mixed(&before, &after, Part::Memory);
    assert_eq!(memory, own(json!({"requests": {"cpu": "1", "memory": "3Gi"}, "limits": {"memory": "4Gi"}})));
    assert_eq!(mixed(&memory, &after, Part::Cpu), after);
}

#[test]
fn growth_is_told_by_requests_of_the_whole_pod() {
    let two = |a: &str, b: &str| {
        spec(json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": a}}},
            {"name": "b", "resources": {"requests": {"cpu": b}}}]}))
    };
    assert!(grows(&two("1", "1"), &two("1", "2")));
    assert!(!grows(&two("1", "2"), &two("2", "1")));
    assert!(!grows(&one(json!({"limits": {"cpu": "1"}})), &one(json!({"limits": {"cpu": "9"}}))));
}

const SMALL: Group = Group { shares: 102, quota: Some(20_000), period: 100_000, memory: Some(64) };
const LARGE: Group = Group { shares: 153, quota: Some(30_000), period: 100_000, memory: Some(128) };
const CPU_ONLY: Change = Change { cpu: true, memory: false };
const BOTH: Change = Change { cpu: true, memory: true };

fn container(part: Part) -> Step {
    Step::Container { name: "c".into(), part }
}

#[test]
fn the_group_grows_before_its_containers_and_its_limit_before_its_request() {
    let wanted = Group { memory: SMALL.memory, ..LARGE };
    let got = steps(Some(&SMALL), &wanted, CPU_ONLY, &[("c".into(), CPU_ONLY)], true);
    assert_eq!(got, [Step::Group(Bound::Quota(Some(30_000))), Step::Group(Bound::Shares(153)), container(Part::Cpu)]);
}

#[test]
fn the_group_shrinks_after_its_containers_and_its_limit_last() {
    let got = steps(Some(&LARGE), &SMALL, BOTH, &[("c".into(), BOTH)], true);
    assert_eq!(
        got,
        [
            container(Part::Memory),
            Step::Group(Bound::Memory(Some(64))),
            container(Part::Cpu),
            Step::Group(Bound::Shares(102)),
            Step::Group(Bound::Quota(Some(20_000))),
        ]
    );
}

#[test]
fn while_a_container_has_to_start_anew_the_group_only_grows() {
    let mixed = Group { memory: Some(32), ..LARGE };
    let got = steps(Some(&SMALL), &mixed, BOTH, &[], false);
    assert_eq!(got, [Step::Group(Bound::Quota(Some(30_000))), Step::Group(Bound::Shares(153))]);
    let rest = steps(Some(&Group { memory: SMALL.memory, ..LARGE }), &mixed, BOTH, &[], true);
    assert_eq!(rest, [Step::Group(Bound::Memory(Some(32)))]);
}

#[test]
fn no_bound_is_more_than_any() {
    let open = Group { quota: None, memory: None, ..SMALL };
    let changed = [("c".to_owned(), BOTH)];
    let got = steps(Some(&open), &SMALL, BOTH, &changed, true);
    assert_eq!(got[..2], [container(Part::Memory), Step::Group(Bound::Memory(Some(64)))]);
    let got = steps(Some(&SMALL), &open, BOTH, &changed, true);
    assert_eq!(got[..2], [Step::Group(Bound::Memory(None)), container(Part::Memory)]);
}

#[test]
fn a_plan_on_its_own_result_is_empty() {
    for (from, to) in [(SMALL, LARGE), (LARGE, SMALL), (SMALL, Group { memory: None, ..LARGE })] {
        let mut group = from;
        for step in steps(Some(&from), &to, BOTH, &[], true) {
            if let Step::Group(bound) = step {
                group = group.with(bound);
            }
        }
        assert_eq!(group, to);
        assert_eq!(steps(Some(&group), &to, BOTH, &[], true), []);
    }
    assert_eq!(steps(None, &LARGE, BOTH, &[("c".into(), CPU_ONLY)], true), [container(Part::Cpu)]);
}

#[test]
fn the_summary_is_as_recorded() {
    let spec = one(json!({"limits": {"cpu": "300m", "memory": "64Mi"}, "requests": {"cpu": "150m", "memory": "32Mi"}}));
    assert_eq!(
        summary(&spec, 2, None),
        r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"300m","memory":"64Mi"},"requests":{"cpu":"150m","memory":"32Mi"}}}],"generation":2}"#
    );
    let two = self::spec(json!({"initContainers": [{"name": "i"}], "containers": [{"name": "c"}]}));
    assert_eq!(
        summary(&two, 1, Some("x")),
        r#"{"initContainers":[{"name":"i"}],"containers":[{"name":"c"}],"generation":1,"error":"x"}"#
    );
}
