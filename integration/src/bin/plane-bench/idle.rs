//! A hundred pods of one node, whose agent watches and renews its lease: what a quiet small cluster costs.

use std::path::Path;
use std::time::{Duration, Instant};

use longshore_integration::cost;
use longshore_integration::load::{Crew, Crowd, Scale, Scope, fill, renew_for, start};
use longshore_util::{Tasks, spawn};

use crate::report::Report;
use crate::{mib, number, say};

/// The most that is promised.
const MEMORY: f64 = 30.0;
const CPU: f64 = 0.2;

/// How long the plane rests before it is looked at.
const REST: Duration = Duration::from_secs(60);

pub(crate) async fn measure(
    program: &Path,
    folder: &Path,
    scale: &Scale,
    seconds: u64,
    report: &mut Report,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    let mut server = start(program, folder)?;
    let filled = fill(&Crew::connect(folder, scale.nodes, tasks).await?, scale).await?;
    let fresh = cost::resident_kib(server.pid())?;
    server.stop(Duration::from_secs(30))?;
    // Started again, as after a reboot.
    let server = start(program, folder)?;
    let crew = Crew::connect(folder, scale.nodes, tasks).await?;
    let crowd = Crowd::open(&crew, Scope::agent(scale), tasks).await?;
    let over = Duration::from_secs(seconds);
    drop(spawn(tasks, "lease", renew_for(crew, REST + over + REST)));
    say(&format!("{} objects, {} watches of one agent; resting", filled.total(), crowd.len()));
    tokio::time::sleep(REST).await;
    let resident = cost::resident_kib(server.pid())?;
    let (before, begin) = (cost::cpu_time(server.pid())?, Instant::now());
    tokio::time::sleep(over).await;
    let used = cost::cpu_time(server.pid())?.saturating_sub(before).as_secs_f64() / begin.elapsed().as_secs_f64();
    report.note(format!(
        "Idle: {} objects ({} pods), {} watches of one agent, its lease renewed every ten seconds.",
        filled.total(),
        scale.pods,
        crowd.len()
    ));
    report.tell("idle: memory right after filling", "MiB", mib(fresh));
    report.limit("idle: memory a minute after a start", "MiB", mib(resident), MEMORY);
    report.limit(format!("idle: CPU over {seconds} s"), "% of a core", used * 100.0, CPU);
    report.tell("idle: memory after that", "MiB", mib(cost::resident_kib(server.pid())?));
    report.tell("idle: objects", "", number(filled.total()));
    Ok(())
}
