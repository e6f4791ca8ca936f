//! One run of one probe: the question asked over HTTP, TCP, gRPC or by a command in the container.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use longshore_api::expand;
use longshore_cri::health::{self, HealthError};
use longshore_cri::{SharedRuntime, v1};
use tokio::time::Instant;

use super::http::{self, HttpError, Url};
use super::leftover::Mark;
use super::{PROBE_AGENT, address, container_port, tcp};
use crate::model::ContainerId;

/// How often a probe that cannot be asked is tried before that is told.
const TRIES: u32 = 3;
/// So much of a command's output is kept.
const OUTPUT_BYTES: usize = 10 * 1024;
/// How much later than the command's time the runtime may answer before the call is given up.
const RUNTIME_SLACK: Duration = Duration::from_secs(1);
/// So much later than its own deadlines an answer comes only when this process did not run: the machine slept, was frozen
/// or is moved to another host.
const SLEPT: Duration = Duration::from_secs(5);
/// After this share of its time a command that still runs is looked up, so that it can be ended with all its children.
const LOOK_AFTER: (u32, u32) = (4, 5);

/// What a run says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// Good.
    Success,
    /// Good, with something that a human should know.
    Warning(String),
    /// Bad, and why.
    Failure(String),
    /// The question could not be asked.
    Unknown(String),
}

/// Everything that one run needs.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) runtime: SharedRuntime,
    pub(super) id: ContainerId,
    pub(super) container: Arc<Container>,
    pub(super) probe: Arc<Probe>,
    pub(super) address: Arc<str>,
    pub(super) timeout: Duration,
}

/// Which places a run takes: commands cost the runtime, the rest little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    Command,
    Network,
}

pub(super) fn weight(probe: &Probe) -> Weight {
    if probe.exec.is_some() { Weight::Command } else { Weight::Network }
}

impl Question {
    /// Asks until there is an answer, a few times at most. A failure that was told by a deadline long past says nothing of
    /// the container (all of the machine may have slept), so that is asked again, once.
    pub(super) async fn ask(self) -> Answer {
        let mut answer = Answer::Unknown(String::new());
        let mut slept = false;
        for _ in 0..TRIES {
            let begun = Instant::now();
            answer = self.once().await;
            let late = begun.elapsed() > self.timeout + RUNTIME_SLACK + SLEPT;
            match answer {
                Answer::Unknown(_) => {}
                Answer::Failure(_) if late && !slept => slept = true,
                Answer::Failure(_) | Answer::Success | Answer::Warning(_) => break,
            }
        }
        answer
    }

    async fn once(&self) -> Answer {
        if let Some(action) = &self.probe.exec {
            return self.command(action.command.as_deref().unwrap_or_default()).await;
        }
        if let Some(action) = &self.probe.http_get {
            let url = match Url::of(action, &self.container, &self.address) {
                Ok(url) => url,
                Err(error) => return Answer::Unknown(error.to_string()),
            };
            let headers = http::headers(action.http_headers.as_deref(), PROBE_AGENT);
            return judge(http::get(&url, &headers, self.timeout).await);
        }
        if let Some(action) = &self.probe.tcp_socket {
            let port = match container_port(&self.container, &action.port) {
                Ok(port) => port,
                Err(error) => return Answer::Unknown(error.to_string()),
            };
            return self.connect(&address::host(action.host.as_deref(), &self.address), port).await;
        }
        if let Some(action) = &self.probe.grpc {
            let Ok(port) = u16::try_from(action.port) else {
                return Answer::Unknown(format!("invalid port number: {}", action.port));
            };
            return self.health(port, action.service.as_deref().unwrap_or_default()).await;
        }
        Answer::Unknown(format!("missing probe handler for {}", self.container.name))
    }

    async fn connect(&self, host: &str, port: u16) -> Answer {
        match tokio::time::timeout(self.timeout, tcp::dial(host, port)).await {
            Ok(Ok(_stream)) => Answer::Success,
            Ok(Err(error)) => Answer::Failure(error.to_string()),
            Err(_) => Answer::Failure(format!("dial tcp {}: i/o timeout", address::join(host, port))),
        }
    }

