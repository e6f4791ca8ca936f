//! The `longshore` program: command line on the outside (`cli`), composition of node and plane on the inside (`app`).
//! Exit codes: 0 done, 64 the command line or configuration is wrong, 1 anything else.

mod app;
mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os().collect())
}
