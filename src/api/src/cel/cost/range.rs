//! Sizes that are known by the least and the most they can be.

/// What it costs to look at a character of a text, and at one of a regular expression.
pub(super) const CHARACTER: f64 = 0.1;
pub(super) const PATTERN: f64 = 0.25;

/// The least and the most that a size can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) least: u64,
    pub(super) most: u64,
}

impl Range {
    pub(super) const UNKNOWN: Self = Self { least: 0, most: u64::MAX };

    pub(super) const fn fixed(size: u64) -> Self {
        Self { least: size, most: size }
    }

    pub(super) const fn count(size: usize) -> Self {
        Self::fixed(size as u64)
    }

    /// Returns what covers both.
    pub(super) fn or(self, other: Self) -> Self {
        Self { least: self.least.min(other.least), most: self.most.max(other.most) }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { least: self.least.saturating_add(other.least), most: self.most.saturating_add(other.most) }
    }

    pub(super) fn times(self, other: Self) -> Self {
        Self { least: self.least.saturating_mul(other.least), most: self.most.saturating_mul(other.most) }
    }

    /// Returns what it costs at most to look at all of it.
    pub(super) fn cost(self, each: f64) -> u64 {
        cost(self.most, each)
    }
}

/// Multiplies as upstream does, so that costs come out the same.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded up, and what is too large becomes the largest number"
)]
pub(super) fn cost(size: u64, each: f64) -> u64 {
    (size as f64 * each).ceil() as u64
}
