//! Eight writers, eight watchers and readers on one control plane that is killed again and again, on both engines: what
//! they saw must fit one history.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions, WatchEvent, WatchParams};
use longshore_integration::etcd::{Etcd, EtcdVersion, PlaneProcess};
use longshore_integration::history::{Answered, Change, Segment, check_store, check_watch};
use longshore_transport::client::{ClientOptions, Kubeconfig};
use longshore_util::{Tasks, spawn};
use tokio::time::{Instant, sleep, timeout};

const WRITERS: u64 = 8;
const WATCHERS: usize = 8;
const READERS: u64 = 2;
const KEYS: u64 = 5;
/// One request; a killed server answers nothing.
const DEADLINE: Duration = Duration::from_secs(5);

/// What all share.
#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    values: AtomicU64,
    /// By key, the highest revision that any answer has shown: no later read may show less.
    floors: BTreeMap<String, AtomicU64>,
}

impl Shared {
    fn floor(&self, key: &str) -> u64 {
        self.floors.get(key).map_or(0, |floor| floor.load(Ordering::SeqCst))
    }

    fn saw(&self, key: &str, revision: u64) {
        if let Some(floor) = self.floors.get(key) {
            floor.fetch_max(revision, Ordering::SeqCst);
        }
    }
}

fn revision(map: &ConfigMap) -> Result<u64> {
    Ok(map.metadata.resource_version.as_deref().context("a version")?.parse()?)
}

fn number(map: &ConfigMap, field: &str) -> Result<u64> {
    Ok(map.data.as_ref().and_then(|data| data.get(field)).with_context(|| format!("no {field} in {map:?}"))?.parse()?)
}

/// Whether it is one of ours: the authority's certificate is published in each namespace too.
fn is_ours(map: &ConfigMap) -> bool {
    map.data.as_ref().is_some_and(|data| data.contains_key("value"))
}

fn change(map: &ConfigMap, deleted: bool) -> Result<Change> {
    let key = map.metadata.name.clone().context("a name")?;
    let (value, previous) = (number(map, "value")?, number(map, "previous")?);
    Ok(Change { revision: revision(map)?, key, value, previous, deleted })
}

/// Writes at random until all is over; keeps what was answered. A write without an answer may or may not have happened.
async fn write(api: Api<ConfigMap>, shared: Arc<Shared>, mut dice: u64) -> Vec<Answered> {
    let mut answered = Vec::new();
    while !shared.over.load(Ordering::SeqCst) {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = format!("k{}", (dice >> 33) % KEYS);
        if let Ok(Ok(Some(done))) =
            timeout(DEADLINE, write_once(&api, &shared, &key, (dice >> 40).is_multiple_of(10))).await
        {
            if let Some(revision) = done.revision {
                shared.saw(&key, revision);
            }
            answered.push(done);
        } else {
            sleep(Duration::from_millis(2)).await;
        }
    }
    answered
}

async fn write_once(api: &Api<ConfigMap>, shared: &Shared, key: &str, delete: bool) -> Result<Option<Answered>> {
    let floor = shared.floor(key);
    let there = api.get_opt(key).await?;
    if let Some(map) = &there {
        ensure_not_older(revision(map)?, floor, key);
        if delete {
            let (uid, version) = (map.metadata.uid.clone(), map.metadata.resource_version.clone());
            let preconditions = Some(Preconditions { uid, resource_version: version });
            api.delete(key, &DeleteParams { preconditions, ..DeleteParams::default() }).await?;
            let value = number(map, "value")?;
            return Ok(Some(Answered { key: key.to_owned(), value, revision: None, deleted: true }));
        }
    }
    let value = shared.values.fetch_add(1, Ordering::SeqCst) + 1;
    let previous = there.as_ref().map_or(Ok(0), |map| number(map, "value"))?;
    let data = [("value".to_owned(), value.to_string()), ("previous".to_owned(), previous.to_string())];
    let metadata =
        there.map_or_else(|| ObjectMeta { name: Some(key.to_owned()), ..ObjectMeta::default() }, |map| map.metadata);
    let map = ConfigMap { metadata, data: Some(data.into()), ..ConfigMap::default() };
    let stored = if previous == 0 {
        api.create(&PostParams::default(), &map).await?
    } else {
        api.replace(key, &PostParams::default(), &map).await?
    };
    Ok(Some(Answered { key: key.to_owned(), value, revision: Some(revision(&stored)?), deleted: false }))
}

