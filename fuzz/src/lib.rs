//! What the fuzz targets do with an input. Each target takes any bytes, puts them through one area of the product and
//! panics when a promise of that area does not hold. The same code runs under libFuzzer (`make fuzz`) and, over the seeds
//! and changes of them, in `tests/tests/fuzz_seeds.rs`.

mod apply;
mod bodies;
mod cel;
mod deal;
mod manifests;
mod patches;
mod path_query;
mod places;
mod selectors;
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

/// Runs one target.
pub fn run(name: &str, input: &[u8]) {
    if let Some((_, target)) = TARGETS.iter().find(|(own, _)| *own == name) {
        target(input);
    }
}
