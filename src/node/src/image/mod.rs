//! Images: makes them present as the pull policy wants it, a few pulls at a time, with a back-off per pod and image.
//! Owns the back-off state; says what it does as events of the container.

mod backoff;
mod logins;
mod manager;
#[cfg(test)]
mod tests;

pub use logins::logins;
pub use manager::{ImageError, ImageManager, ImageOptions, ImageRequest, PresentImage};
