//! Plays a case: a machine with a fake runtime, an apiserver, files and an agent that is killed and started again; the book
//! sees everything.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_cri::fake::{ExecReply, Failure as Fault, FakeOptions, FakeRuntime, On, OnTerm, Program};
use longshore_cri::{Code, ErrorKind, RuntimeService as _, v1};
use longshore_integration::fuzz::{Dress as _, Kind, Lifetime, Plan, PodBook, Role};
use longshore_node::gc::Cleaning;
use longshore_node::model::{PodControl as _, ReadPods as _, Terminate};
use longshore_node::pod::BackoffRule;

use super::agent::{Agent, Files, Lateness, Machine};
use super::api::{Api, Mood};
use super::case::{Case, Step, Wrong};
use super::hands::Hands;
use super::scene::{Clocks, FakeDress, SharedBook};
use super::seen::{asked, changed};

/// How long a call without an answer holds up its pod's worker, in milliseconds: its deadline, and some.
const LONGEST_CALL: u64 = 125_000;

/// A pod of the case as it stands.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) plan: Plan,
    /// Its present uid, while its source has it.
    pub(super) uid: Option<String>,
}

/// Probes that say no and hooks that fail.
#[derive(Debug, Default)]
struct Scripts {
    bad: BTreeSet<(String, Kind)>,
    bad_hooks: BTreeSet<String>,
}

pub(crate) struct World {
    case: Case,
    pub(crate) machine: Machine,
    pub(crate) agent: Option<Agent>,
    pub(super) pods: Vec<Pod>,
    scripts: Arc<Mutex<Scripts>>,
    born: u64,
    faulty: bool,
    /// Calls may have been left without an answer.
    hung: bool,
    /// Commands in containers may have been, which have no deadline where their owner gives none.
    hung_commands: bool,
    /// Until when they hold up their pods' workers, in milliseconds.
    held_until: u64,
    muted: bool,
    /// Containers whose start the runtime has begun.
    starting: Arc<Mutex<BTreeSet<String>>>,
    /// Calls are the test's own.
    aside: Arc<AtomicBool>,
}

fn program(life: &Lifetime) -> Program {
    Program {
        runs_for: life.runs_for,
        exit_code: life.code,
        on_term: life.on_term.map_or(OnTerm::Ignore, |(code, after)| OnTerm::Exit { code, after }),
        output: Vec::new(),
    }
}

impl World {
    pub(crate) async fn start(case: &Case, folder: &Path) -> Self {
        let clocks = Clocks::start();
        let book: SharedBook = Arc::default();
        book.lock().unwrap().scarce = case.is_scarce();
        let options = if case.events { FakeOptions::default() } else { FakeOptions::without_events() };
        let runtime = FakeRuntime::new(FakeOptions { clock: Arc::new(clocks), ..options });
        for number in 0..8 {
            runtime.add_image(&FakeDress.image(number));
        }
        let pods_folder = folder.join("pods");
        let image_pause = Duration::from_millis(case.image_pause);
        let hands = Hands::new(Arc::clone(&book), clocks, pods_folder, image_pause, (case.room, case.cpu));
        let api = Api::new(case.seed, Arc::clone(&book), clocks);
        let folder = Arc::new(tempfile::tempdir_in(folder).unwrap());
        let machine = Machine { runtime, hands, api, files: Files::default(), book, clocks, folder };
        let pods = case.pods.iter().map(|plan| Pod { plan: plan.clone(), uid: None }).collect();
        let mut world = Self {
            case: case.clone(),
            machine,
            agent: None,
            pods,
            scripts: Arc::default(),
            born: 0,
            faulty: false,
            hung: false,
            hung_commands: false,
            held_until: 0,
            muted: false,
            starting: Arc::default(),
            aside: Arc::default(),
        };
        world.look();
        for pod in world.pods.clone() {
            for part in &pod.plan.parts {
                world.machine.runtime.set_program(&part.name, program(&part.life));
            }
        }
        world.begin_agent(0, 0).await;
        world
    }