fn ensure_not_older(shown: u64, floor: u64, key: &str) {
    assert!(shown >= floor, "a read of {key} showed revision {shown} after {floor} had been answered");
}

async fn read(api: Api<ConfigMap>, shared: Arc<Shared>, first: u64) {
    let mut turn = first;
    while !shared.over.load(Ordering::SeqCst) {
        turn += 1;
        let key = format!("k{}", turn % KEYS);
        let floor = shared.floor(&key);
        if let Ok(Ok(Some(map))) = timeout(DEADLINE, api.get_opt(&key)).await
            && let Ok(shown) = revision(&map)
        {
            ensure_not_older(shown, floor, &key);
            shared.saw(&key, shown);
        }
        sleep(Duration::from_millis(3)).await;
    }
}

/// Watches from a revision on, through all breaks, until it has come as far as it must.
async fn watch(api: Api<ConfigMap>, from: u64, until: Arc<AtomicU64>) -> Result<Vec<Segment>> {
    let mut segments = vec![Segment { from, changes: Vec::new() }];
    let mut place = from;
    let begun = Instant::now();
    loop {
        let parameters = WatchParams::default().timeout(20);
        if let Ok(Ok(stream)) = timeout(DEADLINE, api.watch(&parameters, &place.to_string())).await {
            let mut stream = stream.boxed();
            while let Ok(Ok(Some(event))) = timeout(Duration::from_secs(1), stream.try_next()).await {
                let told = match event {
                    WatchEvent::Added(map) | WatchEvent::Modified(map) | WatchEvent::Deleted(map) if !is_ours(&map) => {
                        continue;
                    }
                    WatchEvent::Added(map) | WatchEvent::Modified(map) => change(&map, false)?,
                    WatchEvent::Deleted(map) => change(&map, true)?,
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(status) if status.code == 410 => {
                        // Its history went with the process: begin anew from a list.
                        let Ok(list) = api.list(&kube::api::ListParams::default()).await else { break };
                        place = list.metadata.resource_version.context("a version")?.parse()?;
                        segments.push(Segment { from: place, changes: Vec::new() });
                        break;
                    }
                    WatchEvent::Error(status) => anyhow::bail!("{status:?}"),
                };
                place = told.revision;
                segments.last_mut().context("a segment")?.changes.push(told);
            }
        } else {
            sleep(Duration::from_millis(20)).await;
        }
        let until = until.load(Ordering::SeqCst);
        if until > 0 && place >= until {
            return Ok(segments);
        }
        ensure!(begun.elapsed() < Duration::from_secs(300), "a watch stands at {place}, wanted {until}");
    }
}

/// What is killed in turn.
struct Victims {
    plane: PlaneProcess,
    etcd: Option<Etcd>,
}

impl Victims {
    fn kill_one(&mut self, round: u32) -> Result<()> {
        match &mut self.etcd {
            Some(etcd) if round.is_multiple_of(2) => {
                etcd.kill()?;
                etcd.restart()
            }
            _ => {
                self.plane.kill()?;
                self.plane.restart()
            }
        }
    }
}

fn run(etcd: Option<EtcdVersion>, kills: u32) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let etcd = etcd.map(|version| Etcd::start(version, directory.path(), &[])).transpose()?;
    let plane = PlaneProcess::start(&directory.path().join("plane"), etcd.as_ref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build()?;
    let victims = Victims { plane, etcd };
    runtime.block_on(scene(victims, kills))
}

