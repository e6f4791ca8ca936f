//! Tables and properties of the plan.

mod probes;

mod crash;

use proptest::prelude::*;

use super::*;
use crate::pod::observed::Sandbox;

const NOW: i64 = 1_000_000;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn member(name: &str, role: Role, restart: Restart) -> Member {
    Member { name: name.into(), role, hash: "h".into(), restart, rules: Vec::new() }
}

fn wanted(restart: Restart, init: &[(&str, Role)], apps: &[&str]) -> Wanted {
    let init_rule = if restart == Restart::Never { Restart::Never } else { Restart::OnFailure };
    Wanted {
        restart,
        host_network: false,
        has_probes: true,
        init: init
            .iter()
            .map(|(n, role)| member(n, *role, if *role == Role::Sidecar { Restart::Always } else { init_rule }))
            .collect(),
        apps: apps.iter().map(|n| member(n, Role::App, restart)).collect(),
        ephemeral: Vec::new(),
    }
}

fn sandbox(attempt: u32, ready: bool) -> Sandbox {
    Sandbox {
        id: format!("s{attempt}").into(),
        attempt,
        ready,
        created_at: i64::from(attempt) + 1,
        ips: vec!["10.0.0.1".into()],
    }
}

fn instance(name: &str, attempt: u32, state: InstanceState, code: i32) -> Instance {
    Instance {
        id: format!("{name}-{attempt}").into(),
        name: name.into(),
        attempt,
        sandbox: "s0".into(),
        state,
        created_at: i64::from(attempt) + 1,
        started_at: 1,
        finished_at: if state == InstanceState::Exited { (NOW - 1) * 1_000_000_000 } else { 0 },
        exit_code: code,
        reason: String::new(),
        message: String::new(),
        image: String::new(),
        image_ref: String::new(),
        hash: "h".into(),
        termination_file: None,
        log_path: String::new(),
        actual: None,
        user: None,
        stop_signal: None,
    }
}

#[derive(Debug, Default)]
struct World {
    observed: Observed,
    backoffs: BTreeMap<String, BackoffEntry>,
    holds: BTreeMap<String, Timestamp>,
    probes: BTreeMap<ContainerId, Probed>,
    resized: BTreeSet<ContainerId>,
    counted: BTreeMap<String, u32>,
}

impl World {
    fn with(sandboxes: Vec<Sandbox>, containers: Vec<Instance>) -> Self {
        let mut observed = Observed { sandboxes, containers };
        observed.sort();
        Self { observed, ..Self::default() }
    }

    fn plan(&self, wanted: &Wanted) -> Plan {
        self.plan_at(wanted, false, now())
    }

    fn plan_at(&self, wanted: &Wanted, terminating: bool, now: Timestamp) -> Plan {
        plan(&Input {
            wanted,
            observed: &self.observed,
            backoffs: &self.backoffs,
            holds: &self.holds,
            probes: &self.probes,
            resized: &self.resized,
            counted: &self.counted,
            terminating,
            now,
        })
    }
}

/// Steps in short: `+sandbox0 c0 kill:c ...`, `fin` at the end when the pod is over.
fn short(plan: &Plan) -> String {
    let mut words: Vec<String> = plan
        .actions
        .iter()
        .map(|action| match action {
            Action::Kill { id, .. } => format!("kill:{id}"),
            Action::Remove { id, .. } => format!("rm:{id}"),
            Action::StopSandbox(id) => format!("stop:{id}"),
            Action::CreateSandbox { attempt, .. } => format!("+s{attempt}"),
            Action::Start { name, attempt, adopt: None, .. } => format!("{name}{attempt}"),
            Action::Start { name, attempt, adopt: Some(_), .. } => format!("adopt:{name}{attempt}"),
        })
        .collect();
    if plan.finished {
        words.push("fin".into());
    }
    words.join(" ")
}

