//! Container logs: read from the files that the runtime writes, rotated parts first, as a stream with small memory; and
//! kept within their bounds. Never asks the runtime for content; only for where a file is and whether the container runs.

mod choose;
mod follow;
mod options;
mod parse;
mod parts;
mod read;
mod rotate;
mod tail;
#[cfg(test)]
mod tests;
mod write;

pub use choose::{ChooseError, instance};
pub use options::{LogOptions, LogStream, OptionsError};
pub use parts::forget;
pub use read::{IsFinished, OpenError, open};
pub use rotate::{RotateOptions, rotate};
pub use tail::last_lines;
