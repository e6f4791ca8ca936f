//! Plays a case: makes, changes and deletes pods, ends their processes, kills the agent. Whatever is asked for stands in
//! the book before anybody can act on it.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use longshore_integration::churn::{self, Place};
use longshore_integration::cluster::Cluster;
use longshore_integration::env::pause;
use longshore_integration::fuzz::{Dress as _, Life, Lifetime, Plan, PodBook, Role};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::case::{Case, IMAGES, Step};
use crate::dress::{Scripts, bad_hook, bad_probe};
use crate::scene::{Scene, locked};

const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// Until an agent that was started again works.
const UP: Duration = Duration::from_secs(60);
/// A pod of the case as it stands.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) plan: Plan,
    /// Its present uid, while its source has it.
    pub(crate) uid: Option<String>,
}

/// Plays one case.
pub(crate) struct Hands<'a, 'env> {
    cluster: &'a mut Cluster<'env>,
    place: &'a Place,
    pub(crate) scene: &'a Mutex<Scene>,
    pub(crate) scripts: Scripts,
    pub(crate) pods: Vec<Actor>,
    born: u32,
    /// The node's processors, in thousandths.
    pub(crate) cpu: u64,
}

impl<'a, 'env> Hands<'a, 'env> {
    pub(crate) fn new(
        cluster: &'a mut Cluster<'env>,
        place: &'a Place,
        scene: &'a Mutex<Scene>,
        scripts: PathBuf,
        case: &Case,
    ) -> Result<Self> {
        let pods = case.pods.iter().map(|plan| Actor { plan: plan.clone(), uid: None }).collect();
        let mut this = Self { cluster, place, scene, scripts: Scripts(scripts), pods, born: 0, cpu: 0 };
        this.cpu = this.node_cpu()?;
        std::fs::create_dir_all(this.scripts.folder())?;
        let parts = case.pods.iter().flat_map(|plan| &plan.parts);
        parts.into_iter().try_for_each(|part| this.program(&part.name, &part.life))?;
        locked(scene).book.sees_since = Some(0);
        Ok(this)
    }

    fn node_cpu(&self) -> Result<u64> {
        let node: Node = self.cluster.env().block_on(|| async {
            let nodes: Api<Node> = Api::all(churn::client(self.place).await?);
            Ok(nodes.get(&self.place.node).await?)
        })?;
        let amount = node.status.and_then(|status| status.allocatable?.remove("cpu")).context("no allocatable cpu")?;
        let whole = |text: &str| text.parse::<u64>().map(|cpus| cpus * 1000);
        Ok(amount.0.strip_suffix('m').map_or_else(|| whole(&amount.0), str::parse)?)
    }

    fn api<F, T>(&self, body: impl FnOnce(Api<Pod>) -> F + Send) -> Result<T>
    where
        F: Future<Output = Result<T>>,
        T: Send,
    {
        let place = self.place;
        self.cluster.env().block_on(|| async move { body(churn::pods(place).await?).await })
    }

    pub(crate) fn program(&self, name: &str, life: &Lifetime) -> Result<()> {
        locked(self.scene).lives.entry(name.to_owned()).or_default().push(life.clone());
        self.scripts.program(name, life)
    }

    fn create(&mut self, index: usize) -> Result<()> {
        if self.pods[index].uid.is_some() {
            return Ok(());
        }
        if self.pods[index].plan.is_static {
            return self.write_manifest(index);
        }
        let plan = self.pods[index].plan.clone();
        let pod: Pod = serde_json::from_value(self.scripts.object(&plan, "", Some(&self.place.node)))?;
        // Held until the book knows of it.
        let mut scene = locked(self.scene);
        let made = self.api(|api| async move {
            match api.create(&PostParams::default(), &pod).await {
                Ok(made) => Ok(Some(made)),
                // One of that name still ends.
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
                Err(error) => Err(error.into()),
            }
        })?;
        let Some(uid) = made.and_then(|pod| pod.metadata.uid) else { return Ok(()) };
        scene.book.want(&uid, &plan, |number| self.scripts.image(number));
        scene.note(&format!("made {} as {uid}", plan.name));
        drop(scene);
        self.pods[index].uid = Some(uid);
        Ok(())
    }

