//! Whether the runtime could be listed lately.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Without a finished relist for so long the node is not Ready.
const THRESHOLD: Duration = Duration::from_secs(180);

#[derive(Debug, Default)]
pub(super) struct Health {
    last: Mutex<Option<Instant>>,
}

impl Health {
    pub(super) fn relisted(&self) {
        *self.last.lock() = Some(Instant::now());
    }

    pub(super) fn check(&self) -> Result<(), String> {
        // The words are upstream's, where the relist is called PLEG: tools look for them.
        let Some(last) = *self.last.lock() else {
            return Err("PLEG is not healthy: pleg has yet to be successful".to_owned());
        };
        let age = last.elapsed();
        if age <= THRESHOLD {
            return Ok(());
        }
        let (minutes, seconds) = (age.as_secs() / 60, age.as_secs() % 60);
        let millis = age.subsec_millis();
        let age = if minutes < 60 {
            format!("{minutes}m{seconds}.{millis:03}s")
        } else {
            format!("{}h{}m{seconds}.{millis:03}s", minutes / 60, minutes % 60)
        };
        Err(format!("PLEG is not healthy: pleg was last seen active {age} ago; threshold is 3m0s"))
    }
}
