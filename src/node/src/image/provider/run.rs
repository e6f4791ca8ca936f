//! One run of a program: a request in, an answer out, a minute at most, nothing of it left behind.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use longshore_api::duration::GoDuration;
use longshore_cri::v1;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::config::ProviderConfig;
use crate::image::login::Places;

/// How long a program may take.
const WITHIN: Duration = Duration::from_secs(60);
/// An answer holds a few logins.
const ANSWER_BYTES: u64 = 1 << 20;
/// So much of its complaint goes into our log.
const COMPLAINT_BYTES: u64 = 2048;

/// What a program is asked.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request<'a> {
    pub(super) kind: &'static str,
    pub(super) api_version: &'a str,
    pub(super) image: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) service_account_token: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) service_account_annotations: &'a BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    cache_key_type: String,
    cache_duration: Option<GoDuration>,
    #[serde(default)]
    auth: Option<BTreeMap<String, Pair>>,
}

#[derive(Deserialize)]
struct Pair {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

/// For what else an answer serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    /// The same image.
    Image,
    /// All of its registry.
    Registry,
    /// Everything.
    Global,
}

/// An answer. Shows no secret: the logins hide theirs.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) scope: Scope,
    /// How long it serves; `None` = as configured.
    pub(super) cache: Option<Duration>,
    pub(super) places: Places,
}

/// Runs the program; the error is for the log.
pub(super) async fn ask(folder: &Path, config: &ProviderConfig, request: &Request<'_>) -> Result<Answer, String> {
    let input = serde_json::to_vec(request).map_err(|error| error.to_string())?;
    let mut command = Command::new(folder.join(&config.name));
    command.args(&config.args).envs(config.env.iter().map(|variable| (&variable.name, &variable.value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own, so that its children end with it.
    command.process_group(0).kill_on_drop(true);
    let child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    let mut group = Group { id: child.id() };
    let told = tokio::time::timeout(WITHIN, talk(child, &input)).await;
    let output = told.map_err(|_| format!("no answer within {} s", WITHIN.as_secs()))??;
    group.id = None;
    parse(&output, &config.wire)
}

/// Kills what is left of a program that was given up.
struct Group {
    id: Option<u32>,
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(id) = self.id.and_then(|id| i32::try_from(id).ok())
            && let Err(error) = killpg(Pid::from_raw(id), Signal::SIGKILL)
        {
            tracing::debug!(id, %error, "credential provider is gone already");
        }
    }
}

async fn talk(mut child: Child, input: &[u8]) -> Result<Vec<u8>, String> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async move {
        if let Some(mut stdin) = stdin {
            // A program that knows its answer need not read the question.
            drop(stdin.write_all(input).await);
        }
    };
    let read = async {
        let mut output = Vec::new();
        if let Some(stdout) = stdout {
            stdout.take(ANSWER_BYTES + 1).read_to_end(&mut output).await.map_err(|error| error.to_string())?;
        }
        Ok::<_, String>(output)
    };
    let complain = async {
        let mut text = Vec::new();
        if let Some(mut stderr) = stderr {
            drop((&mut stderr).take(COMPLAINT_BYTES).read_to_end(&mut text).await);
            // Read on, or it would wait for ever with a full pipe.
            drop(tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await);
        }
        text
    };
    let ((), output, complaint) = tokio::join!(write, read, complain);
    let output = output?;
    if u64::try_from(output.len()).is_ok_and(|length| length > ANSWER_BYTES) {
        return Err(format!("more than {ANSWER_BYTES} bytes of answer"));
    }
    let status = child.wait().await.map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("{status}: {}", String::from_utf8_lossy(&complaint).trim()));
    }
    Ok(output)
}

fn parse(output: &[u8], version: &str) -> Result<Answer, String> {
    // Not the decoder's own text: it may quote what it could not read, and that may be a secret.
    let wire: Wire = serde_json::from_slice(output).map_err(|error| {
        format!("its answer is no JSON of that kind (line {} column {})", error.line(), error.column())
    })?;
    if wire.api_version != version || wire.kind != "CredentialProviderResponse" {
        return Err(format!(
            "its answer is {} {}, wanted {version} CredentialProviderResponse",
            wire.api_version, wire.kind
        ));
    }
    let scope = match wire.cache_key_type.as_str() {
        "Image" => Scope::Image,
        "Registry" => Scope::Registry,
        "Global" => Scope::Global,
        other => return Err(format!("its answer has cacheKeyType {other:?}: must be Image, Registry or Global")),
    };
    let cache = wire.cache_duration.map(|duration| Duration::from_nanos(u64::try_from(duration.nanos()).unwrap_or(0)));
    let login = |pair: Pair| v1::AuthConfig { username: pair.username, password: pair.password, ..Default::default() };
    let places = wire.auth.unwrap_or_default().into_iter().map(|(place, pair)| (place, login(pair))).collect();
    Ok(Answer { scope, cache, places })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

    #[test]
    fn an_answer_is_read_or_refused_without_quoting_it() {
        let text = format!(
            r#"{{"kind":"CredentialProviderResponse","apiVersion":"{V1}","cacheKeyType":"Registry","cacheDuration":"5m",
            "auth":{{"*.example.com":{{"username":"me","password":"s3cret"}}}}}}"#
        );
        let answer = parse(text.as_bytes(), V1).unwrap();
        assert_eq!((answer.scope, answer.cache), (Scope::Registry, Some(Duration::from_secs(300))));
        assert_eq!(answer.places["*.example.com"].password, "s3cret");
        assert!(!format!("{answer:?}").contains("s3cret"));
        for (from, to) in
            [("v1\"", "v1beta1\""), ("Registry", "Galaxy"), ("Response", "Request"), ("{\"username\"", "[\"username\"")]
        {
            let error = parse(text.replace(from, to).as_bytes(), V1).unwrap_err();
            assert!(!error.contains("s3cret"), "{error}");
        }
        assert!(parse(b"", V1).is_err());
    }
}
