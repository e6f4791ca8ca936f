//! The pod fuzzer: random pods, exits, verdicts, updates, deletes, faults of the runtime and kills of the agent on a fake
//! runtime with paused time, and a small model that says what must never be (`longshore_integration::fuzz`).
//!
//! | promise (what must never happen) | where it is looked at |
//! |---|---|
//! | two live containers of one name | `Book::container_runs` |
//! | two ready sandboxes of one pod | `Book::home_made` |
//! | a start after the pod was told to end, or was shown as ended | `Book::asked_to_start` |
//! | a running, wanted container touched (restart of agent, runtime or API; a source that is silent; labels) | `Book::asked_to_stop`, `asked_to_stop_home`, `asked_to_remove` |
//! | a main container before init is through | `Book::container_runs` |
//! | a container run again that may not | `Book::container_runs` |
//! | a grace that grows | `Book::asked_to_stop` |
//! | data of a volume gone while it may be mounted | `Book::released` |
//! | an exit code lost or told differently, a restart count that shrinks, a phase that goes back | `Book::show`, `Api::patch` |
//! | a size that nobody asked for; one that fits and is not given, or given twice over | `Book::sized`, `unrest_of_sizes` |
//! | an end shown while something runs | `Book::show` |
//! | readiness of the dead, readiness lost for nothing | `Book::show` |
//! | an API object deleted before its pod is gone | `Api::let_go`, `Watching::put` |
//! | a pod that never comes to rest, something left behind, a task that lives on, a panic | `play` |
//!
//! `LONGSHORE_FUZZ_SEED=7` plays one case and tells all of it; `LONGSHORE_FUZZ_CASES=1000` sets how many are played.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops at the first surprise and says why"
)]

#[path = "pod_fuzz/agent.rs"]
mod agent;
#[path = "pod_fuzz/api.rs"]
mod api;
#[path = "pod_fuzz/case.rs"]
mod case;
#[path = "pod_fuzz/hands.rs"]
mod hands;
#[path = "pod_fuzz/rest.rs"]
mod rest;
#[path = "pod_fuzz/scene.rs"]
mod scene;
#[path = "pod_fuzz/seen.rs"]
mod seen;
#[path = "pod_fuzz/world.rs"]
mod world;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use case::Case;
use longshore_node::journal::Journal;
use world::World;

/// Cases of a usual run: what fits into some seconds.
const USUAL: u64 = 60;
/// Cases of a long run.
const LONG: u64 = 6000;
/// How often it is looked whether everything has come to rest, with growing pauses: the longest restart delays, and then some.
const REST_PAUSES: u64 = 60;
/// How long a case may take of its own time.
const LONGEST_CASE: Duration = Duration::from_secs(24 * 3600);
/// How long a process of a case runs at most, unless it runs for ever.
const LONGEST_LIFE: Duration = Duration::from_secs(10);
/// The same for what was deleted and must be gone.
const GONE_PAUSES: u64 = 40;

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// What came of a case.
#[derive(Debug, Default)]
struct Outcome {
    faults: Vec<String>,
    log: Vec<String>,
}

/// Plays a case from its first step until nothing is left of it.
fn play(case: &Case) -> Outcome {
    // In memory where there is such a place: each case writes facts down some hundred times.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    PANICS.with_borrow_mut(Vec::clear);
    let mut outcome = runtime.block_on(async {
        let mut world = World::start(case, folder.path()).await;
        // Time is the test's own: what hangs for ever would otherwise turn its wheels for ever.
        let fault = tokio::time::timeout(LONGEST_CASE, through(&mut world, case)).await;
        let fault = fault.unwrap_or_else(|_| Some("a step of the case never ends".to_owned()));
        let book = world.machine.book.lock().unwrap();
        let mut outcome = Outcome { faults: book.faults().to_vec(), log: book.log().to_vec() };
        outcome.faults.extend(fault);
        outcome
    });
    drop(runtime);
    outcome.faults.extend(PANICS.with_borrow_mut(std::mem::take));
    outcome
}

fn is_broken(world: &World) -> bool {
    !world.machine.book.lock().unwrap().faults().is_empty() || PANICS.with_borrow(|panics| !panics.is_empty())
}

async fn through(world: &mut World, case: &Case) -> Option<String> {
    for (number, step) in case.steps.iter().enumerate() {
        world.note(&format!("step {number}: {step:?}"));
        world.step(step).await;
        if is_broken(world) {
            return None;
        }
    }
    world.note("everything is good from here on");
    world.make_good();
    // Processes that began before run on as they would.
    tokio::time::sleep(LONGEST_LIFE).await;
    if let Some(fault) = rest(world).await {
        return Some(fault);
    }
    if is_broken(world) {
        return None;
    }
    world.note("everything is deleted");
    for index in 0..world.count() {
        world.remove(index, 1 + case.seed % 3);
    }
    let mut left = Vec::new();
    for pause in (1..GONE_PAUSES).map(|number| number.min(30)) {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        left = world.left();
        if left.is_empty() || is_broken(world) {
            break;
        }
    }
    if is_broken(world) || !left.is_empty() {
        return (!left.is_empty()).then(|| format!("left behind: {}", left.join("; ")));
    }
    world.kill_agent(false).await;
    let (_, facts) = Journal::open_delayed(&world.machine.folder.path().join("longshore")).unwrap();
    (!facts.is_empty()).then(|| format!("facts of {:?} are left in the journal", facts.keys().collect::<Vec<_>>()))
}

