//! What both pod fuzzers share: seeded dice, random pods, and a small model of what must and must never happen to them.
//! The model knows nothing of the agent's code: it is told what the runtime did and what the API showed, and complains.

mod book;
mod dice;
mod plan;
mod pod;
mod rest;
mod rules;
mod shown;
mod size;

pub use book::Book;
pub use dice::Dice;
pub use plan::{Dress, Hook, Kind, Lifetime, Part, Plan, Policy, ProbePlan, Role, Rule};
pub use pod::{Life, Made, PodBook};
pub use size::{Size, StartsAnew};
