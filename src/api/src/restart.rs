//! When an exited container is started again: restart policies and rules by exit code. How long that waits is the agent's
//! business.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, PodSpec};

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

/// Message of the waiting reason `CrashLoopBackOff`; `pod` is `name_namespace(uid)`.
pub fn crash_loop_message(delay: Duration, container: &str, pod: &str) -> String {
    format!("back-off {} restarting failed container={container} pod={pod}", go_duration(delay))
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
    fn texts_are_upstreams() {
        let pod = pod_text("p", "ns", "u");
        assert_eq!(
            crash_loop_message(Duration::from_secs(80), "c", &pod),
            "back-off 1m20s restarting failed container=c pod=p_ns(u)"
        );
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
