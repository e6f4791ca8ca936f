//! Keeps a long-running process small: what the start and bursts of work left in memory is given back once it is quiet.

use std::time::Duration;

use longshore_host::sys;
use longshore_util::Tasks;

/// How often a look is taken. Nothing is done unless the process has worked since.
const PERIOD: Duration = Duration::from_secs(20);
/// CPU time between two looks below which the process counts as quiet.
const QUIET: Duration = Duration::from_millis(200);
/// CPU time since the last giving back from which on another one is worth its cost.
const WORTH: Duration = Duration::from_millis(100);

/// Gives memory back after the start, and again after each burst of work.
pub(crate) fn keep_small(tasks: &Tasks) {
    let token = tasks.token().clone();
    let work = async move {
        // The start is always worth it: most of what it touched is never needed again.
        let (mut seen, mut given_at) = (sys::cpu_time(), None);
        loop {
            tokio::select! {
                () = token.cancelled() => return,
                () = tokio::time::sleep(PERIOD) => {}
            }
            let now = sys::cpu_time();
            if is_due(now.saturating_sub(seen), given_at.map(|at| now.saturating_sub(at))) {
                match tokio::task::spawn_blocking(sys::give_back).await {
                    Ok(Ok(bytes)) => tracing::debug!(bytes, "gave program pages back"),
                    Ok(Err(error)) => tracing::debug!(%error, "cannot read the process's own maps"),
                    Err(error) => tracing::debug!(%error, "giving memory back"),
                }
                given_at = Some(sys::cpu_time());
            }
            seen = now;
        }
    };
    longshore_util::spawn(tasks, "keep small", work);
}

fn is_due(since_last_look: Duration, since_given: Option<Duration>) -> bool {
    since_last_look < QUIET && since_given.is_none_or(|used| used >= WORTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_when_work_is_over_and_was_enough() {
        let ms = Duration::from_millis;
        assert!(is_due(ms(5), None), "after the start");
        assert!(is_due(ms(5), Some(ms(300))));
        assert!(!is_due(ms(900), Some(ms(900))), "in the midst of a burst");
        assert!(!is_due(ms(5), Some(ms(20))), "nothing new to give");
    }
}
