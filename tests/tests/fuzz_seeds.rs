//! The fuzz targets without a fuzzer: all seeds, all inputs that once brought something to light, and changes of them that
//! are the same on every machine. `LONGSHORE_FUZZ_CHANGES=1000 LONGSHORE_FUZZ_SEED=8` makes more and others.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test fails by panicking and says on what; the targets are a crate of their own under the fuzzer"
)]

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

#[path = "../../fuzz/src/lib.rs"]
mod fuzz;

use longshore_integration::fuzz::Dice;

/// Changes of each seed.
const CHANGES: u64 = 20;

/// A number from the environment.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("fuzz")
}

/// The inputs that are kept for a target, by name.
fn kept(target: &str) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for kind in ["seeds", "found"] {
        let Ok(entries) = fs::read_dir(folder().join(kind).join(target)) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            all.push((format!("{kind}/{target}/{}", path.file_name().unwrap().display()), fs::read(&path).unwrap()));
        }
    }
    all.sort();
    all
}

/// Changes an input here and there.
fn change(input: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..dice.between(1, 4) {
        let at = dice.index(bytes.len().max(1)).min(bytes.len());
        match dice.below(6) {
            0 if !bytes.is_empty() => {
                let at = at.min(bytes.len() - 1);
                bytes[at] ^= 1 << dice.below(8);
            }
            1 => bytes.insert(at, dice.pick(b"\0\"{}[],:/%$-0a\n\xff")),
            2 if !bytes.is_empty() => {
                let end = (at + dice.index(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            3 => {
                // A piece of another input, or of the same.
                let start = dice.index(other.len().max(1)).min(other.len());
                let piece = other[start..(start + dice.index(40)).min(other.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            4 if !bytes.is_empty() => bytes.truncate(at),
            _ => {
                let end = (at + dice.index(24)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

fn play(target: &str) {
    let kept = kept(target);
    assert!(kept.len() >= 5, "{target} has {} seeds", kept.len());
    let (mut dice, changes) = (Dice::new(number("LONGSHORE_FUZZ_SEED", 7)), number("LONGSHORE_FUZZ_CHANGES", CHANGES));
    for (name, input) in &kept {
        told(name, input, || fuzz::run(target, input));
        for number in 0..changes {
            let changed = change(input, &kept[dice.index(kept.len())].1, &mut dice);
            told(&format!("change {number} of {name}"), &changed, || fuzz::run(target, &changed));
        }
    }
}

/// Runs something; if it panics, says on which input, so that it can be kept.
fn told(name: &str, input: &[u8], run: impl FnOnce()) {
    if let Err(fault) = panic::catch_unwind(AssertUnwindSafe(run)) {
        eprintln!("{name}: {}", input.escape_ascii());
        panic::resume_unwind(fault);
    }
}

#[test]
fn paths_and_queries_are_read_and_answered() {
    play("path_query");
}

#[test]
fn selectors_are_printed_as_they_are_read() {
    play("selectors");
}

#[test]
fn patches_are_bounded_and_definite() {
    play("patches");
}

#[test]
fn applies_keep_their_books() {
    play("apply");
}

#[test]
fn bodies_are_read_filled_and_checked() {
    play("bodies");
}

#[test]
fn rules_stay_within_their_budget() {
    play("cel");
}

#[test]
fn manifests_give_pods_or_reasons() {
    play("manifests");
}

#[test]
fn every_target_has_a_program_and_seeds() {
    let manifest = fs::read_to_string(folder().join("Cargo.toml")).unwrap();
    for (target, _) in fuzz::TARGETS {
        assert!(manifest.contains(&format!("path = \"targets/{target}.rs\"")), "{target} is not built");
        let program = fs::read_to_string(folder().join(format!("targets/{target}.rs"))).unwrap();
        assert!(program.contains(&format!("longshore_fuzz::{target}::run(input)")), "{target}.rs runs something else");
        assert!(kept(target).iter().all(|(_, input)| input.len() <= 8192), "seeds of {target} are small");
    }
}
