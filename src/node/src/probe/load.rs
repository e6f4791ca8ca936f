//! How much of the node the commands of probes take. Each makes the runtime start a process, so many of them cost more than
//! the pods they ask; the node says so once, and again only after it was better for a while. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// Over how long it is counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Share of the processors, in percent, from which on it is told.
const TOLD_FROM: u128 = 10;
/// And below which it counts as over.
const OVER_BELOW: u128 = 5;

/// What the last window shows, when that is news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heavy {
    /// Commands that ended.
    pub(super) runs: u32,
    /// How long one took.
    pub(super) each: Duration,
    /// How much of the processors they had, if each kept one busy.
    pub(super) percent: u128,
}

/// Counts; asked at the end of each command, so that it costs nothing while there are none.
#[derive(Debug)]
pub(super) struct Load {
    processors: u128,
    begun: Option<Instant>,
    runs: u32,
    spent: Duration,
    told: bool,
}

impl Load {
    pub(super) fn new(processors: usize) -> Self {
        Self { processors: processors.max(1) as u128, begun: None, runs: 0, spent: Duration::ZERO, told: false }
    }

    /// A command has ended.
    pub(super) fn add(&mut self, took: Duration, now: Instant) -> Option<Heavy> {
        let begun = *self.begun.get_or_insert(now);
        self.runs += 1;
        self.spent += took;
        let window = now.duration_since(begun);
        if window < WINDOW {
            return None;
        }
        let percent = self.spent.as_millis() * 100 / (window.as_millis() * self.processors);
        let heavy = Heavy { runs: self.runs, each: self.spent / self.runs, percent };
        (self.begun, self.runs, self.spent) = (Some(now), 0, Duration::ZERO);
        let was_told = self.told;
        self.told = if was_told { percent >= OVER_BELOW } else { percent >= TOLD_FROM };
        (self.told && !was_told).then_some(heavy)
    }
}

impl Heavy {
    pub(super) fn text(&self) -> String {
        format!(
            "commands of probes keep about {} % of the node's processors busy ({} in the last minute, {} ms each): longer periods, or probes by HTTP, TCP or gRPC, cost less",
            self.percent,
            self.runs,
            self.each.as_millis()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `count` commands a second for a minute; returns what was told.
    fn minute(load: &mut Load, now: &mut Instant, count: u32, took: Duration) -> Vec<Heavy> {
        let mut told = Vec::new();
        for _ in 0..60 {
            *now += Duration::from_secs(1);
            told.extend((0..count).filter_map(|_| load.add(took, *now)));
        }
        told
    }

    #[test]
    fn a_heavy_load_is_told_once_until_it_was_light_again() {
        let (mut load, mut now) = (Load::new(2), Instant::now());
        let (light, heavy) = (Duration::from_millis(40), Duration::from_millis(80));
        // Fifty a second of 80 ms: four at any time, on two processors.
        assert_eq!(minute(&mut load, &mut now, 2, light), []);
        let mut told = minute(&mut load, &mut now, 50, heavy);
        told.extend(minute(&mut load, &mut now, 50, heavy));
        told.extend(minute(&mut load, &mut now, 50, heavy));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!((150..=200).contains(&told[0].percent), "{told:?}");
        assert!(told[0].text().contains("ms each"), "{}", told[0].text());
        assert_eq!(minute(&mut load, &mut now, 2, light), []);
        minute(&mut load, &mut now, 2, light);
        let again = [minute(&mut load, &mut now, 50, heavy), minute(&mut load, &mut now, 50, heavy)].concat();
        assert_eq!(again.len(), 1, "{again:?}");
    }

    #[test]
    fn ordinary_probes_are_not_told() {
        let (mut load, mut now) = (Load::new(2), Instant::now());
        // Thirty pods, one command each in ten seconds.
        let told: Vec<Heavy> =
            (0..10).flat_map(|_| minute(&mut load, &mut now, 3, Duration::from_millis(50))).collect();
        assert_eq!(told, []);
    }
}
