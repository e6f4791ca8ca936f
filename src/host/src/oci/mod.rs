//! Container images made by us, as OCI archives that a runtime can import: a node must come up with no registry in reach.
//! Layers are streamed through a temporary file, so that an image of our own binary costs no memory.

mod archive;
mod pause;
mod shared;
#[cfg(test)]
mod tests;

pub use archive::{Entry, ImageArchive, OciError, Source, WrittenImage};
pub use pause::{PAUSE_IMAGE, pause_archive};
pub use shared::shared_objects;
