//! Talks to the service manager, where there is one (`NOTIFY_SOCKET`); elsewhere nothing happens.

use std::time::Duration;

use sd_notify::NotifyState;

/// Tells that the service is up.
pub fn ready() {
    send(NotifyState::Ready);
}

/// Tells that the service goes down.
pub fn stopping() {
    send(NotifyState::Stopping);
}

/// Tells that the service is alive.
pub fn alive() {
    send(NotifyState::Watchdog);
}

/// How often [`alive`] must be told at least, if the service manager watches.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

fn send(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}
