//! When probes run. Pure: durations in, durations out.
//!
//! The stock agent's tickers begin with the pod's first pass and keep their beat through restarts, so that the first probe
//! comes anywhere within a period after the start. Here the beat begins with the container: nothing that can kill comes
//! earlier than the stock agent's, and what makes a pod ready comes as early as it can.

use std::time::Duration;

use k8s_openapi::api::core::v1::Probe;

use super::machine::{ProbeKind, Thresholds};

/// After a first look that found nothing, readiness is asked for again this soon.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// A probe's numbers, defaults filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timing {
    pub(super) delay: Duration,
    pub(super) period: Duration,
    pub(super) timeout: Duration,
}

/// When a probe runs next, and whether a failure then counts and is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) wait: Duration,
    /// A look ahead of the first regular probe: only a success counts.
    pub(super) free: bool,
}

/// Reads the numbers; the API's defaults stand in for what is missing or makes no sense.
pub(super) fn numbers(probe: &Probe) -> (Timing, Thresholds) {
    let seconds =
        |value: Option<i32>, usual: u32| value.and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(usual);
    let timing = Timing {
        delay: Duration::from_secs(seconds(probe.initial_delay_seconds, 0).into()),
        period: Duration::from_secs(seconds(probe.period_seconds, 10).into()),
        timeout: Duration::from_secs(seconds(probe.timeout_seconds, 1).into()),
    };
    let thresholds =
        Thresholds { success: seconds(probe.success_threshold, 1), failure: seconds(probe.failure_threshold, 3) };
    (timing, thresholds)
}

/// The first probe of a container that started `age` ago, whose turn has come now.
pub(super) fn first(kind: ProbeKind, timing: Timing, age: Duration) -> Next {
    let left = |after: Duration| after.saturating_sub(age);
    match kind {
        // An early look costs nothing; the failures that kill begin after a whole period, as documented.
        ProbeKind::Startup => Next { wait: left(timing.delay), free: timing.delay.max(age) < timing.period },
        // Somewhat before the end of the first period, where the stock agent's beat falls on a fresh pod.
        ProbeKind::Liveness => Next { wait: left(timing.delay.max(timing.period * 3 / 4)), free: false },
        ProbeKind::Readiness => Next { wait: left(timing.delay), free: timing.delay.is_zero() && age < SECOND_LOOK },
    }
}

/// The first liveness or readiness probe after the startup probe has succeeded.
pub(super) fn after_startup(kind: ProbeKind, timing: Timing, age: Duration) -> Next {
    let left = timing.delay.saturating_sub(age);
    match kind {
        ProbeKind::Liveness => Next { wait: left.max(timing.period * 3 / 4), free: false },
        ProbeKind::Startup | ProbeKind::Readiness => Next { wait: left, free: false },
    }
}

/// The first probe of a container that an earlier agent left running: spread over a period, so that the start of the agent
/// is no storm. `share` is any number; the same one gives the same place.
pub(super) fn found(timing: Timing, age: Duration, share: u64) -> Next {
    let period = u64::try_from(timing.period.as_millis()).unwrap_or(u64::MAX).max(1);
    let wait = Duration::from_millis(share % period);
    Next { wait: wait.max(timing.delay.saturating_sub(age)), free: false }
}

/// From one probe's planned moment to the next.
pub(super) fn next(kind: ProbeKind, timing: Timing, was_free: bool) -> Duration {
    match (kind, was_free) {
        (ProbeKind::Readiness, true) => timing.period.min(SECOND_LOOK),
        // Back to the beat that begins with the container.
        (ProbeKind::Startup, true) => timing.period.saturating_sub(timing.delay),
        (ProbeKind::Startup | ProbeKind::Liveness | ProbeKind::Readiness, _) => timing.period,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn timing(delay: u64, period: u64) -> Timing {
        Timing { delay: secs(delay), period: secs(period), timeout: secs(1) }
    }

    /// Moments after the start at which a probe runs, and whether its failure counts.
    fn moments(kind: ProbeKind, timing: Timing, count: usize) -> Vec<(f32, bool)> {
        let Next { wait, mut free } = first(kind, timing, Duration::ZERO);
        let mut at = wait;
        let mut all = Vec::new();
        for _ in 0..count {
            all.push((at.as_secs_f32(), !free));
            at += next(kind, timing, free);
            free = false;
        }
        all
    }

    #[test]
    fn missing_numbers_are_the_apis_defaults() {
        let usual = numbers(&Probe::default());
        assert_eq!(usual, (timing(0, 10), Thresholds { success: 1, failure: 3 }));
        let odd = Probe {
            period_seconds: Some(0),
            timeout_seconds: Some(-1),
            failure_threshold: Some(0),
            ..Probe::default()
        };
        assert_eq!(numbers(&odd), usual);
    }

    #[test]
    fn readiness_is_asked_at_once_after_a_second_and_then_each_period() {
        assert_eq!(moments(ProbeKind::Readiness, timing(0, 10), 3), [(0.0, false), (1.0, true), (11.0, true)]);
        assert_eq!(moments(ProbeKind::Readiness, timing(5, 10), 2), [(5.0, true), (15.0, true)]);
    }

    #[test]
    fn startup_is_looked_at_early_but_fails_only_after_whole_periods() {
        assert_eq!(moments(ProbeKind::Startup, timing(0, 10), 3), [(0.0, false), (10.0, true), (20.0, true)]);
        assert_eq!(moments(ProbeKind::Startup, timing(4, 10), 3), [(4.0, false), (10.0, true), (20.0, true)]);
        assert_eq!(moments(ProbeKind::Startup, timing(12, 10), 2), [(12.0, true), (22.0, true)]);
    }

    #[test]
    fn liveness_never_comes_before_its_delay_nor_early_in_the_first_period() {
        assert_eq!(moments(ProbeKind::Liveness, timing(0, 10), 2), [(7.5, true), (17.5, true)]);
        assert_eq!(moments(ProbeKind::Liveness, timing(8, 10), 2), [(8.0, true), (18.0, true)]);
        assert_eq!(after_startup(ProbeKind::Liveness, timing(30, 10), secs(12)).wait, secs(18));
        assert_eq!(after_startup(ProbeKind::Readiness, timing(0, 10), secs(12)).wait, secs(0));
    }

    #[test]
    fn containers_found_at_the_start_are_spread_over_a_period() {
        let waits: Vec<Duration> = (0..100_u64).map(|n| found(timing(0, 10), secs(60), n * 7919).wait).collect();
        assert!(waits.iter().all(|wait| *wait < secs(10)));
        assert!(waits.iter().any(|wait| *wait < secs(2)) && waits.iter().any(|wait| *wait > secs(8)));
        assert_eq!(found(timing(100, 10), secs(60), 3).wait, secs(40));
    }
}
