//! Rules of eviction thresholds.

use serde_json::Value;

use super::Rules;
use crate::duration::GoDuration;
use crate::quantity::Quantity;

const SIGNALS: [&str; 10] = [
    "memory.available",
    "allocatableMemory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
    "allocatableNodeFs.available",
];

impl Rules<'_> {
    pub(super) fn evictions(&mut self) {
        for path in ["evictionHard", "evictionSoft", "evictionMinimumReclaim"] {
            let entries: Vec<(String, String)> = self.texts_of(path);
            for (signal, threshold) in entries {
                if !SIGNALS.contains(&signal.as_str()) {
                    self.fault(path, format!("unknown eviction signal {signal}"));
                } else if let Err(why) = threshold_is_valid(&threshold) {
                    self.fault(path, format!("{signal}: {why}"));
                }
            }
        }
        let soft = self.texts_of("evictionSoft");
        let graces = self.texts_of("evictionSoftGracePeriod");
        for (signal, _) in &soft {
            if !graces.iter().any(|(named, _)| named == signal) {
                self.fault(
                    "evictionSoft",
                    format!("grace period must be specified for the soft eviction threshold {signal}"),
                );
            }
        }
        for (signal, grace) in graces {
            if !SIGNALS.contains(&signal.as_str()) {
                self.fault("evictionSoftGracePeriod", format!("unknown eviction signal {signal}"));
            }
            match GoDuration::parse(&grace) {
                Ok(grace) if grace >= GoDuration::ZERO => {}
                Ok(_) => self.fault(
                    "evictionSoftGracePeriod",
                    format!("{signal}: invalid eviction grace period value: {grace}, must be >= 0"),
                ),
                Err(error) => self.fault("evictionSoftGracePeriod", format!("{signal}: {error}")),
            }
        }
    }

    fn texts_of(&self, path: &str) -> Vec<(String, String)> {
        let texts = self.entries(path).into_iter().filter_map(|(key, value)| Some((key, value.as_str()?)));
        texts.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// Percentages of the withheld share, by resource.
    pub(super) fn qos_reserved(&mut self) {
        let entries = self.texts_of("qosReserved");
        if !entries.is_empty() && !self.gates.is_enabled("QOSReserved") {
            self.fault("qosReserved", "needs the feature gate QOSReserved");
        }
        for (resource, share) in entries {
            if resource != "memory" {
                self.fault("qosReserved", format!("{resource}: only memory can be reserved"));
            } else if percentage(&share).is_none_or(|share| share > 100) {
                self.fault("qosReserved", format!("{share:?} is not a percentage from 0% to 100%"));
            }
        }
    }
}

/// A quantity above zero or a percentage below 100; zero switches a threshold off.
fn threshold_is_valid(text: &str) -> Result<(), String> {
    if let Some(number) = text.strip_suffix('%') {
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let fraction_is_digits = fraction.bytes().all(|digit| digit.is_ascii_digit());
        return match whole.parse::<i64>() {
            Ok(whole) if whole < 0 => Err(format!("eviction percentage threshold must be >= 0%: {text}")),
            Ok(whole) if whole > 100 => Err(format!("eviction percentage threshold must be <= 100%: {text}")),
            Ok(_) if fraction_is_digits => Ok(()),
            _ => Err(format!("{text:?} is not a percentage")),
        };
    }
    match Quantity::parse(text) {
        Ok(amount) if amount.is_negative() => Err(format!("eviction threshold must not be negative: {text}")),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn percentage(text: &str) -> Option<u32> {
    text.strip_suffix('%')?.parse().ok()
}

/// The amounts of a reservation, for the sums that other rules need.
pub(super) fn amount(value: &Value) -> Option<Quantity> {
    value.as_str().and_then(|text| Quantity::parse(text).ok())
}