    /// Lets the book see the runtime.
    fn look(&self) {
        let (book, clocks) = (Arc::clone(&self.machine.book), self.machine.clocks);
        self.machine.runtime.on_change(move |event| changed(&mut book.lock().unwrap(), event, clocks.millis()));
        let (book, starting) = (Arc::clone(&self.machine.book), Arc::clone(&self.starting));
        let aside = Arc::clone(&self.aside);
        self.machine.runtime.failpoints().on_call(move |call| {
            if aside.load(Ordering::Relaxed) {
                return;
            }
            asked(&mut book.lock().unwrap(), call, clocks.millis(), &mut starting.lock().unwrap());
        });
        let (book, scripts) = (Arc::clone(&self.machine.book), Arc::clone(&self.scripts));
        self.machine.runtime.on_exec(move |request| {
            let scripts = scripts.lock().unwrap();
            let fails = match request.cmd.as_slice() {
                [what, kind, name] if what == "probe" => {
                    let kind = *Kind::ALL.iter().find(|own| own.word() == kind).unwrap();
                    let bad = scripts.bad.contains(&(name.clone(), kind));
                    book.lock().unwrap().probed(&request.container_id, kind, !bad);
                    bad
                }
                [_, _, name] => scripts.bad_hooks.contains(name),
                _ => false,
            };
            ExecReply { exit_code: i32::from(fails), ..ExecReply::default() }
        });
    }

    pub(crate) fn note(&self, text: &str) {
        self.machine.book.lock().unwrap().note(self.machine.clocks.millis(), text);
    }

    fn sees(&self) {
        let sees = !self.faulty && !self.muted && self.agent.is_some();
        let at = self.machine.clocks.millis();
        let mut book = self.machine.book.lock().unwrap();
        let since = at.max(self.held_until);
        book.sees_since = sees.then(|| book.sees_since.unwrap_or(since));
    }

    async fn begin_agent(&mut self, files: u64, api: u64) {
        let lateness = Lateness { files, api, news: self.case.news };
        // The stricter one has to know its pods from the journal alone.
        let cleaning = if self.case.seed.is_multiple_of(2) { Cleaning::Everything } else { Cleaning::OwnRuntime };
        let delay = BackoffRule::new(Duration::from_secs(self.case.delay), false);
        self.agent = Some(Agent::start(&self.machine, lateness, delay, cleaning).await);
        self.held_until = 0;
        // Until the sources have spoken nothing is known of any pod.
        self.machine.book.lock().unwrap().sees_since = None;
        self.note("agent started");
    }

    pub(crate) async fn kill_agent(&mut self, lose: bool) {
        let Some(agent) = self.agent.take() else { return };
        self.note(&format!("agent killed, newest facts lost: {lose}"));
        self.sees();
        let left = agent.kill(lose).await;
        if let Some(left) = left {
            self.machine.book.lock().unwrap().fault(left);
        }
        // What a runtime does with a start whose caller is gone: now and then it breaks it off.
        let begun: Vec<String> = std::mem::take(&mut *self.starting.lock().unwrap()).into_iter().collect();
        let made = self.machine.runtime.containers().into_iter();
        let made: BTreeSet<String> = made
            .filter(|container| container.state() == v1::ContainerState::ContainerCreated)
            .map(|container| container.id)
            .collect();
        for id in begun.into_iter().filter(|id| made.contains(id)) {
            let failpoints = self.machine.runtime.failpoints();
            failpoints.clear_all();
            self.aside.store(true, Ordering::Relaxed);
            let request = v1::StartContainerRequest { container_id: id.clone() };
            if lose && self.machine.runtime.start_container(request).await.is_ok() {
                self.machine.runtime.exit(&id, 128);
            }
            self.aside.store(false, Ordering::Relaxed);
        }
        self.starting.lock().unwrap().clear();
    }

    fn running(&self, nth: usize) -> Option<String> {
        let mut all = self.machine.runtime.containers();
        all.retain(|container| container.state() == v1::ContainerState::ContainerRunning);
        (!all.is_empty()).then(|| all[nth % all.len()].id.clone())
    }