    /// Each version of a static pod has a uid of its own.
    fn write_manifest(&mut self, index: usize) -> Result<()> {
        self.born += 1;
        let uid = format!("s-{}-{}", self.pods[index].plan.name, self.born);
        let plan = &self.pods[index].plan.clone();
        let mut scene = locked(self.scene);
        let now = scene.now();
        let old = self.pods[index].uid.take();
        if let Some(old) = &old {
            scene.book.end(old, Some(plan.grace.into()), now);
        }
        scene.book.want(&uid, plan, |number| self.scripts.image(number));
        scene.note(&format!("manifest of {uid}"));
        drop(scene);
        let (file, text) = (manifest(&plan.name), self.scripts.object(plan, &uid, None).to_string());
        let hidden = Path::new(MANIFESTS).join(format!(".{}", plan.name));
        self.cluster
            .env()
            .within(|| std::fs::write(&hidden, text).and_then(|()| std::fs::rename(&hidden, &file)))??;
        if old.is_some() {
            self.tell();
        }
        self.pods[index].uid = Some(uid);
        Ok(())
    }

    /// The agent that runs has been told of all that was ordered.
    fn tell(&self) {
        let mut scene = locked(self.scene);
        let now = scene.now();
        if scene.book.sees_since.is_some() {
            scene.book.untold().iter().for_each(|uid| scene.book.told(uid, now));
        }
    }

