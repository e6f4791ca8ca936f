//! `longshore apply -f FILE`: creates what is not there, changes what is. What an earlier apply set and this one no
//! longer does is taken out again; what others set stays.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Map, Value};

use super::client::{Connection, Namespace, explain};
use super::kinds::{Kind, Kinds, Object};
use super::print::out;

/// What the last apply set: the same annotation as kubectl's, so that both can be used in turn.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// A manifest larger than this is not one.
const LARGEST: u64 = 16 << 20;

/// Flags of `apply`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// File, folder or - for stdin; may be given more than once
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    filename: Vec<PathBuf>,
    #[command(flatten)]
    namespace: Namespace,
    #[command(flatten)]
    connection: Connection,
}

/// Runs the command.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let client = arguments.connection.client().await?;
    let namespace = arguments.namespace.namespace.as_deref();
    for file in &arguments.filename {
        for (name, text) in read(file)? {
            let lines = documents(&client, &text, namespace).await.with_context(|| name)?;
            for line in lines {
                out(&line)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads manifests: a file, stdin, or all manifests of a folder in the order of their names.
pub(crate) fn read(path: &Path) -> Result<Vec<(String, String)>> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().lock().take(LARGEST).read_to_string(&mut text).context("read stdin")?;
        return Ok(vec![("stdin".to_owned(), text)]);
    }
    let about = || format!("read {}", path.display());
    if path.is_dir() {
        let mut files: Vec<PathBuf> = std::fs::read_dir(path)
            .with_context(about)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|file| file.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json"))
            .collect();
        files.sort();
        return files.iter().map(|file| read(file)).collect::<Result<Vec<_>>>().map(|lists| lists.concat());
    }
    let file = std::fs::File::open(path).with_context(about)?;
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text).with_context(about)?;
    Ok(vec![(path.display().to_string(), text)])
}

/// The objects of a manifest text, lists taken apart.
pub(crate) fn objects(text: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in longshore_util::yaml::documents(text)? {
        match document {
            Value::Null => {}
            Value::Object(mut list) if list.get("kind").and_then(Value::as_str).is_some_and(|kind| kind == "List") => {
                match list.remove("items") {
                    Some(Value::Array(items)) => objects.extend(items),
                    _ => bail!("a List without items"),
                }
            }
            Value::Object(object) => objects.push(Value::Object(object)),
            _ => bail!("a manifest must be a mapping"),
        }
    }
    Ok(objects)
}

/// Applies all objects of a text and returns a line about each.
pub(crate) async fn documents(client: &Client, text: &str, namespace: Option<&str>) -> Result<Vec<String>> {
    let objects = objects(text)?;
    let kinds = Kinds::discover(client).await?;
    let mut lines = Vec::new();
    for object in objects {
        let kind = kinds.of(&object)?;
        lines.push(one(client, &kind, object, namespace).await?);
    }
    Ok(lines)
}

async fn one(client: &Client, kind: &Kind, mut object: Value, namespace: Option<&str>) -> Result<String> {
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    let name = metadata.get("name").and_then(Value::as_str).context("metadata.name is missing")?.to_owned();
    let written = metadata.get("namespace").and_then(Value::as_str);
    if let (Some(asked), Some(written), true) = (namespace, written, kind.namespaced)
        && asked != written
    {
        bail!("{}: its namespace is {written}, not {asked}", kind.title(&name));
    }
    let namespace = written.or(namespace).unwrap_or_else(|| client.default_namespace()).to_owned();
    if kind.namespaced {
        object["metadata"]["namespace"] = Value::from(namespace.as_str());
    }
    let marked = mark(&object)?;
    let api = kind.api(client, &namespace);
    let title = kind.title(&name);
    let about = || format!("apply {title}");
    let Some(live) = api.get_opt(&name).await.map_err(explain).with_context(about)? else {
        let new: Object = serde_json::from_value(marked).with_context(about)?;
        api.create(&PostParams::default(), &new).await.map_err(explain).with_context(about)?;
        return Ok(format!("{title} created"));
    };
    let live = serde_json::to_value(&live)?;
    let last = live
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(LAST_APPLIED))
        .and_then(Value::as_str)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or(Value::Null);
    let patch = three_way(&last, &marked, &live);
    if patch == Value::Object(Map::new()) {
        return Ok(format!("{title} unchanged"));
    }
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.map_err(explain).with_context(about)?;
    Ok(format!("{title} configured"))
}

/// Puts what is being applied into the object's own annotation.
fn mark(object: &Value) -> Result<Value> {
    let mut marked = object.clone();
    let text = serde_json::to_string(object)? + "\n";
    let metadata = marked.get_mut("metadata").and_then(Value::as_object_mut).context("metadata is missing")?;
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if annotations.is_null() {
        *annotations = Value::Object(Map::new());
    }
    annotations
        .as_object_mut()
        .context("metadata.annotations must be a mapping")?
        .insert(LAST_APPLIED.to_owned(), text.into());
    Ok(marked)
}

/// Returns the merge patch that makes `live` have what `new` says, without what only `last` said.
fn three_way(last: &Value, new: &Value, live: &Value) -> Value {
    let mut patch = Map::new();
    let (Some(new), Some(live)) = (new.as_object(), live.as_object()) else { return new.clone() };
    for (key, value) in new {
        match (value, live.get(key)) {
            (Value::Object(_), Some(there @ Value::Object(_))) => {
                let inner = three_way(last.get(key).unwrap_or(&Value::Null), value, there);
                if inner != Value::Object(Map::new()) {
                    patch.insert(key.clone(), inner);
                }
            }
            (Value::Null, None) => {}
            (value, there) if there.is_some_and(|there| holds(there, value)) => {}
            (value, _) => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    for key in last.as_object().into_iter().flat_map(Map::keys) {
        if !new.contains_key(key) && live.contains_key(key) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    Value::Object(patch)
}

/// Whether what is there says all that is wanted: defaults that the apiserver added inside a list are no difference.
fn holds(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| there.get(key).is_some_and(|there| holds(there, value)))
        }
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len() && there.iter().zip(wanted).all(|(there, wanted)| holds(there, wanted))
        }
        (there, wanted) => there == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_taken_out_of_the_manifest_is_taken_out_of_the_object() {
        let last = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "data": {"x": "1"}});
        let new = json!({"metadata": {"labels": {"a": "1"}}, "data": {"x": "2"}});
        let live = json!({"metadata": {"labels": {"a": "1", "b": "2", "c": "3"}, "uid": "u"}, "data": {"x": "1"}});
        let patch = three_way(&last, &new, &live);
        assert_eq!(patch, json!({"metadata": {"labels": {"b": null}}, "data": {"x": "2"}}));
    }

    #[test]
    fn defaults_inside_lists_are_no_change() {
        let new = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
        let live = json!({"spec": {"containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always"}]}});
        assert_eq!(three_way(&Value::Null, &new, &live), json!({}));
    }

    #[test]
    fn lists_are_taken_apart_and_empty_documents_skipped() {
        let text = "---\n---\nkind: List\napiVersion: v1\nitems:\n- {kind: A}\n- {kind: B}\n---\nkind: C\n";
        let kinds: Vec<String> = objects(text).unwrap().iter().map(|object| object["kind"].to_string()).collect();
        assert_eq!(kinds, ["\"A\"", "\"B\"", "\"C\""]);
    }
}
