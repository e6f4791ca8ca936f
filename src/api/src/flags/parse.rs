//! Reading of a command line.

use serde_json::{Map, Value};

use super::table::FLAGS;
use super::values::{self, BadValue};
use super::{Flag, FlagError, Flags, Kind, VersionRequest, closest};
use crate::duration::GoDuration;

/// Flags of older versions that installers may still pass.
const REMOVED: &[(&str, &str)] = &[
    ("pod-infra-container-image", "the pause image is set in the container runtime's configuration"),
    ("container-runtime", "every runtime is reached through --container-runtime-endpoint"),
    ("network-plugin", "CNI is configured in the container runtime"),
    ("keep-terminated-pod-volumes", "it was removed without replacement"),
    ("register-schedulable", "use --register-with-taints"),
    ("iptables-masquerade-bit", "it was removed without replacement"),
    ("iptables-drop-bit", "it was removed without replacement"),
    ("cloud-config", "cloud providers run as separate controllers"),
    ("really-crash-for-testing", "it was removed without replacement"),
    ("runtime-cgroup", "use --runtime-cgroups"),
];

/// Reads the arguments (without the program's name).
pub fn parse<I, S>(arguments: I) -> Result<Flags, FlagError>
where
    I: IntoIterator<Item = S>,
    S: AsRef<str>,
{
    let mut flags = Flags::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let argument = argument.as_ref();
        let (name, inline) = split(argument)?;
        // As pflag's normalisation in the kubelet: `_` is `-`.
        let name = name.replace('_', "-");
        if name == "help" || name == "h" {
            flags.help = inline.is_none_or(|value| value != "false");
            continue;
        }
        let Some(flag) = FLAGS.iter().find(|flag| flag.name == name) else { return Err(unknown(name)) };
        let value = match inline {
            Some(value) => value.to_owned(),
            None if matches!(flag.kind, Kind::Bool | Kind::Version) => "true".to_owned(),
            None => match arguments.next() {
                Some(value) => value.as_ref().to_owned(),
                None => return Err(FlagError::NoValue(flag.name.to_owned())),
            },
        };
        flags.take(flag, &value).map_err(|BadValue(why)| FlagError::BadValue { name: flag.name, value, why })?;
        if flag.deprecated && !flags.given.contains(&flag.name) {
            flags.warnings.push(deprecation(flag));
        }
        if !flags.given.contains(&flag.name) {
            flags.given.push(flag.name);
        }
    }
    values::check_labels(&flags.process.node_labels)?;
    Ok(flags)
}

/// Splits `--name=value`, `--name`, `-v=2`, `-v2`.
fn split(argument: &str) -> Result<(&str, Option<&str>), FlagError> {
    if let Some(long) = argument.strip_prefix("--") {
        if long.is_empty() || long.starts_with(['-', '=']) {
            return Err(FlagError::Positional(argument.to_owned()));
        }
        return Ok(long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value))));
    }
    match argument.strip_prefix('-') {
        Some("h") => Ok(("help", None)),
        Some("v") => Ok(("v", None)),
        Some(short) if short.starts_with('v') => Ok(("v", Some(short[1..].trim_start_matches('=')))),
        Some(short) if !short.is_empty() => Err(unknown(short.to_owned())),
        _ => Err(FlagError::Positional(argument.to_owned())),
    }
}

fn unknown(name: String) -> FlagError {
    if let Some((_, why)) = REMOVED.iter().find(|(removed, _)| *removed == name) {
        return FlagError::Removed { name, why };
    }
    if name.starts_with("cni-") {
        return FlagError::Removed { name, why: "CNI is configured in the container runtime" };
    }
    let hint = closest(&name, FLAGS.iter().map(|flag| flag.name));
    FlagError::Unknown { name, hint }
}

fn deprecation(flag: &Flag) -> String {
    let name = flag.name;
    if flag.field.is_empty() {
        return format!("Flag --{name} has been deprecated, will be removed in a future version");
    }
    format!(
        "Flag --{name} has been deprecated, This parameter should be set via the config file specified by the Kubelet's --config flag (field {}).",
        flag.field
    )
}