/// In a new sandbox each container's own policy counts, not the pod's alone.
#[test]
fn a_new_sandbox_is_made_for_what_may_come_back_and_for_nothing_else() {
    let live = || vec![instance("a", 0, InstanceState::Running, 0), instance("b", 0, InstanceState::Running, 0)];
    let cases = [
        (Restart::Never, Restart::Always, "kill:b-0 kill:a-0 stop:s0 +s1 a1"),
        (Restart::Always, Restart::Never, "kill:b-0 kill:a-0 stop:s0 +s1 b1"),
    ];
    for (pod, own, want) in cases {
        let mut spec = wanted(pod, &[], &["a", "b"]);
        spec.apps[0].restart = own;
        let plan = World::with(vec![sandbox(0, false)], live()).plan(&spec);
        let mut words: Vec<String> = short(&plan).split(' ').map(str::to_owned).collect();
        words[..2].sort();
        words[..2].reverse();
        assert_eq!(words.join(" "), want, "{pod:?} {own:?}");
    }
    let mut spec = wanted(Restart::Always, &[], &["a", "b"]);
    spec.apps.iter_mut().for_each(|app| app.restart = Restart::Never);
    assert_eq!(short(&World::with(vec![sandbox(0, false)], live()).plan(&spec)), "fin");
}

#[test]
fn sandbox_rules() {
    use InstanceState::{Created, Exited, Running};
    use Restart::{Always, Never, OnFailure};
    let run = |name: &str| instance(name, 0, Running, 0);
    let end = |name: &str, code| instance(name, 0, Exited, code);
    let no_ip = || Sandbox { ips: Vec::new(), ..sandbox(0, true) };
    type Case = (&'static str, Restart, Vec<Sandbox>, Vec<Instance>, &'static str);
    let cases: Vec<Case> = vec![
        ("nothing there", Always, vec![], vec![], "+s0 a0 b0"),
        ("all runs", Always, vec![sandbox(0, true)], vec![run("a"), run("b")], ""),
        ("sandbox died", Always, vec![sandbox(0, false)], vec![run("a"), end("b", 0)], "kill:a-0 stop:s0 +s1 a1 b1"),
        ("never again", Never, vec![sandbox(0, false)], vec![run("a"), end("b", 0)], "fin"),
        ("never, but nothing ran yet", Never, vec![sandbox(0, false)], vec![], "stop:s0 +s1 a0 b0"),
        (
            "the succeeded one stays",
            OnFailure,
            vec![sandbox(0, false)],
            vec![end("a", 1), end("b", 0)],
            "stop:s0 +s1 a1",
        ),
        ("all succeeded", OnFailure, vec![sandbox(0, false)], vec![end("a", 0), end("b", 0)], "fin"),
        ("no address", Always, vec![no_ip()], vec![run("a")], "kill:a-0 stop:s0 +s1 a1 b0"),
        ("two ready", Always, vec![sandbox(0, true), sandbox(1, true)], vec![], "stop:s1 stop:s0 +s2 a0 b0"),
        ("made, not started", Always, vec![sandbox(0, true)], vec![instance("a", 0, Created, 0)], "adopt:a0 b0"),
    ];
    for (name, restart, sandboxes, containers, want) in cases {
        let plan = World::with(sandboxes, containers).plan(&wanted(restart, &[], &["a", "b"]));
        assert_eq!(short(&plan), want, "{name}");
    }
}

#[test]
fn restart_rules() {
    use InstanceState::{Exited, Running, Unknown};
    use Restart::{Always, Never, OnFailure};
    let killed = Instance { reason: "OOMKilled".into(), ..instance("a", 0, Exited, 0) };
    let changed = Instance { hash: "other".into(), ..instance("a", 0, Running, 0) };
    let cases: Vec<(Restart, Instance, &str)> = vec![
        (Always, instance("a", 0, Exited, 0), "a1"),
        (Always, instance("a", 4, Exited, 1), "a5"),
        (OnFailure, instance("a", 0, Exited, 0), "fin"),
        (OnFailure, instance("a", 0, Exited, 1), "a1"),
        (OnFailure, killed.clone(), "a1"),
        (Never, instance("a", 0, Exited, 1), "fin"),
        (Never, killed, "fin"),
        (Never, changed, "kill:a-0 a1"),
        (Always, instance("a", 0, Unknown, 0), "kill:a-0 a1"),
        (Never, instance("a", 0, Running, 0), ""),
    ];
    for (restart, instance, want) in cases {
        let name = format!("{restart:?} {instance:?}");
        let plan = World::with(vec![sandbox(0, true)], vec![instance]).plan(&wanted(restart, &[], &["a"]));
        assert_eq!(short(&plan), want, "{name}");
    }
}

