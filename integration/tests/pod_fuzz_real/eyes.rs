//! Looks at the API and the runtime all the time and enters what they show into the book. The API is asked first: whatever
//! it claims must be true of a runtime that is looked at later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Api;
use kube::api::ListParams;
use longshore_cri::{CriClient, RuntimeService as _, labels, v1};
use longshore_host::process::{self, Process};
use longshore_integration::churn::{self, Place};
use longshore_integration::fuzz::{Kind, Life, Size};
use serde_json::Value;

use crate::case::IMAGES;
use crate::dress::image;
use crate::scene::{Scene, locked};

const PAUSE: Duration = Duration::from_millis(50);
const HASH: &str = "io.kubernetes.container.hash";
const STATIC_UID: &str = "kubernetes.io/config.hash";
const MIRROR: &str = "kubernetes.io/config.mirror";
/// How long after its grace a container may still run, in milliseconds.
const SLACK: u64 = 20_000;

/// What was entered of a container.
#[derive(Debug, Default, Clone)]
struct Known {
    uid: String,
    name: String,
    started_at: i64,
    runs: bool,
    ended: bool,
    /// As the runtime's list showed it last.
    listed: i32,
}

/// Something that the runtime shows now and did not show before.
#[derive(Debug)]
enum Change {
    HomeMade { uid: String, id: String, ready: bool },
    HomeDown { id: String },
    Made { uid: String, home: String, id: String, name: String, attempt: u32, image: String },
    Runs { id: String, size: Option<Size> },
    Ended { id: String, code: i32, reason: String, ran: Duration },
    Gone { id: String },
}

#[derive(Debug, Default)]
struct Eyes {
    containers: BTreeMap<String, Known>,
    /// Sandboxes: whose, whether ready, and when they were made.
    homes: BTreeMap<String, (String, bool, i64)>,
    shown: BTreeMap<String, PodStatus>,
    mirrors: BTreeSet<String>,
    /// Containers that outlived their grace and of whose processes the kernel was asked.
    told: BTreeSet<String>,
}

