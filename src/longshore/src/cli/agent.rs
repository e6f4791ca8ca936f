//! `longshore agent`: the node agent with the kubelet's flags and configuration, also as a link named `kubelet`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use longshore_api::flags::VersionRequest;
use longshore_node::gc::Cleaning;
use longshore_node::node::KUBELET_VERSION;
use longshore_util::Tasks;

use super::print::out;
use crate::app::agent::{AgentRun, settings};
use crate::app::fail::Usage;
use crate::app::logging::{self, LogFormat};
use crate::app::{memory, runtime, up};

/// Runs the agent until it is told to end.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<ExitCode> {
    let arguments: Vec<String> = arguments
        .into_iter()
        .map(|word| word.into_string().map_err(|word| Usage(format!("not UTF-8: {}", word.display()))))
        .collect::<Result<_, _>>()?;
    let flags = longshore_api::flags::parse(&arguments).map_err(|error| Usage(error.to_string()))?;
    if flags.help {
        out(longshore_api::flags::help().trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    match &flags.version {
        Some(VersionRequest::Print | VersionRequest::Raw) => {
            // To the letter: kubeadm reads the whole line and takes what follows the `v` for a semantic version.
            out(&format!("Kubernetes {KUBELET_VERSION}"))?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(VersionRequest::Report(_)) | None => {}
    }
    let settings = settings(&flags)?;
    let logging = &settings.config.logging;
    let format = if logging.format == "json" { LogFormat::Json } else { LogFormat::Text };
    logging::start(format, logging.verbosity, false);
    runtime::block_on(async {
        let tasks = Tasks::new();
        memory::keep_small(&tasks);
        let agent = AgentRun::start(settings, Cleaning::Everything, &tasks).await?;
        let outcome = up::until_told(&tasks).await;
        agent.stop().await;
        tasks.cancel();
        outcome
    })?;
    Ok(ExitCode::SUCCESS)
}
