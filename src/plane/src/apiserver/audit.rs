//! The audit log: who did what and how it ended, one line of JSON per request, at upstream's level `Metadata`. Bodies are
//! never written, so no secret is.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::request::Parts;
use http::{StatusCode, header};
use jiff::Timestamp;
use longshore_transport::serve::PeerIdentity;
use longshore_util::Tasks;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::identity::{Attributes, Decision, UserInfo};

/// Lines that wait to be written. A disk that stands still costs lines, which are counted, never requests.
const QUEUE: usize = 4096;

/// Lines written at once.
const BATCH: usize = 256;

/// Size at which the file is set aside, as upstream's default is.
const MAX_BYTES: u64 = 100 << 20;

/// Why there is no audit log.
#[derive(Debug, thiserror::Error)]
#[error("opening the audit log {}: {source}", path.display())]
pub struct AuditError {
    path: PathBuf,
    source: std::io::Error,
}

/// Takes lines for the audit log.
#[derive(Debug, Clone)]
pub struct Audit {
    lines: mpsc::Sender<String>,
    lost: Arc<AtomicU64>,
}

/// What is known of a request before it is answered.
#[derive(Debug)]
pub(super) struct Received {
    id: String,
    at: Timestamp,
    uri: String,
    agent: String,
    address: Option<String>,
}

impl Received {
    pub(super) fn new(parts: &Parts, at: Timestamp) -> Self {
        let agent = parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let peer = parts.extensions.get::<PeerIdentity>();
        Self {
            id: uuid::Uuid::new_v4().to_string(),
            at,
            uri: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            agent: agent.to_owned(),
            address: peer.map(|peer| peer.address.ip().to_string()),
        }
    }
}

impl Audit {
    /// Opens the log and starts its writer.
    pub fn start(path: PathBuf, tasks: &Tasks) -> Result<Self, AuditError> {
        let file = open(&path).map_err(|source| AuditError { path: path.clone(), source })?;
        let (lines, queue) = mpsc::channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let writer = Writer { path, file: Some(file), queue, lost: Arc::clone(&lost) };
        tasks.essential("audit-log", writer.run(tasks.token().clone()));
        Ok(Self { lines, lost })
    }

    /// Notes how a request ended.
    pub(super) fn note(
        &self,
        received: &Received,
        user: &UserInfo,
        asked: &Attributes,
        decision: &Decision,
        code: StatusCode,
        now: Timestamp,
    ) {
        let line = entry(received, user, asked, decision, code, now).to_string();
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn entry(
    received: &Received,
    user: &UserInfo,
    asked: &Attributes,
    decision: &Decision,
    code: StatusCode,
    now: Timestamp,
) -> Value {
    let time = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let (word, reason) = match decision {
        Decision::Allow => ("allow", ""),
        Decision::Deny { reason } => ("forbid", reason.as_str()),
    };
    let mut entry = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": received.id,
        "stage": "ResponseComplete", "requestURI": received.uri, "verb": asked.verb,
        "user": {"username": user.name, "groups": user.groups},
        "userAgent": received.agent,
        "responseStatus": {"metadata": {}, "code": code.as_u16()},
        "requestReceivedTimestamp": time(received.at), "stageTimestamp": time(now),
        "annotations": {"authorization.k8s.io/decision": word, "authorization.k8s.io/reason": reason},
    });
    if !user.uid.is_empty() {
        entry["user"]["uid"] = json!(user.uid);
    }
    if let Some(address) = &received.address {
        entry["sourceIPs"] = json!([address]);
    }
    if asked.is_resource {
        let fields = [
            ("resource", &asked.resource),
            ("namespace", &asked.namespace),
            ("name", &asked.name),
            ("apiGroup", &asked.api_group),
            ("apiVersion", &asked.version),
            ("subresource", &asked.subresource),
        ];
        let mut about = serde_json::Map::new();
        for (key, text) in fields.into_iter().filter(|(_, text)| !text.is_empty()) {
            about.insert(key.to_owned(), json!(text));
        }
        entry["objectRef"] = Value::Object(about);
    }
    entry
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

struct Writer {
    path: PathBuf,
    file: Option<File>,
    queue: mpsc::Receiver<String>,
    lost: Arc<AtomicU64>,
}

impl Writer {
    async fn run(mut self, token: tokio_util::sync::CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let count = tokio::select! {
                biased;
                count = self.queue.recv_many(&mut batch, BATCH) => count,
                () = token.cancelled() => return,
            };
            if count == 0 {
                return;
            }
            let mut text = std::mem::take(&mut batch).join("\n");
            text.push('\n');
            let (path, file) = (self.path.clone(), self.file.take());
            let written = tokio::task::spawn_blocking(move || write(&path, file, &text)).await;
            match written {
                Ok(Ok(file)) => self.file = Some(file),
                Ok(Err(error)) => {
                    tracing::warn!(path = %self.path.display(), %error, "the audit log cannot be written");
                }
                Err(_) => return,
            }
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                tracing::warn!(lost, "lines of the audit log were lost: the disk is too slow");
            }
        }
    }
}

/// Writes lines, and sets a file that has grown too large aside under its name with `.1` behind.
fn write(path: &Path, file: Option<File>, text: &str) -> std::io::Result<File> {
    let mut file = match file {
        Some(file) => file,
        None => open(path)?,
    };
    if file.metadata()?.len() > MAX_BYTES {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".1");
        std::fs::rename(path, aside)?;
        file = open(path)?;
    }
    file.write_all(text.as_bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_who_did_what_and_how_it_ended() {
        let request = http::Request::builder()
            .uri("/api/v1/namespaces/a/secrets/s?pretty=true")
            .header("user-agent", "kubectl")
            .body(())
            .unwrap();
        let at: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let received = Received::new(&request.into_parts().0, at);
        let asked = Attributes {
            verb: "get".to_owned(),
            version: "v1".to_owned(),
            resource: "secrets".to_owned(),
            namespace: "a".to_owned(),
            name: "s".to_owned(),
            is_resource: true,
            ..Attributes::default()
        };
        let user = UserInfo::new("jane", &["system:authenticated"]);
        let deny = Decision::Deny { reason: "no".to_owned() };
        let mut entry = entry(&received, &user, &asked, &deny, StatusCode::FORBIDDEN, at);
        entry["auditID"] = json!("ID");
        assert_eq!(
            entry,
            json!({"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "ID",
                "stage": "ResponseComplete", "requestURI": "/api/v1/namespaces/a/secrets/s?pretty=true", "verb": "get",
                "user": {"username": "jane", "groups": ["system:authenticated"]}, "userAgent": "kubectl",
                "objectRef": {"resource": "secrets", "namespace": "a", "name": "s", "apiVersion": "v1"},
                "responseStatus": {"metadata": {}, "code": 403},
                "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
                "stageTimestamp": "2026-01-01T00:00:00.000000Z",
                "annotations": {"authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": "no"}})
        );
    }
}