/// Looks until told to stop.
pub(crate) async fn watch(place: &Place, scene: &Mutex<Scene>, stop: &AtomicBool) -> Result<()> {
    let api = churn::pods(place).await?;
    let runtime = CriClient::connect(&place.endpoint, longshore_cri::ClientOptions::default())?;
    let mut eyes = Eyes::default();
    while !stop.load(Ordering::Relaxed) {
        eyes.look(&api, &runtime, scene).await?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// A child of the runtime's verbose answer.
fn pid(info: &std::collections::BTreeMap<String, String>) -> Option<i32> {
    let parsed: Value = serde_json::from_str(info.get("info")?).ok()?;
    i32::try_from(parsed["pid"].as_i64()?).ok().filter(|pid| *pid > 0)
}

/// What the kernel says of a process, and what else of the runtime's works at this moment: whether a container lives on or the
/// runtime only does not tell of its end.
fn kernel_view(pid: i32) -> String {
    let shown = |process: &Process| {
        let waits = std::fs::read_to_string(format!("/proc/{}/wchan", process.pid)).unwrap_or_default();
        format!("{} waits in {waits}: {:.300}", process.pid, process.command().join(" "))
    };
    let own = Process::read(pid).map_or_else(|| format!("{pid} is gone or a zombie"), |own| shown(&own));
    let others = process::all().iter().map(shown).filter(|text| text.contains("runc")).collect::<Vec<_>>();
    format!("{own}; {}", others.join("; "))
}

/// The bounds that the kernel has for a process.
fn kernel_size(pid: i32) -> Option<Size> {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let number = |path: String| std::fs::read_to_string(path).ok();
    let mut quota = None;
    let mut memory = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let has = |name: &str| controllers.split(',').any(|own| own == name);
        let v1 = |file: &str| number(format!("/sys/fs/cgroup/{controllers}{path}/{file}"));
        if has("cpu") {
            let alone = || number(format!("/sys/fs/cgroup/cpu{path}/cpu.cfs_quota_us"));
            quota = v1("cpu.cfs_quota_us").or_else(alone);
        } else if has("memory") {
            memory = v1("memory.limit_in_bytes");
        } else if controllers.is_empty() && quota.is_none() {
            quota = number(format!("/sys/fs/cgroup{path}/cpu.max"));
            memory = number(format!("/sys/fs/cgroup{path}/memory.max"));
        }
    }
    let first = |text: Option<String>| text?.split_whitespace().next()?.parse::<i64>().ok();
    // No bound is a number without end, or a word.
    let bound = |amount: Option<i64>| amount.filter(|amount| (1..1 << 50).contains(amount)).unwrap_or(0);
    Size::told(bound(first(quota)), bound(first(memory)))
}

fn number_of(name: &str, hash: &str) -> String {
    let of = |number: &u64| longshore_api::hash::container(name, &image(*number)) == hash;
    (0..IMAGES).find(of).map_or_else(|| format!("unknown {hash}"), image)
}

impl Eyes {
    async fn look(&mut self, api: &Api<Pod>, runtime: &CriClient, scene: &Mutex<Scene>) -> Result<()> {
        let pods = api.list(&ListParams::default()).await?.items;
        let mut changes: Vec<(i128, Change)> = Vec::new();
        let mut pids: BTreeMap<String, i32> = BTreeMap::new();
        self.look_at_homes(runtime, &mut changes, &mut pids).await?;
        self.look_at_containers(runtime, &mut changes, &mut pids).await?;
        changes.sort_by_key(|(at, _)| *at);
        let mut scene = locked(scene);
        scene.pids.append(&mut pids);
        for (at, change) in changes {
            self.enter(&mut scene, at, change);
        }
        self.enter_statuses(&mut scene, pods);
        let now = scene.now();
        for id in scene.book.overdue(now, SLACK) {
            if self.told.insert(id.clone()) {
                let text = scene.pids.get(&id).map_or_else(|| "no process known".to_owned(), |pid| kernel_view(*pid));
                scene.book.note(now, &format!("kernel of {id}: {text}"));
            }
        }
        scene.looks += 1;
        Ok(())
    }

    async fn look_at_homes(
        &mut self,
        runtime: &CriClient,
        changes: &mut Vec<(i128, Change)>,
        pids: &mut BTreeMap<String, i32>,
    ) -> Result<()> {
        let now = jiff::Timestamp::now().as_nanosecond();
        let items = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.items;
        // A sandbox that is down went before the next one of its pod was made.
        let next = |uid: &str, after: i64| {
            let newer = items.iter().filter(|item| item.labels.get(labels::POD_UID).is_some_and(|own| own == uid));
            newer
                .map(|item| item.created_at)
                .filter(|made| *made > after)
                .min()
                .map_or(now, |made| i128::from(made) - 1)
        };
        for item in &items {
            let uid = item.labels.get(labels::POD_UID).cloned().unwrap_or_default();
            let ready = item.state() == v1::PodSandboxState::SandboxReady;
            match self.homes.get_mut(&item.id) {
                None => {
                    let made = Change::HomeMade { uid: uid.clone(), id: item.id.clone(), ready };
                    changes.push((item.created_at.into(), made));
                    self.homes.insert(item.id.clone(), (uid, ready, item.created_at));
                    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: item.id.clone(), verbose: true };
                    let answer = runtime.pod_sandbox_status(request).await;
                    pids.extend(answer.ok().and_then(|answer| Some((item.id.clone(), pid(&answer.info)?))));
                }
                Some((_, was, _)) if *was && !ready => {
                    *was = false;
                    changes.push((next(&uid, item.created_at), Change::HomeDown { id: item.id.clone() }));
                }
                Some(_) => {}
            }
        }
        let gone: Vec<String> =
            self.homes.keys().filter(|id| items.iter().all(|item| item.id != **id)).cloned().collect();
        for id in gone {
            let Some((uid, was_ready, made)) = self.homes.remove(&id) else { continue };
            if was_ready {
                changes.push((next(&uid, made), Change::HomeDown { id }));
            }
        }
        Ok(())
    }

    async fn look_at_containers(
        &mut self,
        runtime: &CriClient,
        changes: &mut Vec<(i128, Change)>,
        pids: &mut BTreeMap<String, i32>,
    ) -> Result<()> {
        let items = runtime.list_containers(v1::ListContainersRequest::default()).await?.containers;
        let now = jiff::Timestamp::now().as_nanosecond();
        for item in &items {
            if self.containers.get(&item.id).is_some_and(|known| known.listed == item.state) {
                continue;
            }
            let request = v1::ContainerStatusRequest { container_id: item.id.clone(), verbose: true };
            let answer = match runtime.container_status(request).await {
                Ok(answer) => answer,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error.into()),
            };
            let Some(status) = answer.status else { continue };
            let id = item.id.clone();
            let known = self.containers.entry(id.clone()).or_insert_with(|| {
                let uid = item.labels.get(labels::POD_UID).cloned().unwrap_or_default();
                let meta = status.metadata.clone().unwrap_or_default();
                let hash = status.annotations.get(HASH).map(String::as_str).unwrap_or_default();
                let made = Change::Made {
                    uid: uid.clone(),
                    home: item.pod_sandbox_id.clone(),
                    id: id.clone(),
                    name: meta.name.clone(),
                    attempt: meta.attempt,
                    image: number_of(&meta.name, hash),
                };
                changes.push((status.created_at.into(), made));
                Known { uid, name: meta.name, ..Known::default() }
            });
            // What the list showed: if the status is newer by now, the next list differs again.
            known.listed = item.state;
            if status.started_at > 0 && !known.runs {
                known.runs = true;
                known.started_at = status.started_at;
                let own = pid(&answer.info);
                let size = own.and_then(kernel_size);
                pids.extend(own.map(|pid| (id.clone(), pid)));
                changes.push((status.started_at.into(), Change::Runs { id: id.clone(), size }));
            }
            if status.state() == v1::ContainerState::ContainerExited && !known.ended {
                known.ended = true;
                let ran = u64::try_from(status.finished_at - known.started_at).unwrap_or(0);
                let (code, reason, ran) = (status.exit_code, status.reason.clone(), Duration::from_nanos(ran));
                // The two moments come from two processes: a very short life may end before it began.
                let at = status.finished_at.max(known.started_at + 1);
                changes.push((at.into(), Change::Ended { id, code, reason, ran }));
            }
        }
        let gone = self.containers.keys().filter(|id| items.iter().all(|item| item.id != **id));
        changes.extend(gone.map(|id| (now, Change::Gone { id: id.clone() })));
        Ok(())
    }

    fn enter(&mut self, scene: &mut Scene, nanos: i128, change: Change) {
        let at = scene.at(nanos);
        let text = format!("runtime: {change:?}");
        scene.book.note(at, &text);
        match change {
            Change::HomeMade { uid, id, ready } => {
                scene.book.asked_to_start(&uid, "RunPodSandbox", at);
                scene.book.home_made(&uid, &id);
                if !ready {
                    scene.book.home_down(&id);
                }
            }
            Change::HomeDown { id } => {
                scene.book.asked_to_stop_home(&id);
                scene.book.home_down(&id);
                scene.pids.remove(&id);
            }
            Change::Made { uid, home, id, name, attempt, image } => {
                scene.book.asked_to_start(&uid, "CreateContainer", at);
                scene.book.container_made(&uid, &home, &id, &name, attempt, &image);
            }
            Change::Runs { id, size } => {
                let Some(known) = self.containers.get(&id).cloned() else { return };
                scene.book.asked_to_start(&known.uid, "StartContainer", at);
                scene.book.sized(&id, size);
                scene.sizes.extend(size.map(|size| (id.clone(), size)));
                scene.book.container_runs(&id);
                // Whatever the files say now the probes may have said by the time that a status tells of it.
                for kind in Kind::ALL {
                    let good = !scene.bad.contains(&(known.name.clone(), kind));
                    scene.book.probed(&id, kind, good);
                }
            }
            Change::Ended { id, code, reason, ran } => {
                let Some(known) = self.containers.get(&id) else { return };
                // Of an end at its own time while there is a reason to stop it, nobody can say whose doing it was.
                let at_its_time = scene.may_have_ended(&known.name, ran) && !scene.book.may_be_stopped(&id);
                let by_itself = scene.hit.contains(&id) || reason == "OOMKilled" || at_its_time;
                if !by_itself {
                    scene.book.asked_to_stop(&id, 0, at);
                }
                scene.book.container_ended(&id, code, &reason, at);
                scene.pids.remove(&id);
                scene.sizes.remove(&id);
            }
            Change::Gone { id } => {
                let Some(known) = self.containers.remove(&id) else { return };
                if known.runs && !known.ended {
                    if !scene.hit.contains(&id) {
                        scene.book.asked_to_stop(&id, 0, at);
                    }
                    scene.book.container_vanished(&id, at);
                    scene.pids.remove(&id);
                    scene.sizes.remove(&id);
                }
                scene.book.container_gone(&id);
            }
        }
    }

    fn enter_statuses(&mut self, scene: &mut Scene, pods: Vec<Pod>) {
        let now = scene.now();
        let mut objects = BTreeMap::new();
        for pod in pods {
            let note = |name: &str| pod.metadata.annotations.as_ref().and_then(|all| all.get(name)).cloned();
            let Some(own) = pod.metadata.uid.clone() else { continue };
            let uid = if note(MIRROR).is_some() {
                let uid = note(STATIC_UID).unwrap_or_default();
                self.mirrors.insert(uid.clone());
                uid
            } else {
                own
            };
            objects.insert(uid.clone(), pod.metadata.name.unwrap_or_default());
            let Some(status) = pod.status.filter(|status| status.container_statuses.is_some()) else { continue };
            if self.shown.get(&uid) == Some(&status) {
                continue;
            }
            scene.book.note(now, &format!("status of {uid}: {}", brief(&status)));
            scene.book.show(&uid, &status, false, now);
            self.shown.insert(uid, status);
        }
        let gone: Vec<String> = scene.objects.keys().filter(|uid| !objects.contains_key(*uid)).cloned().collect();
        for uid in gone {
            let Some(pod) = scene.book.pod(&uid) else { continue };
            let (runs, home) = (pod.running(), pod.has_home());
            let is_own = !self.mirrors.contains(&uid) && !scene.forced.contains(&uid);
            scene.book.note(now, &format!("api: {uid} is gone"));
            if is_own && (home || !runs.is_empty()) {
                scene.book.fault(format!("the API object of {uid} is gone, {runs:?} run, sandbox {home}"));
            }
        }
        scene.objects = objects;
        let has = |uid: &str, eyes: &Self| {
            eyes.containers.values().any(|known| known.uid == uid) || eyes.homes.values().any(|(own, ..)| own == uid)
        };
        let over: Vec<String> = scene.book.ordered().into_iter().filter(|uid| !has(uid, self)).collect();
        for uid in over.into_iter().filter(|uid| !scene.objects.contains_key(uid)) {
            scene.book.over(&uid);
        }
    }
}