    fn ready_home(&self, nth: usize) -> Option<String> {
        let mut all = self.machine.runtime.sandboxes();
        all.retain(|sandbox| sandbox.state() == v1::PodSandboxState::SandboxReady);
        (!all.is_empty()).then(|| all[nth % all.len()].id.clone())
    }

    /// Tells the pod's source of its plan.
    fn publish(&mut self, index: usize) {
        let pod = &mut self.pods[index];
        let at = self.machine.clocks.millis();
        let mut book = self.machine.book.lock().unwrap();
        if pod.plan.is_static {
            let images: String = pod.plan.parts.iter().map(|part| part.image.to_string()).collect();
            let uid = format!("s-{}-{}-{images}-{}", pod.plan.name, pod.plan.label, pod.plan.guests.len());
            if let Some(old) = pod.uid.as_ref().filter(|old| **old != uid) {
                book.end(old, Some(pod.plan.grace.into()), at);
            }
            book.want(&uid, &pod.plan, |number| FakeDress.image(number));
            let mut files = self.machine.files.plans.lock().unwrap();
            files.insert(pod.plan.name.clone(), (uid.clone(), pod.plan.clone()));
            pod.uid = Some(uid);
            drop(files);
            super::agent::ring(&self.machine.api.changed);
            return;
        }
        let uid = pod.uid.get_or_insert_with(|| {
            self.born += 1;
            format!("u{}", self.born)
        });
        book.want(uid, &pod.plan, |number| FakeDress.image(number));
        drop(book);
        self.machine.api.apply(&pod.plan.name, pod.plan.object(uid, &FakeDress));
    }

    pub(crate) fn remove(&mut self, index: usize, grace: u64) {
        let pod = &mut self.pods[index];
        let at = self.machine.clocks.millis();
        if pod.plan.is_static {
            let Some(uid) = pod.uid.take() else { return };
            self.machine.book.lock().unwrap().end(&uid, Some(pod.plan.grace.into()), at);
            self.machine.files.plans.lock().unwrap().remove(&pod.plan.name);
            super::agent::ring(&self.machine.api.changed);
            return;
        }
        let Some(uid) = pod.uid.clone() else { return };
        // The order first: whoever looks in between must not take the end for a fault.
        self.machine.book.lock().unwrap().end(&uid, Some(grace), at);
        match self.machine.api.delete(&pod.plan.name, grace) {
            Some((_, false)) => {}
            Some((_, true)) | None => pod.uid = None,
        }
    }

    /// Takes note of pods that the agent has let go.
    pub(super) fn refresh(&mut self) {
        for pod in &mut self.pods {
            if !pod.plan.is_static && self.machine.api.object(&pod.plan.name).is_none() {
                pod.uid = None;
            }
        }
    }

