//! YAML and JSON as Kubernetes reads them: octal `0644`, `yes` is true, duplicate keys refused, positions in errors.
//! The only module that knows the YAML crate; input is hostile, so size, depth and alias replay are bounded.

mod json;
mod locate;

use serde_json::Value;
use serde_saphyr::options::{AliasLimits, DuplicateKeyPolicy};

pub use locate::{Position, Step, locate};

/// The largest document that is read.
pub const MAX_BYTES: usize = 10 * 1024 * 1024;
/// The deepest nesting that is read; our own recursive walks rely on it.
const MAX_DEPTH: usize = 100;
/// Stack for reading: a level costs up to some 40 KiB in an unoptimised build, more than a worker thread has.
const STACK_BYTES: usize = 16 * 1024 * 1024;
/// Events that aliases may add in all. Manifests use a handful of aliases; a bomb needs millions.
const MAX_REPLAYED: usize = 50_000;
/// Nodes of one input: a decoded node costs some 100 bytes, so this bounds the memory of one manifest.
const MAX_NODES: usize = 500_000;

/// Text that is not usable YAML or JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// Larger than [`MAX_BYTES`].
    #[error("document of {0} bytes is larger than the limit of {MAX_BYTES} bytes")]
    TooLarge(usize),
    /// Not well-formed, with a duplicate key, or over a limit.
    #[error("{position}: {message}")]
    Invalid {
        /// Where it was noticed.
        position: Position,
        /// What is wrong.
        message: String,
    },
    /// A single document was wanted.
    #[error("{0} documents found where one is wanted")]
    Several(usize),
    /// No thread could be started for reading; worth a retry.
    #[error("cannot read YAML: {0}")]
    Thread(String),
    /// A value that YAML cannot express.
    #[error("cannot write YAML: {0}")]
    Write(String),
}

/// Reads one document; text without one gives `Null`.
pub fn to_value(text: &str) -> Result<Value, YamlError> {
    if let Some(value) = read_json(text)? {
        return Ok(value);
    }
    let mut documents = documents(text)?;
    match documents.len() {
        0 => Ok(Value::Null),
        1 => Ok(documents.remove(0)),
        several => Err(YamlError::Several(several)),
    }
}

/// Reads all documents of a stream separated by `---`, leaving out empty ones.
pub fn documents(text: &str) -> Result<Vec<Value>, YamlError> {
    if let Some(value) = read_json(text)? {
        return Ok(vec![value]);
    }
    let documents: Vec<Value> =
        on_own_stack(|| serde_saphyr::from_multiple_with_options(text, options()).map_err(invalid))??;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Writes a value as one YAML document, in a form that YAML 1.1 readers take for the same value.
pub fn to_string(value: &Value) -> Result<String, YamlError> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: true, compact_list_indent: true };
    serde_saphyr::to_string_with_options(value, options).map_err(|error| YamlError::Write(error.to_string()))
}

/// Reads text that looks like JSON as JSON, which YAML readers take only in part (tabs, long keys). `None`: read it as YAML.
fn read_json(text: &str) -> Result<Option<Value>, YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError::TooLarge(text.len()));
    }
    if !text.trim_start().starts_with('{') {
        return Ok(None);
    }
    match json::read(text) {
        Ok(value) => Ok(Some(value)),
        // A flow mapping like `{a: b}`, or broken JSON: the YAML reader decides and places the error.
        Err(error) if error.is_syntax() => Ok(None),
        Err(error) => {
            let message = error.to_string();
            // The crate writes its own position at the end of the text.
            let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message).to_owned();
            let position = Position { line: error.line(), column: error.column() };
            Err(YamlError::Invalid { position, message })
        }
    }
}

/// Runs a reader on a thread with a stack that fits [`MAX_DEPTH`], however deep the caller's already is. Address space
/// only: pages are used as far as the input is deep.
fn on_own_stack<T: Send>(read: impl FnOnce() -> T + Send) -> Result<T, YamlError> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("yaml".to_owned()).stack_size(STACK_BYTES);
        let reader = builder.spawn_scoped(scope, read).map_err(|error| YamlError::Thread(error.to_string()))?;
        reader.join().map_err(|_| YamlError::Thread("the reader panicked".to_owned()))
    })
}

fn options() -> serde_saphyr::Options {
    let mut limits = AliasLimits::default();
    limits.max_total_replayed_events = MAX_REPLAYED;
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: Some(MAX_BYTES),
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_documents: 1000,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        alias_limits: limits,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

fn invalid(error: serde_saphyr::Error) -> YamlError {
    let position = error.location().map_or_else(Position::default, |location| Position {
        line: usize::try_from(location.line()).unwrap_or(usize::MAX),
        column: usize::try_from(location.column()).unwrap_or(usize::MAX),
    });
    YamlError::Invalid { position, message: plain(&error) }
}

/// The first line of the crate's text, without the position that it repeats.
fn plain(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    let line = line.rsplit_once(" at line ").map_or(line, |(message, _)| message);
    // What the crate says to programmers about its options is of no use to who wrote the document.
    let line = line.split_once(", set DuplicateKeyPolicy").map_or(line, |(message, _)| message);
    line.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests;
