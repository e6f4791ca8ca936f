//! Tells what a user may do: administrators everything, nodes their narrow rights, and everyone what his roles allow.

use super::Auth;
use crate::apiserver::identity::{Attributes, Decision, GROUP_MASTERS, UserInfo};

impl Auth {
    /// Decides.
    pub fn decide(&self, user: &UserInfo, asked: &Attributes) -> Decision {
        if user.is_in(GROUP_MASTERS) {
            return Decision::Allow;
        }
        let refusal = match user.node_name() {
            Some(node) => match self.decide_node(node, asked) {
                Decision::Allow => return Decision::Allow,
                Decision::Deny { reason } => reason,
            },
            None => String::new(),
        };
        if self.rbac.allows(user, asked).is_some() { Decision::Allow } else { deny(refusal) }
    }

    /// Returns why a user may do something, in the words of a review; empty where no role is the reason.
    pub(super) fn reason(&self, user: &UserInfo, asked: &Attributes) -> String {
        let by_itself = user.is_in(GROUP_MASTERS)
            || user.node_name().is_some_and(|node| self.decide_node(node, asked).is_allowed());
        if by_itself { String::new() } else { self.rbac.allows(user, asked).unwrap_or_default() }
    }
}

pub(super) fn deny(reason: impl Into<String>) -> Decision {
    Decision::Deny { reason: reason.into() }
}
