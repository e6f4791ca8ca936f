//! Objects that pods refer to: configmaps, secrets, services, tokens. Read on demand, kept for a while, never logged.

mod lookup;

pub use lookup::Lookup;
