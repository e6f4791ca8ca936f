//! How the runtime is: asked every five seconds, more often while it is not ready, so that a node becomes Ready at once.

use std::time::Duration;

use longshore_cri::{CriError, SharedRuntime, v1};
use longshore_util::Tasks;
use tokio::sync::watch;
use tokio::time::Instant;

const PERIOD: Duration = Duration::from_secs(5);
/// While not ready, for the first minutes and after a fall.
const EAGER_PERIOD: Duration = Duration::from_millis(200);
const EAGER_FOR: Duration = Duration::from_secs(120);
/// After this much silence the runtime counts as down.
const SILENCE: Duration = Duration::from_secs(30);
/// One question; the agent never hangs on it.
const DEADLINE: Duration = Duration::from_secs(10);

/// What the runtime calls itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// E.g. `containerd`.
    pub name: String,
    /// Its version as nodes show it: no leading `v`, no packager's suffix that is not semantic.
    pub version: String,
}

/// One handler (RuntimeClass) of the runtime.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuntimeHandler {
    /// Empty for the default one.
    pub name: String,
    /// Mounts below a read-only mount are read-only too.
    pub recursive_read_only_mounts: bool,
    /// Pods may have their own users.
    pub user_namespaces: bool,
}

/// The runtime's state as last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeState {
    /// Name and version once it has answered.
    pub version: Option<RuntimeVersion>,
    /// Why containers cannot run; `None` = they can.
    pub runtime_error: Option<String>,
    /// Why pods with a network of their own cannot run; `None` = they can.
    pub network_error: Option<String>,
    /// Handlers, sorted by name.
    pub handlers: Vec<RuntimeHandler>,
    /// Whether it tells what it can do with supplemental groups; `None` = it tells no features.
    pub supplemental_groups_policy: Option<bool>,
    /// Whether it has told its state at all.
    pub answered: bool,
    /// Set when it has been ready once.
    pub was_ready: bool,
}

impl RuntimeState {
    /// Nothing has been told yet.
    pub(crate) fn unknown() -> Self {
        Self {
            version: None,
            runtime_error: Some("container runtime status check may not have completed yet".to_owned()),
            network_error: None,
            handlers: Vec::new(),
            supplemental_groups_policy: None,
            answered: false,
            was_ready: false,
        }
    }

    /// Whether containers can run.
    pub const fn is_ready(&self) -> bool {
        self.runtime_error.is_none()
    }

    /// Whether pods with a network of their own can run.
    pub const fn is_network_ready(&self) -> bool {
        self.network_error.is_none() && self.is_ready()
    }

    /// The errors that keep the node from being Ready, in upstream's order.
    pub(super) fn errors(&self) -> Vec<String> {
        self.runtime_error.iter().chain(&self.network_error).cloned().collect()
    }
}

/// Starts asking; the receiver shows the last answer.
pub(super) fn start(runtime: SharedRuntime, tasks: &Tasks) -> watch::Receiver<RuntimeState> {
    let (state, receiver) = watch::channel(RuntimeState::unknown());
    let token = tasks.token().clone();
    tasks.essential("runtime-status", async move {
        let mut fell = Instant::now();
        let mut last_ready: Option<Instant> = None;
        let mut why = String::new();
        loop {
            let mut next = state.borrow().clone();
            let answered = tokio::select! {
                biased;
                () = token.cancelled() => return,
                answered = ask(&runtime, &mut next) => answered,
            };
            match answered {
                Ok(()) if next.is_ready() => last_ready = Some(Instant::now()),
                Ok(()) => {}
                Err(reason) => why = reason,
            }
            state.send_if_modified(|state| {
                let changed = *state != next;
                if changed && state.is_network_ready() != next.is_network_ready() {
                    tracing::info!(ready = next.is_network_ready(), errors = ?next.errors(), "container runtime");
                }
                if state.is_network_ready() && !next.is_network_ready() {
                    fell = Instant::now();
                }
                *state = next;
                changed
            });
            let ready = state.borrow().is_network_ready();
            let period = if !ready && fell.elapsed() < EAGER_FOR { EAGER_PERIOD } else { PERIOD };
            if last_ready.is_some_and(|last| last.elapsed() > SILENCE) {
                state.send_if_modified(|state| mark_silent(state, &why));
            }
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = tokio::time::sleep(period) => {}
            }
        }
    });
    receiver
}

/// A runtime that said it is not ready keeps its own words; one that says nothing is down. Upstream's message ends after
/// "down".
fn mark_silent(state: &mut RuntimeState, why: &str) -> bool {
    let down = state.runtime_error.is_none();
    if down {
        tracing::warn!(silence = ?SILENCE, error = why, "the container runtime is down");
        state.runtime_error = Some(format!("container runtime is down: {why}"));
    }
    down
}