impl Flags {
    fn take(&mut self, flag: &Flag, text: &str) -> Result<(), BadValue> {
        if flag.field.is_empty() {
            return self.take_own(flag, text);
        }
        let first = !self.given.contains(&flag.name);
        let value = match flag.kind {
            Kind::Texts | Kind::Taints | Kind::NumaMemory | Kind::Levels => {
                // The first use replaces the default, later ones append.
                let mut items = match self.overrides.remove(flag.field) {
                    Some(Value::Array(items)) if !first => items,
                    _ => Vec::new(),
                };
                items.extend(values::list(flag.kind, text)?);
                Value::Array(items)
            }
            Kind::Map | Kind::Pairs | Kind::Gates | Kind::Evictions | Kind::Headers => {
                let mut entries = match self.overrides.remove(flag.field) {
                    Some(Value::Object(entries)) if !first => entries,
                    _ => Map::new(),
                };
                values::map(flag.kind, text, &mut entries)?;
                Value::Object(entries)
            }
            Kind::Text | Kind::Bool | Kind::Int | Kind::Duration | Kind::Ip | Kind::Quantity | Kind::Version => {
                values::scalar(flag.kind, text)?
            }
        };
        self.overrides.insert(flag.field, value);
        Ok(())
    }

    /// Takes a flag that is no configuration field. Values of flags that are accepted for compatibility are checked, too.
    fn take_own(&mut self, flag: &Flag, text: &str) -> Result<(), BadValue> {
        let process = &mut self.process;
        let truth = || values::truth(text);
        let place = match flag.name {
            "config" => &mut process.config,
            "config-dir" => &mut process.config_dir,
            "kubeconfig" => &mut process.kubeconfig,
            "bootstrap-kubeconfig" => &mut process.bootstrap_kubeconfig,
            "hostname-override" => &mut process.hostname_override,
            "node-ip" => &mut process.node_ip,
            "cert-dir" => &mut process.cert_dir,
            "cloud-provider" if text.is_empty() || text == "external" => &mut process.cloud_provider,
            "cloud-provider" => return Err(BadValue("only \"external\" or nothing is supported".to_owned())),
            "root-dir" => &mut process.root_dir,
            "lock-file" => &mut process.lock_file,
            "runtime-cgroups" => &mut process.runtime_cgroups,
            "image-credential-provider-config" => &mut process.image_credential_provider_config,
            "image-credential-provider-bin-dir" => &mut process.image_credential_provider_bin_dir,
            "seccomp-default" => return truth().map(|value| process.seccomp_default = value),
            "exit-on-lock-contention" => return truth().map(|value| process.exit_on_lock_contention = value),
            "experimental-allocatable-ignore-eviction" => {
                return truth().map(|value| process.allocatable_ignores_eviction = value);
            }
            "minimum-container-ttl-duration" => {
                process.minimum_container_ttl = GoDuration::parse(text).map_err(|error| BadValue(error.to_string()))?;
                return Ok(());
            }
            "maximum-dead-containers-per-container" => {
                return values::integer(text).map(|value| process.maximum_dead_containers_per_container = value);
            }
            "maximum-dead-containers" => {
                return values::integer(text).map(|value| process.maximum_dead_containers = value);
            }
            "node-labels" => {
                let mut entries = Map::new();
                values::map(Kind::Map, text, &mut entries)?;
                let labels =
                    entries.into_iter().map(|(key, value)| (key, value.as_str().unwrap_or_default().to_owned()));
                process.node_labels.extend(labels);
                return Ok(());
            }
            "version" => {
                self.version = match text {
                    "true" => Some(VersionRequest::Print),
                    "false" => None,
                    "raw" => Some(VersionRequest::Raw),
                    other if other.starts_with('v') => Some(VersionRequest::Report(other.to_owned())),
                    _ => return Err(BadValue("wanted true, false, raw or a version like v1.36.0".to_owned())),
                };
                return Ok(());
            }
            _ => return values::scalar(flag.kind, text).map(drop),
        };
        text.clone_into(place);
        Ok(())
    }
}
