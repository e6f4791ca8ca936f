//! What consecutive answers of one container's probes mean. Pure.
//!
//! ```text
//! waits for startup --enough successes--> started --enough liveness failures--> failed (for good)
//!        '-----------enough startup failures---------------------------------------^
//! readiness, once started: not ready <--> ready
//! ```

use k8s_openapi::api::core::v1::Container;

/// The three questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProbeKind {
    /// Has it come up?
    Startup,
    /// Is it alive?
    Liveness,
    /// Can it serve?
    Readiness,
}

impl ProbeKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    /// The word in events and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }

    /// The word in the middle of a sentence.
    pub const fn lower(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Liveness => "liveness",
            Self::Readiness => "readiness",
        }
    }

    pub(super) const fn index(self) -> usize {
        match self {
            Self::Startup => 0,
            Self::Liveness => 1,
            Self::Readiness => 2,
        }
    }

    /// The probe of that kind, if the container has it.
    pub fn of(self, container: &Container) -> Option<&k8s_openapi::api::core::v1::Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
        }
    }
}

/// How many answers in a row count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Thresholds {
    pub(super) success: u32,
    pub(super) failure: u32,
}

/// What was known of a container before its probes ran here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    /// It counted as started.
    pub started: bool,
    /// It was ready.
    pub ready: bool,
}

/// What the probes say of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Its startup probe has succeeded, or there is none.
    pub started: bool,
    /// Its readiness probe succeeds, or there is none.
    pub ready: bool,
    /// The probe by whose failures it must be killed.
    pub failed: Option<ProbeKind>,
}

/// The last answers of one probe.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    good: bool,
    length: u32,
}

/// The state of one instance of a container.
#[derive(Debug)]
pub(super) struct Machine {
    thresholds: [Option<Thresholds>; 3],
    rows: [Row; 3],
    verdict: Verdict,
    ending: bool,
}

