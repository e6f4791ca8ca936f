//! What our agent makes of each golden case is what the stock kubelet made of it on the same runtime.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use longshore_integration::env::{Version, newest};
use longshore_integration::golden::{GoldenRun, run};

fn all_cases_are_as_recorded(version: Version) {
    let outcome = run(&GoldenRun { version, only: Vec::new(), parallel: 7, agent: Vec::new() }).unwrap();
    assert!(outcome.same, "{}\nrecordings: {}", outcome.text, outcome.directory.display());
    assert!(outcome.cases.len() >= 27, "{:?}", outcome.cases);
}

#[test]
fn root_golden_cases_on_debian_12_containerd() {
    all_cases_are_as_recorded(Version::V1_6);
}

#[test]
fn root_golden_cases_on_the_newest_containerd() {
    all_cases_are_as_recorded(newest());
}
