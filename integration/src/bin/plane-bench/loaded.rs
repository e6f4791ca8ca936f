//! Fifty thousand objects, a thousand watchers, five hundred writes a second.

use std::path::Path;
use std::time::{Duration, Instant};

use longshore_integration::cost;
use longshore_integration::load::{
    Crew, Crowd, Figures, Filled, Kind, Read, Run, Scale, Scope, Wire, fill, fsync_times, listing, pages, run, start,
};
use longshore_util::{Tasks, spawn};

use crate::report::Report;
use crate::{mib, number, say};

/// A list of all pods is asked for so often while others write.
const LIST_EVERY: Duration = Duration::from_secs(10);

/// The most that is promised: memory, a write besides the disk's sync, a list of all pods.
const MEMORY: f64 = 250.0;
const WRITE: f64 = 20.0;
const LIST: f64 = 500.0;

pub(crate) async fn measure(
    program: &Path,
    folder: &Path,
    scale: &Scale,
    report: &mut Report,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    let idle_disk = sync_times(folder, Duration::from_secs(3)).await?;
    let mut server = start(program, folder)?;
    let crew = Crew::connect(folder, scale.nodes, tasks).await?;
    say("filling");
    let begin = Instant::now();
    let filled = fill(&crew, scale).await?;
    say(&format!("{} objects after {:.0} s", filled.total(), begin.elapsed().as_secs_f64()));
    notes(report, scale, &filled);
    let full = cost::resident_kib(server.pid())?;
    let crowd = Crowd::open(&crew, Scope::mix(scale), tasks).await?;
    say(&format!("{} watchers; writing for {} s", crowd.len(), scale.seconds));
    tokio::time::sleep(Duration::from_secs(3)).await;

    let (pid, over) = (server.pid(), Duration::from_secs(scale.seconds));
    let watched = spawn(tasks, "memory", most_memory(pid, over));
    let listed = spawn(tasks, "lists", lists_meanwhile(crew.controller(3).clone(), over));
    let disk = spawn(tasks, "disk", {
        let folder = folder.to_path_buf();
        async move { sync_times(&folder, over).await }
    });
    let (used, own) = (cost::cpu_time(pid)?, cost::cpu_time(std::process::id())?);
    let begin = Instant::now();
    let outcome = run(&crew, scale, &filled, tasks).await;
    let elapsed = begin.elapsed().as_secs_f64();
    let used = cost::cpu_time(pid)?.saturating_sub(used).as_secs_f64() / elapsed * 100.0;
    let own = cost::cpu_time(std::process::id())?.saturating_sub(own).as_secs_f64() / elapsed * 100.0;
    let most = watched.await??;
    let busy_lists = listed.await??;
    let busy_disk = disk.await??;
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.check_alive()?;

    writes(report, &outcome, elapsed, &idle_disk, &busy_disk);
    watches(report, &crowd, &outcome);
    report.tell("memory, filled, before anybody watches", "MiB", mib(full));
    report.limit("memory, the most under load (read each second)", "MiB", mib(most), MEMORY);
    report.tell("CPU of the server under load", "% of a core", used);
    report.tell("CPU of this client", "% of a core", own);
    let busy: Figures = busy_lists.iter().map(|read| read.took).collect();
    report.limit("list of all pods under load, the middle one", "ms", busy.within(500), LIST);
    report.tell("list of all pods under load, the slowest", "ms", busy.longest());
    quiet_lists(report, crew.controller(0)).await?;
    report.tell("memory afterwards", "MiB", mib(cost::resident_kib(pid)?));
    again(report, program, folder, server).await
}

fn notes(report: &mut Report, scale: &Scale, filled: &Filled) {
    let kinds: Vec<String> = filled.objects.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    report.note(format!("{} objects: {}.", filled.total(), kinds.join(", ")));
    report.note(format!(
        "{} watchers on {} connections of nodes and 4 of controllers; {} writes a second for {} s.",
        scale.watchers, scale.nodes, scale.writes, scale.seconds
    ));
}

