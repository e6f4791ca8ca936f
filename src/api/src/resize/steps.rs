//! The order in which a new size is put into effect. The pod's group is never smaller than its containers: it grows before
//! them and shrinks after them. Memory comes first, each resource by itself.

use super::{Change, Part};

/// Bounds of a pod's group; `None` = no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// Weight in shares.
    pub shares: i64,
    /// Microseconds of cpu per period.
    pub quota: Option<i64>,
    /// Period in microseconds.
    pub period: i64,
    /// Bytes.
    pub memory: Option<i64>,
}

/// One bound of a pod's group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Weight.
    Shares(i64),
    /// Quota per period.
    Quota(Option<i64>),
    /// Memory.
    Memory(Option<i64>),
}

impl Group {
    /// The same with one bound replaced.
    #[must_use]
    pub const fn with(self, bound: Bound) -> Self {
        match bound {
            Bound::Shares(shares) => Self { shares, ..self },
            Bound::Quota(quota) => Self { quota, ..self },
            Bound::Memory(memory) => Self { memory, ..self },
        }
    }
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Set a bound of the pod's group.
    Group(Bound),
    /// Tell the runtime of a container's new size in one resource.
    Container {
        /// Its name.
        name: String,
        /// The resource.
        part: Part,
    },
}

/// What is no bound is more than any bound.
fn width(bound: Option<i64>) -> i64 {
    bound.unwrap_or(i64::MAX)
}

/// Orders the steps from what the group has `now` (`None` where groups are not ours) to what is `wanted`. `changed` says
/// what the resize is about, `containers` what is new for those that go on running. While others still have to start anew
/// in their new size the group must not shrink: `may_shrink` is false, and the rest follows after them.
pub fn steps(
    now: Option<&Group>,
    wanted: &Group,
    changed: Change,
    containers: &[(String, Change)],
    may_shrink: bool,
) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in [Part::Memory, Part::Cpu] {
        let (mut grow, mut shrink) = (Vec::new(), Vec::new());
        if let Some(now) = now.filter(|_| changed.of(part)) {
            // Limits go first on the way up and last on the way down, so that a request is never above its limit.
            let bounds = match part {
                Part::Memory => vec![(Bound::Memory(wanted.memory), width(now.memory), width(wanted.memory))],
                Part::Cpu => vec![
                    (Bound::Quota(wanted.quota), width(now.quota), width(wanted.quota)),
                    (Bound::Shares(wanted.shares), now.shares, wanted.shares),
                ],
            };
            for (bound, from, to) in bounds {
                if to > from {
                    grow.push(Step::Group(bound));
                } else if to < from && may_shrink {
                    shrink.insert(0, Step::Group(bound));
                }
            }
        }
        steps.append(&mut grow);
        let own = containers.iter().filter(|(_, change)| change.of(part));
        steps.extend(own.map(|(name, _)| Step::Container { name: name.clone(), part }));
        steps.append(&mut shrink);
    }
    steps
}
