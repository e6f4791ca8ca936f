//! The apiserver: who asks, whether they may, and the answer out of the store.

pub mod identity;
