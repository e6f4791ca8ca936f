//! `longshore why POD` and `longshore retry POD`: asked of the agent itself, at its socket; no apiserver is needed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use longshore_node::control;
use serde_json::{Value, json};

use super::print::{self, Output};
use crate::app::fail::Hint;
use crate::app::paths::Paths;

/// The agent answers at once; it is stuck when it does not.
const PATIENCE: Duration = Duration::from_secs(10);

/// Flags of `why` and `retry`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The pod's name; a static pod's ends with the node's name
    pod: String,
    /// Namespace
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// The agent's root
    #[arg(long, value_name = "FOLDER", default_value = Paths::KUBELET)]
    root_dir: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Shows what holds a pod up.
pub(crate) fn why(arguments: &Arguments) -> Result<ExitCode> {
    let pod = ask("why", arguments)?;
    arguments.output.show(&pod, || text(&pod))?;
    Ok(ExitCode::SUCCESS)
}

/// Has what waits after failures tried again at once.
pub(crate) fn retry(arguments: &Arguments) -> Result<ExitCode> {
    let pod = ask("retry", arguments)?;
    let told = || format!("pod {}/{} is tried again now\n", arguments.namespace, arguments.pod);
    arguments.output.show(&pod, told)?;
    Ok(ExitCode::SUCCESS)
}

fn ask(what: &str, arguments: &Arguments) -> Result<Value> {
    let path = control::socket(&arguments.root_dir);
    let hint = || {
        let text = format!("ask the agent at {}", path.display());
        Hint::new(text, "run as root where the agent runs; name its root with --root-dir")
    };
    let mut stream = UnixStream::connect(&path).with_context(hint)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let question = json!({"ask": what, "namespace": arguments.namespace, "name": arguments.pod});
    stream.write_all(format!("{question}\n").as_bytes()).with_context(hint)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).context("read the agent's answer")?;
    let mut answer: Value = serde_json::from_str(&line).context("read the agent's answer")?;
    if let Some(error) = answer["error"].as_str() {
        bail!("{error}");
    }
    Ok(answer["pod"].take())
}

fn text(pod: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let because = |value: &Value| {
        let parts = [word(&value["reason"]), word(&value["message"])];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    };
    let mut out = format!("{}/{}: {}", word(&pod["namespace"]), word(&pod["name"]), word(&pod["phase"]));
    let why = because(pod);
    if !why.is_empty() {
        out.extend([" (", &why, ")"]);
    }
    out.push('\n');
    let mut table = vec![
        ["CONTAINER", "STATE", "RESTARTS", "NEXT TRY", "FIRST FAILURE", "LAST END", "WHY"].map(str::to_owned).to_vec(),
    ];
    for container in pod["containers"].as_array().into_iter().flatten() {
        let end = |end: &Value| match end["exitCode"].as_i64() {
            Some(code) => format!("exit {code} {}", word(&end["reason"])).trim_end().to_owned(),
            None => "-".to_owned(),
        };
        let next = container["nextTrySeconds"].as_u64();
        table.push(vec![
            word(&container["name"]),
            word(&container["state"]),
            container["restarts"].to_string(),
            next.map_or_else(|| "-".to_owned(), |seconds| format!("in {}", print::age(Duration::from_secs(seconds)))),
            end(&container["firstFailure"]),
            end(&container["lastEnd"]),
            because(container),
        ]);
    }
    out + &print::table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_a_pod_up_fits_on_a_line_a_container() {
        let pod = json!({"namespace": "ns", "name": "p", "phase": "Running", "reason": null, "containers": [{
            "name": "c", "state": "waiting", "reason": "CrashLoopBackOff", "message": "back-off 5m0s", "restarts": 9,
            "nextTrySeconds": 60, "firstFailure": {"exitCode": 3, "reason": "Error"}, "lastEnd": {"exitCode": 9, "reason": "Error"}}]});
        let text = text(&pod);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "ns/p: Running");
        for word in ["c ", "waiting", "9", "exit 3 Error", "exit 9 Error", "CrashLoopBackOff: back-off 5m0s"] {
            assert!(lines[2].contains(word), "{word} in {text}");
        }
    }
}
