//! Lifecycle hooks: a command in the container, an HTTP request, a connection, or a pause. They have no time of their own;
//! the caller puts its deadline around them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ExecAction, HTTPGetAction, LifecycleHandler, TCPSocketAction};
use longshore_api::restart;
use longshore_cri::{SharedRuntime, v1};

use super::observed::{Instance, InstanceState};
use super::plan::KillReason;
use super::ports::Failure;
use super::wanted;
use super::worker::Worker;
use crate::model::ContainerId;
use crate::probe::http::{self, HttpError, Url};
use crate::probe::{HOOK_AGENT, container_port, dial};

/// So much of a command's output is shown, its end: that is where the reason stands.
const SHOWN_OUTPUT: usize = 512;
/// So much of it is kept for the container's status.
const KEPT_OUTPUT: usize = 4096;
/// As good as no limit.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// A hook of one container, ready to be run.
#[derive(Debug, Clone)]
pub(super) struct Hook {
    runtime: SharedRuntime,
    id: ContainerId,
    container: Container,
    handler: LifecycleHandler,
    /// Where the pod is reached.
    address: String,
    /// How messages name the pod.
    pod: String,
}

/// What came of a hook.
pub(super) type Ran = Result<Option<Fallback>, HookError>;

/// The server spoke plain HTTP where TLS was wanted, and that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fallback {
    /// Host and port.
    pub(super) authority: String,
}

/// Why a hook failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HookError {
    /// For the status: what was run, where and what came of it.
    pub(super) message: String,
    /// For the event.
    pub(super) short: String,
    /// The command said something itself.
    has_output: bool,
}

impl Worker {
    /// Runs the hook after a start; a failure kills the container.
    pub(super) async fn post_start(&mut self, name: &str, id: &ContainerId) {
        let pod = Arc::clone(&self.desired.pod);
        let lifecycle = wanted::find(&pod, name).and_then(|(c, _)| c.lifecycle.as_ref());
        if let Some(handler) = lifecycle.and_then(|l| l.post_start.as_ref())
            && let Some(hook) = self.hook(name, id, handler)
        {
            match hook.run().await {
                Ok(fallback) => self.tell_fallback(fallback),
                Err(error) => self.post_start_failed(name, id, error).await,
            }
            self.hook_done(name);
        }
    }

    async fn post_start_failed(&mut self, name: &str, id: &ContainerId, error: HookError) {
        // A silent command has nothing to add to what the status says.
        let detail = if error.has_output { format!(": {}", error.short) } else { String::new() };
        let target = self.container_target(name);
        self.events().warning(&target, "FailedPostStartHook", format!("PostStartHook failed{detail}"));
        self.kill_one(id, name, KillReason::PostStartFailed).await;
        self.container_failed(name, &Failure::new("PostStartHookError", error.message));
    }

    /// Runs hooks that an earlier agent owed to containers that it had started: a hook is run at least once.
    pub(super) async fn owed_hooks(&mut self) {
        let owed: Vec<Instance> = self
            .observed
            .containers
            .iter()
            .filter(|c| c.state == InstanceState::Running && self.owes_hook(c))
            .cloned()
            .collect();
        if owed.is_empty() {
            return;
        }
        self.publish(false);
        for instance in owed {
            tracing::info!(pod = %self.desired.key, container = %instance.name, "running the hook that was cut off");
            self.post_start(&instance.name, &instance.id).await;
        }
        self.save();
    }

    /// Whether the hook after the start of this instance has not come to its end.
    pub(super) fn owes_hook(&self, instance: &Instance) -> bool {
        self.facts.containers.get(&instance.name).is_some_and(|c| c.hook_due == Some(instance.attempt))
    }

    fn hook_done(&mut self, name: &str) {
        if let Some(facts) = self.facts.containers.get_mut(name)
            && facts.hook_due.take().is_some()
        {
            self.unsaved = true;
        }
    }

    /// The hook that a container wants before it is stopped. What does not run has none.
    pub(super) fn pre_stop(&self, instance: &Instance) -> Option<Hook> {
        if self.hooked.contains(&instance.id) {
            // Only the stop is tried again.
            return None;
        }
        let lifecycle = wanted::find(&self.desired.pod, &instance.name).and_then(|(c, _)| c.lifecycle.as_ref())?;
        let handler = lifecycle.pre_stop.as_ref().filter(|_| instance.state == InstanceState::Running)?;
        self.hook(&instance.name, &instance.id, handler)
    }

