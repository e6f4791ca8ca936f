//! The states that a watcher of the API saw of a pod, ours beside the stock agent's. They carry no times, and what lasts
//! only a moment is seen by chance; so what counts is that ours shows no state that the stock agent never shows, leaves
//! out none that lasts, and comes to them in the same order.

/// How a pod of the API begins, before any agent has said anything.
const NEW: &str = "Pending  [] {}";
/// Ending of the states of a pod that was deleted.
const DELETING: &str = " deleting";
/// The last entry of a recording.
const GONE: &str = "GONE";

/// A difference that is kept on purpose.
struct Kept {
    case: &'static str,
    /// What its state begins with.
    state: &'static str,
    why: &'static str,
}

const KEPT: &[Kept] = &[
    Kept {
        case: "never-exit-code",
        state: "Running  [a=running: ready=True started=True restarts=0; b=running: ready=True",
        why: "its first container exits at once; the stock agent looks once a second and misses that it ran",
    },
    Kept {
        case: "termination-message",
        state: "Running  [file=running: ready=True started=True restarts=0; logs=running: ready=True",
        why: "its containers exit at once; the stock agent looks once a second and misses that they ran",
    },
    Kept {
        case: "termination-message",
        state: "Running  [file=terminated:Error:1 ready=False started=False restarts=0; logs=terminated:Error:2 ready=False started=False restarts=0; path=running",
        why: "it exits at once as well: whether it is seen to run depends on how busy the machine is",
    },
    Kept {
        case: "static-pod",
        state: "Pending  [c=waiting:ContainerCreating ready=False started=False restarts=0] {ContainersReady=False(ContainersNotReady) Initialized=True PodReadyToStartContainers=False",
        why: "the state of any pod before its sandbox; the stock agent makes the mirror only when that stands",
    },
    Kept {
        case: "sidecar-job",
        state: "Running  [side=terminated:Completed:0 ready=False started=False restarts=0; job=terminated",
        why: "nothing runs any more, and nothing of ours lies between that and the end of the pod",
    },
];

/// What differs, one line each. `stock` is the recording of this runtime, `others` those of other runtimes.
pub(super) fn differences(case: &str, stock: &[String], others: &[Vec<String>], ours: &[String]) -> Vec<String> {
    let stock: Vec<String> = stock.iter().map(|state| settled(case, state)).collect();
    let ours: Vec<String> = ours.iter().map(|state| settled(case, state)).collect();
    let everywhere: Vec<Vec<String>> =
        others.iter().map(|states| states.iter().map(|state| settled(case, state)).collect()).collect();
    let is_kept = |state: &str| KEPT.iter().any(|kept| kept.case == case && state.starts_with(kept.state));
    let is_known =
        |state: &String| state == NEW || stock.contains(state) || everywhere.iter().any(|all| all.contains(state));
    let mut found = Vec::new();
    for state in ours.iter().filter(|state| !is_known(state) && !is_kept(state)) {
        found.push(format!("{case}: the stock agent never shows: {state}"));
    }
    let end = stock.iter().position(|state| state.ends_with(DELETING) || state == GONE).unwrap_or(stock.len());
    for (index, state) in stock.iter().enumerate() {
        let by_all = everywhere.iter().all(|all| all.contains(state));
        let lasts = index + 1 == end || (by_all && is_lasting(state, index < end));
        if lasts && !ours.contains(state) && !is_kept(state) {
            found.push(format!("{case}: is never shown: {state}"));
        }
    }
    let firsts = |states: &[String], within: &[String]| {
        let mut firsts: Vec<String> = Vec::new();
        for state in states.iter().filter(|state| within.contains(state)) {
            if !firsts.contains(state) {
                firsts.push(state.clone());
            }
        }
        firsts
    };
    let (theirs, own) = (firsts(&stock, &ours), firsts(&ours, &stock));
    if theirs != own {
        found.push(format!("{case}: in another order:\n  {}\ninstead of\n  {}", own.join("\n  "), theirs.join("\n  ")));
    }
    found
}

