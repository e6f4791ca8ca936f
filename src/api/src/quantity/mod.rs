//! `resource.Quantity`: fixed-point numbers with a suffix, kept in integers (nano units), never floats.
//! Parsing, canonical text and rounding follow Kubernetes: up, away from zero, capped at 2^63-1.

mod text;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Raw;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

const NANOS: i128 = 1_000_000_000;
/// The largest amount Kubernetes keeps: 2^63-1 units.
const LARGEST: i128 = (i64::MAX as i128) * NANOS;

/// How a quantity is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// `12k`, `100m`.
    #[default]
    DecimalSi,
    /// `1Ki`, `3Gi`.
    BinarySi,
    /// `1e3`.
    DecimalExponent,
}

/// Text that is no quantity; the wording is the apiserver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not of the form number and suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number is no number.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// An amount of a resource. Equality and order look at the amount alone, not at how it is written.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// Nothing of a resource.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// Reads a quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        text::parse(text)
    }

    /// Builds a quantity of whole units.
    pub const fn from_value(value: i64, format: Format) -> Self {
        // Cannot overflow: 2^63 * 10^9 < 2^127.
        Self { nanos: value as i128 * NANOS, format }
    }

    /// Builds a quantity of thousandths.
    pub const fn from_milli(milli: i64, format: Format) -> Self {
        Self { nanos: milli as i128 * (NANOS / 1000), format }
    }

    /// Builds a byte count, written in powers of 1024.
    pub const fn from_bytes(bytes: i64) -> Self {
        Self::from_value(bytes, Format::BinarySi)
    }

    /// Builds from nano units, capped.
    const fn from_nanos(nanos: i128, format: Format) -> Self {
        let nanos = if nanos > LARGEST {
            LARGEST
        } else if nanos < -LARGEST {
            -LARGEST
        } else {
            nanos
        };
        Self { nanos, format }
    }

    /// The amount in whole units, rounded away from zero; bytes for memory.
    pub fn value(&self) -> i64 {
        saturate(divide_up(self.nanos, NANOS))
    }

    /// The amount in thousandths, rounded away from zero; milli-CPU for cpu.
    pub fn milli_value(&self) -> i64 {
        saturate(divide_up(self.nanos, NANOS / 1000))
    }

    /// Says whether it is a whole number of units.
    pub fn is_whole(&self) -> bool {
        self.nanos % NANOS == 0
    }

    /// Says whether it is nothing.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Says whether it is below zero.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// How it is written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The sum, capped; written like the left side unless that is zero.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self::from_nanos(self.nanos + other.nanos, format)
    }

    /// The difference, capped; written like the left side unless that is zero.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self::from_nanos(self.nanos - other.nanos, format)
    }
}

/// Divides rounding away from zero.
fn divide_up(amount: i128, by: i128) -> i128 {
    let quotient = amount / by;
    match amount % by {
        0 => quotient,
        _ => quotient + amount.signum(),
    }
}

fn saturate(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl std::iter::Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, |sum, amount| sum.plus(&amount))
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}

impl fmt::Display for Quantity {
    /// The canonical text: no fraction, the largest suffix that loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write(self, f)
    }
}

impl TryFrom<&Raw> for Quantity {
    type Error = QuantityError;

    fn try_from(raw: &Raw) -> Result<Self, QuantityError> {
        Self::parse(&raw.0)
    }
}

impl From<Quantity> for Raw {
    fn from(quantity: Quantity) -> Self {
        Self(quantity.to_string())
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// Takes text or a number, as Kubernetes does.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        Quantity::parse(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity, E> {
        Ok(Quantity::from_value(value, Format::DecimalSi))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
        Ok(Quantity::from_nanos(i128::from(value).saturating_mul(NANOS), Format::DecimalSi))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Quantity, E> {
        // The shortest decimal text is what stood in the document.
        Quantity::parse(&value.to_string()).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests;
