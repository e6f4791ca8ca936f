//! The engine on the fake runtime, with paused time, and single questions to servers on loopback.

mod engine;
mod http;
