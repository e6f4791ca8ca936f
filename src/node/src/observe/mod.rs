//! What the runtime has: tells pods' workers that something of theirs changed, and reads one pod or all of them.
//! Owns the event stream and the relist; it never decides anything about a pod and never changes the runtime.

mod read;

pub use read::{PodRuntime, read_all, read_pod};
