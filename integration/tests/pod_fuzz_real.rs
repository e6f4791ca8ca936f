//! The pod fuzzer on a real containerd: the same random pods and the same model as the one on the fake runtime
//! (`tests/tests/pod_fuzz.rs`), with real processes that live as long as a script says, probes and hooks that look at
//! files, updates, resizes, deletes, killed sandboxes, and kill -9 of the agent. What must never be is seen from the runtime,
//! the kernel and the API.
//!
//! The seed is printed; `LONGSHORE_FUZZ_SEED=7` plays that case alone, with the whole story told at its end.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "pod_fuzz_real/case.rs"]
mod case;
#[path = "pod_fuzz_real/dress.rs"]
mod dress;
#[path = "pod_fuzz_real/eyes.rs"]
mod eyes;
#[path = "pod_fuzz_real/hands.rs"]
mod hands;
#[path = "pod_fuzz_real/rest.rs"]
mod rest;
#[path = "pod_fuzz_real/scene.rs"]
mod scene;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use case::{Case, IMAGES};
use hands::Hands;
use longshore_integration::churn::{self, Place};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{BUSYBOX_IMAGE, Env, Version, newest};
use longshore_integration::tools::say;
use scene::{Scene, locked};
use serde_json::json;

/// Pods and steps of a case.
const PODS: u64 = 4;
const STEPS: u64 = 16;
/// Cases of a usual run.
const FEW: u64 = 2;

fn images(env: &Env) -> Result<()> {
    for number in 0..IMAGES {
        env.run(&mut env.ctr(&["images", "tag", "--force", BUSYBOX_IMAGE, &dress::image(number)])?)?;
    }
    Ok(())
}

/// Plays a case until nothing is left of it; the error tells all of it.
fn play(cluster: &mut Cluster<'_>, place: &Place, seed: u64) -> Result<()> {
    say(&format!("seed {seed} (play it again with LONGSHORE_FUZZ_SEED={seed})"));
    let case = Case::random(seed, PODS, STEPS);
    let scene = Mutex::new(Scene::new());
    let stop = AtomicBool::new(false);
    let env = cluster.env();
    let scripts = env.directory().join(format!("scripts-{seed}"));
    let outcome = std::thread::scope(|scope| {
        let eyes = scope.spawn(|| env.block_on(|| eyes::watch(place, &scene, &stop)));
        let outcome = through(cluster, place, &scene, scripts, &case);
        stop.store(true, Ordering::Relaxed);
        let looked = eyes.join().map_err(|_| anyhow::anyhow!("the eyes panicked"))?;
        outcome.and(looked)
    });
    let scene = scene.into_inner().unwrap();
    if std::env::var_os("LONGSHORE_FUZZ_SEED").is_some() {
        say(&scene.book.log().join("\n"));
    }
    let mut faults = scene.book.faults().to_vec();
    faults.extend(outcome.err().map(|error| format!("{error:#}")));
    let pods: Vec<String> = case.pods.iter().map(|pod| format!("{pod:?}")).collect();
    ensure!(
        faults.is_empty(),
        "{}\n{}\n{}\nplay it again with LONGSHORE_FUZZ_SEED={seed}",
        pods.join("\n"),
        scene.book.log().join("\n"),
        faults.join("\n")
    );
    Ok(())
}

fn through(
    cluster: &mut Cluster<'_>,
    place: &Place,
    scene: &Mutex<Scene>,
    scripts: PathBuf,
    case: &Case,
) -> Result<()> {
    let env = cluster.env();
    let mut hands = Hands::new(cluster, place, scene, scripts, case)?;
    for step in &case.steps {
        hands.step(step)?;
        if hands.is_broken() {
            return Ok(());
        }
    }
    hands.rest()?;
    if hands.is_broken() {
        return Ok(());
    }
    hands.clear()?;
    env.block_on(|| churn::leave_no_pods(place))?;
    locked(scene).note("nothing is left");
    Ok(())
}

fn pods_keep_their_promises(version: Version, first: u64, count: u64) {
    let one = std::env::var("LONGSHORE_FUZZ_SEED").ok().and_then(|text| text.parse().ok());
    let seeds = one.map_or(first..first + count, |seed: u64| seed..seed + 1);
    let env = Env::start(version).unwrap();
    images(&env).unwrap();
    // Restart delays of a second: a case has no time for more.
    let config = json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}});
    let options = ClusterOptions { config: config.as_object().cloned().unwrap_or_default(), ..Default::default() };
    let mut cluster = Cluster::start(&env, options).unwrap();
    let place = Place::of(&cluster);
    for seed in seeds {
        let begin = std::time::Instant::now();
        if let Err(error) = play(&mut cluster, &place, seed) {
            panic!("{error:#}\nagent:\n{}", cluster.agent().map(|agent| agent.tail()).unwrap_or_default());
        }
        say(&format!("seed {seed}: {:?}", begin.elapsed()));
    }
    if count > FEW {
        env.block_on(|| churn::leave_nothing(&place)).unwrap();
    }
}

#[test]
fn root_pods_keep_their_promises_on_the_newest_containerd() {
    pods_keep_their_promises(newest(), 1, FEW);
}

#[test]
fn root_pods_keep_their_promises_on_debian_12_containerd() {
    pods_keep_their_promises(Version::V1_6, 101, FEW);
}

#[test]
#[ignore = "long: part of make test-all"]
fn root_pods_keep_their_promises_on_the_newest_containerd_for_long() {
    pods_keep_their_promises(newest(), 1000, 20);
}

#[test]
#[ignore = "long: part of make test-all"]
fn root_pods_keep_their_promises_on_debian_12_containerd_for_long() {
    pods_keep_their_promises(Version::V1_6, 2000, 20);
}
