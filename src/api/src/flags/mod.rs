//! The kubelet's command line: every flag with pflag's habits, deprecated ones with a warning, and the configuration
//! fields they override. Parsing yields plain data; nothing is read or printed here.

mod parse;
mod table;
mod values;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::duration::GoDuration;
use crate::kubelet_config::override_field;

pub use parse::parse;

/// How the value of a flag is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Bool,
    Int,
    Duration,
    Ip,
    Quantity,
    /// Separated by commas, repeatable.
    Texts,
    /// `k=v,…` for the process itself, repeatable.
    Map,
    /// `k=v,…`, repeatable.
    Pairs,
    /// `k=true,…`
    Gates,
    /// `signal<value,…`
    Evictions,
    /// `Name:value,…`, repeatable.
    Headers,
    /// `key=value:Effect,…`
    Taints,
    /// `0:memory=1Gi,…;1:…`, repeatable.
    NumaMemory,
    /// `pattern=level,…`
    Levels,
    /// `true`, `false`, `raw` or a version.
    Version,
}

/// A row of the table.
#[derive(Debug)]
struct Flag {
    name: &'static str,
    kind: Kind,
    default: &'static str,
    deprecated: bool,
    /// The configuration field it sets; empty for the process's own flags.
    field: &'static str,
}

/// A command line that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// No such flag.
    #[error("unknown flag: --{name}{}", hint.as_ref().map(|hint| format!(" (did you mean --{hint}?)")).unwrap_or_default())]
    Unknown {
        /// As given.
        name: String,
        /// The flag that is most like it.
        hint: Option<&'static str>,
    },
    /// A flag that older versions had.
    #[error("unknown flag: --{name} ({why})")]
    Removed {
        /// As given.
        name: String,
        /// What took its place.
        why: &'static str,
    },
    /// The command line ends where a value is needed.
    #[error("flag needs an argument: --{0}")]
    NoValue(String),
    /// A value that does not fit.
    #[error("invalid argument {value:?} for \"--{name}\" flag: {why}")]
    BadValue {
        /// The flag.
        name: &'static str,
        /// As given.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// A word that is no flag.
    #[error("unknown command {0:?}: the agent takes flags only")]
    Positional(String),
    /// Node labels that a node may not give itself.
    #[error(
        "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [{0}]\n--node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix (kubelet.kubernetes.io, node.kubernetes.io) or be in the specifically allowed set"
    )]
    Labels(String),
}

/// What `--version` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionRequest {
    /// Print the version and end.
    Print,
    /// Print all parts of the version and end.
    Raw,
    /// Go on, but report this version.
    Report(String),
}

/// The flags that are not configuration fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessFlags {
    /// The configuration file; empty: none.
    pub config: String,
    /// The directory of drop-ins; empty: none.
    pub config_dir: String,
    /// Credentials for the apiserver; empty: standalone.
    pub kubeconfig: String,
    /// Credentials to obtain the first client certificate with.
    pub bootstrap_kubeconfig: String,
    /// The node's name instead of the host's.
    pub hostname_override: String,
    /// One address, a pair, or a family preference.
    pub node_ip: String,
    /// Directory of the agent's certificates.
    pub cert_dir: String,
    /// `` or `external`.
    pub cloud_provider: String,
    /// The agent's data directory.
    pub root_dir: String,
    /// Labels for registration.
    pub node_labels: BTreeMap<String, String>,
    /// A file to lock before starting.
    pub lock_file: String,
    /// End when another process wants the lock.
    pub exit_on_lock_contention: bool,
    /// The runtime's own cgroup.
    pub runtime_cgroups: String,
    /// Credential provider configuration.
    pub image_credential_provider_config: String,
    /// Directory of credential provider binaries.
    pub image_credential_provider_bin_dir: String,
    /// Least age of a dead container before it is removed.
    pub minimum_container_ttl: GoDuration,
    /// Dead containers kept for each container.
    pub maximum_dead_containers_per_container: i64,
    /// Dead containers kept in all; negative: no cap.
    pub maximum_dead_containers: i64,
    /// `RuntimeDefault` for pods without a profile, in addition to the configuration field.
    pub seccomp_default: bool,
    /// Allocatable ignores hard eviction thresholds.
    pub allocatable_ignores_eviction: bool,
}