    async fn health(&self, port: u16, service: &str) -> Answer {
        let shown = address::join(&self.address, port);
        let limit = go_duration(self.timeout);
        let at = match tokio::time::timeout(self.timeout, tcp::resolve(&self.address, port)).await {
            Ok(Ok(at)) => at,
            Ok(Err(error)) => {
                return Answer::Failure(format!("error: failed to connect service at {shown:?}: {error}"));
            }
            Err(_) => {
                return Answer::Failure(format!("timeout: failed to connect service {shown:?} within {limit}"));
            }
        };
        match health::check(at, service, PROBE_AGENT, self.timeout).await {
            Ok(()) => Answer::Success,
            Err(error @ HealthError::ConnectTimeout) => {
                Answer::Failure(format!("timeout: failed to connect service {shown:?} within {limit}: {error}"))
            }
            Err(HealthError::Connect(text)) => {
                Answer::Failure(format!("error: failed to connect service at {shown:?}: {text}"))
            }
            Err(HealthError::Timeout) => {
                Answer::Failure(format!("timeout: health rpc did not complete within {limit}"))
            }
            Err(HealthError::Unimplemented(text)) => Answer::Failure(format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {text}"
            )),
            Err(HealthError::Refused(text)) => Answer::Failure(format!("error: health rpc probe failed: {text}")),
            Err(HealthError::NotServing(state)) => {
                Answer::Failure(format!("service unhealthy (responded with {state:?})"))
            }
        }
    }

    /// Runs a command in the container; nothing of it outlives its time.
    async fn command(&self, command: &[String]) -> Answer {
        let env = static_env(&self.container);
        let command: Vec<String> =
            command.iter().map(|word| expand::expand(word, |name| env.get(name).copied())).collect();
        let request = v1::ExecSyncRequest {
            container_id: self.id.to_string(),
            cmd: command.clone(),
            timeout: i64::try_from(self.timeout.as_secs()).unwrap_or(i64::MAX),
        };
        let mark = Mark::now();
        let look_after = self.timeout * LOOK_AFTER.0 / LOOK_AFTER.1;
        let mut call = self.runtime.exec_sync(request);
        let mut suspect = None;
        let answer = match tokio::time::timeout(look_after, &mut call).await {
            Ok(answer) => Some(answer),
            Err(_) => {
                let rest = self.timeout - look_after + RUNTIME_SLACK;
                let (answer, found) = tokio::join!(
                    tokio::time::timeout(rest, call),
                    tokio::time::timeout(rest, mark.look(&self.runtime, &self.id, &command))
                );
                suspect = found.ok().flatten();
                answer.ok()
            }
        };
        match answer {
            Some(Ok(answer)) => {
                let mut output = answer.stdout;
                output.extend_from_slice(&answer.stderr);
                output.truncate(OUTPUT_BYTES);
                let output = String::from_utf8_lossy(&output).into_owned();
                if answer.exit_code == 0 { Answer::Success } else { Answer::Failure(output) }
            }
            Some(Err(error)) if !error.is_deadline_exceeded() => Answer::Unknown(error.to_string()),
            Some(Err(_)) | None => {
                if let Some(suspect) = suspect {
                    suspect.end();
                }
                Answer::Failure(format!(
                    "command timed out: {:?} timed out after {}",
                    command.join(" "),
                    go_duration(self.timeout)
                ))
            }
        }
    }
}

fn judge(answer: Result<http::Answer, HttpError>) -> Answer {
    match answer {
        Ok(answer) if answer.is_redirect() => {
            Answer::Warning(format!("Probe terminated redirects, Response body: {}", answer.body))
        }
        Ok(answer) if answer.is_good() => Answer::Success,
        // The body stays out: it may hold what not everybody who reads events may see.
        Ok(answer) => Answer::Failure(format!("HTTP probe failed with statuscode: {}", answer.status)),
        Err(HttpError::Failure(text) | HttpError::NotSecure(text)) => Answer::Failure(text),
        Err(HttpError::Body(text)) => Answer::Unknown(text),
    }
}

/// The values of a container's environment that stand in its manifest, for `$(NAME)` in a probe's command.
fn static_env(container: &Container) -> BTreeMap<&str, &str> {
    let given = container.env.iter().flatten().filter(|variable| variable.value_from.is_none());
    given.map(|variable| (variable.name.as_str(), variable.value.as_deref().unwrap_or_default())).collect()
}

/// Whole seconds as Go prints a duration: `1s`, `1m30s`.
fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s}s"),
        (h, m, s) => format!("{h}h{m}m{s}s"),
    }
}

#[cfg(test)]
mod tests {
    use longshore_cri::RuntimeService as _;
    use longshore_cri::fake::{ExecReply, Failure, FakeOptions, FakeRuntime, On};
    use longshore_util::{Tasks, spawn};
    use serde_json::{Value, json};

    use super::*;