    /// Tells what came of a hook before a stop.
    pub(super) fn tell_pre_stop(&self, name: &str, ran: Ran, pause_cut: bool) {
        if pause_cut {
            self.cx.options.metrics.sleeps_cut_short.inc();
        }
        match ran {
            Ok(fallback) => self.tell_fallback(fallback),
            Err(error) => {
                let target = self.container_target(name);
                self.events().warning(&target, "FailedPreStopHook", format!("PreStopHook failed: {}", error.short));
            }
        }
    }

    fn tell_fallback(&self, fallback: Option<Fallback>) {
        if let Some(Fallback { authority }) = fallback {
            self.cx.options.metrics.hook_http_fallbacks.inc();
            let text =
                format!("request to HTTPS lifecycle hook {authority} got HTTP response, retry with HTTP succeeded");
            self.events().warning(&self.target(), "LifecycleHTTPFallback", text);
        }
    }

    fn hook(&self, name: &str, id: &ContainerId, handler: &LifecycleHandler) -> Option<Hook> {
        let (container, _) = wanted::find(&self.desired.pod, name)?;
        let key = &self.desired.key;
        Some(Hook {
            runtime: Arc::clone(&self.cx.options.runtime),
            id: id.clone(),
            container: container.clone(),
            handler: handler.clone(),
            address: self.address(),
            pod: restart::pod_text(&key.name, &key.namespace, self.desired.uid.as_str()),
        })
    }
}

impl Hook {
    /// Whether it only waits.
    pub(super) fn is_pause(&self) -> bool {
        self.handler.sleep.is_some()
    }

    /// Runs it to its end.
    pub(super) async fn run(&self) -> Ran {
        let handler = &self.handler;
        if let Some(action) = &handler.exec {
            return self.command(action).await.map(|()| None);
        }
        if let Some(action) = &handler.http_get {
            let path = action.path.as_deref().unwrap_or_default();
            return self.ask(action).await.map_err(|text| self.failed(&format!("HTTP lifecycle hook ({path})"), text));
        }
        if let Some(action) = &handler.tcp_socket {
            return self.connect(action).await.map(|()| None).map_err(|text| self.failed("TCP lifecycle hook", text));
        }
        if let Some(sleep) = &handler.sleep {
            tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
            return Ok(None);
        }
        Err(self.failed("Lifecycle hook", "it names no action".to_owned()))
    }

    async fn command(&self, action: &ExecAction) -> Result<(), HookError> {
        let words = action.command.clone().unwrap_or_default();
        let request = v1::ExecSyncRequest { container_id: self.id.to_string(), cmd: words.clone(), timeout: 0 };
        let (what, complaints, output) = match self.runtime.exec_sync(request).await {
            Ok(answer) if answer.exit_code == 0 => return Ok(()),
            Ok(answer) => {
                let complaints = String::from_utf8_lossy(&answer.stderr).into_owned();
                let output = String::from_utf8_lossy(&answer.stdout).into_owned() + &complaints;
                let what = format!("command '{}' exited with {}", words.join(" "), answer.exit_code);
                (what, Some(complaints), output)
            }
            Err(error) => (error.to_string(), None, String::new()),
        };
        let error = match &complaints {
            Some(complaints) => format!("{what}: {}", tail(complaints, KEPT_OUTPUT)),
            None => what.clone(),
        };
        let shown = tail(output.trim_end(), SHOWN_OUTPUT);
        Err(HookError {
            message: format!(
                "Exec lifecycle hook ([{}]) for Container {:?} in Pod {:?} failed - error: {error}, message: {:?}",
                words.join(" "),
                self.container.name,
                self.pod,
                tail(&output, KEPT_OUTPUT)
            ),
            short: if shown.is_empty() { what } else { format!("{what}: {shown}") },
            has_output: !shown.is_empty(),
        })
    }

