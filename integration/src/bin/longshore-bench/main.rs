//! Measures a node agent against bare CRI calls on the same runtime, in one run: latencies, bursts, memory and CPU.
//!
//! It attaches to any running node (ours or a stock kubelet) through a kubeconfig, the runtime's socket and the agent's
//! pid; `make bench` brings up a node of its own first. Ours and bare runs take turns, so that both meet the same machine.

mod bare;
mod pods;
mod probes;
mod report;
mod rows;
mod same;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

/// What to measure and where.
#[derive(Debug, Parser)]
#[command(name = "longshore-bench", about = "Measures a node agent against bare CRI calls, in one run")]
struct Args {
    /// Kubeconfig with administrator rights.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Name of the node that is measured.
    #[arg(long)]
    node: String,
    /// CRI socket of that node.
    #[arg(long)]
    runtime_endpoint: String,
    /// Process id of the agent whose memory and CPU are read. It must be the agent alone, not `up`.
    #[arg(long)]
    pid: Option<u32>,
    /// Name of the measured agent in the table.
    #[arg(long, default_value = "longshore")]
    name: String,
    /// Image of the pods; it must be on the node already and have `sh`.
    #[arg(long, default_value = "localhost/busybox:1")]
    image: String,
    /// Cgroup under which the bare pods are made.
    #[arg(long, default_value = "/longshore-bench")]
    cgroup_parent: String,
    /// Rows to measure.
    #[arg(long, value_delimiter = ',', default_value = "start,delete,exit,burst30,burst100,memory,cpu,probes")]
    rows: Vec<String>,
    /// Runs of each latency row (ours and bare each); the median is reported.
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// Runs of each burst row.
    #[arg(long, default_value_t = 3)]
    burst_runs: usize,
    /// Seconds over which CPU is read.
    #[arg(long, default_value_t = 300)]
    cpu_seconds: u64,
    /// Pods that stand idle while memory and CPU are read the second time.
    #[arg(long, default_value_t = 100)]
    idle_pods: usize,
    /// File for the JSON result.
    #[arg(long)]
    json: Option<PathBuf>,
    /// End with an error when a row misses the limit of the first release (issue 2).
    #[arg(long)]
    enforce: bool,
}

fn main() -> ExitCode {
    longshore_integration::tools::run_program("longshore-bench", Box::pin(run(Args::parse())))
}

#[expect(clippy::print_stdout, reason = "the table is the program's output")]
async fn run(args: Args) -> anyhow::Result<ExitCode> {
    longshore_transport::tls::install_provider();
    let pods = pods::Pods::connect(&args.kubeconfig, &args.node, &args.image).await?;
    let bare = bare::Bare::connect(&args.runtime_endpoint, &args.image, &args.cgroup_parent).await?;
    let mut report = report::Report::new(&args.name, &bare.runtime_name().await?);
    let mut bench = rows::Bench { pods, bare, pid: args.pid, report: &mut report };
    bench.warm_up().await?;
    for row in &args.rows {
        match row.as_str() {
            "start" => bench.start(args.runs).await?,
            "delete" => bench.delete(args.runs).await?,
            "exit" => bench.exit(args.runs).await?,
            "burst30" => bench.burst(30, args.burst_runs).await?,
            "burst100" => bench.burst(100, args.burst_runs).await?,
            "memory" => bench.memory(args.idle_pods).await?,
            "cpu" => bench.cpu(args.idle_pods, Duration::from_secs(args.cpu_seconds)).await?,
            "probes" => bench.probes(args.idle_pods, Duration::from_secs(args.cpu_seconds.min(60))).await?,
            other => {
                anyhow::bail!("row {other:?}: wanted start, delete, exit, burst30, burst100, memory, cpu or probes")
            }
        }
    }
    bench.clean_up().await?;
    println!("{}", report.table());
    if let Some(path) = &args.json {
        std::fs::write(path, report.json()?)?;
    }
    Ok(if args.enforce && report.misses() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