fn writes(report: &mut Report, outcome: &Run, elapsed: f64, idle: &Figures, busy: &Figures) {
    let times = outcome.times();
    report.tell("writes answered", "1/s", number(times.len()) / elapsed);
    report.limit("writes refused or failed", "", number(outcome.failures.len()), 0.0);
    report.tell("most writes under way at once", "", number(outcome.most));
    report.tell("client behind its plan, p99", "ms", outcome.behind.within(990));
    report.tell("write p50", "ms", times.within(500));
    report.tell("write p99", "ms", times.within(990));
    report.tell("write, the longest", "ms", times.longest());
    for kind in [Kind::Pod, Kind::Lease, Kind::Event, Kind::ConfigMap] {
        report.tell(format!("write p99, {kind:?}"), "ms", outcome.times_of(kind).within(990));
    }
    report.tell("fsync of the disk before, p50", "ms", idle.within(500));
    report.tell("fsync of the disk before, p99", "ms", idle.within(990));
    report.tell("fsync of the disk meanwhile, p50", "ms", busy.within(500));
    report.tell("fsync of the disk meanwhile, p99", "ms", busy.within(990));
    report.limit("write p99 less fsync p99 meanwhile", "ms", times.within(990) - busy.within(990), WRITE);
    for failure in outcome.failures.iter().take(3) {
        say(failure);
    }
}

fn watches(report: &mut Report, crowd: &Crowd, outcome: &Run) {
    let late = crowd.lateness(&outcome.writes);
    report.tell("events delivered, all watchers", "", number(late.events));
    report.tell("event seen after its write was sent, p50", "ms", late.after_sending.within(500));
    report.tell("event seen after its write was sent, p99", "ms", late.after_sending.within(990));
    report.tell("event seen after its write was answered, p99", "ms", late.after_answer.within(990));
    let wrong = crowd.check(&outcome.writes);
    if let Err(error) = &wrong {
        say(&format!("{error:#}"));
    }
    report.limit("watchers that lost, doubled or mixed up events", "", number(usize::from(wrong.is_err())), 0.0);
}

/// Lists when nobody writes.
async fn quiet_lists(report: &mut Report, wire: &Wire) -> anyhow::Result<()> {
    const PODS: &str = "/api/v1/pods";
    let mut times = Vec::new();
    for _ in 0..5 {
        times.push(listing(wire, PODS, false).await?);
    }
    let took: Figures = times.iter().map(|read| read.took).collect();
    let bytes = times.first().map_or(0, |read| read.bytes);
    report.tell("bytes of all pods", "MiB", number(bytes) / 1_048_576.0);
    report.limit("list of all pods, quiet", "ms", took.within(500), LIST);
    let zipped = listing(wire, PODS, true).await?;
    report.tell("the same with gzip", "ms", ms(zipped.took));
    let (paged, count) = pages(wire, PODS, 500).await?;
    report.tell(format!("the same in {count} pages of 500"), "ms", ms(paged.took));
    for (name, query) in [
        ("pods of one node by field", "fieldSelector=spec.nodeName%3Dworker-007"),
        ("pods by status.phase, which all have", "fieldSelector=status.phase%3DRunning"),
        ("pods by a label, a quarter of all", "labelSelector=tier%3Dweb"),
    ] {
        let read = listing(wire, &format!("{PODS}?{query}"), false).await?;
        report.tell(format!("{name} ({:.1} MiB)", number(read.bytes) / 1_048_576.0), "ms", ms(read.took));
    }
    Ok(())
}

/// Starts the server again on what is there.
async fn again(
    report: &mut Report,
    program: &Path,
    folder: &Path,
    mut server: longshore_integration::env::Process,
) -> anyhow::Result<()> {
    server.stop(Duration::from_secs(30))?;
    let begin = Instant::now();
    let server = start(program, folder)?;
    report.tell("start on this data, until it serves", "ms", ms(begin.elapsed()));
    tokio::time::sleep(Duration::from_secs(10)).await;
    report.tell("memory ten seconds after that", "MiB", mib(cost::resident_kib(server.pid())?));
    Ok(())
}

async fn sync_times(folder: &Path, over: Duration) -> anyhow::Result<Figures> {
    let folder = folder.to_path_buf();
    tokio::task::spawn_blocking(move || fsync_times(&folder, Duration::from_millis(50), over)).await?
}

async fn most_memory(pid: u32, over: Duration) -> anyhow::Result<u64> {
    let (begin, mut most) = (Instant::now(), 0);
    while begin.elapsed() < over {
        most = most.max(cost::resident_kib(pid)?);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(most)
}

async fn lists_meanwhile(wire: Wire, over: Duration) -> anyhow::Result<Vec<Read>> {
    let begin = Instant::now();
    let mut lists = Vec::new();
    loop {
        let pause = LIST_EVERY.min(over / 6);
        if begin.elapsed() + pause > over {
            return Ok(lists);
        }
        tokio::time::sleep(pause).await;
        lists.push(listing(&wire, "/api/v1/pods", false).await?);
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
