//! A small crowd on the bundled apiserver: every watcher sees each write that concerns it, once, in the order of revisions,
//! and nobody waits long. `plane-bench` measures the same at full size.

use std::time::Duration;

use anyhow::{Result, ensure};
use longshore_integration::cost;
use longshore_integration::load::{Crew, Crowd, Scale, Scope, fill, listing, pages, run, start};
use longshore_integration::tools;
use longshore_util::Tasks;

/// Far above what is measured: an unoptimised server on a busy machine is slow, and what fails here is of another kind.
const WRITE_MS: f64 = 10_000.0;
const MEMORY_KIB: u64 = 200 << 10;

async fn crowd() -> Result<()> {
    longshore_transport::tls::install_provider();
    let (scale, tasks) = (Scale::SMALL, Tasks::new());
    let folder = tempfile::tempdir()?;
    let mut server = start(&tools::built("longshore")?, folder.path())?;
    let crew = Crew::connect(folder.path(), scale.nodes, &tasks).await?;
    let filled = fill(&crew, &scale).await?;
    ensure!(filled.total() >= scale.objects, "{} objects: {:?}", filled.total(), filled.objects);
    let watchers = Crowd::open(&crew, Scope::mix(&scale), &tasks).await?;
    ensure!(watchers.len() == scale.watchers, "{} watchers", watchers.len());

    let outcome = run(&crew, &scale, &filled, &tasks).await;
    ensure!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let wanted = usize::try_from(u64::from(scale.writes) * scale.seconds)?;
    ensure!(outcome.writes.len() == wanted, "{} of {wanted} writes were answered", outcome.writes.len());
    let mut tries = 0;
    while !watchers.is_up_to_date(&outcome.writes) && tries < 200 {
        tries += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.check_alive()?;
    watchers.check(&outcome.writes)?;

    let (times, late) = (outcome.times(), watchers.lateness(&outcome.writes));
    ensure!(late.events > wanted, "{} events were seen of {wanted} writes", late.events);
    ensure!(times.within(990) < WRITE_MS, "writes took {} ms (p99)", times.within(990));
    ensure!(late.after_answer.within(990) < WRITE_MS, "events came {} ms late (p99)", late.after_answer.within(990));
    let resident = cost::resident_kib(server.pid())?;
    ensure!(resident < MEMORY_KIB, "{resident} KiB of memory");

    // However a list is read, it has the same objects.
    let whole = listing(crew.controller(0), "/api/v1/pods", false).await?;
    let (paged, count) = pages(crew.controller(0), "/api/v1/pods", 100).await?;
    ensure!(count >= scale.pods / 100, "{count} pages");
    ensure!(paged.bytes > whole.bytes && paged.bytes < whole.bytes + count * 600, "{paged:?} {whole:?}");
    let own = "/api/v1/pods?fieldSelector=spec.nodeName%3Dworker-007";
    let part = listing(&crew.nodes[7], own, false).await?;
    let share = whole.bytes / scale.nodes;
    ensure!(part.bytes > share / 2 && part.bytes < share * 2, "{} of {} bytes", part.bytes, whole.bytes);
    tasks.cancel();
    Ok(())
}

#[test]
fn a_crowd_of_watchers_sees_every_write_once_and_in_order() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = runtime.map_err(anyhow::Error::new).and_then(|runtime| runtime.block_on(Box::pin(crowd())));
    if let Err(error) = outcome {
        panic!("{error:?}");
    }
}
