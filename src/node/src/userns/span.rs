//! Which ids of the host are there for pods: those that belong to the user `kubelet`, else all above the first slot.

use std::path::Path;
use std::process::Command;

use super::UserRange;

/// The user whose subordinate ids are for pods.
const USER: &str = "kubelet";
const PASSWD: &str = "/etc/passwd";
/// Lists the subordinate ids of a user.
const TOOL: &str = "getsubids";
/// How many ids there are.
const ALL: u64 = 1 << 32;

/// Why the ids of the user `kubelet` cannot be used. Not retryable: somebody must put them right.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// The tool failed.
    #[error("user {USER} exists, but {TOOL} does not list its ids: {0}")]
    Tool(String),
    /// More or less than one range, or an unreadable one.
    #[error("user {USER} must have exactly one range of subordinate ids, not {0:?}")]
    Ranges(String),
    /// Users and groups differ.
    #[error("user {USER} must have the same range of subordinate user and group ids")]
    Differ,
    /// Slots would not fit.
    #[error(
        "subordinate ids of user {USER}: first id {first} and length {length} must be multiples of {per_pod}, the first not 0"
    )]
    Odd {
        /// First id.
        first: u64,
        /// How many.
        length: u64,
        /// `userNamespaces.idsPerPod`.
        per_pod: u64,
    },
    /// Not enough for the number of pods.
    #[error("subordinate ids of user {USER} are enough for {slots} pods, the node takes {pods}")]
    Few {
        /// How many pods they are enough for.
        slots: u64,
        /// `maxPods`.
        pods: u64,
    },
}

/// The ids for pods, in slots of equal size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    first: u64,
    slots: u64,
    per_pod: u64,
}

impl Span {
    /// Asks the machine.
    pub fn of_machine(per_pod: u64, pods: u64) -> Result<Self, SpanError> {
        let has_user = std::fs::read_to_string(PASSWD)
            .is_ok_and(|text| text.lines().any(|line| line.split(':').next() == Some(USER)));
        let installed = std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|folder| Path::new(&folder).join(TOOL).is_file()));
        if !has_user || !installed {
            return Ok(Self::usual(per_pod));
        }
        let users = listed(&ask(&[USER])?)?;
        if users != listed(&ask(&["-g", USER])?)? {
            return Err(SpanError::Differ);
        }
        Self::new(users.0, users.1, per_pod, pods)
    }

    /// All ids but those of the first slot, which are the host's own.
    pub const fn usual(per_pod: u64) -> Self {
        let slots = match ALL.saturating_sub(per_pod).checked_div(per_pod) {
            Some(slots) => slots,
            None => 0,
        };
        Self { first: per_pod, slots, per_pod }
    }

    fn new(first: u64, length: u64, per_pod: u64, pods: u64) -> Result<Self, SpanError> {
        let fits = |number: u64| number > 0 && per_pod > 0 && number.is_multiple_of(per_pod);
        if !fits(first) || !fits(length) || first.saturating_add(length) > ALL {
            return Err(SpanError::Odd { first, length, per_pod });
        }
        let slots = length / per_pod;
        if slots < pods {
            return Err(SpanError::Few { slots, pods });
        }
        Ok(Self { first, slots, per_pod })
    }

    /// The first slot that meets none of these; they need not lie in slots, for the size may have changed.
    pub(super) fn free(&self, taken: impl Iterator<Item = UserRange>) -> Option<UserRange> {
        let mut taken: Vec<(u64, u64)> =
            taken.map(|range| (u64::from(range.first), u64::from(range.first) + u64::from(range.length))).collect();
        taken.sort_unstable();
        let mut slot = 0;
        for (begin, end) in taken {
            while slot < self.slots && self.begin(slot) < end && self.begin(slot + 1) > begin {
                slot += 1;
            }
        }
        let first = u32::try_from(self.begin(slot)).ok().filter(|_| slot < self.slots)?;
        Some(UserRange { first, length: u32::try_from(self.per_pod).ok()? })
    }

    const fn begin(&self, slot: u64) -> u64 {
        self.first + slot * self.per_pod
    }
}

fn ask(arguments: &[&str]) -> Result<String, SpanError> {
    let output = Command::new(TOOL).args(arguments).output().map_err(|error| SpanError::Tool(error.to_string()))?;
    if !output.status.success() {
        return Err(SpanError::Tool(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads `0: kubelet 65536 7208960`: number, user, first id, count.
fn listed(text: &str) -> Result<(u64, u64), SpanError> {
    let bad = || SpanError::Ranges(text.trim().to_owned());
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let (Some(line), None) = (lines.next(), lines.next()) else { return Err(bad()) };
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, USER, first, count] = words.as_slice() else { return Err(bad()) };
    match (first.parse(), count.parse()) {
        (Ok(first), Ok(count)) => Ok((first, count)),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: u64 = 65536;

    #[test]
    fn ids_of_the_user_are_read() {
        assert_eq!(listed("0: kubelet 65536 7208960\n"), Ok((65536, 7_208_960)));
        for bad in ["", "0: kubelet 65536\n", "0: other 1 2\n", "0: kubelet 1 2\n1: kubelet 3 4\n", "0: kubelet x 2\n"]
        {
            assert!(matches!(listed(bad), Err(SpanError::Ranges(_))), "{bad:?}");
        }
    }

    #[test]
    fn ids_that_do_not_fall_into_slots_are_refused() {
        assert!(Span::new(SLOT, 110 * SLOT, SLOT, 110).is_ok());
        assert_eq!(Span::new(SLOT, 109 * SLOT, SLOT, 110), Err(SpanError::Few { slots: 109, pods: 110 }));
        for (first, length) in [(0, SLOT), (1000, SLOT), (SLOT, SLOT + 1), (SLOT, ALL)] {
            assert!(matches!(Span::new(first, length, SLOT, 1), Err(SpanError::Odd { .. })), "{first} {length}");
        }
        assert_eq!(Span::usual(SLOT), Span { first: SLOT, slots: 65535, per_pod: SLOT });
    }

    #[test]
    fn the_first_slot_that_meets_nobody_is_free() {
        let span = Span::new(SLOT, 4 * SLOT, SLOT, 1).unwrap();
        let range = |first: u32, length: u32| UserRange { first, length };
        let free = |taken: &[UserRange]| span.free(taken.iter().copied()).map(|range| range.first);
        let slot = 65536;
        assert_eq!(free(&[]), Some(slot));
        assert_eq!(free(&[range(slot, slot)]), Some(2 * slot));
        assert_eq!(free(&[range(2 * slot, slot)]), Some(slot));
        assert_eq!(free(&[range(3 * slot, slot), range(slot, slot)]), Some(2 * slot));
        // Of a node that gave twice as many to each.
        assert_eq!(free(&[range(slot, 2 * slot)]), Some(3 * slot));
        assert_eq!(free(&[range(slot + 5, 1)]), Some(2 * slot));
        assert_eq!(free(&[range(slot, 4 * slot)]), None);
        assert_eq!(free(&[range(0, slot), range(u32::MAX - slot, slot)]), Some(slot));
    }
}
