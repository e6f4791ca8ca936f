//! Ids and handles that rooms share. Imports no room, so that `probe`, `evict`, `observe`, `source` and `server` reach
//! pods only through what stands here.

mod alone;
pub mod annotations;
mod change;
mod handle;
mod ids;
mod kills;
mod local;

pub use alone::Alone;
pub use change::{DesiredPod, PodChange, PodSink, SourceKind};
pub use handle::{PodControl, PodView, ReadPods, Terminate};
pub use ids::{ContainerId, MirrorUid, PodKey, PodUid, SandboxId};
pub use kills::MemoryKills;
pub use local::{ContainerNotes, EndView, LocalPods};