#[test]
fn init_containers_run_in_order() {
    use InstanceState::{Exited, Running};
    let spec = |restart| wanted(restart, &[("i", Role::Init), ("s", Role::Sidecar), ("j", Role::Init)], &["a"]);
    let cases: Vec<(&str, Restart, Vec<Instance>, &str)> = vec![
        ("first", Restart::Always, vec![], "i0"),
        ("first runs", Restart::Always, vec![instance("i", 0, Running, 0)], ""),
        ("first failed", Restart::Always, vec![instance("i", 0, Exited, 1)], "i1"),
        ("first failed for good", Restart::Never, vec![instance("i", 0, Exited, 1)], "fin"),
        ("first done", Restart::Never, vec![instance("i", 0, Exited, 0)], "s0"),
        ("sidecar runs", Restart::Never, vec![instance("i", 0, Exited, 0), instance("s", 0, Running, 0)], "j0"),
        (
            "sidecar died while the next runs",
            Restart::Never,
            vec![instance("i", 0, Exited, 0), instance("s", 0, Exited, 1), instance("j", 0, Running, 0)],
            "s1",
        ),
        (
            "all through",
            Restart::Never,
            vec![instance("i", 0, Exited, 0), instance("s", 0, Running, 0), instance("j", 0, Exited, 0)],
            "a0",
        ),
        ("main one runs", Restart::Never, vec![instance("s", 0, Running, 0), instance("a", 0, Running, 0)], ""),
        (
            "main one done ends the sidecar too",
            Restart::Never,
            vec![instance("s", 0, Running, 0), instance("a", 0, Exited, 0)],
            "fin",
        ),
    ];
    for (name, restart, containers, want) in cases {
        let plan = World::with(vec![sandbox(0, true)], containers).plan(&spec(restart));
        assert_eq!(short(&plan), want, "{name}");
    }
}

fn with_rules(mut wanted: Wanted, name: &str, rules: serde_json::Value) -> Wanted {
    let container: k8s_openapi::api::core::v1::Container = serde_json::from_value(
        serde_json::json!({"name": name, "restartPolicy": "Never", "restartPolicyRules": rules}),
    )
    .unwrap();
    let member = wanted.init.iter_mut().chain(&mut wanted.apps).find(|member| member.name == name).unwrap();
    member.rules = ExitRule::of(&container);
    member.restart = Restart::Never;
    wanted
}

