//! What our agent makes of each golden case is what the stock kubelet made of it on the same runtime.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use longshore_integration::env::{Version, newest};
use longshore_integration::golden::{GoldenRun, all_cases, run_twice};

/// Cases that wait for something, or that others cover as well: run with everything that takes long.
const SLOW: &[&str] =
    &["ephemeral", "init-fails-always", "oom", "onfailure-then-done", "runtimeclass-bad", "sidecar-job"];
/// More may be added; none may get lost.
const LEAST: usize = 40;

fn cases_are_as_recorded(version: Version, only: Vec<String>, parallel: usize) {
    assert!(only.len() >= LEAST, "{only:?}");
    let wanted = only.len();
    let outcome = run_twice(&GoldenRun { version, only, parallel, agent: Vec::new(), foreign: None }).unwrap();
    assert!(outcome.differing.is_empty(), "{}\nrecordings: {}", outcome.text, outcome.directory.display());
    assert_eq!(outcome.cases.len(), wanted);
}

fn quick() -> Vec<String> {
    let all = all_cases().unwrap();
    all.into_iter().filter(|case| !SLOW.contains(&case.as_str())).collect()
}

#[test]
fn root_golden_cases_on_debian_12_containerd() {
    cases_are_as_recorded(Version::V1_6, quick(), 9);
}

#[test]
fn root_golden_cases_on_the_newest_containerd() {
    cases_are_as_recorded(newest(), quick(), 9);
}

#[test]
#[ignore = "takes minutes"]
fn root_all_golden_cases_on_debian_12_containerd() {
    cases_are_as_recorded(Version::V1_6, all_cases().unwrap(), 7);
}

#[test]
#[ignore = "takes minutes"]
fn root_all_golden_cases_on_debian_13_containerd() {
    cases_are_as_recorded(Version::V1_7, all_cases().unwrap(), 7);
}

#[test]
#[ignore = "takes minutes"]
fn root_all_golden_cases_on_the_newest_containerd() {
    cases_are_as_recorded(newest(), all_cases().unwrap(), 7);
}