impl Machine {
    /// A container that was just seen for the first time.
    pub(super) fn new(thresholds: [Option<Thresholds>; 3], known: Known) -> Self {
        let has = |kind: ProbeKind| thresholds[kind.index()].is_some();
        let verdict = Verdict {
            started: known.started || !has(ProbeKind::Startup),
            ready: known.ready || !has(ProbeKind::Readiness),
            failed: None,
        };
        Self { thresholds, rows: [Row::default(); 3], verdict, ending: false }
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Its pod ends: from now on only readiness is of interest. Returns whether that is news.
    pub(super) fn end(&mut self) -> bool {
        !std::mem::replace(&mut self.ending, true)
    }

    /// Whether a probe is to be run in the present state.
    pub(super) fn wants(&self, kind: ProbeKind) -> bool {
        if self.thresholds[kind.index()].is_none() || self.verdict.failed.is_some() {
            return false;
        }
        match kind {
            ProbeKind::Startup => !self.verdict.started && !self.ending,
            ProbeKind::Liveness => self.verdict.started && !self.ending,
            ProbeKind::Readiness => self.verdict.started,
        }
    }

    /// Takes an answer; returns whether the verdict changed. An answer that comes too late to be wanted is dropped.
    pub(super) fn take(&mut self, kind: ProbeKind, good: bool) -> bool {
        if !self.wants(kind) {
            return false;
        }
        let Some(thresholds) = self.thresholds[kind.index()] else { return false };
        let row = &mut self.rows[kind.index()];
        row.length = if row.good == good { row.length.saturating_add(1) } else { 1 };
        row.good = good;
        if row.length < (if good { thresholds.success } else { thresholds.failure }) {
            return false;
        }
        let before = self.verdict;
        match (kind, good) {
            (ProbeKind::Startup, true) => self.verdict.started = true,
            (ProbeKind::Readiness, good) => self.verdict.ready = good,
            (ProbeKind::Startup | ProbeKind::Liveness, false) => self.verdict.failed = Some(kind),
            (ProbeKind::Liveness, true) => {}
        }
        before != self.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Thresholds = Thresholds { success: 1, failure: 1 };

    fn machine(startup: Option<Thresholds>, liveness: Option<Thresholds>, readiness: Option<Thresholds>) -> Machine {
        Machine::new([startup, liveness, readiness], Known::default())
    }

    fn shown(machine: &Machine) -> (bool, bool, Option<ProbeKind>) {
        let verdict = machine.verdict();
        (verdict.started, verdict.ready, verdict.failed)
    }

    #[test]
    fn without_probes_it_is_started_and_ready() {
        assert_eq!(shown(&machine(None, None, None)), (true, true, None));
    }

    #[test]
    fn nothing_but_the_startup_probe_runs_before_it_succeeds() {
        let mut m = machine(Some(ONE), Some(ONE), Some(ONE));
        assert_eq!(ProbeKind::ALL.map(|kind| m.wants(kind)), [true, false, false]);
        assert!(!m.take(ProbeKind::Liveness, false) && !m.take(ProbeKind::Readiness, true));
        assert_eq!(shown(&m), (false, false, None));
        assert!(m.take(ProbeKind::Startup, true));
        assert_eq!(ProbeKind::ALL.map(|kind| m.wants(kind)), [false, true, true]);
        assert_eq!(shown(&m), (true, false, None));
        assert!(m.take(ProbeKind::Readiness, true));
        assert_eq!(shown(&m), (true, true, None));
    }

    #[test]
    fn only_answers_in_a_row_count() {
        let three = Thresholds { success: 2, failure: 3 };
        let mut m = machine(None, None, Some(three));
        let mut ready = |good| {
            m.take(ProbeKind::Readiness, good);
            m.verdict().ready
        };
        let answers = [true, false, true, true, false, false, true, false, false, false, true, true];
        let states = [false, false, false, true, true, true, true, true, true, false, false, true];
        assert_eq!(answers.map(&mut ready), states);
    }

    #[test]
    fn the_first_failure_counts_as_one() {
        let mut m = machine(None, Some(Thresholds { success: 1, failure: 2 }), None);
        assert!(!m.take(ProbeKind::Liveness, false));
        assert!(m.take(ProbeKind::Liveness, false));
        assert_eq!(shown(&m), (true, true, Some(ProbeKind::Liveness)));
    }

    #[test]
    fn a_failed_container_is_not_asked_again() {
        let mut m = machine(Some(ONE), Some(ONE), Some(ONE));
        assert!(m.take(ProbeKind::Startup, false));
        assert_eq!(shown(&m), (false, false, Some(ProbeKind::Startup)));
        assert!(ProbeKind::ALL.iter().all(|kind| !m.wants(*kind)));
        assert!(!m.take(ProbeKind::Startup, true));
    }

    #[test]
    fn what_was_known_stands_until_a_probe_says_otherwise() {
        let probes = [Some(ONE), None, Some(Thresholds { success: 1, failure: 3 })];
        let mut m = Machine::new(probes, Known { started: true, ready: true });
        assert_eq!(shown(&m), (true, true, None));
        assert!(!m.wants(ProbeKind::Startup));
        assert!(!m.take(ProbeKind::Readiness, false) && !m.take(ProbeKind::Readiness, false));
        assert!(m.take(ProbeKind::Readiness, false));
        assert_eq!(shown(&m), (true, false, None));
    }

    #[test]
    fn an_ending_pod_is_asked_for_readiness_alone() {
        let mut m = machine(None, Some(ONE), Some(ONE));
        assert!(m.end() && !m.end());
        assert_eq!(ProbeKind::ALL.map(|kind| m.wants(kind)), [false, false, true]);
        assert!(!m.take(ProbeKind::Liveness, false));
        assert!(m.take(ProbeKind::Readiness, true));
        assert_eq!(shown(&m), (true, true, None));
    }
}
