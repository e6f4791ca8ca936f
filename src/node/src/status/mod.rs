//! Statuses on their way to the API. `writer` keeps the newest status of each pod and sends what differs; `diff` decides
//! what that is.

mod diff;
mod writer;

pub use writer::{StatusTap, StatusWriter};
