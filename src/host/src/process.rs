//! Processes as /proc shows them: who shares a control group, whose child one is, and an end for those that outstay.

use std::fs;
use std::path::Path;

/// Clock ticks per second in /proc; fixed by the kernel's interface on Linux.
const TICKS: f64 = 100.0;
/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// One process. The start tells it from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its parent's.
    pub parent: i32,
    /// Its session, the number of the process that began it.
    pub session: i32,
    /// When it started, in ticks since boot.
    pub started: u64,
}

impl Process {
    /// Reads a process; `None` when it is gone or a zombie.
    pub fn read(pid: i32) -> Option<Self> {
        parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether it is still the same one.
    pub fn lives(&self) -> bool {
        Self::read(self.pid).is_some_and(|now| now.started == self.started)
    }

    /// Kills it, unless its number means another process by now.
    pub fn kill(&self) {
        if self.lives() {
            let pid = nix::unistd::Pid::from_raw(self.pid);
            // An error means that it went in this moment, or that it is not ours to end.
            if let Err(error) = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL) {
                tracing::debug!(pid = self.pid, %error, "process cannot be killed");
            }
        }
    }

    /// Its command line.
    pub fn command(&self) -> Vec<String> {
        let text = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let text = text.strip_suffix(b"\0").unwrap_or(&text);
        text.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }
}

fn parse(pid: i32, stat: &str) -> Option<Process> {
    // The command's name may hold blanks and brackets; fields are counted from its end.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<i32>().ok());
    Some(Process { pid, parent: number(1)?, session: number(3)?, started: fields.get(19)?.parse().ok()? })
}

/// All processes that live at this moment.
pub fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Process::read(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// Now, in the unit of [`Process::started`].
pub fn ticks_now() -> u64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split_ascii_whitespace().next().and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an uptime is small and not negative")]
    let ticks = (seconds * TICKS) as u64;
    ticks
}

/// All processes in the control group of `pid`, itself included; empty when that cannot be read.
pub fn group_of(pid: i32) -> Vec<Process> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mine = pid.to_string();
    let lists = text.lines().filter_map(group_folder).map(|folder| fs::read_to_string(folder + "/cgroup.procs"));
    let members = lists.flatten().find(|list| list.lines().any(|line| line == mine)).unwrap_or_default();
    members.lines().filter_map(|line| Process::read(line.parse().ok()?)).collect()
}

/// The folder of one line of /proc/PID/cgroup; the root is never meant, because it holds strangers.
fn group_folder(line: &str) -> Option<String> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    if path == "/" || path.is_empty() {
        return None;
    }
    if controllers.is_empty() {
        let hybrid = format!("{CGROUPS}/unified");
        let mount = if Path::new(&hybrid).is_dir() { hybrid } else { CGROUPS.to_owned() };
        return Some(mount + path);
    }
    // Named hierarchies, systemd's, are mounted under the name alone.
    let mount = controllers.strip_prefix("name=").unwrap_or(controllers);
    Some(format!("{CGROUPS}/{mount}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 1 7 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 1 1";
        assert_eq!(parse(7, stat), Some(Process { pid: 7, parent: 1, session: 5, started: 777 }));
        assert_eq!(parse(7, &stat.replace(" S ", " Z ")), None);
        assert_eq!(parse(7, "nonsense"), None);
    }

    #[test]
    fn groups_are_found_in_both_versions_and_the_root_never() {
        assert_eq!(group_folder("5:memory:/k/c").as_deref(), Some("/sys/fs/cgroup/memory/k/c"));
        assert_eq!(group_folder("1:name=systemd:/k/c").as_deref(), Some("/sys/fs/cgroup/systemd/k/c"));
        assert!(group_folder("0::/k/c").unwrap().ends_with("/k/c"));
        assert_eq!(group_folder("0::/"), None);
        assert_eq!(group_folder("rubbish"), None);
    }

    #[test]
    fn a_child_is_seen_and_can_be_ended() {
        let before = ticks_now();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let process = Process::read(pid).unwrap();
        assert_eq!(process.parent, i32::try_from(std::process::id()).unwrap());
        assert!(all().contains(&process));
        assert!(process.started + 1 >= before, "{process:?} {before}");
        process.kill();
        assert!(!child.wait().unwrap().success());
        assert!(!process.lives());
    }
}
