//! The command line: one file a command. Stdout carries data, stderr talk; a failure is printed once by [`run`].

mod agent;
pub(crate) mod apply;
mod check;
mod client;
mod delete;
mod demo_server;
mod down;
mod etcd;
mod exec;
mod get;
mod kinds;
mod logs;
mod plane;
mod print;
mod ps;
mod pulls;
mod up;
mod why;

use std::ffi::OsString;
use std::future::Future;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::app::fail;
use crate::app::logging::{self, LogFormat};

/// A node agent that takes the kubelet's place, with a small control plane for one machine.
#[derive(Debug, Parser)]
#[command(name = "longshore", version, about, arg_required_else_help = true, disable_help_subcommand = true)]
struct Arguments {
    /// Log more (repeat for more)
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    /// Shape of log lines on stderr
    #[arg(long, value_enum, default_value_t, global = true)]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the node agent; takes the kubelet's flags and configuration file (see agent --help)
    #[command(disable_help_flag = true)]
    Agent {
        /// The kubelet's flags
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<OsString>,
    },
    /// From nothing to a ready node on this machine
    Up(up::Arguments),
    /// Stop and remove what `up` made
    Down(down::Arguments),
    /// Look at what a node needs on this machine and say what is missing
    Check(check::Arguments),
    /// Run the bundled control plane alone
    Plane(plane::Arguments),
    /// Create or change objects from files
    Apply(apply::Arguments),
    /// Show objects
    Get(get::Arguments),
    /// Delete objects
    Delete(delete::Arguments),
    /// Show a container's log
    Logs(logs::Arguments),
    /// Run a command in a container
    Exec(exec::Arguments),
    /// Show the node's own view of its pods, also when the apiserver is away
    Ps(ps::Arguments),
    /// Say what holds a pod up, first and last failures too, as the agent knows it; needs no apiserver
    Why(why::Arguments),
    /// Try at once what a pod waits for after failures; needs no apiserver
    Retry(why::Arguments),
    /// Serve the sample's page
    #[command(hide = true)]
    DemoServer(demo_server::Arguments),
}

/// Runs the program with its arguments, the first being the name it was started by.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    match dispatch(arguments) {
        Ok(code) => code,
        Err(error) => fail::report(&error),
    }
}

fn dispatch(mut arguments: Vec<OsString>) -> Result<ExitCode> {
    let is_kubelet =
        arguments.first().and_then(|name| Path::new(name).file_name()).is_some_and(|name| name == "kubelet");
    // The kubelet's flags have their own grammar (`_` equals `-`, `--flag=false`): clap must not see them.
    if is_kubelet {
        return agent::run(arguments.split_off(1));
    }
    if arguments.get(1).is_some_and(|word| word == "agent") {
        return agent::run(arguments.split_off(2));
    }
    let Arguments { verbose, log_format, command } = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            drop(error.print());
            return Ok(if error.use_stderr() { ExitCode::from(fail::USAGE) } else { ExitCode::SUCCESS });
        }
    };
    let verbosity = u32::from(verbose) * 2;
    match command {
        Command::Agent { flags } => agent::run(flags),
        Command::Plane(arguments) => {
            logging::start(log_format, verbosity, false);
            plane::run(arguments)
        }
        Command::DemoServer(arguments) => {
            logging::start(log_format, verbosity, false);
            demo_server::run(&arguments)
        }
        other => {
            logging::start(log_format, verbosity, true);
            match other {
                Command::Up(arguments) => up::run(arguments),
                Command::Down(arguments) => down::run(arguments),
                Command::Check(arguments) => check::run(arguments),
                Command::Apply(arguments) => client_command(apply::run(arguments)),
                Command::Get(arguments) => client_command(get::run(arguments)),
                Command::Delete(arguments) => client_command(delete::run(arguments)),
                Command::Logs(arguments) => client_command(logs::run(arguments)),
                Command::Exec(arguments) => client_command(exec::run(arguments)),
                Command::Ps(arguments) => client_command(ps::run(arguments)),
                Command::Why(arguments) => why::why(&arguments),
                Command::Retry(arguments) => why::retry(&arguments),
                Command::Agent { .. } | Command::Plane(_) | Command::DemoServer(_) => Ok(ExitCode::SUCCESS),
            }
        }
    }
}

/// Runs a short command: one thread is enough, and a read of stdin that never ends must not keep it alive.
fn client_command(body: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(Box::pin(body));
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
