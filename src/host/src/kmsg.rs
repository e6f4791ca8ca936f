//! The kernel's log as it is written from now on, and what it says of processes that were killed for memory.
//! Costs nothing while the kernel is silent.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::libc;

use crate::sys::ReadableFile;

/// The longest record that the kernel gives out.
const RECORD: usize = 8192;
/// What programs write into the log carries a facility; the kernel's own is zero, below it stand eight levels.
const KERNEL_BELOW: u32 = 8;

/// Reads the kernel's log.
#[derive(Debug)]
pub struct KernelLog(ReadableFile);

impl KernelLog {
    /// Opens `/dev/kmsg` at its end. Needs a tokio runtime.
    ///
    /// # Errors
    /// Where it is not there or not allowed, as in some containers.
    pub fn open() -> io::Result<Self> {
        let path = Path::new("/dev/kmsg");
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        let mut file = File::options().read(true).custom_flags(flags).open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self(ReadableFile::new(file)?))
    }

    /// Waits for the next message of the kernel itself.
    ///
    /// # Errors
    /// When the log cannot be read any more.
    pub async fn next(&self) -> io::Result<String> {
        let mut record = [0; RECORD];
        loop {
            match self.0.read(&mut record).await {
                Ok(length) => {
                    let record = String::from_utf8_lossy(record.get(..length).unwrap_or_default());
                    if let Some(text) = of_kernel(&record) {
                        return Ok(text.to_owned());
                    }
                }
                // Overwritten before it was read: the next read goes on with the oldest that is left.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The first line of a record `level,number,time,flags;text`, if the kernel itself wrote it.
fn of_kernel(record: &str) -> Option<&str> {
    let (head, text) = record.split_once(';')?;
    let level: u32 = head.split(',').next()?.parse().ok()?;
    (level < KERNEL_BELOW).then(|| text.lines().next().unwrap_or_default())
}

/// A process that the kernel killed because a group of processes, or the machine, had no memory left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryKill {
    /// The process's short name.
    pub process: String,
    /// Its number on the host.
    pub pid: u32,
    /// The control group that it was in.
    pub group: String,
    /// The control group whose bound was reached; none when it was the machine's memory.
    pub bound: Option<String>,
}

impl MemoryKill {
    /// Reads the summary line that the kernel writes for each such kill (since Linux 5.0).
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let rest = line.strip_prefix("oom-kill:constraint=")?;
        // The name may hold anything, also commas; what follows it is numbers.
        let (rest, _uid) = rest.rsplit_once(",uid=")?;
        let (rest, pid) = rest.rsplit_once(",pid=")?;
        let (rest, place) = rest.split_once(",task_memcg=").map(|(head, tail)| (tail, head))?;
        let (group, process) = rest.split_once(",task=")?;
        let bound = place.starts_with("CONSTRAINT_MEMCG,").then(|| place.rsplit_once(",oom_memcg=")).flatten();
        Some(Self {
            process: process.to_owned(),
            pid: pid.parse().ok()?,
            group: group.to_owned(),
            bound: bound.map(|(_, bound)| bound.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kernels_own_words_count() {
        assert_eq!(of_kernel("6,339,5140900,-;hello\n SUBSYSTEM=x\n"), Some("hello"));
        assert_eq!(of_kernel("14,339,5140900,-;oom-kill:constraint=CONSTRAINT_MEMCG\n"), None);
        assert_eq!(of_kernel("nothing"), None);
    }

    #[test]
    fn a_kill_at_a_groups_bound_names_process_group_and_bound() {
        let line = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c1,mems_allowed=0,oom_memcg=/kubepods/podu/c1,task_memcg=/kubepods/podu/c1,task=a,b,pid=42,uid=0";
        let kill = MemoryKill::parse(line).unwrap();
        assert_eq!((kill.process.as_str(), kill.pid, kill.group.as_str()), ("a,b", 42, "/kubepods/podu/c1"));
        assert_eq!(kill.bound.as_deref(), Some("/kubepods/podu/c1"));
    }

    #[test]
    fn a_kill_for_the_machines_memory_has_no_bound() {
        let line = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user.slice,task=mysqld,pid=7,uid=1000";
        let kill = MemoryKill::parse(line).unwrap();
        assert_eq!((kill.process.as_str(), kill.bound), ("mysqld", None));
        assert_eq!(MemoryKill::parse("Out of memory: Killed process 7 (mysqld)"), None);
    }
}
