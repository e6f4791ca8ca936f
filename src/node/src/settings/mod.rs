//! The agent's effective settings: flags, configuration file, drop-ins, in the stock agent's order. Reads files once at
//! start; every fault is reported with file, line and column, and nothing is guessed.

mod acted;

use std::fs;
use std::path::{Path, PathBuf};

use longshore_api::flags::{FlagError, Flags, ProcessFlags};
use longshore_api::gates::Gates;
use longshore_api::kubelet_config::{self, ConfigError, KubeletConfiguration, PathStep};
use longshore_util::errors::ErrorList;
use longshore_util::yaml::{self, Step};
use serde_json::Value;

pub use acted::{FIELDS as ACTED_FIELDS, FLAGS as ACTED_FLAGS};

/// The largest number of drop-in files and folders that are looked at.
const MAX_DROP_INS: usize = 1000;
/// How deep the drop-in directory is walked; links to an upper folder end here.
const MAX_DEPTH: usize = 16;

/// What the agent runs with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The effective configuration.
    pub config: KubeletConfiguration,
    /// Flags that are no configuration fields.
    pub process: ProcessFlags,
    /// The value of every feature gate.
    pub gates: Gates,
    /// What to tell the user once, at start: deprecated flags, gates without effect, fields that are not acted on.
    pub warnings: Vec<String>,
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A bad command line.
    #[error(transparent)]
    Flags(#[from] FlagError),
    /// A file that cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file that is not YAML or JSON.
    #[error("{path}: {source}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: yaml::YamlError,
    },
    /// A field that is unknown, of a wrong type or out of range.
    #[error("{0}")]
    Field(String),
    /// More drop-ins than anybody has.
    #[error("{0}: more than {MAX_DROP_INS} files, is this the right directory?")]
    TooManyDropIns(PathBuf),
}

/// Reads everything that the flags name. All faults of one file are reported together.
pub fn load(flags: &Flags) -> Result<Settings, ErrorList<SettingsError>> {
    let mut value = match flags.process.config.as_str() {
        "" => kubelet_config::baseline(),
        path => main_file(Path::new(path))?,
    };
    if !flags.process.config_dir.is_empty() {
        let directory = Path::new(&flags.process.config_dir);
        for path in drop_ins(directory).map_err(single)? {
            let (text, document) = read(&path).map_err(single)?;
            kubelet_config::merge_drop_in(&mut value, document).map_err(|errors| placed(&path, &text, errors))?;
        }
    }
    flags.apply(&mut value);
    let config = kubelet_config::finish(value).map_err(|errors| {
        errors.into_iter().fold(ErrorList::new(), |mut list, error| {
            list.push(SettingsError::Field(format!("invalid configuration: {error}")));
            list
        })
    })?;
    let set = config.feature_gates.iter().map(|(name, value)| (name.as_str(), *value));
    // Cannot fail any more: the validation resolved the same map.
    let gates = Gates::resolve(set).unwrap_or_default();
    let mut warnings = flags.warnings.clone();
    warnings.extend(gates.warnings.iter().cloned());
    let mut idle: Vec<String> = config.set_but_not_acted_on(ACTED_FIELDS).into_iter().map(str::to_owned).collect();
    idle.extend(flags.set_but_not_acted_on(ACTED_FLAGS).into_iter().map(|name| format!("--{name}")));
    if !idle.is_empty() {
        warnings.push(format!("set, but not acted on by this version: {}", idle.join(", ")));
    }
    Ok(Settings { config, process: flags.process.clone(), gates, warnings })
}

fn single(error: SettingsError) -> ErrorList<SettingsError> {
    let mut list = ErrorList::new();
    list.push(error);
    list
}

fn main_file(path: &Path) -> Result<Value, ErrorList<SettingsError>> {
    let (text, document) = read(path).map_err(single)?;
    let mut value = kubelet_config::load(document).map_err(|errors| placed(path, &text, errors))?;
    // Relative paths start at the file, wherever the agent was started.
    let absolute =
        std::path::absolute(path).map_err(|source| single(SettingsError::Read { path: path.to_owned(), source }))?;
    if let Some(directory) = absolute.parent() {
        kubelet_config::resolve_paths(&mut value, &directory.to_string_lossy());
    }
    Ok(value)
}

fn read(path: &Path) -> Result<(String, Value), SettingsError> {
    let text = fs::read_to_string(path).map_err(|source| SettingsError::Read { path: path.to_owned(), source })?;
    let document = yaml::to_value(&text).map_err(|source| SettingsError::Syntax { path: path.to_owned(), source })?;
    Ok((text, document))
}

/// Adds file, line and column to faults of a document.
fn placed(path: &Path, text: &str, errors: Vec<ConfigError>) -> ErrorList<SettingsError> {
    let mut list = ErrorList::new();
    for error in errors {
        let steps: Vec<Step> = error
            .path
            .iter()
            .map(|step| match step {
                PathStep::Key(key) => Step::Key(key.clone()),
                PathStep::Index(index) => Step::Index(*index),
            })
            .collect();
        let place = yaml::locate(text, &steps).map(|position| format!("{position}: ")).unwrap_or_default();
        list.push(SettingsError::Field(format!("{}: {place}{error}", path.display())));
    }
    list
}

/// All `*.conf` files of a directory and those below, in the order of their paths.
fn drop_ins(directory: &Path) -> Result<Vec<PathBuf>, SettingsError> {
    let mut found = Vec::new();
    let mut open = vec![(directory.to_owned(), 0)];
    let mut seen = 0;
    while let Some((folder, depth)) = open.pop() {
        let failed = |source| SettingsError::Read { path: folder.clone(), source };
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            seen += 1;
            if seen > MAX_DROP_INS {
                return Err(SettingsError::TooManyDropIns(directory.to_owned()));
            }
            if path.is_dir() {
                if depth < MAX_DEPTH {
                    open.push((path, depth + 1));
                }
            } else if path.extension().is_some_and(|extension| extension == "conf") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests;