    pub(crate) async fn step(&mut self, step: &Step) {
        self.refresh();
        let runtime = self.machine.runtime.clone();
        match step {
            Step::Wait(time) => tokio::time::sleep(Duration::from_millis(*time)).await,
            Step::Create(pod) => {
                if self.pods[*pod].uid.is_none() {
                    self.publish(*pod);
                }
            }
            Step::Delete(pod, grace) => self.remove(*pod, *grace),
            Step::Image(pod, part) => {
                let image = &mut self.pods[*pod].plan.parts[*part].image;
                *image = (*image + 1) % 8;
                self.changed(*pod);
            }
            Step::Resize(pod, part, size) => {
                let own = &mut self.pods[*pod].plan;
                if !own.is_static && own.parts[*part].size.is_some() {
                    own.parts[*part].size = Some(*size);
                    self.changed(*pod);
                }
            }
            Step::Label(pod) => {
                self.pods[*pod].plan.label += 1;
                self.changed(*pod);
            }
            Step::Guest(pod, guest) => {
                if !self.pods[*pod].plan.is_static && self.pods[*pod].plan.guests.len() < 2 {
                    runtime.set_program(&guest.name, program(&guest.life));
                    self.pods[*pod].plan.guests.push(guest.clone());
                    self.changed(*pod);
                }
            }
            Step::DropMirror(pod) => {
                if self.pods[*pod].plan.is_static {
                    self.machine.api.drop_mirror(&self.pods[*pod].plan.name);
                }
            }
            Step::Evict(pod, grace) => self.evict(*pod, *grace).await,
            Step::Exit(nth, code) => {
                if let Some(id) = self.running(*nth) {
                    runtime.exit(&id, *code);
                }
            }
            Step::OutOfMemory(nth) => {
                if let Some(id) = self.running(*nth) {
                    runtime.oom_kill(&id);
                }
            }
            Step::Forget(nth) => {
                let mut dead = runtime.containers();
                dead.retain(|container| self.has_shown_end(&container.id));
                if !dead.is_empty() {
                    self.take_away(&dead[nth % dead.len()].id);
                }
            }
            Step::KillSandbox(nth) => {
                if let Some(id) = self.ready_home(*nth) {
                    self.machine.book.lock().unwrap().home_broken(&id);
                    runtime.kill_sandbox(&id);
                }
            }
            Step::LoseAddress(nth) => {
                if let Some(id) = self.ready_home(*nth) {
                    self.machine.book.lock().unwrap().home_broken(&id);
                    runtime.lose_address(&id);
                }
            }
            Step::Program(pod, part, life) => {
                runtime.set_program(&self.pods[*pod].plan.parts[*part].name, program(life));
            }
            Step::Verdict(pod, part, kind, good) => {
                let key = (self.pods[*pod].plan.parts[*part].name.clone(), *kind);
                let mut scripts = self.scripts.lock().unwrap();
                if *good {
                    scripts.bad.remove(&key)
                } else {
                    scripts.bad.insert(key)
                };
            }
            Step::Hooks(pod, part, fail) => {
                let name = self.pods[*pod].plan.parts[*part].name.clone();
                let mut scripts = self.scripts.lock().unwrap();
                if *fail {
                    scripts.bad_hooks.insert(name);
                    drop(scripts);
                    let uids: Vec<String> = self.pods[*pod].uid.clone().into_iter().collect();
                    let mut book = self.machine.book.lock().unwrap();
                    uids.iter().for_each(|uid| book.hooks_fail(uid));
                    book.exec_trouble = true;
                } else {
                    scripts.bad_hooks.remove(&name);
                }
            }
            Step::Fault(rpc, wrong, times, pod) => self.fault(rpc, *wrong, *times, *pod),
            Step::Crash => {
                self.machine.book.lock().unwrap().exec_trouble = true;
                runtime.failpoints().crash();
            }
            Step::Mute(mute) => {
                self.muted = *mute;
                runtime.mute_events(*mute);
            }
            Step::Hands(work, trouble) => self.machine.hands.trouble(*work, *trouble),
            Step::Api(mood) => self.machine.api.set_mood(*mood),
            Step::Heal => self.heal(),
            Step::Kill(away, late, lose) => {
                self.kill_agent(*lose).await;
                tokio::time::sleep(Duration::from_millis(*away)).await;
                self.begin_agent(late.0, late.1).await;
            }
        }
        self.sees();
    }

    /// An end that nobody has seen cannot be known when its record is gone.
    fn has_shown_end(&self, id: &str) -> bool {
        let book = self.machine.book.lock().unwrap();
        book.owner(id).and_then(|uid| book.pod(uid)).is_some_and(|pod| pod.has_shown_end(id))
    }

    fn take_away(&self, id: &str) {
        self.machine.book.lock().unwrap().taken_away(id);
        self.aside.store(true, Ordering::Relaxed);
        self.machine.runtime.take_away(id);
        self.aside.store(false, Ordering::Relaxed);
    }

    fn changed(&mut self, index: usize) {
        let is_there = self.pods[index].uid.is_some();
        let deleted = self.machine.api.object(&self.pods[index].plan.name);
        let deleted = deleted.is_some_and(|object| object["metadata"]["deletionTimestamp"].is_string());
        if is_there && !deleted {
            self.publish(index);
        }
    }