    async fn ask(&self, action: &HTTPGetAction) -> Result<Option<Fallback>, String> {
        let url = Url::of(action, &self.container, &self.address).map_err(|error| error.to_string())?;
        let mut headers = http::headers(action.http_headers.as_deref(), HOOK_AGENT);
        match http::get(&url, &headers, FOR_EVER).await {
            Err(HttpError::NotSecure(_)) => {
                // What was meant for TLS must not be shown to the wire.
                headers.remove("authorization");
                judge(http::get(&Url { secure: false, ..url.clone() }, &headers, FOR_EVER).await)?;
                Ok(Some(Fallback { authority: url.authority() }))
            }
            answer => judge(answer).map(|()| None),
        }
    }

    async fn connect(&self, action: &TCPSocketAction) -> Result<(), String> {
        let port = container_port(&self.container, &action.port).map_err(|error| error.to_string())?;
        let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(&self.address);
        dial(host, port).await.map(drop)
    }

    fn failed(&self, what: &str, error: String) -> HookError {
        HookError {
            message: format!(
                "{what} for Container {:?} in Pod {:?} failed - error: {error}",
                self.container.name, self.pod
            ),
            short: error,
            has_output: true,
        }
    }
}

fn judge(answer: Result<http::Answer, HttpError>) -> Result<(), String> {
    match answer {
        Ok(answer) if answer.is_good() => Ok(()),
        Ok(answer) => Err(format!("HTTP hook failed with statuscode: {}", answer.status)),
        // The head of the answer came, and it was good: the body is of no interest.
        Err(HttpError::Body(_)) => Ok(()),
        Err(error @ (HttpError::Failure(_) | HttpError::NotSecure(_))) => Err(error.to_string()),
    }
}

/// The last bytes of a text, cut between letters.
fn tail(text: &str, most: usize) -> &str {
    let mut start = text.len().saturating_sub(most);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use longshore_cri::fake::{FakeOptions, FakeRuntime};
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn hook(handler: serde_json::Value) -> Hook {
        Hook {
            runtime: Arc::new(FakeRuntime::new(FakeOptions::default())),
            id: "c1".into(),
            container: Container { name: "c".into(), ..Container::default() },
            handler: serde_json::from_value(handler).unwrap(),
            address: "127.0.0.1".into(),
            pod: "p_n(u)".into(),
        }
    }

    /// A server of plain HTTP that answers everybody with a status.
    async fn server(status: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(longshore_util::spawn(&longshore_util::Tasks::new(), "server", async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut piece = [0; 4096];
                drop(stream.read(&mut piece).await);
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                drop(stream.write_all(answer.as_bytes()).await);
            }
        }));
        port
    }

    #[tokio::test]
    async fn an_http_hook_wants_a_good_status_and_falls_back_from_tls() {
        let (good, bad) = (server("200 OK").await, server("500 No").await);
        let get = |scheme: &str, port: u16| hook(json!({"httpGet": {"path": "/h", "port": port, "scheme": scheme}}));
        assert_eq!(get("HTTP", good).run().await, Ok(None));
        let fallback = Fallback { authority: format!("127.0.0.1:{good}") };
        assert_eq!(get("HTTPS", good).run().await, Ok(Some(fallback)));
        let error = get("HTTP", bad).run().await.unwrap_err();
        assert_eq!(
            error.message,
            "HTTP lifecycle hook (/h) for Container \"c\" in Pod \"p_n(u)\" failed - error: HTTP hook failed with statuscode: 500"
        );
    }

    #[tokio::test]
    async fn a_connection_is_enough_for_a_tcp_hook() {
        let port = server("200 OK").await;
        assert_eq!(hook(json!({"tcpSocket": {"port": port}})).run().await, Ok(None));
        let refused = hook(json!({"tcpSocket": {"port": 1}})).run().await.unwrap_err();
        assert_eq!(refused.short, "dial tcp 127.0.0.1:1: connect: connection refused");
        assert_eq!(hook(json!({})).run().await.unwrap_err().short, "it names no action");
    }

    #[test]
    fn the_end_of_an_output_is_kept_between_letters() {
        assert_eq!(tail("abc", 5), "abc");
        assert_eq!(tail("abcdef", 2), "ef");
        assert_eq!(tail("aé", 1), "");
        assert_eq!(tail("xaé", 2), "é");
    }
}
