//! What a process costs: resident memory and CPU time, read from /proc.

use std::time::Duration;

use anyhow::Context as _;

/// Returns resident memory (VmRSS) in KiB.
pub fn resident_kib(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    text.lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("no VmRSS in {path}"))
}

/// Returns the CPU time of all threads, dead ones included as far as the kernel kept them.
///
/// Scheduler statistics count nanoseconds, where utime and stime of `stat` count ticks of 10 ms and miss short runs.
pub fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let directory = format!("/proc/{pid}/task");
    let mut total = 0u64;
    for task in std::fs::read_dir(&directory).with_context(|| format!("read {directory}"))? {
        let path = task?.path().join("schedstat");
        // A thread may end between the listing and the read.
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        total += text.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(total))
}
