//! Delays of containers that fail over and over.

use super::*;

#[test]
fn crash_loop_delays_double_up_to_the_cap() {
    let rule = BackoffRule::default();
    let spec = wanted(Restart::Always, &[], &["a"]);
    let mut entry: Option<BackoffEntry> = None;
    let mut clock = now();
    let mut delays = Vec::new();
    for attempt in 0..9 {
        let mut world = World::with(vec![sandbox(0, true)], vec![instance("a", attempt, InstanceState::Exited, 1)]);
        world.observed.containers[0].finished_at = i64::try_from(clock.as_nanosecond()).unwrap();
        world.backoffs.extend(entry.clone().map(|e| ("a".to_owned(), e)));
        let finished = clock;
        let plan = world.plan_at(&spec, false, clock);
        if let Some(held) = plan.held_back.first() {
            delays.push(held.delay.as_secs());
            clock = held.until;
            assert_eq!(plan.wake, Some(clock));
        }
        assert_eq!(short(&world.plan_at(&spec, false, clock)), format!("a{}", attempt + 1));
        entry = Some(rule.next(entry.as_ref(), "h", finished, clock));
    }
    assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300, 300]);
}

#[test]
fn a_failed_try_is_held_and_the_restart_count_never_falls() {
    let spec = wanted(Restart::Always, &[], &["a"]);
    let mut world = World::with(vec![sandbox(0, true)], vec![]);
    world.counted.insert("a".into(), 6);
    assert_eq!(short(&world.plan(&spec)), "a7");
    let until = later(now(), Duration::from_secs(5));
    world.holds.insert("a".into(), until);
    let plan = world.plan(&spec);
    assert_eq!((short(&plan).as_str(), plan.wake), ("", Some(until)));
    world.observed.sandboxes.clear();
    world.holds.insert(SANDBOX_HOLD.into(), until);
    assert_eq!(short(&world.plan(&spec)), "");
}