#[test]
fn a_rule_for_the_exit_code_comes_before_the_policy() {
    use InstanceState::Exited;
    let rules = serde_json::json!([
        {"action": "Restart", "exitCodes": {"operator": "In", "values": [42, 43]}},
        {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0, 1, 2]}},
    ]);
    let spec = with_rules(wanted(Restart::Never, &[], &["a"]), "a", rules);
    for (code, want) in [(42, "a1"), (43, "a1"), (7, "a1"), (0, "fin"), (1, "fin"), (2, "fin")] {
        let world = World::with(vec![sandbox(0, true)], vec![instance("a", 0, Exited, code)]);
        assert_eq!(short(&world.plan(&spec)), want, "{code}");
    }
    let bare: k8s_openapi::api::core::v1::Container = serde_json::from_value(serde_json::json!({"name": "a",
        "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]}))
    .unwrap();
    assert_eq!(ExitRule::of(&bare), [], "only beside a policy of its own");
}

#[test]
fn an_exit_may_take_the_whole_pod_back_to_its_beginning() {
    use InstanceState::{Exited, Running};
    let rules =
        serde_json::json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]);
    let spec = with_rules(wanted(Restart::Never, &[("i", Role::Init)], &["a", "b"]), "a", rules);
    let done = instance("i", 0, Exited, 0);
    let mut world =
        World::with(vec![sandbox(0, true)], vec![done, instance("a", 0, Exited, 88), instance("b", 0, Running, 0)]);
    let plan = world.plan(&spec);
    assert_eq!((short(&plan).as_str(), plan.restarts_all), ("kill:b-0", true));
    carry_out(&mut world, &plan);
    let plan = world.plan(&spec);
    assert_eq!((short(&plan).as_str(), plan.restarts_all), ("rm:i-0 rm:b-0 rm:a-0", true), "whoever asked goes last");
    carry_out(&mut world, &plan);
    world.counted.extend([("i", 0), ("a", 0), ("b", 0)].map(|(name, count)| (name.to_owned(), count)));
    let plan = world.plan(&spec);
    assert_eq!((short(&plan).as_str(), plan.restarts_all), ("i1", false));
    // It asks again and again: then it waits, and the others run on.
    let mut loops = World::with(
        vec![sandbox(0, true)],
        vec![instance("i", 1, Exited, 0), instance("a", 1, Exited, 88), instance("b", 1, Running, 0)],
    );
    let finished = at(loops.observed.newest("a").unwrap().finished_at, now());
    loops.backoffs.insert("a".into(), BackoffRule::default().next(None, "h", finished, finished));
    let plan = loops.plan(&spec);
    assert_eq!((short(&plan).as_str(), plan.restarts_all, plan.held_back.len()), ("", false, 1));
    assert_eq!(short(&loops.plan_at(&spec, false, plan.wake.unwrap())), "kill:b-1");
    let other = World::with(vec![sandbox(0, true)], vec![instance("a", 0, Exited, 1), instance("b", 0, Running, 0)]);
    assert_eq!(short(&other.plan(&spec)), "", "another code");
    assert!(spec.may_restart_all());
}

#[test]
fn a_guest_runs_once_and_holds_up_nobody() {
    use InstanceState::{Created, Exited, Running};
    let spec = Wanted {
        ephemeral: vec![member("e", Role::Ephemeral, Restart::Never)],
        ..wanted(Restart::Always, &[("i", Role::Init)], &["a"])
    };
    let main = || instance("a", 0, Running, 0);
    for (there, want) in [
        (vec![instance("i", 0, Running, 0)], "e0"),
        (vec![main()], "e0"),
        (vec![main(), instance("e", 0, Created, 0)], "adopt:e0"),
        (vec![main(), instance("e", 0, Running, 0)], ""),
        (vec![main(), instance("e", 0, Exited, 1)], ""),
    ] {
        assert_eq!(short(&World::with(vec![sandbox(0, true)], there.clone()).plan(&spec)), want, "{there:?}");
    }
    let mut known = World::with(vec![sandbox(0, true)], vec![main()]);
    known.counted.insert("e".into(), 0);
    assert_eq!(short(&known.plan(&spec)), "", "removed behind our back: it ran");
    let over = World::with(vec![sandbox(0, true)], vec![instance("a", 0, Exited, 0), instance("e", 0, Running, 0)]);
    assert_eq!(
        short(&over.plan(&Wanted { restart: Restart::Never, ..with_rules(spec, "a", serde_json::json!([])) })),
        "fin"
    );
}

#[test]
fn a_container_that_needs_a_new_start_for_its_size_is_killed_and_started() {
    use InstanceState::Running;
    let wanted = wanted(Restart::Always, &[], &["a"]);
    let mut world = World::with(vec![sandbox(0, true)], vec![instance("a", 0, Running, 0)]);
    let id = world.observed.containers[0].id.clone();
    assert_eq!(short(&world.plan(&wanted)), "");
    world.resized.insert(id.clone());
    assert_eq!(short(&world.plan(&wanted)), format!("kill:{id} a1"));
}

fn any_state() -> impl Strategy<Value = InstanceState> {
    prop_oneof![
        Just(InstanceState::Created),
        Just(InstanceState::Running),
        Just(InstanceState::Exited),
        Just(InstanceState::Unknown)
    ]
}

fn any_restart() -> impl Strategy<Value = Restart> {
    prop_oneof![Just(Restart::Always), Just(Restart::OnFailure), Just(Restart::Never)]
}

