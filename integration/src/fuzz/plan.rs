//! Random pods: how many containers, which restart what, what their processes do, which probes and hooks they have.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Dice, Size, StartsAnew};

/// A restart policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Always.
    Always,
    /// After a failure.
    OnFailure,
    /// Never.
    Never,
}

impl Policy {
    /// The API's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::OnFailure => "OnFailure",
            Self::Never => "Never",
        }
    }
}

/// The part that a container plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Runs to success before the next one.
    Init,
    /// An init container that keeps running.
    Sidecar,
    /// A main container.
    Main,
    /// A debug container put into the running pod.
    Guest,
}

/// The kinds of probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Before the others.
    Startup,
    /// Kills.
    Liveness,
    /// Takes traffic away.
    Readiness,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    /// As the API's field begins.
    pub fn word(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Liveness => "liveness",
            Self::Readiness => "readiness",
        }
    }
}

/// A rule by exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The codes.
    pub codes: Vec<i32>,
    /// All codes but these.
    pub but: bool,
    /// The whole pod begins anew.
    pub all: bool,
}

/// A hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// A command.
    Command,
    /// A pause of so many seconds.
    Pause(u32),
}

/// A probe's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbePlan {
    /// Seconds between two.
    pub period: u32,
    /// Seconds before the first.
    pub delay: u32,
    /// Failures that count.
    pub failures: u32,
    /// Its own grace.
    pub grace: Option<u32>,
}

/// What a process does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifetime {
    /// It ends by itself after this time.
    pub runs_for: Option<Duration>,
    /// With this code.
    pub code: i32,
    /// What it does when asked to end: code and time; nothing = it does not listen.
    pub on_term: Option<(i32, Duration)>,
}

/// A container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name; no other container of the case has it.
    pub name: String,
    /// Its part.
    pub role: Role,
    /// Its own restart policy.
    pub policy: Option<Policy>,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// Number of its image.
    pub image: u64,
    /// Its size.
    pub size: Option<Size>,
    /// What it starts anew for when it gets another one.
    pub anew: StartsAnew,
    /// Probes by kind.
    pub probes: Vec<(Kind, ProbePlan)>,
    /// Hook after the start.
    pub post_start: Option<Hook>,
    /// Hook before the stop.
    pub pre_stop: Option<Hook>,
    /// What its process does.
    pub life: Lifetime,
}

impl Part {
    /// Its probe of that kind.
    pub fn probe(&self, kind: Kind) -> Option<ProbePlan> {
        self.probes.iter().find(|(own, _)| *own == kind).map(|(_, probe)| *probe)
    }
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// It comes from a file.
    pub is_static: bool,
    /// Its restart policy.
    pub policy: Policy,
    /// Its grace in seconds.
    pub grace: u32,
    /// How many seconds it may be active.
    pub deadline: Option<u32>,
    /// It has the host's network.
    pub host_network: bool,
    /// Grows with each change of its labels.
    pub label: u64,
    /// Containers: init ones in order, then main ones.
    pub parts: Vec<Part>,
    /// Debug containers.
    pub guests: Vec<Part>,
}

/// How a plan becomes an object that a certain runtime can run.
pub trait Dress {
    /// The name of an image.
    fn image(&self, number: u64) -> String;
    /// What a container runs; nothing = what the image says.
    fn command(&self, part: &Part) -> Option<Vec<String>>;
    /// The command of a probe.
    fn probe(&self, part: &Part, kind: Kind) -> Vec<String>;
    /// The command of a hook, `post` or `pre`.
    fn hook(&self, part: &Part, when: &str) -> Vec<String>;
}

