//! Images: makes them present as the pull policy wants it, each once however many pods ask, with the logins of pod and
//! node and a back-off per pod and image. Owns the pulls under way; says what it does as events of the container.

mod backoff;
mod flight;
mod login;
mod manager;
mod metrics;
mod provider;
mod pulls;
mod rate;
mod records;
#[cfg(test)]
mod tests;

pub use login::{Login, NodeFiles, Origin, Source};
pub use manager::{ImageError, ImageManager, ImageOptions, ImageRequest, PresentImage};
pub use metrics::ImageMetrics;
pub use provider::{ProviderError, ProviderOptions, Providers};
pub use pulls::PullLimits;
pub use records::{Records, VerifyPolicy};
