//! When an exited container is started again, and how long that waits: restart policies, exit-code rules and the
//! crash-loop back-off. The caller keeps one [`Backoff`] per container and key and stores it across restarts.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, PodSpec};
use serde::{Deserialize, Serialize};

/// Delay before the second restart.
pub const INITIAL: Duration = Duration::from_secs(10);
/// Longest delay.
pub const MAX: Duration = Duration::from_secs(300);
/// Factor from one delay to the next.
pub const FACTOR: u32 = 2;

/// What happens to a container that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Started again after any end.
    Always,
    /// Started again after a failure.
    OnFailure,
    /// Never started again.
    Never,
}

impl RestartPolicy {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "Always" => Some(Self::Always),
            "OnFailure" => Some(Self::OnFailure),
            "Never" => Some(Self::Never),
            _ => None,
        }
    }

    /// Says whether this policy starts a container again after `exit_code`.
    pub const fn restarts(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// The pod's own policy; absent means Always.
pub fn pod_policy(spec: &PodSpec) -> RestartPolicy {
    spec.restart_policy.as_deref().and_then(RestartPolicy::parse).unwrap_or(RestartPolicy::Always)
}

/// The policy of one container: its own, else the pod's.
pub fn container_policy(spec: &PodSpec, container: &Container) -> RestartPolicy {
    container.restart_policy.as_deref().and_then(RestartPolicy::parse).unwrap_or_else(|| pod_policy(spec))
}

/// Says whether an init container is a sidecar.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Says whether an app container that ended with `exit_code` is started again.
///
/// The container's rules come first, in order, and need a policy of its own; then that policy; then the pod's.
pub fn should_restart(spec: &PodSpec, container: &Container, exit_code: i32) -> bool {
    if container.restart_policy.is_some()
        && container.restart_policy_rules.iter().flatten().any(|rule| rule_restarts(rule, exit_code))
    {
        return true;
    }
    container_policy(spec, container).restarts(exit_code)
}

/// Says whether an init container that ended is started again: a sidecar always, a plain one only after a failure.
pub fn should_restart_init(spec: &PodSpec, container: &Container, exit_code: i32) -> bool {
    is_sidecar(container) || (exit_code != 0 && should_restart(spec, container, exit_code))
}

fn rule_restarts(rule: &ContainerRestartRule, exit_code: i32) -> bool {
    if !matches!(rule.action.as_str(), "Restart" | "RestartAllContainers") {
        return false;
    }
    let Some(codes) = &rule.exit_codes else { return false };
    let listed = codes.values.iter().flatten().any(|code| *code == exit_code);
    match codes.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    }
}

/// Bounds of the back-off, from the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackoffLimits {
    /// Delay before the second restart.
    pub initial: Duration,
    /// Longest delay.
    pub max: Duration,
}

impl Default for BackoffLimits {
    fn default() -> Self {
        Self { initial: INITIAL, max: MAX }
    }
}

impl BackoffLimits {
    /// Limits with `crashLoopBackOff.maxContainerRestartPeriod`; one below the initial delay lowers that too.
    pub fn with_max(max: Duration) -> Self {
        Self { initial: INITIAL.min(max), max }
    }
}

/// What is remembered of a container's restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// The delay that the next restart has to wait.
    pub delay: Duration,
    /// When a restart was last decided.
    pub decided: Timestamp,
}

/// The answer to "may it start now?".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Start now and remember this.
    Start(Backoff),
    /// Wait until then; `delay` is what the message names.
    Wait {
        /// When the back-off ends.
        until: Timestamp,
        /// The delay being waited for.
        delay: Duration,
    },
}

/// Decides whether a container that ended at `finished` may start again at `now`.
///
/// The delay counts from the end, not from the start, so a container that ran long restarts at once; after a quiet time of
/// twice the longest delay the count starts afresh. A clock that stepped back shortens nothing and waits at most `delay`.
pub fn decide(known: Option<&Backoff>, finished: Timestamp, now: Timestamp, limits: BackoffLimits) -> Verdict {
    let Some(known) = known.filter(|known| !is_forgotten(known, finished, limits)) else {
        return Verdict::Start(Backoff { delay: limits.initial, decided: now });
    };
    let until = add(finished.min(now), known.delay);
    if now < until {
        return Verdict::Wait { until, delay: known.delay };
    }
    Verdict::Start(Backoff { delay: known.delay.saturating_mul(FACTOR).min(limits.max), decided: now })
}

fn is_forgotten(known: &Backoff, finished: Timestamp, limits: BackoffLimits) -> bool {
    finished > add(known.decided, limits.max.saturating_mul(2))
}

