//! What the verdicts of probes lead to.

use super::*;

fn says(name: &str, started: bool, failed: Option<ProbeKind>) -> (ContainerId, Probed) {
    (name.into(), Probed { started, failed })
}

#[test]
fn a_failed_probe_kills_and_restarts_in_one_breath() {
    use InstanceState::{Exited, Running};
    use Restart::{Always, Never, OnFailure};
    let condemned = |restart, older: Option<Instance>, delay_ms| {
        let attempt = u32::from(older.is_some());
        let mut all = vec![instance("a", attempt, Running, 0), instance("b", 0, Running, 0)];
        all.extend(older);
        let mut world = World::with(vec![sandbox(0, true)], all);
        world.probes = [says(&format!("a-{attempt}"), true, Some(ProbeKind::Liveness))].into();
        let entry = BackoffEntry { delay_ms, updated: now(), hash: "h".into() };
        world.backoffs.insert("a".into(), entry);
        let plan = world.plan(&wanted(restart, &[], &["a", "b"]));
        let again = plan.actions.iter().any(|action| {
            matches!(action, Action::Kill { reason: KillReason::Probe { kind: ProbeKind::Liveness, again: true }, .. })
        });
        (short(&plan), again)
    };
    assert_eq!(condemned(Always, None, 10_000), ("kill:a-0 a1".into(), true));
    assert_eq!(condemned(OnFailure, None, 10_000), ("kill:a-0 a1".into(), true));
    assert_eq!(condemned(Never, None, 10_000), ("kill:a-0".into(), false));
    // The exit before was a second ago: its delay is over, or it is not.
    assert_eq!(condemned(Always, Some(instance("a", 0, Exited, 1)), 500), ("kill:a-1 a2".into(), true));
    assert_eq!(condemned(Always, Some(instance("a", 0, Exited, 1)), 10_000), ("kill:a-1".into(), true));
}

#[test]
fn a_pod_that_never_restarts_ends_after_its_last_container_failed_its_probe() {
    use InstanceState::{Exited, Running};
    let mut world = World::with(vec![sandbox(0, true)], vec![instance("a", 0, Running, 0)]);
    world.probes = [says("a-0", false, Some(ProbeKind::Startup))].into();
    assert_eq!(short(&world.plan(&wanted(Restart::Never, &[], &["a"]))), "kill:a-0");
    let world = World::with(vec![sandbox(0, true)], vec![instance("a", 0, Exited, 137)]);
    assert_eq!(short(&world.plan(&wanted(Restart::Never, &[], &["a"]))), "fin");
}

#[test]
fn a_sidecar_gates_the_next_one_until_it_has_started() {
    use InstanceState::{Exited, Running};
    let spec = wanted(Restart::Never, &[("s", Role::Sidecar), ("j", Role::Init)], &["a"]);
    let plan = |containers: Vec<Instance>, started, failed| {
        let mut world = World::with(vec![sandbox(0, true)], containers);
        world.probes = [says("s-0", started, failed)].into();
        short(&world.plan(&spec))
    };
    let side = || instance("s", 0, Running, 0);
    let all = || vec![side(), instance("j", 0, Exited, 0), instance("a", 0, Running, 0)];
    assert_eq!(plan(vec![side()], false, None), "");
    assert_eq!(plan(vec![side()], true, None), "j0");
    assert_eq!(plan(vec![side()], false, Some(ProbeKind::Startup)), "kill:s-0 s1");
    // A failing liveness probe does not hold up the next one.
    assert_eq!(plan(vec![side()], true, Some(ProbeKind::Liveness)), "kill:s-0 s1 j0");
    assert_eq!(plan(all(), true, Some(ProbeKind::Liveness)), "kill:s-0 s1");
    assert_eq!(plan(all(), false, None), "");
    assert_eq!(plan(all(), true, None), "");
}
