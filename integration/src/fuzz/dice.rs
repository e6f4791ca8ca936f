//! Seeded random numbers: the same seed gives the same throws on every machine, for ever.

/// A generator (SplitMix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 where there is none.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit.max(1)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Comes true that often in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        let index = self.below(from.len() as u64);
        from[usize::try_from(index).unwrap_or(0)].clone()
    }

    /// A place in a list of that length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_stands_for_its_throws() {
        let throws = |seed| -> Vec<u64> {
            let mut dice = Dice::new(seed);
            (0..4).map(|_| dice.below(1000)).collect()
        };
        assert_eq!(throws(7), throws(7));
        assert_ne!(throws(7), throws(8));
        assert!((0..1000).all(|seed| (3..=9).contains(&Dice::new(seed).between(3, 9))));
    }
}