impl Plan {
    /// Throws a pod.
    pub fn random(dice: &mut Dice, name: &str, is_static: bool) -> Self {
        let policy = dice.pick(&[Policy::Always, Policy::Always, Policy::OnFailure, Policy::Never]);
        let inits = if dice.chance(50) { dice.between(1, 4) } else { 0 };
        let mains = dice.between(1, 3);
        let mut parts = Vec::new();
        for index in 0..inits {
            let role = if dice.chance(40) { Role::Sidecar } else { Role::Init };
            parts.push(Part::random(dice, format!("i{index}-{name}"), role));
        }
        for index in 0..mains {
            parts.push(Part::random(dice, format!("c{index}-{name}"), Role::Main));
        }
        for part in parts.iter_mut().filter(|part| part.size.is_some() && part.may_start_anew(policy)) {
            part.anew = StartsAnew::random(dice);
        }
        Self {
            name: name.to_owned(),
            is_static,
            policy,
            grace: dice.pick(&[1, 2, 5, 5, 30]),
            deadline: if dice.chance(8) { Some(u32::try_from(dice.between(1, 60)).unwrap_or(1)) } else { None },
            host_network: dice.chance(10),
            label: 0,
            parts,
            guests: Vec::new(),
        }
    }

    /// A container by name.
    pub fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().chain(&self.guests).find(|part| part.name == name)
    }

    /// The policy that counts for a container.
    pub fn policy_of(&self, part: &Part) -> Policy {
        match (part.role, part.policy) {
            (Role::Sidecar, _) => Policy::Always,
            (Role::Guest, _) => Policy::Never,
            (_, Some(own)) => own,
            (Role::Init, None) if self.policy == Policy::Never => Policy::Never,
            (Role::Init, None) => Policy::OnFailure,
            (Role::Main, None) => self.policy,
        }
    }

    /// The object, as the API or a file has it.
    pub fn object(&self, uid: &str, dress: &dyn Dress) -> Value {
        let of = |role: fn(Role) -> bool| -> Vec<Value> {
            self.parts.iter().filter(|part| role(part.role)).map(|part| part.object(dress)).collect()
        };
        let mut spec = json!({
            "restartPolicy": self.policy.word(), "terminationGracePeriodSeconds": self.grace,
            "initContainers": of(|role| matches!(role, Role::Init | Role::Sidecar)),
            "containers": of(|role| role == Role::Main),
        });
        if let Some(deadline) = self.deadline {
            spec["activeDeadlineSeconds"] = json!(deadline);
        }
        if self.host_network {
            spec["hostNetwork"] = json!(true);
        }
        if !self.guests.is_empty() {
            let guests: Vec<Value> = self.guests.iter().map(|guest| guest.object(dress)).collect();
            spec["ephemeralContainers"] = json!(guests);
        }
        let labels = json!({"round": self.label.to_string()});
        let mut metadata = json!({"name": self.name, "namespace": "default", "labels": labels});
        if !uid.is_empty() {
            metadata["uid"] = json!(uid);
        }
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    }
}

impl Part {
    fn random(dice: &mut Dice, name: String, role: Role) -> Self {
        let mut part = Self {
            name,
            role,
            policy: None,
            rules: Vec::new(),
            image: dice.below(2),
            size: dice.chance(60).then(|| Size::random(dice)),
            anew: StartsAnew::default(),
            probes: Vec::new(),
            post_start: None,
            pre_stop: None,
            life: Lifetime::random(dice, role),
        };
        if role != Role::Sidecar && dice.chance(20) {
            let own = [Policy::OnFailure, Policy::Never, Policy::Always];
            part.policy = Some(dice.pick(if role == Role::Init { &own[..2] } else { &own }));
            for _ in 0..dice.below(3) {
                part.rules.push(Rule {
                    codes: vec![dice.pick(&[0, 1, 3, 42])],
                    but: dice.chance(20),
                    all: dice.chance(30),
                });
            }
        }
        if role != Role::Init {
            for kind in Kind::ALL {
                if dice.chance(25) {
                    part.probes.push((kind, ProbePlan::random(dice, kind)));
                }
            }
            let hook =
                |dice: &mut Dice| if dice.chance(60) { Hook::Command } else { Hook::Pause(dice.pick(&[0, 1, 7])) };
            part.post_start = dice.chance(15).then(|| hook(dice));
            part.pre_stop = dice.chance(20).then(|| hook(dice));
        }
        part
    }

    /// A debug container.
    pub fn guest(dice: &mut Dice, name: String) -> Self {
        let life = Lifetime { runs_for: Some(Duration::from_millis(dice.between(1, 5000))), ..Lifetime::steady() };
        Self {
            name,
            role: Role::Guest,
            policy: None,
            rules: Vec::new(),
            image: 0,
            size: None,
            anew: StartsAnew::default(),
            probes: Vec::new(),
            post_start: None,
            pre_stop: None,
            life,
        }
    }

