//! `longshore check`: what a node needs here, what was found, and the command that mends it.

use std::process::ExitCode;

use anyhow::Result;

use super::print::{self, Output};
use super::up;
use crate::app::preflight::{self, Level};
use crate::app::runtime;
use crate::app::up::Lock;

/// Flags of `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    node: up::Node,
    #[command(flatten)]
    output: Output,
}

/// Runs the command; exit code 1 says that a node cannot run.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let options = arguments.node.options()?;
    let mut wanted = options.wanted();
    if Lock::holder(&options.paths).is_some() {
        // The ports are taken by the node that runs.
        wanted.addresses.clear();
    }
    let findings = runtime::block_on(async { Ok(preflight::check(&wanted).await) })?;
    arguments.output.show(&serde_json::to_value(&findings)?, || {
        let mut rows = vec![["", "WHAT", "FOUND", "WANTED", "MEND"].map(str::to_owned).to_vec()];
        rows.extend(findings.iter().map(|finding| {
            let level = match finding.level {
                Level::Ok => "ok",
                Level::Warning => "warning",
                Level::Blocker => "BLOCKER",
            };
            let mend = finding.mend.clone().unwrap_or_default();
            vec![level.to_owned(), finding.name.to_owned(), finding.found.clone(), finding.wanted.to_owned(), mend]
        }));
        print::table(&rows)
    })?;
    let blocked = findings.iter().any(|finding| finding.level == Level::Blocker);
    Ok(if blocked { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
