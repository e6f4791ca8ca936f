//! Logging of the process: text or JSON lines on stderr, as loud as asked for.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// Shape of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging. `verbosity` counts as the kubelet's `-v`: 0–1 warnings and lifecycle, 2–3 also what each step does,
/// 4 debug, 6 and more everything. `RUST_LOG` overrides it.
pub(crate) fn start(format: LogFormat, verbosity: u32, quiet: bool) {
    let level = match verbosity {
        _ if quiet && verbosity == 0 => "warn",
        0..=3 => "info",
        4..=5 => "debug",
        _ => "trace",
    };
    // The libraries below talk a lot; their debug lines are wanted by those who ask for everything.
    let default = match level {
        "trace" => "trace".to_owned(),
        "debug" => "debug,hyper=info,hyper_util=info,h2=info,tower=info,rustls=info,tonic=info".to_owned(),
        level => level.to_owned(),
    };
    let filter = EnvFilter::try_from_env("RUST_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Stderr);
    // A second start (tests, `up` with a detached child) keeps the first.
    let _ = match format {
        LogFormat::Json => subscriber.json().try_init().is_ok(),
        LogFormat::Text => {
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let subscriber = subscriber.with_ansi(colour);
            if level == "warn" {
                subscriber.with_timer(Clock).with_target(false).try_init().is_ok()
            } else {
                subscriber.try_init().is_ok()
            }
        }
    };
}

/// The time of day, set in like the lines of a command's progress, between which its warnings stand.
#[derive(Debug)]
struct Clock;

impl FormatTime for Clock {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        write!(writer, "  {}", jiff::Zoned::now().strftime("%H:%M:%S"))
    }
}

#[derive(Debug)]
struct Stderr;

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = std::io::Stderr;

    fn make_writer(&'a self) -> Self::Writer {
        std::io::stderr()
    }
}