    fn question(runtime: &FakeRuntime, id: &str, probe: Value) -> Question {
        let container = json!({"name": "c", "ports": [{"name": "web", "containerPort": 1}],
            "env": [{"name": "A", "value": "x"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]});
        Question {
            runtime: Arc::new(runtime.clone()),
            id: id.into(),
            container: Arc::new(serde_json::from_value(container).unwrap()),
            probe: Arc::new(serde_json::from_value(probe).unwrap()),
            address: "127.0.0.1".into(),
            timeout: Duration::from_secs(1),
        }
    }

    /// A running container.
    async fn container(runtime: &FakeRuntime) -> String {
        runtime.add_image("i");
        let sandbox = v1::PodSandboxConfig { metadata: Some(v1::PodSandboxMetadata::default()), ..Default::default() };
        let request = v1::RunPodSandboxRequest { config: Some(sandbox.clone()), ..Default::default() };
        let pod_sandbox_id = runtime.run_pod_sandbox(request).await.unwrap().pod_sandbox_id;
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata::default()),
            image: Some(v1::ImageSpec { image: "i".into(), ..Default::default() }),
            ..Default::default()
        };
        let request =
            v1::CreateContainerRequest { pod_sandbox_id, config: Some(config), sandbox_config: Some(sandbox) };
        let id = runtime.create_container(request).await.unwrap().container_id;
        runtime.start_container(v1::StartContainerRequest { container_id: id.clone() }).await.unwrap();
        id
    }

    #[tokio::test]
    async fn connections_and_health_are_told_in_the_usual_words() {
        let runtime = FakeRuntime::new(FakeOptions::default());
        let ask = async |probe| question(&runtime, "x", probe).ask().await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(ask(json!({"tcpSocket": {"port": port}})).await, Answer::Success);
        let refused = "dial tcp 127.0.0.1:1: connect: connection refused";
        assert_eq!(ask(json!({"tcpSocket": {"port": "web"}})).await, Answer::Failure(refused.into()));
        assert!(
            matches!(ask(json!({"tcpSocket": {"port": "db"}})).await, Answer::Unknown(text) if text.contains("db"))
        );
        match ask(json!({"grpc": {"port": 1}})).await {
            Answer::Failure(text) => {
                assert!(text.starts_with("error: failed to connect service at \"127.0.0.1:1\": "), "{text}");
            }
            other => panic!("{other:?}"),
        }
        let silent = ask(json!({"grpc": {"port": port}})).await;
        assert!(matches!(&silent, Answer::Failure(text) if text.starts_with("timeout: ")), "{silent:?}");
        assert_eq!(ask(json!({})).await, Answer::Unknown("missing probe handler for c".into()));
    }

    #[tokio::test]
    async fn a_command_knows_the_values_of_the_manifest_and_its_output_is_told() {
        let runtime = FakeRuntime::new(FakeOptions::default());
        let id = container(&runtime).await;
        runtime.on_exec(|request| ExecReply {
            exit_code: 1,
            stdout: request.cmd.join(" ").into_bytes(),
            stderr: b", no".to_vec(),
        });
        let answer = question(&runtime, &id, json!({"exec": {"command": ["$(A)", "$(B)", "$$(A)"]}})).ask().await;
        assert_eq!(answer, Answer::Failure("x $(B) $(A), no".into()));
    }

    /// Field report O-046: the machine sleeps in the middle of a liveness probe.
    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_passed_while_the_machine_slept_is_no_failure() {
        let runtime = FakeRuntime::new(FakeOptions::default());
        let (id, tasks) = (container(&runtime).await, Tasks::new());
        let asked = async |hangs, slept: &[u64]| {
            runtime.failpoints().clear_all();
            runtime.failpoints().set(On::rpc("ExecSync").times(hangs), Failure::Hang);
            let answer = spawn(&tasks, "ask", question(&runtime, &id, json!({"exec": {"command": ["x"]}})).ask());
            for seconds in slept {
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                tokio::time::advance(Duration::from_secs(*seconds)).await;
            }
            answer.await.unwrap()
        };
        assert_eq!(asked(1, &[3600]).await, Answer::Success);
        let twice = asked(2, &[3600, 3600]).await;
        assert!(matches!(twice, Answer::Failure(_)), "a second time in a row: {twice:?}");
        let late = asked(1, &[3]).await;
        assert!(matches!(late, Answer::Failure(_)), "no more than late: {late:?}");
    }

    #[test]
    fn durations_read_as_in_go() {
        let text = |seconds| go_duration(Duration::from_secs(seconds));
        assert_eq!((text(1), text(90), text(3601)), ("1s".into(), "1m30s".into(), "1h0m1s".into()));
    }

    #[test]
    fn a_bad_status_is_a_failure_without_the_body() {
        let answer = |status| judge(Ok(http::Answer { status, body: "secret".into() }));
        assert_eq!(answer(200), Answer::Success);
        assert_eq!(answer(399), Answer::Warning("Probe terminated redirects, Response body: secret".into()));
        assert_eq!(answer(404), Answer::Failure("HTTP probe failed with statuscode: 404".into()));
        assert_eq!(answer(199), Answer::Failure("HTTP probe failed with statuscode: 199".into()));
        assert_eq!(judge(Err(HttpError::Body("late".into()))), Answer::Unknown("late".into()));
    }
}