fn brief(status: &PodStatus) -> String {
    let lists = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    let phase = status.phase.clone().unwrap_or_default();
    let containers = lists.into_iter().flatten().flatten().map(|container| {
        let state = container.state.clone().unwrap_or_default();
        let word = match (state.running, state.terminated, state.waiting) {
            (Some(_), ..) => "runs".to_owned(),
            (_, Some(end), _) => format!("ended {}", end.exit_code),
            (.., Some(waiting)) => waiting.reason.unwrap_or_default(),
            _ => "?".to_owned(),
        };
        let ready = if container.ready { "+" } else { "-" };
        format!(" {}{ready}{}:{word}", container.name, container.restart_count)
    });
    let resize = status.conditions.iter().flatten().filter(|condition| condition.type_.starts_with("PodResize"));
    let resize = resize.map(|own| format!(" {} {}", own.type_, own.reason.clone().unwrap_or_default()));
    std::iter::once(phase).chain(containers).chain(resize).collect()
}

/// Refreshes the sizes that the kernel has.
pub(crate) fn measure(scene: &mut Scene) {
    let running = scene.pids.clone();
    for (id, pid) in running {
        let alive = scene.book.owner(&id).and_then(|uid| scene.book.pod(uid)).and_then(|pod| pod.container(&id));
        if alive.is_some_and(|made| made.life == Life::Runs)
            && let Some(size) = kernel_size(pid)
        {
            scene.sizes.insert(id, size);
        }
    }
}
