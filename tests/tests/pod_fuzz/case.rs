//! One case: a machine, some pods, and a list of steps, all from one seed. Steps name things by number, so that a list with
//! some of them left out is a case, too.

use longshore_integration::fuzz::{Dice, Kind, Lifetime, Part, Plan, Role, Size};

use super::api::Mood;
use super::hands::{Trouble, Work};

/// What happens next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing for so many milliseconds.
    Wait(u64),
    /// A user makes the pod, or a file appears.
    Create(usize),
    /// A user deletes it with that grace, or its file goes.
    Delete(usize, u64),
    /// A container gets another image.
    Image(usize, usize),
    /// A container is to have another size.
    Resize(usize, usize, Size),
    /// The labels change.
    Label(usize),
    /// A debug container is put in.
    Guest(usize, Part),
    /// The node itself ends the pod.
    Evict(usize, Option<u64>),
    /// A user deletes the mirror of a static pod.
    DropMirror(usize),
    /// A running container ends by itself.
    Exit(usize, i32),
    /// The kernel kills one for memory.
    OutOfMemory(usize),
    /// Somebody removes a dead container.
    Forget(usize),
    /// The pause process of a sandbox ends.
    KillSandbox(usize),
    /// A sandbox loses its address.
    LoseAddress(usize),
    /// What a container's next processes do.
    Program(usize, usize, Lifetime),
    /// What a probe says from now on.
    Verdict(usize, usize, Kind, bool),
    /// Whether hooks of a container fail from now on.
    Hooks(usize, usize, bool),
    /// Calls of the runtime go wrong: how, how often, and whether only for one pod.
    Fault(&'static str, Wrong, u32, Option<usize>),
    /// The runtime is started again.
    Crash,
    /// The runtime loses its events, or not.
    Mute(bool),
    /// Volumes, images or groups go wrong.
    Hands(Work, Trouble),
    /// The API has a mood.
    Api(Mood),
    /// All that goes wrong ends.
    Heal,
    /// The agent is killed; how long it is away, how late the sources are, whether the newest facts are lost.
    Kill(u64, (u64, u64), bool),
}

/// How a call goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    Error,
    NotFound,
    Away,
    Hang,
    Slow(u64),
    DropReply,
    SwallowReply,
}

/// A case.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) pods: Vec<Plan>,
    pub(crate) steps: Vec<Step>,
    /// The runtime tells of events.
    pub(crate) events: bool,
    /// The images take so long, in milliseconds.
    pub(crate) image_pause: u64,
    /// The sources' news take so long.
    pub(crate) news: u64,
    /// How many pods the node takes.
    pub(crate) room: u64,
    /// Its processors, in thousandths.
    pub(crate) cpu: u64,
    /// The longest restart delay, in seconds.
    pub(crate) delay: u64,
}

const CALLS: [&str; 15] = [
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "PodSandboxStatus",
    "ListPodSandbox",
    "ListContainers",
    "CreateContainer",
    "StartContainer",
    "StartContainer",
    "CreateContainer",
    "StopContainer",
    "RemoveContainer",
    "ContainerStatus",
    "UpdateContainerResources",
    "ExecSync",
];

impl Case {
    pub(crate) fn random(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let count = dice.between(1, 3);
        let pods: Vec<Plan> = (0..count)
            .map(|n| {
                let is_static = dice.chance(25);
                Plan::random(&mut dice, &format!("p{n}"), is_static)
            })
            .collect();
        let events = dice.chance(85);
        let image_pause = dice.pick(&[0, 0, 5, 300, 3000]);
        let news = dice.pick(&[0, 1, 20, 300]);
        let room = if dice.chance(10) { 2 } else { 110 };
        let cpu = if dice.chance(15) { 1500 } else { 64_000 };
        let delay = if dice.chance(10) { 300 } else { 20 };
        // Each case has its own weather: most are calm in most ways.
        let faults = dice.pick(&[0, 0, 10, 25]);
        let kills = dice.pick(&[0, 5, 12]);
        let mut steps = vec![Step::Create(0)];
        let length = dice.between(4, 24);
        for _ in 0..length {
            if dice.chance(faults) {
                steps.push(Step::trouble(&mut dice, pods.len()));
            } else if dice.chance(kills) {
                let away = dice.pick(&[0, 0, 5, 1000, 20_000]);
                let late = (dice.pick(&[0, 0, 50, 3000]), dice.pick(&[0, 5, 200, 15_000]));
                steps.push(Step::Kill(away, late, dice.chance(50)));
            } else {
                steps.push(Step::usual(&mut dice, &pods));
            }
            if dice.chance(70) {
                steps.push(Step::Wait(wait(&mut dice)));
            }
        }
        Self { seed, pods, steps, events, image_pause, news, room, cpu, delay }
    }
}

