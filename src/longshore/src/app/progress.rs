//! What `up` says while it works: one line a step with the time it took; a spinner only on a terminal.

use std::future::Future;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};

/// The talk on stderr.
#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
    started: Instant,
}

impl Progress {
    /// Starts the clock.
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), started: Instant::now() }
    }

    /// Runs one step; its result says in a few words what came of it.
    pub(crate) async fn step<T>(&self, name: &str, work: impl Future<Output = Result<(T, String)>>) -> Result<T> {
        let spinner = self.terminal.then(|| {
            let style =
                ProgressStyle::with_template("  {spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
            let bar = ProgressBar::new_spinner().with_style(style).with_message(name.to_owned());
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        let started = Instant::now();
        let result = Box::pin(work).await;
        if let Some(spinner) = spinner {
            spinner.finish_and_clear();
        }
        let took = started.elapsed().as_secs_f64();
        match result {
            Ok((value, outcome)) => {
                self.say(&format!("  {} {name}: {outcome} ({took:.2} s)", self.mark("✓", "ok")));
                Ok(value)
            }
            Err(error) => {
                self.say(&format!("  {} {name} ({took:.2} s)", self.mark("✗", "failed")));
                Err(error).with_context(|| name.to_owned())
            }
        }
    }

    /// Says one line.
    pub(crate) fn say(&self, line: &str) {
        drop(writeln!(std::io::stderr().lock(), "{line}"));
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn mark(&self, sign: &'static str, word: &'static str) -> &'static str {
        if self.terminal { sign } else { word }
    }
}
