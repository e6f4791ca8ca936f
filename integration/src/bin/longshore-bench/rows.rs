//! The rows. Latency rows alternate ours and bare; burst rows run bare at several concurrencies and keep the best.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use longshore_integration::cost;
use tokio::time::Instant;

use crate::bare::{Bare, BarePod};
use crate::pods::Pods;
use crate::report::{Limit, Report, Row};

/// Concurrencies of the bare bursts; the best of them is the limit.
const BARE_CONCURRENCY: [usize; 2] = [4, 100];
/// How long memory is left alone before it is read: what stands, not what a burst has just used.
const REST: Duration = Duration::from_secs(60);

/// One run of the bench.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    pub(crate) pods: Pods,
    pub(crate) bare: Bare,
    pub(crate) pid: Option<u32>,
    pub(crate) report: &'a mut Report,
}

impl Bench<'_> {
    /// One pod each way, not counted: page cache, snapshotter and connections are warm afterwards.
    pub(crate) async fn warm_up(&mut self) -> anyhow::Result<()> {
        self.pods.post("warm", "Always").await?;
        self.pods.wait("warm", |seen| seen.ready).await?;
        self.pods.delete("warm").await?;
        self.pods.wait("warm", |seen| seen.gone).await?;
        let (pod, _) = self.bare.start("warm").await?;
        self.bare.remove(&pod).await?;
        Ok(())
    }

    /// One pod, POST to Ready.
    pub(crate) async fn start(&mut self, runs: usize) -> anyhow::Result<()> {
        let (mut agent, mut bare) = (Vec::new(), Vec::new());
        for run in 0..runs {
            let name = format!("start-{run}");
            let at = self.pods.post(&name, "Always").await?;
            agent.push(seconds(self.pods.wait(&name, |seen| seen.ready).await? - at));
            self.pods.delete(&name).await?;
            self.pods.wait(&name, |seen| seen.gone).await?;
            let (pod, took) = self.bare.start(&name).await?;
            bare.push(seconds(took));
            self.bare.remove(&pod).await?;
        }
        self.row("one pod, POST to Ready", "s", agent, bare, Some(Limit::TimesBare(1.25)));
        Ok(())
    }

    /// One pod, delete to gone, when its process ends at once.
    pub(crate) async fn delete(&mut self, runs: usize) -> anyhow::Result<()> {
        let (mut agent, mut bare) = (Vec::new(), Vec::new());
        for run in 0..runs {
            let name = format!("delete-{run}");
            self.pods.post(&name, "Always").await?;
            self.pods.wait(&name, |seen| seen.ready).await?;
            settle().await;
            let at = self.pods.delete(&name).await?;
            agent.push(seconds(self.pods.wait(&name, |seen| seen.gone).await? - at));
            let (pod, _) = self.bare.start(&name).await?;
            settle().await;
            bare.push(seconds(self.bare.remove(&pod).await?));
        }
        self.row("delete to gone", "s", agent, bare, Some(Limit::AtMost(0.40)));
        Ok(())
    }

    /// A container's exit until the API shows it.
    pub(crate) async fn exit(&mut self, runs: usize) -> anyhow::Result<()> {
        let mut agent = Vec::new();
        for run in 0..runs {
            let name = format!("exit-{run}");
            self.pods.post(&name, "Never").await?;
            self.pods.wait(&name, |seen| seen.ready).await?;
            let container = self.pods.wait(&name, |seen| seen.container.clone()).await?;
            let pid = self.bare.pid_of(&container).await?;
            settle().await;
            let at = Instant::now();
            kill(pid)?;
            agent.push(seconds(self.pods.wait(&name, |seen| seen.terminated).await? - at));
            self.pods.delete(&name).await?;
            self.pods.wait(&name, |seen| seen.gone).await?;
        }
        self.row("container exit to status in the API", "s", agent, Vec::new(), Some(Limit::AtMost(0.2)));
        Ok(())
    }

    /// Many pods at once, until all are Ready; then deleted, until all are gone.
    pub(crate) async fn burst(&mut self, count: usize, runs: usize) -> anyhow::Result<()> {
        let (mut up, mut down, mut middle, mut used) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut bare_up: Vec<Vec<f64>> = vec![Vec::new(); BARE_CONCURRENCY.len()];
        let mut bare_down: Vec<Vec<f64>> = vec![Vec::new(); BARE_CONCURRENCY.len()];
        for run in 0..runs {
            let names: Vec<String> = (0..count).map(|index| format!("burst{count}-{run}-{index}")).collect();
            let before = self.pid.map(cost::cpu_time).transpose()?;
            let begin = Instant::now();
            stream::iter(&names)
                .map(|name| self.pods.post(name, "Always"))
                .buffer_unordered(16)
                .try_collect::<Vec<_>>()
                .await?;
            let mut ready = Vec::new();
            for name in &names {
                ready.push(seconds(self.pods.wait(name, |seen| seen.ready).await? - begin));
            }
            ready.sort_by(f64::total_cmp);
            up.push(ready.last().copied().context("a burst of no pods")?);
            middle.push(crate::report::median(&ready).context("a burst of no pods")?);
            if let (Some(pid), Some(before)) = (self.pid, before) {
                used.push(seconds(cost::cpu_time(pid)?.saturating_sub(before)));
            }
            let begin = Instant::now();
            stream::iter(&names)
                .map(|name| self.pods.delete(name))
                .buffer_unordered(16)
                .try_collect::<Vec<_>>()
                .await?;
            let mut last = begin;
            for name in &names {
                last = last.max(self.pods.wait(name, |seen| seen.gone).await?);
            }
            down.push(seconds(last - begin));
            for (slot, concurrency) in BARE_CONCURRENCY.into_iter().enumerate() {
                let begin = Instant::now();
                let made: Vec<(BarePod, Duration)> = stream::iter(&names)
                    .map(|name| self.bare.start(name))
                    .buffer_unordered(concurrency)
                    .try_collect()
                    .await?;
                bare_up[slot].push(seconds(begin.elapsed()));
                let begin = Instant::now();
                stream::iter(&made)
                    .map(|(pod, _)| self.bare.remove(pod))
                    .buffer_unordered(concurrency)
                    .try_collect::<Vec<_>>()
                    .await?;
                bare_down[slot].push(seconds(begin.elapsed()));
            }
        }
        self.row(
            &format!("{count} pods at once, until all Ready"),
            "s",
            up,
            best(bare_up),
            Some(Limit::TimesBare(1.25)),
        );
        self.row(&format!("{count} pods at once, the middle one Ready"), "s", middle, Vec::new(), None);
        self.row(
            &format!("{count} pods deleted, until all gone"),
            "s",
            down,
            best(bare_down),
            Some(Limit::TimesBare(1.25)),
        );
        self.row(&format!("agent CPU for those {count} starts"), "s", used, Vec::new(), None);
        Ok(())
    }

    /// Memory without pods and with many.
    pub(crate) async fn memory(&mut self, count: usize) -> anyhow::Result<()> {
        let pid = self.pid.context("the row memory needs --pid")?;
        tokio::time::sleep(REST).await;
        self.row("memory, no pods", "MiB", vec![mib(cost::resident_kib(pid)?)], Vec::new(), Some(Limit::AtMost(20.0)));
        let names = self.stand("memory", count).await?;
        tokio::time::sleep(REST).await;
        let figure = mib(cost::resident_kib(pid)?);
        self.row(&format!("memory, {count} pods"), "MiB", vec![figure], Vec::new(), Some(Limit::AtMost(30.0)));
        self.fell(&names).await
    }

    /// CPU without pods and with many idle ones.
    pub(crate) async fn cpu(&mut self, count: usize, over: Duration) -> anyhow::Result<()> {
        let pid = self.pid.context("the row cpu needs --pid")?;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let figure = share(pid, over).await?;
        self.row("CPU, no pods", "% of a core", vec![figure], Vec::new(), Some(Limit::AtMost(0.3)));
        let names = self.stand("cpu", count).await?;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let figure = share(pid, over).await?;
        self.row(&format!("CPU, {count} idle pods"), "% of a core", vec![figure], Vec::new(), Some(Limit::AtMost(1.0)));
        self.fell(&names).await
    }

    /// Waits a moment so that the last deletes are through.
    pub(crate) async fn clean_up(&mut self) -> anyhow::Result<()> {
        settle().await;
        Ok(())
    }

    async fn stand(&self, prefix: &str, count: usize) -> anyhow::Result<Vec<String>> {
        let names: Vec<String> = (0..count).map(|index| format!("{prefix}-{index}")).collect();
        stream::iter(&names)
            .map(|name| self.pods.post(name, "Always"))
            .buffer_unordered(8)
            .try_collect::<Vec<_>>()
            .await?;
        for name in &names {
            self.pods.wait(name, |seen| seen.ready).await?;
        }
        Ok(names)
    }

    pub(crate) async fn fell(&self, names: &[String]) -> anyhow::Result<()> {
        stream::iter(names).map(|name| self.pods.delete(name)).buffer_unordered(8).try_collect::<Vec<_>>().await?;
        for name in names {
            self.pods.wait(name, |seen| seen.gone).await?;
        }
        Ok(())
    }

    pub(crate) fn row(
        &mut self,
        name: &str,
        unit: &'static str,
        agent: Vec<f64>,
        bare: Vec<f64>,
        limit: Option<Limit>,
    ) {
        self.report.push(Row { name: name.to_owned(), unit, agent, bare, limit });
    }
}

/// The runs of the concurrency whose median is lowest.
fn best(runs: Vec<Vec<f64>>) -> Vec<f64> {
    let middle = |figures: &Vec<f64>| crate::report::median(figures).unwrap_or(f64::INFINITY);
    runs.into_iter().min_by(|left, right| middle(left).total_cmp(&middle(right))).unwrap_or_default()
}

pub(crate) async fn share(pid: u32, over: Duration) -> anyhow::Result<f64> {
    let (before, begin) = (cost::cpu_time(pid)?, Instant::now());
    tokio::time::sleep(over).await;
    let used = cost::cpu_time(pid)?.saturating_sub(before);
    Ok(seconds(used) / seconds(begin.elapsed()) * 100.0)
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "KiB of one process fit a float's 52 bits")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// Lets the machine come to rest between a start and what is measured next.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(700)).await;
}

fn kill(pid: i32) -> anyhow::Result<()> {
    let status = std::process::Command::new("kill").args(["-TERM", &pid.to_string()]).status()?;
    anyhow::ensure!(status.success(), "kill {pid}: {status}");
    Ok(())
}
