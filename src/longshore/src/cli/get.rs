//! `longshore get KIND [NAME…]`: shows objects as columns, JSON or YAML, and with `-w` what becomes of them.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::StreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::client::{Connection, Namespace, explain};
use super::kinds::{Kind, Kinds, Object};
use super::print::{self, Output, Shape};

/// Flags of `get`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// KIND [NAME…], or KIND/NAME
    #[arg(required = true)]
    what: Vec<String>,
    /// In all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Label selector
    #[arg(short = 'l', long)]
    selector: Option<String>,
    /// Field selector
    #[arg(long)]
    field_selector: Option<String>,
    /// Go on showing changes
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    namespace: Namespace,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

/// Runs the command.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let client = arguments.connection.client().await?;
    let kinds = Kinds::discover(&client).await?;
    let (kind, names) = parse(&arguments, &kinds)?;
    let api = api(&arguments, &kind, &client);
    let mut params = ListParams::default();
    params.label_selector.clone_from(&arguments.selector);
    params.field_selector.clone_from(&arguments.field_selector);
    let mut items = Vec::new();
    let mut version = String::new();
    if names.is_empty() {
        let list = api.list(&params).await.map_err(explain).with_context(|| format!("get {}", kind.resource.plural))?;
        version = list.metadata.resource_version.unwrap_or_default();
        for item in list.items {
            items.push(value(&kind, &item)?);
        }
    } else {
        for name in &names {
            let item = api.get(name).await.map_err(explain).with_context(|| format!("get {}", kind.title(name)))?;
            if names.len() == 1 {
                version = item.metadata.resource_version.clone().unwrap_or_default();
            }
            items.push(value(&kind, &item)?);
        }
    }
    let columns = Columns { kind: kind.resource.kind.clone(), namespace: arguments.all_namespaces && kind.namespaced };
    if items.is_empty() && !arguments.watch && arguments.output.output == Shape::Table {
        use std::io::Write as _;
        drop(writeln!(std::io::stderr().lock(), "no {} found", kind.resource.plural));
        return Ok(ExitCode::SUCCESS);
    }
    let shown = match (names.len(), items.as_slice()) {
        (1, [one]) => one.clone(),
        _ => json!({"apiVersion": "v1", "kind": "List", "items": items}),
    };
    if !(arguments.watch && items.is_empty()) {
        arguments.output.show(&shown, || columns.table(&items, true))?;
    }
    if arguments.watch {
        follow(&api, &arguments, &kind, &names, &columns, version).await?;
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(arguments: &Arguments, kinds: &Kinds) -> Result<(Kind, Vec<String>)> {
    let (first, rest) = arguments.what.split_first().context("say what to get")?;
    match first.split_once('/') {
        Some((kind, name)) => {
            let mut names = vec![name.to_owned()];
            names.extend(rest.iter().cloned());
            Ok((kinds.named(kind)?, names))
        }
        None => Ok((kinds.named(first)?, rest.to_vec())),
    }
}

fn api(arguments: &Arguments, kind: &Kind, client: &Client) -> Api<Object> {
    if arguments.all_namespaces { kind.everywhere(client) } else { kind.api(client, arguments.namespace.name(client)) }
}

/// Watches from the version last seen, and again when the watch ends.
async fn follow(
    api: &Api<Object>,
    arguments: &Arguments,
    kind: &Kind,
    names: &[String],
    columns: &Columns,
    mut version: String,
) -> Result<()> {
    let mut params = WatchParams::default().timeout(290);
    params.label_selector.clone_from(&arguments.selector);
    params.field_selector = match names {
        [name] => Some(format!("metadata.name={name}")),
        _ => arguments.field_selector.clone(),
    };
    loop {
        let stream = api.watch(&params, &version).await.map_err(explain).context("watch")?;
        let mut stream = Box::pin(stream);
        while let Some(event) = stream.next().await {
            match event.map_err(explain).context("watch")? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                    version = object.metadata.resource_version.clone().unwrap_or(version);
                    let item = value(kind, &object)?;
                    arguments.output.show(&item, || columns.table(std::slice::from_ref(&item), false))?;
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => anyhow::bail!("{} ({})", status.message, status.reason),
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Items of a list come without their kind.
fn value(kind: &Kind, object: &Object) -> Result<Value> {
    let mut value = serde_json::to_value(object)?;
    value["apiVersion"] = Value::from(kind.resource.api_version.as_str());
    value["kind"] = Value::from(kind.resource.kind.as_str());
    Ok(value)
}

/// The columns of a kind.
struct Columns {
    kind: String,
    namespace: bool,
}

impl Columns {
    fn table(&self, items: &[Value], head: bool) -> String {
        let mut rows = Vec::new();
        if head {
            let mut titles = vec!["NAME"];
            titles.extend(match self.kind.as_str() {
                "Pod" => ["READY", "STATUS", "RESTARTS", "IP"].as_slice(),
                "Node" => &["STATUS", "VERSION", "ADDRESS"],
                "Event" => &["TYPE", "REASON", "OBJECT", "MESSAGE"],
                "Service" => &["TYPE", "CLUSTER-IP"],
                "ConfigMap" | "Secret" => &["DATA"],
                "Namespace" => &["STATUS"],
                _ => &[],
            });
            titles.push("AGE");
            if self.namespace {
                titles.insert(0, "NAMESPACE");
            }
            rows.push(titles.into_iter().map(str::to_owned).collect());
        }
        rows.extend(items.iter().map(|item| self.row(item)));
        print::table(&rows)
    }

    fn row(&self, item: &Value) -> Vec<String> {
        let text = |path: &str| item.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut cells = vec![text("/metadata/name")];
        if self.namespace {
            cells.insert(0, text("/metadata/namespace"));
        }
        match self.kind.as_str() {
            "Pod" => {
                let (ready, all, restarts) = pod_counts(item);
                cells.extend([format!("{ready}/{all}"), pod_state(item), restarts.to_string(), text("/status/podIP")]);
            }
            "Node" => {
                cells.extend([
                    node_state(item),
                    text("/status/nodeInfo/kubeletVersion"),
                    text("/status/addresses/0/address"),
                ]);
            }
            "Event" => {
                let object =
                    format!("{}/{}", text("/involvedObject/kind").to_lowercase(), text("/involvedObject/name"));
                cells.extend([text("/type"), text("/reason"), object, text("/message").replace('\n', " ")]);
            }
            "Service" => cells.extend([text("/spec/type"), text("/spec/clusterIP")]),
            "ConfigMap" | "Secret" => {
                cells.push(item.get("data").and_then(Value::as_object).map_or(0, serde_json::Map::len).to_string());
            }
            "Namespace" => cells.push(text("/status/phase")),
            _ => {}
        }
        cells.push(age(item));
        cells
    }
}

fn age(item: &Value) -> String {
    let created = item.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    let created = created.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    created.map_or_else(
        || "<unknown>".to_owned(),
        |created| print::age(jiff::Timestamp::now().duration_since(created).try_into().unwrap_or_default()),
    )
}

fn list<'item>(item: &'item Value, path: &str) -> &'item [Value] {
    item.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn pod_counts(pod: &Value) -> (usize, usize, i64) {
    let statuses = list(pod, "/status/containerStatuses");
    let ready = statuses.iter().filter(|status| status["ready"] == true).count();
    let restarts = statuses.iter().filter_map(|status| status["restartCount"].as_i64()).sum();
    (ready, list(pod, "/spec/containers").len(), restarts)
}

/// One word for what a pod is doing: what keeps it from running, else its phase.
fn pod_state(pod: &Value) -> String {
    if pod.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string) {
        return "Terminating".to_owned();
    }
    let reason_of = |state: &Value| -> Option<String> {
        let waiting = state.pointer("/state/waiting/reason").and_then(Value::as_str);
        let terminated = state.pointer("/state/terminated");
        let ended = terminated.map(|ended| {
            let reason = ended["reason"].as_str().unwrap_or_default().to_owned();
            if reason.is_empty() { format!("ExitCode:{}", ended["exitCode"]) } else { reason }
        });
        waiting.map(str::to_owned).or(ended)
    };
    let init = list(pod, "/status/initContainerStatuses");
    for (index, status) in init.iter().enumerate() {
        let succeeded = status.pointer("/state/terminated/exitCode").is_some_and(|code| code == 0);
        if succeeded || status["started"] == true {
            continue;
        }
        return match reason_of(status).filter(|reason| reason != "PodInitializing") {
            Some(reason) => format!("Init:{reason}"),
            None => format!("Init:{index}/{}", init.len()),
        };
    }
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or("Unknown");
    let word = pod.pointer("/status/reason").and_then(Value::as_str).map(str::to_owned);
    let container = list(pod, "/status/containerStatuses").iter().find_map(reason_of);
    word.or_else(|| container.filter(|reason| phase != "Running" || reason != "Completed"))
        .unwrap_or_else(|| phase.to_owned())
}

fn node_state(node: &Value) -> String {
    let ready = list(node, "/status/conditions").iter().find(|condition| condition["type"] == "Ready");
    let mut text = match ready.and_then(|condition| condition["status"].as_str()) {
        Some("True") => "Ready",
        Some("False") => "NotReady",
        Some(_) | None => "Unknown",
    }
    .to_owned();
    if node.pointer("/spec/unschedulable").is_some_and(|flag| flag == true) {
        text.push_str(",SchedulingDisabled");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_says_what_a_pod_is_doing() {
        let pod = |status: Value| json!({"metadata": {}, "spec": {"containers": [{}]}, "status": status});
        let waiting =
            json!({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]});
        assert_eq!(pod_state(&pod(waiting)), "ImagePullBackOff");
        let running = json!({"phase": "Running", "containerStatuses": [{"state": {"running": {}}, "ready": true}]});
        assert_eq!(pod_state(&pod(running)), "Running");
        let init = json!({"phase": "Pending", "initContainerStatuses": [
            {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}, {"state": {"running": {}}, "started": false}]});
        assert_eq!(pod_state(&pod(init)), "Init:1/2");
        let evicted = json!({"phase": "Failed", "reason": "Evicted"});
        assert_eq!(pod_state(&pod(evicted)), "Evicted");
        let ending = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running"}});
        assert_eq!(pod_state(&ending), "Terminating");
    }
}
