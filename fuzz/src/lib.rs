//! What the fuzz targets do with an input. Each target takes any bytes, puts them through one area of the product and
//! panics when a promise of that area does not hold. The same code runs under libFuzzer (`make fuzz`) and, over the seeds
//! and changes of them, in `tests/tests/fuzz_seeds.rs`.

pub mod apply;
pub mod bodies;
pub mod cel;
mod deal;
pub mod manifests;
pub mod patches;
pub mod path_query;
mod places;
pub mod selectors;
mod server;
mod wire;

/// A target: its name, which is the name of its folder of seeds, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 7] = [
    ("path_query", path_query::run),
    ("selectors", selectors::run),
    ("patches", patches::run),
    ("apply", apply::run),
    ("bodies", bodies::run),
    ("cel", cel::run),
    ("manifests", manifests::run),
];

/// Runs one target. The programs call theirs themselves, so that no other one's code is in them.
pub fn run(name: &str, input: &[u8]) {
    if let Some((_, target)) = TARGETS.iter().find(|(own, _)| *own == name) {
        target(input);
    }
}