/// Waits until everything is as wanted and nothing is made, started or stopped any more.
async fn rest(world: &mut World) -> Option<String> {
    let moves = |world: &World| -> usize {
        let failpoints = world.machine.runtime.failpoints();
        let moves = ["RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer"];
        moves.iter().map(|rpc| failpoints.count(rpc)).sum()
    };
    let mut why = String::new();
    for pause in (1..REST_PAUSES).map(|number| number.min(30)) {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        if is_broken(world) {
            return None;
        }
        let unrests = world.unrests();
        if !unrests.is_empty() {
            why = unrests.join("; ");
            continue;
        }
        let before = moves(world);
        tokio::time::sleep(Duration::from_secs(12)).await;
        if moves(world) == before {
            return None;
        }
        "containers are made or stopped although all is at rest".clone_into(&mut why);
    }
    Some(format!("never at rest: {why}"))
}

/// What kind of fault it is: its words without the numbers.
fn kind(faults: &[String]) -> Option<String> {
    faults.first().map(|fault| fault.chars().filter(|letter| letter.is_alphabetic()).take(60).collect())
}

/// Leaves out steps as long as the case still fails in the same way.
fn shrink(case: &Case, faults: &[String]) -> Case {
    let mut small = case.clone();
    let wanted = kind(faults);
    let mut size = small.steps.len().div_ceil(2);
    let mut tries = 0;
    while size > 0 && tries < 400 {
        let mut from = 0;
        let mut shrunk = false;
        while from < small.steps.len() && tries < 400 {
            let mut less = small.clone();
            less.steps.drain(from..(from + size).min(small.steps.len()));
            tries += 1;
            if kind(&play(&less).faults) != wanted {
                from += size;
            } else {
                small = less;
                shrunk = true;
            }
        }
        if !shrunk || size > 1 {
            size /= 2;
        }
    }
    small
}

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Catches panics of tasks, which nobody else would see.
fn watch_panics() {
    std::panic::set_hook(Box::new(|info| {
        let text = format!("panic: {info}");
        PANICS.with_borrow_mut(|panics| panics.push(text));
    }));
}

fn tell(case: &Case, outcome: &Outcome) -> String {
    let log = outcome.log.join("\n");
    let pods: Vec<String> = case.pods.iter().map(|pod| format!("{pod:?}")).collect();
    let steps: Vec<String> = case.steps.iter().map(|step| format!("{step:?}")).collect();
    format!(
        "seed {}, events {}, image pause {} ms, news after {} ms, room for {} with {}m\npods:\n{}\nsteps:\n{}\n{log}\n{}",
        case.seed,
        case.events,
        case.image_pause,
        case.news,
        case.room,
        case.cpu,
        pods.join("\n"),
        steps.join("\n"),
        outcome.faults.join("\n")
    )
}

/// Plays cases from `first` on; the first that fails is told with the fewest steps.
fn run(first: u64, count: u64) {
    watch_panics();
    let count = environment("LONGSHORE_FUZZ_CASES").unwrap_or(count);
    let one = environment("LONGSHORE_FUZZ_SEED");
    let seeds = one.map_or(first..first + count, |seed| seed..seed + 1);
    eprintln!("seeds {seeds:?}");
    let enough = usize::try_from(environment("LONGSHORE_FUZZ_FAILURES").unwrap_or(1)).unwrap();
    let started = std::time::Instant::now();
    let next = AtomicU64::new(seeds.start);
    let failed = Mutex::new(Vec::new());
    let one_after_the_other = || {
        while failed.lock().unwrap().len() < enough {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) {
                break;
            }
            if seed > seeds.start && (seed - seeds.start).is_multiple_of(500) {
                eprintln!("{} cases in {:?}", seed - seeds.start, started.elapsed());
            }
            let case = Case::random(seed);
            let begun = std::time::Instant::now();
            let outcome = play(&case);
            if begun.elapsed() > Duration::from_secs(5) {
                eprintln!("seed {seed} took {:?}, {} lines", begun.elapsed(), outcome.log.len());
            }
            if let Some(fault) = outcome.faults.first() {
                eprintln!("seed {seed}: {fault}");
                failed.lock().unwrap().push((case, outcome));
            }
        }
    };
    // Each case has a thread and a time of its own.
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(one_after_the_other);
        }
    });
    let failed = failed.into_inner().unwrap();
    let Some((case, outcome)) = failed.first() else { return };
    let small = shrink(case, &outcome.faults);
    let shrunk = play(&small);
    eprintln!("{}", tell(&small, &shrunk));
    drop(std::panic::take_hook());
    panic!("{}\nplay it again with LONGSHORE_FUZZ_SEED={}", outcome.faults.join("\n"), case.seed);
}

#[test]
fn pods_keep_their_promises_whatever_happens() {
    run(1, USUAL);
}

#[test]
#[ignore = "takes minutes; part of make test-all"]
fn pods_keep_their_promises_whatever_happens_for_long() {
    let first = environment("LONGSHORE_FUZZ_FIRST").unwrap_or(1_000_000);
    run(first, LONG);
}

#[test]
fn a_seed_stands_for_one_case_and_one_course() {
    watch_panics();
    for seed in [3, 11, 42] {
        let (one, two) = (play(&Case::random(seed)), play(&Case::random(seed)));
        let differs = one.log.iter().zip(&two.log).find(|(one, two)| one != two);
        assert_eq!((one.log.len(), differs), (two.log.len(), None));
    }
}