fn add(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// Message of the waiting reason `CrashLoopBackOff`; `pod` is `name_namespace(uid)`.
pub fn crash_loop_message(delay: Duration, container: &str, pod: &str) -> String {
    format!("back-off {} restarting failed container={container} pod={pod}", go_duration(delay))
}

/// Message of the event `BackOff` of a container; `pod` is `name_namespace(uid)`.
pub fn back_off_event(container: &str, pod: &str) -> String {
    format!("Back-off restarting failed container {container} in pod {pod}")
}

/// Returns a pod as messages name it: `name_namespace(uid)`.
pub fn pod_text(name: &str, namespace: &str, uid: &str) -> String {
    format!("{name}_{namespace}({uid})")
}

/// Writes a duration as Go prints it: `10s`, `1m20s`, `5m0s`, `1.5s`, `300ms`.
pub fn go_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    if nanos < 1_000 {
        return format!("{nanos}ns");
    }
    if nanos < 1_000_000 {
        return format!("{}µs", fraction(nanos, 1_000));
    }
    if nanos < 1_000_000_000 {
        return format!("{}ms", fraction(nanos, 1_000_000));
    }
    let seconds = duration.as_secs();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = fraction(nanos - u128::from(seconds / 60) * 60_000_000_000, 1_000_000_000);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

fn fraction(value: u128, unit: u128) -> String {
    let (whole, part) = (value / unit, value % unit);
    if part == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let digits = format!("{part:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ContainerRestartRuleOnExitCodes;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn spec(policy: &str) -> PodSpec {
        PodSpec { restart_policy: Some(policy.to_owned()), ..Default::default() }
    }

    #[test]
    fn policy_table() {
        let plain = Container::default();
        for (policy, code, want) in [
            ("Always", 0, true),
            ("Always", 1, true),
            ("OnFailure", 0, false),
            ("OnFailure", 137, true),
            ("Never", 0, false),
            ("Never", 1, false),
        ] {
            assert_eq!(should_restart(&spec(policy), &plain, code), want, "{policy} {code}");
        }
        assert!(should_restart(&PodSpec::default(), &plain, 0));
    }

    #[test]
    fn a_containers_own_policy_and_rules_come_first() {
        let mut container = Container { restart_policy: Some("Never".to_owned()), ..Default::default() };
        assert!(!should_restart(&spec("Always"), &container, 1));
        container.restart_policy_rules = Some(vec![ContainerRestartRule {
            action: "Restart".to_owned(),
            exit_codes: Some(ContainerRestartRuleOnExitCodes { operator: "In".to_owned(), values: Some(vec![42]) }),
        }]);
        assert!(should_restart(&spec("Never"), &container, 42));
        assert!(!should_restart(&spec("Never"), &container, 41));
    }

    #[test]
    fn init_containers_stop_at_success_and_sidecars_never() {
        let plain = Container::default();
        assert!(!should_restart_init(&spec("Always"), &plain, 0));
        assert!(should_restart_init(&spec("Always"), &plain, 1));
        assert!(!should_restart_init(&spec("Never"), &plain, 1));
        let sidecar = Container { restart_policy: Some("Always".to_owned()), ..Default::default() };
        assert!(should_restart_init(&spec("Never"), &sidecar, 0));
    }

    #[test]
    fn delays_go_0_10_20_40_80_160_300_300() {
        let limits = BackoffLimits::default();
        let mut now = at(1_000);
        let mut known = None;
        for want in [0_u64, 10, 20, 40, 80, 160, 300, 300] {
            let finished = now;
            if want > 0 {
                let Verdict::Wait { until, delay } = decide(known.as_ref(), finished, now, limits) else {
                    panic!("must wait {want}")
                };
                assert_eq!(delay.as_secs(), want);
                assert_eq!(until, add(finished, delay));
                now = until;
            }
            let Verdict::Start(next) = decide(known.as_ref(), finished, now, limits) else { panic!("must start") };
            known = Some(next);
        }
    }

    #[test]
    fn a_quiet_time_forgets_and_a_long_run_restarts_at_once() {
        let limits = BackoffLimits::default();
        let known = Backoff { delay: Duration::from_secs(160), decided: at(0) };
        assert_eq!(
            decide(Some(&known), at(601), at(601), limits),
            Verdict::Start(Backoff { delay: INITIAL, decided: at(601) })
        );
        assert!(matches!(decide(Some(&known), at(600), at(600), limits), Verdict::Wait { .. }));
        assert!(matches!(decide(Some(&known), at(300), at(500), limits), Verdict::Start(_)));
    }

    #[test]
    fn a_clock_that_stepped_back_waits_no_longer_than_the_delay() {
        let known = Backoff { delay: Duration::from_secs(20), decided: at(1_000_000) };
        let Verdict::Wait { until, .. } = decide(Some(&known), at(1_000_000), at(1_000), BackoffLimits::default())
        else {
            panic!("must wait")
        };
        assert_eq!(until, at(1_020));
    }

    #[test]
    fn a_low_maximum_lowers_the_first_delay() {
        let limits = BackoffLimits::with_max(Duration::from_secs(2));
        assert_eq!((limits.initial.as_secs(), limits.max.as_secs()), (2, 2));
    }

    #[test]
    fn texts_are_upstreams() {
        let pod = pod_text("p", "ns", "u");
        assert_eq!(
            crash_loop_message(Duration::from_secs(80), "c", &pod),
            "back-off 1m20s restarting failed container=c pod=p_ns(u)"
        );
        assert_eq!(back_off_event("c", &pod), "Back-off restarting failed container c in pod p_ns(u)");
        for (duration, text) in [
            (Duration::ZERO, "0s"),
            (Duration::from_secs(10), "10s"),
            (Duration::from_secs(300), "5m0s"),
            (Duration::from_secs(3661), "1h1m1s"),
            (Duration::from_millis(1500), "1.5s"),
            (Duration::from_millis(61_050), "1m1.05s"),
            (Duration::from_micros(1234), "1.234ms"),
        ] {
            assert_eq!(go_duration(duration), text);
        }
    }
}
