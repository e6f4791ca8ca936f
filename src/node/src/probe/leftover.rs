//! Ends what a timed-out command leaves behind. Runtimes kill the command itself; its children live on in the container
//! and pile up, probe by probe.
//!
//! Shortly before a command's time is over its first process is looked up: the oldest one in the container's control group
//! that began after the command was sent, has its parent outside the group, and bears the command's words. Runtimes begin
//! a session with it, so its children are known by that session also after it is gone.

use longshore_cri::{SharedRuntime, v1};
use longshore_host::process::{self, Process};

use crate::model::ContainerId;

/// Remembers when a command was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    sent: u64,
}

/// The first process of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Suspect {
    /// The container's first process.
    container: Process,
    /// The command's.
    command: Process,
}

impl Mark {
    pub(super) fn now() -> Self {
        Self { sent: process::ticks_now() }
    }

    /// Looks for the command's first process; `None` when it cannot be told.
    pub(super) async fn look(self, runtime: &SharedRuntime, id: &ContainerId, command: &[String]) -> Option<Suspect> {
        let request = v1::ContainerStatusRequest { container_id: id.to_string(), verbose: true };
        let answer = runtime.container_status(request).await.ok()?;
        let info: serde_json::Value = serde_json::from_str(answer.info.get("info")?).ok()?;
        let pid = i32::try_from(info.get("pid")?.as_i64()?).ok().filter(|pid| *pid > 1)?;
        let container = Process::read(pid)?;
        let command = first_of(&process::group_of(pid), container, self.sent, |p| p.command() == command)?;
        Some(Suspect { container, command })
    }
}

impl Suspect {
    /// Kills the command and all that share its session.
    pub(super) fn end(self) {
        if !self.container.lives() {
            return;
        }
        for process in of_session(&process::group_of(self.container.pid), self.command) {
            tracing::debug!(pid = process.pid, "ending what a timed-out command left behind");
            process.kill();
        }
    }
}

fn first_of(
    group: &[Process],
    container: Process,
    sent: u64,
    is_command: impl Fn(&Process) -> bool,
) -> Option<Process> {
    let outside = |p: &Process| group.iter().all(|other| other.pid != p.parent);
    let mut tops: Vec<&Process> =
        group.iter().filter(|p| p.pid != container.pid && p.started >= sent && outside(p)).collect();
    tops.sort_by_key(|p| (p.started, p.pid));
    tops.into_iter().find(|p| is_command(p)).copied()
}

fn of_session(group: &[Process], command: Process) -> Vec<Process> {
    // Nothing of an earlier session can be meant: numbers are used again.
    group.iter().filter(|p| p.session == command.session && p.started >= command.started).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn p(pid: i32, parent: i32, session: i32, started: u64) -> Process {
        Process { pid, parent, session, started }
    }

    #[test]
    fn only_the_command_and_its_children_are_meant() {
        let main = p(10, 1, 10, 100);
        let group = [
            main,
            p(11, 10, 10, 500), // a child of the application, born meanwhile
            p(12, 10, 12, 501), // the same with a session of its own
            p(20, 1, 20, 450),  // an older command, another probe's
            p(30, 1, 30, 500),  // ours
            p(31, 30, 30, 502), // its child
        ];
        let ours = first_of(&group, main, 499, |_| true).unwrap();
        assert_eq!(ours.pid, 30);
        assert_eq!(first_of(&group, main, 499, |_| false), None);
        assert_eq!(first_of(&group, main, 503, |_| true), None);
        // Its first process is gone, its child has a new parent.
        let later = [main, group[1], group[2], group[3], p(31, 10, 30, 502)];
        let pids: Vec<i32> = of_session(&later, ours).iter().map(|p| p.pid).collect();
        assert_eq!(pids, [31]);
    }
}
