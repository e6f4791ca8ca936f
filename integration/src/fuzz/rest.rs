//! When a pod has come to rest: all that is to run runs, and what is shown is so.

use super::Role;
use super::pod::{Life, PodBook};
use super::rules::restarts_all;

impl PodBook {
    /// Whether it goes back to its beginning for ever: the good end of an init container asks for that. How far it comes each
    /// time is a matter of how fast the machine is.
    pub fn is_endless(&self) -> bool {
        self.plan.parts.iter().any(|part| part.role == Role::Init && restarts_all(part, 0))
    }

    /// Why the pod has not come to rest; nothing = it has.
    pub fn unrest(&self) -> Option<String> {
        if self.is_final() {
            return (!self.running().is_empty()).then(|| "it is over and runs".to_owned());
        }
        if self.is_refused() {
            return None;
        }
        if self.plan.deadline.is_some() {
            return Some("its time is not up".to_owned());
        }
        if self.is_finished() {
            return Some("it is finished and not shown so".to_owned());
        }
        for part in &self.plan.parts {
            let runs = self.newest(&part.name).is_some_and(|made| made.life == Life::Runs);
            if part.role != Role::Init && !runs && !self.is_over(&part.name) {
                return Some(format!("{} does not run", part.name));
            }
        }
        let Some(status) = self.status() else { return Some("no status".to_owned()) };
        for container in status.container_statuses.iter().flatten() {
            if !container.ready && !self.is_over(&container.name) {
                return Some(format!("{} is not ready: {:?}", container.name, container.state));
            }
        }
        self.lie()
    }
}