async fn scene(mut victims: Victims, kills: u32) -> Result<()> {
    let client = client(&victims.plane.kubeconfig()).await?;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let start = api.list(&kube::api::ListParams::default().labels("none=such")).await?;
    let start: u64 = start.metadata.resource_version.context("a version")?.parse()?;
    let api: Api<ConfigMap> = Api::namespaced(client, "kube-public");
    let floors = (0..KEYS).map(|key| (format!("k{key}"), AtomicU64::new(0))).collect();
    let shared = Arc::new(Shared { floors, ..Shared::default() });
    let until = Arc::new(AtomicU64::new(0));
    let tasks = Tasks::new();
    let writers: Vec<_> = (0..WRITERS)
        .map(|seed| spawn(&tasks, "part", write(api.clone(), Arc::clone(&shared), seed * 7919 + 1)))
        .collect();
    let readers: Vec<_> =
        (0..READERS).map(|first| spawn(&tasks, "part", read(api.clone(), Arc::clone(&shared), first))).collect();
    let watchers: Vec<_> =
        (0..WATCHERS).map(|_| spawn(&tasks, "part", watch(api.clone(), start, Arc::clone(&until)))).collect();
    for round in 0..kills {
        sleep(Duration::from_millis(700 + u64::from(round) * 137 % 900)).await;
        victims = tokio::task::spawn_blocking(move || victims.kill_one(round).map(|()| victims)).await??;
    }
    sleep(Duration::from_millis(800)).await;
    shared.over.store(true, Ordering::SeqCst);
    let mut answered = Vec::new();
    for writer in writers {
        answered.extend(writer.await?);
    }
    for reader in readers {
        reader.await?;
    }
    // One last write that all watches must come to.
    let mark = ConfigMap {
        metadata: ObjectMeta { name: Some("mark".to_owned()), ..ObjectMeta::default() },
        data: Some([("value".to_owned(), u64::MAX.to_string()), ("previous".to_owned(), "0".to_owned())].into()),
        ..ConfigMap::default()
    };
    let end = revision(&api.create(&PostParams::default(), &mark).await?)?;
    until.store(end, Ordering::SeqCst);
    let history = match &victims.etcd {
        Some(etcd) => etcd_history(etcd)?,
        None => watch(api.clone(), start, Arc::clone(&until)).await?.remove(0).changes,
    };
    check_store(&history, &answered)?;
    let mut whole = 0;
    for watcher in watchers {
        let segments = watcher.await??;
        for segment in &segments {
            check_watch(&history, segment)?;
        }
        whole += usize::from(segments.len() == 1);
    }
    if victims.etcd.is_none() {
        ensure!(whole == WATCHERS, "the history of a file outlives the process: no watch has to begin anew");
    }
    ensure!(answered.len() > 50 && history.len() >= answered.len(), "{} writes were answered", answered.len());
    longshore_integration::tools::say(&format!(
        "{} answered writes, {} changes, {kills} kills, {whole} of {WATCHERS} watches without a new list",
        answered.len(),
        history.len()
    ));
    Ok(())
}

async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    Ok(Kubeconfig::load(kubeconfig, Timestamp::now()).await?.client(&ClientOptions::default())?)
}

/// All changes of our objects as etcd itself tells them.
fn etcd_history(etcd: &Etcd) -> Result<Vec<Change>> {
    let prefix = "/registry/configmaps/kube-public/";
    let mut last: BTreeMap<String, Change> = BTreeMap::new();
    let mut history = Vec::new();
    for event in etcd.events(prefix)? {
        let key = event.key.trim_start_matches(prefix).to_owned();
        let change = match event.value {
            Some(value) => {
                let map: ConfigMap = serde_json::from_str(&value)?;
                if !is_ours(&map) {
                    continue;
                }
                let (value, previous) = (number(&map, "value")?, number(&map, "previous")?);
                Change { revision: event.revision, key: key.clone(), value, previous, deleted: false }
            }
            None => match last.remove(&key) {
                Some(before) => Change { revision: event.revision, deleted: true, ..before },
                None => continue,
            },
        };
        if !change.deleted {
            last.insert(key, change.clone());
        }
        history.push(change);
    }
    Ok(history)
}

fn passes(outcome: Result<()>) {
    if let Err(error) = outcome {
        panic!("{error:?}");
    }
}

#[test]
fn no_answered_write_is_lost_in_a_file() {
    passes(run(None, 4));
}

#[test]
fn no_answered_write_is_lost_in_etcd() {
    passes(run(Some(EtcdVersion::V3_5), 4));
}

#[test]
#[ignore = "takes long"]
fn no_answered_write_is_lost_in_a_file_for_long() {
    passes(run(None, 40));
}

#[test]
#[ignore = "takes long"]
fn no_answered_write_is_lost_in_etcd_for_long() {
    for version in EtcdVersion::ALL {
        passes(run(Some(version), 30));
    }
}