/// Says whether a state is no mere passage: before the pod is deleted all but those in which something is just being made,
/// after that those in which something still runs.
fn is_lasting(state: &str, before_deletion: bool) -> bool {
    let is_made = state.contains("=waiting:ContainerCreating ") || state.contains("=waiting:PodInitializing ");
    match before_deletion {
        true => state != NEW && !is_made,
        false => state == GONE || state.contains("=running:"),
    }
}

/// Takes chance out of a state.
fn settled(case: &str, state: &str) -> String {
    if case == "ephemeral" {
        // The debug container lives among the processes of the other one, and both are told to stop at once: it ends by its
        // own signal, or with the last of that container's processes. The stock agent shows 143 on one runtime and 137 on
        // the others.
        return state.replace("dbg=terminated:Error:143", "dbg=terminated:Error:137");
    }
    state.to_owned()
}

/// The reasons, for a report.
pub(super) fn reasons(case: &str) -> impl Iterator<Item = &'static str> + '_ {
    KEPT.iter().filter(move |kept| kept.case == case).map(|kept| kept.why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(text: &[&str]) -> Vec<String> {
        text.iter().map(|state| (*state).to_owned()).collect()
    }

    const MAKING: &str = "Pending  [c=waiting:ContainerCreating ready=False] {}";
    const RUNS: &str = "Running  [c=running: ready=True] {}";
    const CRASHED: &str = "Running  [c=terminated:Error:1 ready=False] {}";
    const ENDS: &str = "Running  [c=running: ready=True] {} deleting";
    const ENDED: &str = "Succeeded  [c=terminated:Completed:0] {} deleting";

    fn stock() -> Vec<String> {
        states(&[NEW, MAKING, RUNS, CRASHED, ENDS, ENDED, GONE])
    }

    #[test]
    fn what_passes_may_be_missed_and_cycles_may_differ_in_number() {
        let ours = states(&[RUNS, CRASHED, RUNS, CRASHED, ENDS, GONE]);
        assert_eq!(differences("x", &stock(), &[stock()], &ours), Vec::<String>::new());
        // What one recording of the stock agent does not show does not last.
        let other = states(&[NEW, MAKING, CRASHED, ENDS, GONE]);
        let ours = states(&[NEW, CRASHED, ENDS, GONE]);
        assert_eq!(differences("x", &stock(), std::slice::from_ref(&other), &ours), Vec::<String>::new());
        // The last state before the deletion does, whatever it is.
        assert!(
            differences("x", &stock(), &[other], &states(&[NEW, RUNS, ENDS, GONE]))[0]
                .contains("is never shown: Running  [c=t")
        );
    }

    #[test]
    fn a_strange_a_missing_and_a_misplaced_state_are_told() {
        let found = |ours: &[&str]| differences("x", &stock(), &[stock()], &states(ours)).join("\n");
        assert!(found(&["Unknown  [] {}", RUNS, CRASHED, ENDS, GONE]).contains("never shows: Unknown"));
        assert!(found(&[CRASHED, ENDS, GONE]).contains("is never shown: Running  [c=running"));
        assert!(found(&[RUNS, CRASHED, GONE]).contains(&format!("is never shown: {ENDS}")));
        assert!(found(&[RUNS, CRASHED, ENDS]).contains("is never shown: GONE"));
        assert!(found(&[CRASHED, RUNS, ENDS, GONE]).contains("in another order"));
    }

    #[test]
    fn a_kept_difference_is_kept_in_its_case_alone() {
        let extra = format!("{}: more", KEPT[0].state);
        let ours = [&[extra][..], &stock()[..]].concat();
        assert!(differences(KEPT[0].case, &stock(), &[], &ours).is_empty());
        assert_eq!(differences("minimal", &stock(), &[], &ours).len(), 1);
    }
}
