//! One case: some pods and a list of steps, all from one seed, scaled to real time: processes live for seconds, graces are
//! short, sizes fit into a small machine.

use std::time::Duration;

use longshore_integration::fuzz::{Dice, Hook, Kind, Lifetime, Part, Plan, Role, Size, StartsAnew};

/// The longest that a process of a case runs, unless it runs for ever.
pub(crate) const LONGEST_LIFE: Duration = Duration::from_secs(3);
/// Images that pods are made from.
pub(crate) const IMAGES: u64 = 3;

/// What happens next.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Nothing for so many milliseconds.
    Wait(u64),
    /// A user makes the pod, or a file appears.
    Create(usize),
    /// A user deletes it with that grace, or its file goes.
    Delete(usize, u32),
    /// A container gets another image.
    Image(usize, usize),
    /// A container is to have another size.
    Resize(usize, usize, Size),
    /// The labels change.
    Label(usize),
    /// A debug container is put in.
    Guest(usize, Part),
    /// A running container ends by itself with that code.
    Exit(usize, i32),
    /// The pause process of a sandbox is killed.
    KillSandbox(usize),
    /// What a container's next processes do.
    Program(usize, usize, Lifetime),
    /// What a probe says from now on.
    Verdict(usize, usize, Kind, bool),
    /// Whether hooks of a container fail from now on.
    Hooks(usize, usize, bool),
    /// The agent is killed, and started again after so many milliseconds.
    Kill(u64),
}

/// A case.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) pods: Vec<Plan>,
    pub(crate) steps: Vec<Step>,
}

impl Case {
    pub(crate) fn random(seed: u64, pods: u64, steps: u64) -> Self {
        let mut dice = Dice::new(seed);
        let pods: Vec<Plan> = (0..pods).map(|number| plan(&mut dice, &format!("p{number}-{seed}"))).collect();
        let mut all: Vec<Step> = (0..pods.len()).map(Step::Create).collect();
        all.push(Step::Wait(1500));
        for number in 0..steps {
            all.push(Step::random(&mut dice, &pods));
            if dice.chance(60) {
                all.push(Step::Wait(dice.between(20, 900)));
            }
            // Never long without one.
            if number % 7 == 5 {
                all.push(Step::Kill(dice.pick(&[0, 100, 900])));
            }
        }
        Self { pods, steps: all }
    }
}

/// A pod as the generator throws it, and small enough.
fn plan(dice: &mut Dice, name: &str) -> Plan {
    let is_static = dice.chance(25);
    let mut plan = Plan::random(dice, name, is_static);
    plan.grace = dice.pick(&[1, 2, 3]);
    // A deadline would end the case's pods before there is anything to see.
    plan.deadline = None;
    let mut sized = 0;
    for part in &mut plan.parts {
        part.life = life(part.life.clone());
        if part.role != Role::Init {
            sized += u32::from(part.size.is_some());
        }
        // The machine must have room for all: plain init containers and all but one of the others go without.
        if part.role == Role::Init || sized > 1 {
            (part.size, part.anew) = (None, StartsAnew::default());
        }
        part.size = part.size.map(|_| size(dice));
        for (_, probe) in &mut part.probes {
            // Each costs a process of the runtime.
            probe.period = probe.period.max(3);
            probe.delay = probe.delay.min(1);
        }
        let short = |hook: Option<Hook>| {
            hook.map(|hook| match hook {
                Hook::Command => Hook::Command,
                Hook::Pause(seconds) => Hook::Pause(seconds.min(1)),
            })
        };
        (part.post_start, part.pre_stop) = (short(part.post_start), short(part.pre_stop));
    }
    plan
}

fn size(dice: &mut Dice) -> Size {
    Size { cpu: dice.pick(&[200, 300, 400]), memory: dice.pick(&[32, 64, 128]) }
}

fn life(life: Lifetime) -> Lifetime {
    let short = |time: Duration| time.min(LONGEST_LIFE);
    Lifetime {
        runs_for: life.runs_for.map(short),
        on_term: life.on_term.map(|(code, after)| (code, short(after))),
        ..life
    }
}

impl Step {
    fn random(dice: &mut Dice, pods: &[Plan]) -> Self {
        let pod = dice.index(pods.len());
        let part = dice.index(pods[pod].parts.len());
        match dice.below(100) {
            0..=14 => Self::Create(pod),
            15..=24 => Self::Delete(pod, dice.pick(&[0, 1, 1, 2, 30])),
            25..=32 => Self::Image(pod, part),
            33..=42 => Self::Resize(pod, part, if dice.chance(10) { Size::huge() } else { size(dice) }),
            43..=46 => Self::Label(pod),
            47..=50 => {
                let mut guest = Part::guest(dice, format!("g{}", dice.clone().below(1_000_000)));
                guest.life = life(guest.life);
                Self::Guest(pod, guest)
            }
            51..=66 => Self::Exit(dice.index(64), dice.pick(&[0, 0, 1, 3, 42, 137])),
            67..=71 => Self::KillSandbox(dice.index(64)),
            72..=81 => Self::Program(pod, part, life(Lifetime::random(dice, pods[pod].parts[part].role))),
            82..=95 => Self::Verdict(pod, part, dice.pick(&Kind::ALL), dice.chance(45)),
            _ => Self::Hooks(pod, part, dice.chance(50)),
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
