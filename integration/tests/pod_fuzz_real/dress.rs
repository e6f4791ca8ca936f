//! Pods for a real runtime: busybox under several names, and programs, verdicts of probes and hooks in a folder of the
//! machine that every container sees as `/s`, so that they can change while the pods run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use longshore_integration::fuzz::{Dress, Kind, Lifetime, Part, Plan};
use serde_json::{Value, json};

/// The folder of programs.
#[derive(Debug, Clone)]
pub(crate) struct Scripts(pub(crate) PathBuf);

/// Codes with which a process ends when it gets a signal; SIGKILL does the rest.
pub(crate) const SIGNALS: [(i32, &str); 4] = [(0, "HUP"), (1, "USR1"), (3, "USR2"), (42, "QUIT")];

/// The name of an image.
pub(crate) fn image(number: u64) -> String {
    format!("localhost/busybox:f{number}")
}

impl Dress for Scripts {
    fn image(&self, number: u64) -> String {
        image(number)
    }

    fn command(&self, part: &Part) -> Option<Vec<String>> {
        Some(vec!["sh".to_owned(), format!("/s/{}", part.name)])
    }

    fn probe(&self, part: &Part, kind: Kind) -> Vec<String> {
        let test = format!("[ ! -e /s/{} ]", bad_probe(&part.name, kind));
        vec!["sh".to_owned(), "-c".to_owned(), test]
    }

    fn hook(&self, part: &Part, _when: &str) -> Vec<String> {
        let test = format!("[ ! -e /s/{} ]", bad_hook(&part.name));
        vec!["sh".to_owned(), "-c".to_owned(), test]
    }
}

/// The file that has a probe say no.
pub(crate) fn bad_probe(name: &str, kind: Kind) -> String {
    format!("{name}.{}", kind.word())
}

/// The file that has a container's hooks fail.
pub(crate) fn bad_hook(name: &str) -> String {
    format!("{name}.hook")
}

fn seconds(time: Duration) -> String {
    format!("{}.{:03}", time.as_secs(), time.subsec_millis())
}

impl Scripts {
    /// Sets what the next processes of a container do. Those that run go on reading the file they began with.
    pub(crate) fn program(&self, name: &str, life: &Lifetime) -> Result<()> {
        let signals = SIGNALS.map(|(code, signal)| format!("trap 'exit {code}' {signal}")).join("\n");
        let on_term = match life.on_term {
            None => "trap '' TERM".to_owned(),
            Some((code, after)) if after.is_zero() => format!("trap 'exit {code}' TERM"),
            Some((code, after)) => format!("trap 'sleep {}; exit {code}' TERM", seconds(after)),
        };
        let life = match life.runs_for {
            None => "while :; do sleep 3600 & wait $!; done".to_owned(),
            Some(time) => format!("sleep {} & wait $!; exit {}", seconds(time), life.code),
        };
        let text = format!("{signals}\n{on_term}\n{life}\n");
        self.put(name, &text)
    }

    /// Puts a file there at once, wholly.
    pub(crate) fn put(&self, name: &str, text: &str) -> Result<()> {
        let (new, place) = (self.0.join(format!(".{name}")), self.0.join(name));
        std::fs::write(&new, text)?;
        Ok(std::fs::rename(new, place)?)
    }

    /// Takes a file away.
    pub(crate) fn take(&self, name: &str) {
        drop(std::fs::remove_file(self.0.join(name)));
    }

    fn mounted(&self, container: &mut Value) {
        container["volumeMounts"] = json!([{"name": "s", "mountPath": "/s"}]);
        for kind in Kind::ALL {
            let probe = &mut container[format!("{}Probe", kind.word())];
            if probe.is_object() {
                // A loaded machine is slow, which says nothing of the agent.
                probe["timeoutSeconds"] = json!(30);
            }
        }
    }

    /// A container of the spec.
    pub(crate) fn guest(&self, plan: &Plan, name: &str) -> Value {
        let object = self.object(plan, "", None);
        let guests = object["spec"]["ephemeralContainers"].as_array();
        guests.into_iter().flatten().find(|guest| guest["name"] == name).cloned().unwrap_or(Value::Null)
    }

    /// The object of a plan; `node` is for pods of the API.
    pub(crate) fn object(&self, plan: &Plan, uid: &str, node: Option<&str>) -> Value {
        let mut object = plan.object(uid, self);
        let spec = &mut object["spec"];
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                self.mounted(container);
                let fields = container.as_object_mut().into_iter();
                fields.for_each(|fields| fields.retain(|_, value| !value.is_null()));
            }
        }
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|_, value| !value.is_null());
        }
        spec["volumes"] = json!([{"name": "s", "hostPath": {"path": self.0, "type": "Directory"}}]);
        spec["automountServiceAccountToken"] = json!(false);
        if let Some(node) = node {
            spec["nodeName"] = json!(node);
        }
        object
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }
}
