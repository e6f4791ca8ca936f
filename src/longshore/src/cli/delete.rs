//! `longshore delete KIND NAME…`, `longshore delete -f FILE`: asks for the end and waits for it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::Client;
use kube::api::{DeleteParams, ListParams};
use serde_json::Value;

use super::apply::{objects, read};
use super::client::{Connection, Namespace, explain};
use super::kinds::{Kind, Kinds};
use super::print::out;
use crate::app::fail::Usage;

/// Flags of `delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// KIND NAME…, or KIND/NAME…
    what: Vec<String>,
    /// Delete what a file, folder or - (stdin) names
    #[arg(short, long = "filename", value_name = "FILE")]
    filename: Vec<PathBuf>,
    /// All objects of the kind in the namespace
    #[arg(long)]
    all: bool,
    /// Seconds a pod is given to end; -1 leaves it to the pod
    #[arg(long, default_value_t = -1, allow_hyphen_values = true)]
    grace_period: i64,
    /// Return at once instead of waiting for the end
    #[arg(long)]
    no_wait: bool,
    /// Seconds to wait for the end
    #[arg(long, default_value_t = 120)]
    timeout: u64,
    /// It is no failure if it is not there
    #[arg(long)]
    ignore_not_found: bool,
    #[command(flatten)]
    namespace: Namespace,
    #[command(flatten)]
    connection: Connection,
}

/// Runs the command.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let client = arguments.connection.client().await?;
    let targets = targets(&arguments, &client).await?;
    let mut params = DeleteParams::default();
    if let Ok(seconds) = u32::try_from(arguments.grace_period) {
        params = params.grace_period(seconds);
    }
    let mut asked = Vec::new();
    for (kind, namespace, name) in targets {
        let api = kind.api(&client, &namespace);
        let title = kind.title(&name);
        match api.delete(&name, &params).await {
            Ok(_) => {
                out(&format!("{title} deleted"))?;
                asked.push((api, name, title));
            }
            Err(kube::Error::Api(status)) if status.code == 404 && arguments.ignore_not_found => {}
            Err(error) => return Err(explain(error)).with_context(|| format!("delete {title}")),
        }
    }
    if arguments.no_wait {
        return Ok(ExitCode::SUCCESS);
    }
    let gone = async {
        for (api, name, _) in &asked {
            while api.get_opt(name).await.map_err(explain)?.is_some() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        anyhow::Ok(())
    };
    match tokio::time::timeout(Duration::from_secs(arguments.timeout), gone).await {
        Ok(result) => result.map(|()| ExitCode::SUCCESS),
        Err(_) => bail!("not gone after {} s", arguments.timeout),
    }
}

async fn targets(arguments: &Arguments, client: &Client) -> Result<Vec<(Kind, String, String)>> {
    let kinds = Kinds::discover(client).await?;
    let namespace = arguments.namespace.name(client).to_owned();
    let mut targets = Vec::new();
    for file in &arguments.filename {
        for (about, text) in read(file)? {
            for object in objects(&text).with_context(|| about)? {
                let kind = kinds.of(&object)?;
                let field = |name: &str| object.pointer(&format!("/metadata/{name}")).and_then(Value::as_str);
                let name = field("name").context("metadata.name is missing")?.to_owned();
                targets.push((kind, field("namespace").unwrap_or(&namespace).to_owned(), name));
            }
        }
    }
    let mut words = arguments.what.iter();
    let mut current: Option<Kind> = None;
    for word in words.by_ref() {
        match (word.split_once('/'), &current) {
            (Some((kind, name)), _) => targets.push((kinds.named(kind)?, namespace.clone(), name.to_owned())),
            (None, None) => current = Some(kinds.named(word)?),
            (None, Some(kind)) => targets.push((kind.clone(), namespace.clone(), word.clone())),
        }
    }
    if arguments.all
        && let Some(kind) = current
    {
        let list = kind.api(client, &namespace).list(&ListParams::default()).await.map_err(explain)?;
        targets.extend(
            list.items
                .into_iter()
                .filter_map(|object| Some((kind.clone(), namespace.clone(), object.0.metadata.name?))),
        );
    } else if targets.is_empty() {
        return Err(Usage("say what to delete: KIND NAME, KIND --all, or -f FILE".to_owned()).into());
    }
    Ok(targets)
}
