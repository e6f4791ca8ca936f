//! Times in milliseconds, sorted, and how long the disk takes to keep something.

use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

/// Measured times.
#[derive(Debug, Clone, Default)]
pub struct Figures(Vec<f64>);

impl FromIterator<Duration> for Figures {
    fn from_iter<T: IntoIterator<Item = Duration>>(times: T) -> Self {
        let mut times: Vec<f64> = times.into_iter().map(|time| time.as_secs_f64() * 1000.0).collect();
        times.sort_by(f64::total_cmp);
        Self(times)
    }
}

impl Figures {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time in milliseconds that so many per mille stay within; 0 without times.
    pub fn within(&self, per_mille: usize) -> f64 {
        let index = (self.0.len() * per_mille).div_ceil(1000).saturating_sub(1);
        self.0.get(index).copied().unwrap_or(0.0)
    }

    /// The longest time in milliseconds; 0 without times.
    pub fn longest(&self) -> f64 {
        self.0.last().copied().unwrap_or(0.0)
    }
}

/// Writes and syncs some kilobytes again and again for a while, as a database does. Blocks.
pub fn fsync_times(folder: &Path, every: Duration, over: Duration) -> Result<Figures> {
    let path = folder.join("fsync.probe");
    let mut file = std::fs::File::create(&path)?;
    let (began, mut times) = (Instant::now(), Vec::new());
    // Grown once, so that only the data is synced, as in a database file.
    file.write_all(&vec![0; 1 << 20])?;
    file.sync_all()?;
    while began.elapsed() < over {
        file.seek(std::io::SeekFrom::Start(u64::try_from(times.len() % 60)? * 16_384))?;
        file.write_all(&[u8::try_from(times.len() % 251)?; 16_384])?;
        let before = Instant::now();
        file.sync_data()?;
        times.push(before.elapsed());
        crate::env::pause(every);
    }
    std::fs::remove_file(&path)?;
    Ok(times.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_and_many() {
        let figures: Figures = (1..=1000).map(Duration::from_millis).collect();
        assert_eq!((figures.within(500), figures.within(990), figures.longest()), (500.0, 990.0, 1000.0));
        let one: Figures = [Duration::from_millis(7)].into_iter().collect();
        assert_eq!((one.within(500), one.within(990)), (7.0, 7.0));
        assert_eq!(Figures::default().within(990), 0.0);
    }
}