impl Case {
    /// Whether the node may have no room for some pods.
    pub(crate) fn is_scarce(&self) -> bool {
        self.room < 110 || self.cpu < 64_000
    }
}

fn wait(dice: &mut Dice) -> u64 {
    match dice.below(10) {
        0 => 0,
        1 | 2 => dice.between(1, 20),
        3..=5 => dice.between(20, 1500),
        6..=8 => dice.between(1500, 12_000),
        _ if dice.chance(70) => dice.between(12_000, 60_000),
        _ => dice.between(60_000, 400_000),
    }
}

impl Step {
    fn usual(dice: &mut Dice, pods: &[Plan]) -> Self {
        let pod = dice.index(pods.len());
        let part = dice.index(pods[pod].parts.len());
        match dice.below(100) {
            0..=19 => Self::Create(pod),
            20..=31 => Self::Delete(pod, dice.pick(&[0, 1, 1, 2, 5, 30, 300])),
            32..=37 => Self::Image(pod, part),
            38..=42 => Self::Label(pod),
            43..=45 => Self::Guest(pod, Part::guest(dice, format!("g{}-p{pod}", dice.clone().below(1_000_000)))),
            46 => Self::DropMirror(pod),
            47 => Self::Evict(pod, dice.pick(&[None, Some(0), Some(3)])),
            48..=60 => Self::Exit(dice.index(64), dice.pick(&[0, 0, 1, 3, 42, 137, 143])),
            61..=62 => Self::OutOfMemory(dice.index(64)),
            63..=65 => Self::Forget(dice.index(64)),
            66..=68 => Self::KillSandbox(dice.index(64)),
            69 => Self::LoseAddress(dice.index(64)),
            70..=79 => Self::Program(pod, part, Lifetime::random(dice, pods[pod].parts[part].role)),
            80..=93 => Self::Verdict(pod, part, dice.pick(&Kind::ALL), dice.chance(45)),
            94..=99 => Self::Hooks(pod, part, dice.chance(50)),
            _ => Self::Resize(pod, part, if dice.chance(6) { Size::huge() } else { Size::random(dice) }),
        }
    }

    fn trouble(dice: &mut Dice, pods: usize) -> Self {
        match dice.below(100) {
            0..=49 => {
                let wrong = match dice.below(9) {
                    0 | 1 => Wrong::Error,
                    2 => Wrong::NotFound,
                    3 => Wrong::Away,
                    4 => Wrong::Hang,
                    5 => Wrong::Slow(dice.pick(&[10, 800, 7000, 40_000])),
                    6 | 7 => Wrong::DropReply,
                    _ => Wrong::SwallowReply,
                };
                let pod = dice.chance(40).then(|| dice.index(pods));
                // What a runtime has and says it has not is a lie that nobody can work with.
                let call = dice.pick(&CALLS);
                let wrong = if wrong == Wrong::NotFound && call != "CreateContainer" { Wrong::Error } else { wrong };
                let times = u32::try_from(dice.between(1, 4)).unwrap();
                Self::Fault(call, wrong, times, pod)
            }
            50..=54 => Self::Crash,
            55..=59 => Self::Mute(dice.chance(70)),
            60..=74 => {
                let work = [
                    Work::Volumes,
                    Work::Release,
                    Work::Image,
                    Work::Image,
                    Work::Config,
                    Work::Group,
                    Work::Bind,
                    Work::Ungroup,
                    Work::Forget,
                ];
                Self::Hands(dice.pick(&work), dice.pick(&[Trouble::Fails, Trouble::Hangs]))
            }
            75..=84 => Self::Api(dice.pick(&[Mood::Refuses(500), Mood::Refuses(409), Mood::Hangs, Mood::LosesAnswers])),
            _ => Self::Heal,
        }
    }
}

/// What everything does once the case must come to rest.
pub(crate) fn good(role: Role) -> Lifetime {
    match role {
        Role::Init | Role::Guest => Lifetime::short(),
        Role::Sidecar | Role::Main => Lifetime::steady(),
    }
}
