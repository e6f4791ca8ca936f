//! The node's network as pods see it: no sandbox with a network of its own is made while the runtime says that it has
//! none to give. Pods that already have their sandbox go on, and so do those on the host's network.

use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::Worker;
use crate::pod::plan::{Action, Plan};

/// Reason and first words of the event, as upstream has them.
const REASON: &str = "NetworkNotReady";
const TEXT: &str = "network is not ready";
/// Pause between two of the same event.
const TELL_AGAIN: Duration = Duration::from_secs(600);

/// Whether pods can get a network of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NetworkState {
    /// They can.
    #[default]
    Ready,
    /// The runtime has not told yet.
    Unknown,
    /// The runtime says they cannot, and why.
    NotReady(String),
}

/// The state that all workers share.
#[derive(Debug, Default)]
pub(in crate::pod) struct Network(Mutex<NetworkState>);

impl Network {
    /// Notes the state; returns whether pods that waited may go on.
    pub(in crate::pod) fn set(&self, state: NetworkState) -> bool {
        let mut known = self.0.lock();
        let was_ready = *known == NetworkState::Ready;
        *known = state;
        !was_ready && *known == NetworkState::Ready
    }

    fn get(&self) -> NetworkState {
        self.0.lock().clone()
    }
}

/// What a pod was last told of the network, and when it is told again.
#[derive(Debug)]
pub(super) struct Told {
    why: String,
    again: Timestamp,
}

impl Worker {
    /// Holds a pod back that would need a network which is not there; a change of the network rings the bell.
    pub(super) fn waits_for_network(&mut self, plan: &Plan) -> bool {
        let makes_sandbox = plan.actions.iter().any(|action| matches!(action, Action::CreateSandbox { .. }));
        if self.wanted.host_network || !makes_sandbox {
            return false;
        }
        match self.cx.network.get() {
            NetworkState::Ready => {
                self.network_told = None;
                false
            }
            NetworkState::Unknown => true,
            NetworkState::NotReady(why) => {
                self.tell_of_network(why);
                true
            }
        }
    }

    /// Tells at once what is new, and what is not so rarely that the event just outlives its hour.
    fn tell_of_network(&mut self, why: String) {
        let now = self.now();
        let told = self.network_told.as_ref().filter(|told| told.why == why);
        match told {
            Some(told) if told.again > now => {
                let again = told.again;
                self.wake_by(again);
                return;
            }
            Some(_) => {}
            None => tracing::warn!(pod = %self.desired.key, error = %why, "sandbox waits for the network"),
        }
        self.events().warning(&self.target(), REASON, format!("{TEXT}: {why}"));
        let again = crate::pod::plan::later(now, TELL_AGAIN);
        self.network_told = Some(Told { why, again });
        self.wake_by(again);
    }
}
