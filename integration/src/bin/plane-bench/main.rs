//! Measures the bundled apiserver on its embedded store under a crowd, and idle: `make bench-plane`.
//!
//! It starts its own `longshore plane` in a folder of its own, fills it, lets a thousand watchers follow five hundred writes
//! a second, and measures from outside. Server and client share the machine.

mod idle;
mod loaded;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use longshore_integration::load::Scale;
use longshore_integration::tools;
use longshore_util::Tasks;

/// What to measure and where.
#[derive(Debug, Parser)]
#[command(name = "plane-bench", about = "Measures the bundled apiserver on its embedded store, under load and idle")]
struct Args {
    /// The program that is measured; LONGSHORE_BIN, or the one beside this, when not given.
    #[arg(long)]
    longshore: Option<PathBuf>,
    /// Folder in which a data folder is made; the disk under it is what the store syncs to.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    folder: PathBuf,
    /// Parts to measure.
    #[arg(long, value_delimiter = ',', default_value = "load,idle")]
    rows: Vec<String>,
    /// Objects of all kinds together.
    #[arg(long, default_value_t = Scale::FULL.objects)]
    objects: usize,
    /// Pods among them.
    #[arg(long, default_value_t = Scale::FULL.pods)]
    pods: usize,
    /// Nodes, each with a connection.
    #[arg(long, default_value_t = Scale::FULL.nodes)]
    nodes: usize,
    /// Watches.
    #[arg(long, default_value_t = Scale::FULL.watchers)]
    watchers: usize,
    /// Writes a second.
    #[arg(long, default_value_t = Scale::FULL.writes)]
    writes: u32,
    /// How long is written.
    #[arg(long, default_value_t = Scale::FULL.seconds)]
    seconds: u64,
    /// Pods of the idle plane.
    #[arg(long, default_value_t = 100)]
    idle_pods: usize,
    /// Seconds over which the idle plane's CPU is read.
    #[arg(long, default_value_t = 180)]
    idle_seconds: u64,
    /// File for the JSON result.
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    longshore_integration::tools::run_program("plane-bench", Box::pin(run(Args::parse())))
}

/// Tells how far the run is.
#[expect(clippy::print_stderr, reason = "progress is no data")]
fn say(text: &str) {
    eprintln!("{text}");
}

#[expect(clippy::print_stdout, reason = "the table is the program's output")]
async fn run(args: Args) -> anyhow::Result<ExitCode> {
    longshore_transport::tls::install_provider();
    let program = match &args.longshore {
        Some(path) => path.clone(),
        None => tools::built("longshore")?,
    };
    let scale = Scale {
        nodes: args.nodes,
        pods: args.pods,
        objects: args.objects,
        watchers: args.watchers,
        writes: args.writes,
        seconds: args.seconds,
        ..Scale::FULL
    };
    let mut report = report::Report::default();
    for row in &args.rows {
        let folder = tempfile::Builder::new().prefix("plane-bench-").tempdir_in(&args.folder)?;
        let tasks = Tasks::new();
        match row.as_str() {
            "load" => loaded::measure(&program, folder.path(), &scale, &mut report, &tasks).await?,
            "idle" => {
                let small =
                    Scale { nodes: 1, namespaces: 1, pods: args.idle_pods, objects: 6 * args.idle_pods, ..scale };
                idle::measure(&program, folder.path(), &small, args.idle_seconds, &mut report, &tasks).await?;
            }
            other => anyhow::bail!("row {other:?}: wanted load or idle"),
        }
        tasks.cancel();
    }
    println!("{}", report.table());
    if let Some(path) = &args.json {
        std::fs::write(path, report.json()?)?;
    }
    Ok(if report.misses() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[expect(clippy::cast_precision_loss, reason = "counts and KiB fit a float's 52 bits")]
fn number(count: usize) -> f64 {
    count as f64
}

fn mib(kib: u64) -> f64 {
    number(usize::try_from(kib).unwrap_or(usize::MAX)) / 1024.0
}
