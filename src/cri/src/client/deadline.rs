//! How long each kind of call may take, as upstream does it. `usual` is the configured `runtimeRequestTimeout`; `None`
//! is for ever, until the caller drops the call.

use std::time::Duration;

use crate::v1;

/// Seconds as the contract carries them; a negative number counts as zero.
fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

pub(crate) fn usual<R>(_: &R, usual: Duration) -> Option<Duration> {
    Some(usual)
}

/// A big image over a slow line is no error.
pub(crate) fn none<R>(_: &R, _: Duration) -> Option<Duration> {
    None
}

/// The network may take its time, and a sandbox given up half-made costs more than waiting.
pub(crate) fn run_pod_sandbox(_: &v1::RunPodSandboxRequest, usual: Duration) -> Option<Duration> {
    Some(usual.saturating_mul(2))
}

/// The runtime may use up the whole grace before it kills.
pub(crate) fn stop_container(request: &v1::StopContainerRequest, usual: Duration) -> Option<Duration> {
    Some(seconds(request.timeout).saturating_add(usual))
}

/// The runtime ends the command itself; zero means that the command may take for ever.
pub(crate) fn exec_sync(request: &v1::ExecSyncRequest, usual: Duration) -> Option<Duration> {
    let timeout = seconds(request.timeout);
    (!timeout.is_zero()).then(|| timeout.saturating_add(usual))
}

/// Much memory takes long to write.
pub(crate) fn checkpoint_container(request: &v1::CheckpointContainerRequest, usual: Duration) -> Option<Duration> {
    Some(seconds(request.timeout).max(usual))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_call_has_the_deadline_that_upstream_gives_it() {
        let (two, second) = (Duration::from_secs(120), Duration::from_secs(1));
        let stop = |timeout| stop_container(&v1::StopContainerRequest { timeout, ..Default::default() }, two);
        let exec = |timeout| exec_sync(&v1::ExecSyncRequest { timeout, ..Default::default() }, two);
        let save =
            |timeout| checkpoint_container(&v1::CheckpointContainerRequest { timeout, ..Default::default() }, two);
        assert_eq!(usual(&(), two), Some(two));
        assert_eq!(none(&(), two), None);
        assert_eq!(run_pod_sandbox(&v1::RunPodSandboxRequest::default(), two), Some(two * 2));
        assert_eq!(stop(30), Some(two + second * 30));
        assert_eq!(stop(-1), Some(two));
        assert_eq!(exec(1), Some(two + second));
        assert_eq!(exec(0), None);
        assert_eq!((save(10), save(300)), (Some(two), Some(second * 300)));
    }
}