/// Asks; without an answer the state is left as it was, and why there is none is returned.
async fn ask(runtime: &SharedRuntime, state: &mut RuntimeState) -> Result<(), String> {
    let questions = async {
        if state.version.is_none() {
            let request = v1::VersionRequest { version: "0.1.0".to_owned() };
            let answer = runtime.version(request).await?;
            state.version =
                Some(RuntimeVersion { version: shown_version(&answer.runtime_version), name: answer.runtime_name });
        }
        runtime.status(v1::StatusRequest { verbose: false }).await
    };
    match tokio::time::timeout(DEADLINE, questions).await {
        Ok(Ok(answer)) => {
            read(&answer, state);
            Ok(())
        }
        Ok(Err(error)) => {
            fail(state, &error);
            Err(error.message)
        }
        Err(_) => {
            tracing::warn!("the container runtime does not answer");
            Err(format!("no answer within {} s", DEADLINE.as_secs()))
        }
    }
}

fn fail(state: &mut RuntimeState, error: &CriError) {
    // It may come back as another version.
    if error.is_unavailable() {
        state.version = None;
    }
    tracing::debug!(%error, "container runtime status");
}

fn read(answer: &v1::StatusResponse, state: &mut RuntimeState) {
    state.answered = true;
    let conditions = answer.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    state.network_error =
        unmet(conditions, "NetworkReady").map(|text| format!("container runtime network not ready: {text}"));
    if let Some(text) = unmet(conditions, "RuntimeReady") {
        state.runtime_error = Some(format!("container runtime not ready: {text}"));
        return;
    }
    state.runtime_error = None;
    state.was_ready = true;
    state.handlers = answer
        .runtime_handlers
        .iter()
        .map(|handler| {
            let features = handler.features.unwrap_or_default();
            RuntimeHandler {
                name: handler.name.clone(),
                recursive_read_only_mounts: features.recursive_read_only_mounts,
                user_namespaces: features.user_namespaces,
            }
        })
        .collect();
    state.handlers.sort();
    state.supplemental_groups_policy = answer.features.as_ref().map(|features| features.supplemental_groups_policy);
}

/// The condition's text when it is not true; upstream prints a missing one as Go's nil.
fn unmet(conditions: &[v1::RuntimeCondition], kind: &str) -> Option<String> {
    let Some(condition) = conditions.iter().find(|condition| condition.r#type == kind) else {
        return Some("<nil>".to_owned());
    };
    (!condition.status).then(|| format!("{kind}=false reason:{} message:{}", condition.reason, condition.message))
}

/// A semantic version without its `v`, or the numbers in front of whatever a packager added.
fn shown_version(text: &str) -> String {
    let text = text.strip_prefix('v').unwrap_or(text);
    let numbers = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (head, tail) = text.split_at(numbers);
    let semantic = head.split('.').count() == 3 && head.split('.').all(|part| !part.is_empty());
    if semantic && (tail.is_empty() || tail.starts_with(['-', '+'])) { text } else { head.trim_end_matches('.') }
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_shown_as_upstream_does() {
        for (given, shown) in [
            ("v2.1.9+unknown", "2.1.9+unknown"),
            ("1.6.20~ds1", "1.6.20"),
            ("1.7.24", "1.7.24"),
            ("v2.0.0-rc.1", "2.0.0-rc.1"),
            ("1.5", "1.5"),
        ] {
            assert_eq!(shown_version(given), shown);
        }
    }

    #[test]
    fn conditions_of_the_runtime_become_errors() {
        let condition = |kind: &str, status| v1::RuntimeCondition {
            r#type: kind.into(),
            status,
            reason: "NetworkPluginNotReady".into(),
            message: "cni plugin not initialized".into(),
        };
        let mut state = RuntimeState::unknown();
        let mut answer = v1::StatusResponse {
            status: Some(v1::RuntimeStatus {
                conditions: vec![condition("RuntimeReady", true), condition("NetworkReady", false)],
            }),
            ..v1::StatusResponse::default()
        };
        read(&answer, &mut state);
        assert!(state.is_ready() && !state.is_network_ready());
        assert_eq!(
            state.errors(),
            [
                "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized"
            ]
        );
        answer.status = Some(v1::RuntimeStatus { conditions: vec![condition("NetworkReady", true)] });
        read(&answer, &mut state);
        assert_eq!(state.errors(), ["container runtime not ready: <nil>"]);
    }
}
