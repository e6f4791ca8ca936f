//! The `longshore` program: command line on the outside (`cli`), composition of node and plane on the inside (`app`).
//! Exit codes: 0 done, 64 the command line or configuration is wrong, 1 anything else.

mod app;
mod cli;

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// See docs/decisions/0017-allocator.md.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// One arena, for an agent's few objects would spread over the half-empty pages of many; threads keep small pieces at hand, so
/// that they seldom meet in it. Free pages go back to the system within half a second. The allocator reads this at its first
/// call, before `main`.
#[expect(unsafe_code, reason = "the allocator looks for this name")]
// SAFETY: the name is the allocator's own for its settings, a pointer to a text that ends with a nought; nobody else defines it.
#[unsafe(export_name = "_rjem_malloc_conf")]
static ALLOCATOR_SETTINGS: &[u8; 72] = b"narenas:1,dirty_decay_ms:500,muzzy_decay_ms:0,tcache_max:2048,thp:never\0";

fn main() -> ExitCode {
    cli::run(std::env::args_os().collect())
}
