//! Ephemeral containers: guests that somebody put into the running pod. Each runs once, whatever became of it.

use super::{Input, Plan};
use crate::model::SandboxId;
use crate::pod::observed::InstanceState;

/// Starts those that never ran.
pub(super) fn start(input: &Input<'_>, sandbox: &SandboxId, plan: &mut Plan) {
    for member in &input.wanted.ephemeral {
        match input.observed.newest(&member.name) {
            Some(made) if made.state == InstanceState::Created && made.sandbox == *sandbox => {
                super::adopt(input, made, plan);
            }
            Some(_) => {}
            None if input.counted.contains_key(&member.name) => {}
            None => super::start(input, member, None, plan),
        }
    }
}