    pub(crate) fn delete(&mut self, index: usize, grace: u32) -> Result<()> {
        let pod = &mut self.pods[index];
        let Some(uid) = pod.uid.clone() else { return Ok(()) };
        let name = pod.plan.name.clone();
        let mut scene = locked(self.scene);
        let now = scene.now();
        let grace = if pod.plan.is_static { pod.plan.grace } else { grace };
        scene.book.end(&uid, Some(grace.into()), now);
        scene.note(&format!("delete {uid} within {grace} s"));
        if pod.plan.is_static {
            pod.uid = None;
            drop(scene);
            self.cluster.env().within(|| std::fs::remove_file(manifest(&name)))??;
        } else {
            if grace == 0 {
                scene.forced.insert(uid);
            }
            drop(scene);
            self.api(|api| async move {
                let parameters = DeleteParams { grace_period_seconds: Some(grace), ..DeleteParams::default() };
                match api.delete(&name, &parameters).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                    other => Ok(other.map(drop)?),
                }
            })?;
        }
        self.tell();
        Ok(())
    }

    /// Takes note of pods that are gone, and says whether one is there and not about to end.
    pub(crate) fn is_alive(&mut self, index: usize) -> Result<bool> {
        let Some(uid) = self.pods[index].uid.clone() else { return Ok(false) };
        if self.pods[index].plan.is_static {
            return Ok(true);
        }
        let name = self.pods[index].plan.name.clone();
        let found = self.api(|api| async move { Ok(api.get_opt(&name).await?) })?;
        let own = found.filter(|pod| pod.metadata.uid.as_ref() == Some(&uid));
        if own.is_none() {
            self.pods[index].uid = None;
        }
        Ok(own.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()))
    }

    /// Changes a pod that is there: its plan, then its object.
    fn change(
        &mut self,
        index: usize,
        subresource: Option<&'static str>,
        change: impl FnOnce(&mut Plan),
        patch: impl FnOnce(&Scripts, &Plan) -> Value,
    ) -> Result<()> {
        let alive = self.is_alive(index)?;
        let is_static = self.pods[index].plan.is_static;
        if self.pods[index].uid.is_some() && !alive {
            // What a pod that ends was made from must not change in the book.
            return Ok(());
        }
        change(&mut self.pods[index].plan);
        if !alive {
            return Ok(());
        }
        if is_static {
            return self.write_manifest(index);
        }
        let (plan, uid) = (self.pods[index].plan.clone(), self.pods[index].uid.clone().unwrap_or_default());
        let (name, patch) = (plan.name.clone(), Patch::Strategic(patch(&self.scripts, &plan)));
        locked(self.scene).book.want(&uid, &plan, |number| self.scripts.image(number));
        self.api(|api| async move {
            let parameters = PatchParams::default();
            let result = match subresource {
                Some(sub) => api.patch_subresource(sub, &name, &parameters, &patch).await,
                None => api.patch(&name, &parameters, &patch).await,
            };
            match result {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                other => Ok(other.map(drop)?),
            }
        })
        .with_context(|| format!("change {uid}"))
    }

    fn running(&self, nth: usize) -> Option<(String, i32)> {
        let scene = locked(self.scene);
        let runs = |id: &str| {
            let made = scene.book.owner(id).and_then(|uid| scene.book.pod(uid)).and_then(|pod| pod.container(id));
            made.is_some_and(|made| made.life == Life::Runs)
        };
        let all: Vec<(String, i32)> =
            scene.pids.iter().filter(|(id, _)| runs(id)).map(|(id, pid)| (id.clone(), *pid)).collect();
        (!all.is_empty()).then(|| all[nth % all.len()].clone())
    }

    fn ready_home(&self, nth: usize) -> Option<(String, i32)> {
        let scene = locked(self.scene);
        let is_home = |id: &str| {
            scene.book.owner(id).and_then(|uid| scene.book.pod(uid)).is_some_and(|pod| pod.container(id).is_none())
        };
        let all: Vec<(String, i32)> =
            scene.pids.iter().filter(|(id, _)| is_home(id)).map(|(id, pid)| (id.clone(), *pid)).collect();
        (!all.is_empty()).then(|| all[nth % all.len()].clone())
    }

    fn exit(&self, nth: usize, code: i32) {
        let Some((id, pid)) = self.running(nth) else { return };
        let chosen = match code {
            0 => Signal::SIGHUP,
            1 => Signal::SIGUSR1,
            3 => Signal::SIGUSR2,
            42 => Signal::SIGQUIT,
            _ => Signal::SIGKILL,
        };
        let mut scene = locked(self.scene);
        scene.hit.insert(id.clone());
        scene.note(&format!("{chosen} to {id}"));
        signal(pid, chosen);
    }

    pub(crate) fn step(&mut self, step: &Step) -> Result<()> {
        locked(self.scene).note(&format!("step {step:?}"));
        match step {
            Step::Wait(millis) => pause(Duration::from_millis(*millis)),
            Step::Create(pod) => {
                self.is_alive(*pod)?;
                self.create(*pod)?;
            }
            Step::Delete(pod, grace) => self.delete(*pod, *grace)?,
            Step::Image(pod, part) => self.change(
                *pod,
                None,
                |plan| plan.parts[*part].image = (plan.parts[*part].image + 1) % IMAGES,
                |scripts, plan| {
                    let part = &plan.parts[*part];
                    let own = json!([{"name": part.name, "image": scripts.image(part.image)}]);
                    json!({"spec": {list_of(part.role): own}})
                },
            )?,
            Step::Resize(pod, part, size) => {
                if self.pods[*pod].plan.is_static || self.pods[*pod].plan.parts[*part].size.is_none() {
                    return Ok(());
                }
                self.change(
                    *pod,
                    Some("resize"),
                    |plan| plan.parts[*part].size = Some(*size),
                    |scripts, plan| {
                        let part = &plan.parts[*part];
                        let object = scripts.object(plan, "", None);
                        let all = object["spec"][list_of(part.role)].as_array();
                        let own = all.into_iter().flatten().find(|own| own["name"] == *part.name);
                        let own = own.map(|own| json!({"name": part.name, "resources": own["resources"]}));
                        json!({"spec": {list_of(part.role): [own]}})
                    },
                )?;
            }
            Step::Label(pod) => self.change(
                *pod,
                None,
                |plan| plan.label += 1,
                |_, plan| json!({"metadata": {"labels": {"round": plan.label.to_string()}}}),
            )?,
            Step::Guest(pod, guest) => {
                // Only into a pod that is there: nobody makes one with a guest in it.
                let plan = &self.pods[*pod].plan;
                if plan.is_static || !plan.guests.is_empty() || !self.is_alive(*pod)? {
                    return Ok(());
                }
                self.program(&guest.name, &guest.life)?;
                self.change(
                    *pod,
                    Some("ephemeralcontainers"),
                    |plan| plan.guests.push(guest.clone()),
                    |scripts, plan| json!({"spec": {"ephemeralContainers": [scripts.guest(plan, &guest.name)]}}),
                )?;
            }
            Step::Exit(nth, code) => self.exit(*nth, *code),
            Step::KillSandbox(nth) => {
                if let Some((id, pid)) = self.ready_home(*nth) {
                    let mut scene = locked(self.scene);
                    scene.book.home_broken(&id);
                    scene.note(&format!("pause process of {id} is killed"));
                    signal(pid, Signal::SIGKILL);
                }
            }
            Step::Program(pod, part, life) => {
                let name = self.pods[*pod].plan.parts[*part].name.clone();
                self.program(&name, life)?;
            }
            Step::Verdict(pod, part, kind, good) => {
                let name = self.pods[*pod].plan.parts[*part].name.clone();
                let mut scene = locked(self.scene);
                let running: Vec<String> = self.pods[*pod]
                    .uid
                    .as_ref()
                    .and_then(|uid| scene.book.pod(uid))
                    .map(PodBook::running)
                    .unwrap_or_default();
                running.iter().for_each(|id| scene.book.probed_by_name(id, &name, *kind, *good));
                let key = (name.clone(), *kind);
                let file = bad_probe(&name, *kind);
                if *good {
                    scene.bad.remove(&key);
                    self.scripts.take(&file);
                } else {
                    scene.bad.insert(key);
                    self.scripts.put(&file, "")?;
                }
            }
            Step::Hooks(pod, part, fail) => {
                let file = bad_hook(&self.pods[*pod].plan.parts[*part].name);
                if *fail {
                    let mut scene = locked(self.scene);
                    if let Some(uid) = &self.pods[*pod].uid {
                        scene.book.hooks_fail(uid);
                    }
                    scene.book.exec_trouble = true;
                    self.scripts.put(&file, "")?;
                } else {
                    self.scripts.take(&file);
                }
            }
            Step::Kill(away) => self.kill_agent(*away)?,
        }
        Ok(())
    }

    fn kill_agent(&mut self, away: u64) -> Result<()> {
        locked(self.scene).book.sees_since = None;
        self.cluster.kill_agent()?;
        pause(Duration::from_millis(away));
        self.cluster.start_agent()?;
        self.cluster.wait_healthy(UP)?;
        let mut scene = locked(self.scene);
        scene.book.sees_since = Some(scene.now());
        scene.note("the agent works again");
        drop(scene);
        self.tell();
        Ok(())
    }

    /// Deletes everything.
    pub(crate) fn clear(&mut self) -> Result<()> {
        locked(self.scene).note("everything is deleted");
        (0..self.pods.len()).try_for_each(|index| self.delete(index, 2))
    }

    /// Whether something was seen that must not be.
    pub(crate) fn is_broken(&self) -> bool {
        !locked(self.scene).book.faults().is_empty()
    }
}

/// Sends a signal to a process that may be gone by now.
pub(crate) fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap_or_default();
}

fn list_of(role: Role) -> &'static str {
    match role {
        Role::Init | Role::Sidecar => "initContainers",
        Role::Main => "containers",
        Role::Guest => "ephemeralContainers",
    }
}

fn manifest(name: &str) -> PathBuf {
    Path::new(MANIFESTS).join(format!("{name}.yaml"))
}
