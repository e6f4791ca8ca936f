//! Pods that should run all the time: each is looked at after every kill, and every change of their objects is watched, so
//! that a status that was wrong for a moment counts too.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_util::TryStreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};

use super::{FOREVER, Faults, Place, STEADY, pod, pods};

const SELECTOR: &str = "kind=steady";

/// The steady pods as they were when all had become Ready.
#[derive(Debug, Default)]
pub(super) struct Steady {
    /// By name.
    pub(super) pods: BTreeMap<String, Facts>,
    /// Where a watch that misses nothing begins.
    version: String,
}

/// What a kill must not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) container: String,
    restarts: i32,
    started: Option<String>,
}

impl Facts {
    fn of(pod: &Pod) -> Option<Self> {
        let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
        let running = status.state.as_ref().and_then(|state| state.running.as_ref());
        Some(Self {
            container: status.container_id.clone()?,
            restarts: status.restart_count,
            started: running.and_then(|running| running.started_at.as_ref()).map(|time| time.0.to_string()),
        })
    }
}

pub(super) async fn start(place: &Place) -> Result<Steady> {
    let api = pods(place).await?;
    for index in 0..STEADY {
        api.create(&PostParams::default(), &pod(place, &format!("steady-{index}"), "Always", FOREVER)?).await?;
    }
    let mut steady = Steady::default();
    let deadline = Instant::now() + Duration::from_secs(180);
    while steady.pods.len() < STEADY {
        ensure!(Instant::now() < deadline, "only {} of {STEADY} steady pods are Ready after 180 s", steady.pods.len());
        tokio::time::sleep(Duration::from_millis(100)).await;
        let list = api.list(&ListParams::default().labels(SELECTOR)).await?;
        steady.version = list.metadata.resource_version.clone().unwrap_or_default();
        let ready = list.items.into_iter().filter(is_ready);
        steady.pods = ready.filter_map(|pod| Some((pod.metadata.name.clone()?, Facts::of(&pod)?))).collect();
    }
    Ok(steady)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Every steady pod is in the API as it was before: same container, same count, Ready.
pub(super) async fn check(place: &Place, steady: &Steady, faults: &Faults) -> Result<()> {
    let api = pods(place).await?;
    for name in steady.pods.keys() {
        let pod = api.get(name).await.with_context(|| format!("get {name}"))?;
        judge(&pod, steady, faults);
    }
    Ok(())
}

fn judge(pod: &Pod, steady: &Steady, faults: &Faults) {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let (was, is) = (steady.pods.get(&name), Facts::of(pod));
    if was != is.as_ref() {
        faults.add(format!("{name}: was {was:?}, is {is:?}"));
    }
    if !is_ready(pod) {
        faults.add(format!("{name}: was not Ready at version {:?}", pod.metadata.resource_version));
    }
}

/// Judges every change of a steady pod until told to stop; what happens while the control plane is away is told by it
/// when it is back.
pub(super) async fn watch(place: &Place, steady: &Steady, stop: &AtomicBool, faults: &Faults) -> Result<()> {
    let mut version = steady.version.clone();
    while !stop.load(Ordering::Relaxed) {
        // The control plane may be the victim.
        drop(tokio::time::timeout(Duration::from_secs(2), follow(place, steady, &mut version, faults)).await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn follow(place: &Place, steady: &Steady, version: &mut String, faults: &Faults) -> Result<()> {
    let api = pods(place).await?;
    let params = WatchParams::default().labels(SELECTOR);
    let from = version.clone();
    let mut events = Box::pin(api.watch(&params, &from).await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                judge(&pod, steady, faults);
                version.clone_from(&pod.metadata.resource_version.unwrap_or_default());
            }
            WatchEvent::Deleted(pod) => faults.add(format!("{:?} was deleted", pod.metadata.name)),
            WatchEvent::Bookmark(mark) => version.clone_from(&mark.metadata.resource_version),
            WatchEvent::Error(error) => faults.add(format!("the watch of steady pods cannot go on: {error:?}")),
        }
    }
    Ok(())
}
