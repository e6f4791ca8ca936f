//! Volumes of pods: made before the sandbox, kept up to date while the pod lives, undone when its containers are gone.
//!
//! A volume stands at `<root>/pods/<uid>/volumes/kubernetes.io~<plugin>/<name>`. What holds data of the API is written
//! aside and switched over in one rename, so that readers see the old or the new content, never a mixture. Teardown
//! unmounts everything below the pod's folder first and deletes nothing while a mount remains: data behind a mount belong to
//! somebody else.

mod atomic;
mod empty_dir;
mod host_path;
mod manager;
mod mounter;
mod payload;
mod projected;
mod sub_path;
#[cfg(test)]
mod tests;

pub use manager::{VolumeError, VolumeManager, VolumeOptions};
pub use mounter::{HostMounter, Mounter};