    /// The node itself has told the agent to end the pod.
    fn order(&self, uid: &str, grace: Option<u64>, own: u64, at: u64) {
        let mut book = self.machine.book.lock().unwrap();
        // An order without a time of its own does not shorten one that was given before, as with the stock agent.
        let known = book.pod(uid).is_some_and(PodBook::has_grace);
        book.end(uid, grace.or_else(|| (!known).then_some(own)), at);
        book.told(uid, at);
    }

    async fn evict(&self, index: usize, grace: Option<u64>) {
        let (Some(uid), Some(agent)) = (self.pods[index].uid.clone(), &self.agent) else { return };
        if agent.table.by_uid(&uid).is_none() {
            return;
        }
        let at = self.machine.clocks.millis();
        self.order(&uid, grace, self.pods[index].plan.grace.into(), at);
        let order = Terminate {
            grace: grace.map(Duration::from_secs),
            reason: "Evicted",
            message: "the fuzzer said so".to_owned(),
            disruption: false,
        };
        agent.table.terminate(&uid.as_str().into(), order);
        // An order counts from the moment in which it is written down.
        tokio::time::sleep(Duration::from_millis(3)).await;
    }

    fn fault(&mut self, rpc: &'static str, wrong: Wrong, times: u32, pod: Option<usize>) {
        let fault = match wrong {
            Wrong::Error => Fault::Error(ErrorKind::Other(Code::Unknown), "told to fail".to_owned()),
            Wrong::NotFound => Fault::Error(ErrorKind::NotFound, "image not found".to_owned()),
            Wrong::Away => Fault::Error(ErrorKind::Unavailable, "connection refused".to_owned()),
            Wrong::Hang => Fault::Hang,
            Wrong::Slow(time) => Fault::Delay(Duration::from_millis(time)),
            Wrong::DropReply => Fault::DropReply,
            Wrong::SwallowReply => Fault::SwallowReply,
        };
        let mut on = On::rpc(rpc).times(times);
        if let Some(pod) = pod {
            let Some(uid) = &self.pods[pod].uid else { return };
            on = on.pod(uid.clone());
        }
        self.faulty = true;
        self.hung |= matches!(wrong, Wrong::Hang | Wrong::SwallowReply | Wrong::Slow(30_000..));
        if rpc == "ExecSync" {
            self.hung_commands |= matches!(wrong, Wrong::Hang | Wrong::SwallowReply);
            self.machine.book.lock().unwrap().exec_trouble = true;
        }
        self.machine.runtime.failpoints().set(on, fault);
    }

    pub(crate) fn heal(&mut self) {
        self.machine.runtime.failpoints().clear_all();
        self.machine.runtime.mute_events(false);
        self.machine.hands.heal();
        self.machine.api.set_mood(Mood::Good);
        if std::mem::take(&mut self.hung) {
            self.held_until = self.machine.clocks.millis() + LONGEST_CALL;
        }
        (self.faulty, self.muted) = (false, false);
        self.sees();
    }

    /// Makes everything good from now on.
    pub(crate) fn make_good(&mut self) {
        self.heal();
        if self.hung_commands {
            // A hook whose answer was lost would hold up its pod for ever, as with the stock agent.
            self.machine.runtime.failpoints().crash();
        }
        *self.scripts.lock().unwrap() = Scripts::default();
        let parts = self.pods.iter().flat_map(|pod| &pod.plan.parts);
        for part in parts {
            self.machine.runtime.set_program(&part.name, program(&super::case::good(part.role)));
        }
        // An init container whose process never ends would hold up its pod for ever.
        let inits: BTreeSet<&str> = self
            .pods
            .iter()
            .flat_map(|pod| &pod.plan.parts)
            .filter(|part| part.role == Role::Init)
            .map(|part| part.name.as_str())
            .collect();
        for container in self.machine.runtime.containers() {
            if container.metadata.as_ref().is_some_and(|meta| inits.contains(meta.name.as_str())) {
                self.machine.runtime.exit(&container.id, 0);
            }
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.pods.len()
    }
}
