//! Admission of one pod: waits for its turn, has the pure chain decide, makes room where that is the way out. Decided once
//! per uid and kept in the journal; only a static pod that was refused is judged again, whenever others have gone.

use std::sync::Arc;
use std::time::Duration;

use super::{Stage, Worker, wanted};
use crate::admit::{self, Decision, NODE_AFFINITY, Refusal};
use crate::event::{EventTarget, EventType};
use crate::journal::Verdict;
use crate::model::{PodControl as _, PodUid, Terminate};
use crate::pod::grants::Held;

/// Reason and text of a pod that made room for a critical one.
const PREEMPTING: &str = "Preempting";
/// Reason and text of a pod that holds its place longer than its grace and half of it.
const EXCEEDED_GRACE: &str = "ExceededGracePeriod";
const EXCEEDED_GRACE_TEXT: &str = "Container runtime did not kill the pod within specified grace period.";
const PREEMPTED: &str = "Preempted in order to admit critical pod";
/// Least time that victims get before the chain is asked again; more if their own grace is longer.
const LEAST_WAIT: Duration = Duration::from_secs(10);
/// How long the runtime may take to tell what it has of a pod that is about to be refused; others wait behind it.
const LOOK_WITHIN: Duration = Duration::from_secs(2);

impl Worker {
    /// Decides whether the pod may run. May be dropped at any await and called again.
    pub(super) async fn judge(&mut self) {
        self.wake_at = None;
        self.room = false;
        if admit::asks_runtime(&self.desired.pod) {
            // Not while others wait behind it.
            self.turn = None;
            self.cx.options.grounds.runtime_known().await;
        }
        if self.turn.is_none() {
            self.turn = Some(self.table.take_turn());
        }
        if let Some(turn) = &self.turn {
            turn.come().await;
        }
        let mut decision = self.decide().await;
        if decision != Decision::Admit && self.facts.admission.is_none() {
            match self.runs_already().await {
                Some(true) => decision = Decision::Admit,
                Some(false) => {}
                None => {
                    self.turn = None;
                    return;
                }
            }
        }
        let refusal = match decision {
            Decision::Admit => None,
            Decision::Refuse(refusal) => Some(refusal),
            Decision::MakeRoom { victims, resource, refusal } => {
                let _room = self.table.make_room();
                self.preempt(&victims, &resource).await;
                (self.decide().await != Decision::Admit).then_some(refusal)
            }
        };
        match refusal {
            None => self.admitted(),
            Some(refusal) => self.refused(refusal),
        }
        self.turn = None;
    }

    /// What the runtime has of the pod was admitted once, by this agent or by another one before it. `None` = the runtime
    /// does not tell; a later try is noted.
    async fn runs_already(&mut self) -> Option<bool> {
        if !self.fresh {
            match tokio::time::timeout(LOOK_WITHIN, self.look()).await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(_) => {
                    let at = self.retry_at("look", None);
                    self.wake_by(at);
                    return None;
                }
            }
        }
        Some(!self.observed.sandboxes.is_empty() || !self.observed.containers.is_empty())
    }

    async fn decide(&self) -> Decision {
        let grounds = Arc::clone(&self.cx.options.grounds);
        let decision = self.table.judge(&self.desired, &grounds.node(), &self.shown);
        if !matches!(&decision, Decision::Refuse(refusal) if refusal.reason == NODE_AFFINITY) {
            return decision;
        }
        // The label that is missing may be on its way to us.
        let node = grounds.look_again().await;
        self.table.judge(&self.desired, &node, &self.shown)
    }

    fn admitted(&mut self) {
        self.facts.admission = Some(Verdict::Admitted);
        let held = Held::of(&self.desired.pod);
        self.facts.requests.clone_from(&held.requests);
        self.facts.granted = Some(held.sizes.clone());
        if !self.shown.holds_place() {
            // Not judged but found running.
            self.shown.hold(held);
            self.shown.set_admitted();
        }
        // What was held is known; what the spec asks for by now is decided over at once.
        self.table.settle("pods_added");
        if self.facts.ended {
            // A static pod that was refused before: its life begins now.
            self.facts.ended = false;
            self.facts.closed = false;
            self.facts.status = None;
            self.facts.start_time = Some(self.now());
            self.published = None;
            self.stage = Stage::Sync;
            tracing::info!(pod = %self.desired.key, uid = %self.desired.uid, "there is room now for a pod that was refused");
        }
        self.unsaved = true;
    }

    fn refused(&mut self, refusal: Refusal) {
        let Refusal { reason, message } = refusal;
        let verdict = Verdict::Rejected { reason: reason.clone(), message: message.clone() };
        let again = self.facts.admission.as_ref() == Some(&verdict);
        self.stage = Stage::Ended;
        self.facts.ended = true;
        if self.desired.source.is_static() {
            self.shown.set_refused();
        } else {
            self.shown.set_over();
        }
        if again {
            return;
        }
        self.cx.options.metrics.pod_refused(&reason);
        self.events().event(&EventTarget::pod(&self.desired), EventType::Warning, reason.clone(), message);
        tracing::info!(pod = %self.desired.key, uid = %self.desired.uid, %reason, "pod refused");
        self.facts.admission = Some(verdict);
        // Refused for another reason than before: the status tells the newest.
        self.facts.closed = false;
        self.facts.status = None;
        self.unsaved = true;
    }

    /// Has others go and waits for it, but not for ever: one that cannot be stopped must not hold up the node.
    async fn preempt(&self, victims: &[PodUid], resource: &str) {
        let mut wait = LEAST_WAIT;
        for victim in victims {
            let Some(desired) = self.table.desired(victim) else { continue };
            tracing::info!(pod = %self.desired.key, victim = %desired.key, resource, "pod makes room for a critical one");
            self.events().warning(&EventTarget::pod(&desired), PREEMPTING, PREEMPTED);
            self.cx.options.metrics.pod_preempted(resource);
            let grace = u64::try_from(wanted::spec_grace(&desired.pod)).unwrap_or(0);
            wait = wait.max(Duration::from_millis(grace.saturating_mul(1500)));
            let order = Terminate { grace: None, reason: PREEMPTING, message: PREEMPTED.to_owned(), disruption: true };
            self.table.terminate(victim, order);
        }
        if tokio::time::timeout(wait, self.table.all_over(victims)).await.is_err() {
            for left in self.table.holding(victims) {
                tracing::warn!(pod = %self.desired.key, victim = %left.key, "a pod that should make room is still there");
                self.events().warning(&EventTarget::pod(&left), EXCEEDED_GRACE, EXCEEDED_GRACE_TEXT);
            }
        }
    }

    /// Says whether the pod waits, refused, and should be judged again.
    pub(super) fn waits_for_room(&self) -> bool {
        self.desired.source.is_static()
            && !self.removed
            && self.room
            && matches!(self.facts.admission, Some(Verdict::Rejected { .. }))
    }
}