    fn object(&self, dress: &dyn Dress) -> Value {
        let mut object = Map::new();
        object.insert("name".into(), json!(self.name));
        object.insert("image".into(), json!(dress.image(self.image)));
        if let Some(command) = dress.command(self) {
            object.insert("command".into(), json!(command));
        }
        if let Some(size) = self.size {
            object.insert("resources".into(), size.object());
            if self.anew != StartsAnew::default() {
                object.insert("resizePolicy".into(), self.anew.object());
            }
        }
        let policy = if self.role == Role::Sidecar { Some(Policy::Always) } else { self.policy };
        if let Some(policy) = policy {
            object.insert("restartPolicy".into(), json!(policy.word()));
        }
        if !self.rules.is_empty() {
            let rules: Vec<Value> = self.rules.iter().map(Rule::object).collect();
            object.insert("restartPolicyRules".into(), json!(rules));
        }
        for (kind, probe) in &self.probes {
            let mut fields = json!({
                "exec": {"command": dress.probe(self, *kind)}, "periodSeconds": probe.period,
                "initialDelaySeconds": probe.delay, "failureThreshold": probe.failures,
            });
            if let Some(grace) = probe.grace {
                fields["terminationGracePeriodSeconds"] = json!(grace);
            }
            object.insert(format!("{}Probe", kind.word()), fields);
        }
        let handler = |hook: Hook, when: &str| match hook {
            Hook::Command => json!({"exec": {"command": dress.hook(self, when)}}),
            Hook::Pause(seconds) => json!({"sleep": {"seconds": seconds}}),
        };
        let mut hooks = Map::new();
        if let Some(hook) = self.post_start {
            hooks.insert("postStart".into(), handler(hook, "post"));
        }
        if let Some(hook) = self.pre_stop {
            hooks.insert("preStop".into(), handler(hook, "pre"));
        }
        if !hooks.is_empty() {
            object.insert("lifecycle".into(), Value::Object(hooks));
        }
        Value::Object(object)
    }
}

impl Rule {
    fn object(&self) -> Value {
        json!({
            "action": if self.all { "RestartAllContainers" } else { "Restart" },
            "exitCodes": {"operator": if self.but { "NotIn" } else { "In" }, "values": self.codes},
        })
    }

    /// Whether it is for an exit code.
    pub fn is_for(&self, code: i32) -> bool {
        self.codes.contains(&code) != self.but
    }
}

impl ProbePlan {
    fn random(dice: &mut Dice, kind: Kind) -> Self {
        Self {
            period: dice.pick(&[2, 3, 5, 10]),
            delay: dice.pick(&[0, 0, 1, 4]),
            failures: dice.pick(&[1, 2, 3]),
            grace: if kind != Kind::Readiness && dice.chance(20) { Some(dice.pick(&[1, 3])) } else { None },
        }
    }
}

impl Lifetime {
    /// Runs for ever and ends at once when asked to.
    pub fn steady() -> Self {
        Self { runs_for: None, code: 0, on_term: Some((0, Duration::ZERO)) }
    }

    /// Ends well after a moment.
    pub fn short() -> Self {
        Self { runs_for: Some(Duration::from_millis(100)), ..Self::steady() }
    }

    /// Throws one.
    pub fn random(dice: &mut Dice, role: Role) -> Self {
        let ends = match role {
            Role::Init => 97,
            Role::Sidecar => 25,
            Role::Main | Role::Guest => 45,
        };
        let runs_for = dice.chance(ends).then(|| {
            Duration::from_millis(match dice.below(4) {
                0 => dice.below(5),
                1 => dice.below(500),
                2 => dice.below(8000),
                _ => dice.below(9000),
            })
        });
        let good = if role == Role::Init { 75 } else { 40 };
        let code = if dice.chance(good) { 0 } else { dice.pick(&[1, 3, 42, 137]) };
        let on_term = match dice.below(10) {
            0 => None,
            1..=3 => Some((dice.pick(&[0, 143]), Duration::from_millis(dice.below(6000)))),
            _ => Some((dice.pick(&[0, 0, 143]), Duration::ZERO)),
        };
        Self { runs_for, code, on_term }
    }
}
