//! Reading container logs: from the files that the runtime writes, through rotation, as a stream with small memory. Never
//! writes, never asks the runtime for content; only for where the file is and whether the container still runs.

mod choose;
mod follow;
mod options;
mod parse;
mod read;
mod tail;
#[cfg(test)]
mod tests;
mod write;

pub use choose::{ChooseError, instance};
pub use options::{LogOptions, LogStream, OptionsError};
pub use read::{IsFinished, OpenError, open};
pub use tail::last_lines;