prop_compose! {
    fn any_instance()(
        name in prop_oneof![Just("i"), Just("s"), Just("a"), Just("b")],
        attempt in 0u32..3,
        state in any_state(),
        code in 0i32..2,
        home in 0u32..2,
        changed in prop::bool::weighted(0.1),
    ) -> Instance {
        let mut instance = instance(name, attempt, state, code);
        instance.sandbox = format!("s{home}").into();
        if changed {
            instance.hash = "old".into();
        }
        instance
    }
}

prop_compose! {
    fn any_world()(
        containers in prop::collection::vec(any_instance(), 0..6),
        sandboxes in prop::collection::vec((0u32..3, any::<bool>()), 0..3),
    ) -> World {
        let mut world = World::default();
        for (attempt, ready) in sandboxes {
            world.observed.put_sandbox(sandbox(attempt, ready));
        }
        for instance in containers {
            world.observed.put(instance);
        }
        world
    }
}

/// Does what a plan says, as a runtime where all goes well and started containers run on.
fn carry_out(world: &mut World, plan: &Plan) {
    for action in &plan.actions {
        match action {
            Action::Kill { id, .. } => {
                for c in world.observed.containers.iter_mut().filter(|c| c.id == *id) {
                    c.state = InstanceState::Exited;
                    c.exit_code = 137;
                    c.finished_at = NOW * 1_000_000_000;
                }
            }
            Action::Remove { id, .. } => world.observed.containers.retain(|c| c.id != *id),
            Action::StopSandbox(id) => {
                world.observed.sandboxes.iter_mut().filter(|s| s.id == *id).for_each(|s| s.ready = false);
            }
            Action::CreateSandbox { attempt, .. } => world.observed.put_sandbox(sandbox(*attempt, true)),
            Action::Start { name, attempt, adopt, after_exit } => {
                let home = world.observed.newest_sandbox().unwrap().id.clone();
                if let Some(finished) = after_exit {
                    let next = BackoffRule::default().next(world.backoffs.get(name), "h", *finished, now());
                    world.backoffs.insert(name.clone(), next);
                }
                let mut new = instance(name, *attempt, InstanceState::Running, 0);
                new.sandbox = home;
                if let Some(id) = adopt {
                    new.id = id.clone();
                }
                world.observed.put(new);
            }
        }
    }
}

proptest! {
    #[test]
    fn nothing_starts_once_a_pod_is_told_to_end(world in any_world(), restart in any_restart()) {
        let spec = wanted(restart, &[("i", Role::Init), ("s", Role::Sidecar)], &["a", "b"]);
        prop_assert_eq!(world.plan_at(&spec, true, now()), Plan::default());
    }

    #[test]
    fn a_plan_that_was_carried_out_is_followed_by_rest(mut world in any_world(), restart in any_restart()) {
        let spec = wanted(restart, &[], &["a", "b"]);
        let first = world.plan(&spec);
        carry_out(&mut world, &first);
        let second = world.plan(&spec);
        prop_assert!(second.actions.is_empty(), "{:?} then {:?}", first, second);
    }

    #[test]
    fn no_step_makes_a_second_live_container_of_a_name(mut world in any_world(), restart in any_restart()) {
        let spec = wanted(restart, &[("i", Role::Init), ("s", Role::Sidecar)], &["a", "b"]);
        for _ in 0..6 {
            let next = world.plan(&spec);
            if next.finished {
                // The end stops whatever lives.
                return Ok(());
            }
            carry_out(&mut world, &next);
        }
        let home = world.observed.newest_sandbox().map(|s| s.id.clone());
        for name in ["i", "s", "a", "b"] {
            let live = world.observed.containers.iter().filter(|c| c.name == name && c.state == InstanceState::Running);
            prop_assert!(live.count() <= 1, "{name} in {home:?}: {:?}", world.observed);
        }
    }

    #[test]
    fn attempts_are_never_used_twice(world in any_world(), restart in any_restart()) {
        let spec = wanted(restart, &[("i", Role::Init), ("s", Role::Sidecar)], &["a", "b"]);
        for action in world.plan(&spec).actions {
            if let Action::Start { name, attempt, adopt: None, .. } = action {
                prop_assert!(world.observed.containers.iter().all(|c| c.name != name || c.attempt < attempt));
            }
        }
    }
}