impl Default for ProcessFlags {
    fn default() -> Self {
        Self {
            config: String::new(),
            config_dir: String::new(),
            kubeconfig: String::new(),
            bootstrap_kubeconfig: String::new(),
            hostname_override: String::new(),
            node_ip: String::new(),
            cert_dir: "/var/lib/kubelet/pki".to_owned(),
            cloud_provider: String::new(),
            root_dir: "/var/lib/kubelet".to_owned(),
            node_labels: BTreeMap::new(),
            lock_file: String::new(),
            exit_on_lock_contention: false,
            runtime_cgroups: String::new(),
            image_credential_provider_config: String::new(),
            image_credential_provider_bin_dir: String::new(),
            minimum_container_ttl: GoDuration::ZERO,
            maximum_dead_containers_per_container: 1,
            maximum_dead_containers: -1,
            seccomp_default: false,
            allocatable_ignores_eviction: false,
        }
    }
}

/// A command line as data.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flags {
    /// The process's own flags.
    pub process: ProcessFlags,
    /// Configuration fields that flags set, by path; they win over every file.
    pub overrides: BTreeMap<&'static str, Value>,
    /// The names of all flags given, in order.
    pub given: Vec<&'static str>,
    /// What to tell the user on stderr.
    pub warnings: Vec<String>,
    /// `--help`.
    pub help: bool,
    /// `--version`, if it asks for something.
    pub version: Option<VersionRequest>,
}

impl Flags {
    /// Sets the fields that flags give over a configuration in JSON form.
    pub fn apply(&self, config: &mut Value) {
        for (path, value) in &self.overrides {
            override_field(config, path, value.clone());
        }
    }

    /// The flags of the process's own that were given and that nothing acts on.
    pub fn set_but_not_acted_on(&self, acted: &[&str]) -> Vec<&'static str> {
        let own = |name: &&&str| table::FLAGS.iter().any(|flag| flag.name == **name && flag.field.is_empty());
        self.given.iter().filter(own).filter(|name| !acted.contains(*name)).copied().collect()
    }
}

/// Every flag: name, the configuration field it sets (empty: the process's own), default as help shows it.
pub fn table() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    table::FLAGS.iter().map(|flag| (flag.name, flag.field, flag.default))
}

/// The lines of `--help`: each flag with its default, configuration fields named.
pub fn help() -> String {
    let mut text = String::from("Usage: longshore agent [flags]\n\nFlags:\n");
    for flag in table::FLAGS {
        let name = if flag.name == "v" { "-v, --v".to_owned() } else { format!("    --{}", flag.name) };
        let default = if flag.default.is_empty() { String::new() } else { format!(" (default {})", flag.default) };
        let meaning =
            if flag.field.is_empty() { String::new() } else { format!(" sets the configuration field {}", flag.field) };
        let note = if flag.deprecated { " [deprecated]" } else { "" };
        text.push_str(&name);
        text.push_str(&meaning);
        text.push_str(&default);
        text.push_str(note);
        text.push('\n');
    }
    text
}

/// The candidate that is most like `text`, if one is near enough to be a slip: few edits, or the same but for case.
pub(crate) fn closest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = 1 + text.len() / 6;
    let lower = text.to_lowercase();
    let near = candidates.into_iter().map(|candidate| (edits(&lower, &candidate.to_lowercase()), candidate));
    near.filter(|(edits, _)| *edits <= allowed).min_by_key(|(edits, _)| *edits).map(|(_, candidate)| candidate)
}

/// The number of insertions, deletions and replacements between two texts.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (line, left) in a.chars().take(200).enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, right) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests;
