//! What to do about one name: pure.

use k8s_openapi::api::core::v1::Pod;

use crate::model::annotations::{CONFIG_MIRROR, revision};
use crate::model::{DesiredPod, PodUid};

/// What is known of one name.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    /// The static pod that the sources want.
    pub(super) desired: Option<&'a DesiredPod>,
    /// The static pod of that name that the node still holds; another uid means an older one that is ending.
    pub(super) running: Option<&'a PodUid>,
    /// The mirror in the API.
    pub(super) mirror: Option<&'a Pod>,
    /// The API has been listed.
    pub(super) listed: bool,
    /// Every source has spoken, or the one that had the mirror's pod let go of it.
    pub(super) ready: bool,
}

/// The next step for one name.
#[derive(Debug, Clone)]
pub(super) enum Action {
    /// All is well, or nothing can be known yet.
    Nothing,
    /// An older pod of that name is still ending; its mirror shows how.
    Wait,
    /// Make a mirror of this pod.
    Create(Box<DesiredPod>),
    /// Delete the mirror with this uid.
    Delete(String),
}

/// The uid of the static pod that a mirror stands for.
pub(super) fn hash_of(mirror: &Pod) -> Option<&str> {
    mirror.metadata.annotations.as_ref()?.get(CONFIG_MIRROR).map(String::as_str)
}

/// Decides about one name.
pub(super) fn plan(facts: &Facts<'_>) -> Action {
    if !facts.listed {
        return Action::Nothing;
    }
    let delete = |mirror: &Pod| Action::Delete(mirror.metadata.uid.clone().unwrap_or_default());
    match (facts.desired, facts.mirror) {
        (Some(desired), _) if facts.running.is_some_and(|running| *running != desired.uid) => Action::Wait,
        (Some(desired), Some(mirror)) => {
            // Where the uid is the same for every manifest, the revision tells; mirrors of other agents have none.
            let is_right = hash_of(mirror) == Some(desired.uid.as_str())
                && revision(mirror).is_none_or(|shown| Some(shown) == revision(&desired.pod))
                && mirror.metadata.deletion_timestamp.is_none();
            if is_right { Action::Nothing } else { delete(mirror) }
        }
        (Some(desired), None) => Action::Create(Box::new(desired.clone())),
        (None, Some(_)) if facts.running.is_some() => Action::Wait,
        (None, Some(mirror)) if facts.ready => delete(mirror),
        (None, Some(_) | None) => Action::Nothing,
    }
}
