//! What a runtime shows of a container's size, in the API's words.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Raw;

use super::{CPU, LinuxResources, MEMORY};
use crate::quantity::{Format, Quantity};

/// The request that the least weight stands for, in thousandths of a cpu.
const LEAST_REQUEST: i64 = 2;
/// The limit that the least quota stands for, in thousandths of a cpu.
const LEAST_LIMIT: i64 = 10;

/// A container's size as the runtime shows it; `None` = not shown or no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Actual {
    /// Thousandths of a cpu.
    pub cpu_request: Option<i64>,
    /// Thousandths of a cpu.
    pub cpu_limit: Option<i64>,
    /// Bytes.
    pub memory_limit: Option<i64>,
}

impl Actual {
    /// Translates what the kernel was told.
    pub fn of(linux: &LinuxResources) -> Self {
        let ceil = |number: i64, by: i64| number.saturating_add(by - 1) / by;
        let positive = |number: i64| Some(number).filter(|number| *number > 0);
        let limit = |quota: i64| Some(quota.saturating_mul(1000) / positive(linux.cpu_period)?);
        Self {
            cpu_request: positive(linux.cpu_shares).map(|shares| ceil(shares.saturating_mul(1000), 1024)),
            cpu_limit: positive(linux.cpu_quota).and_then(limit),
            memory_limit: positive(linux.memory_limit),
        }
    }

    /// Puts what is shown in place of what was asked for. Amounts below the least that the kernel takes stay as they were
    /// asked for, and so does the way in which equal amounts are written.
    #[must_use]
    pub fn shown(&self, mut own: ResourceRequirements) -> ResourceRequirements {
        let milli = |number: i64| Quantity::from_milli(number, Format::DecimalSi);
        replace(&mut own.requests, CPU, self.cpu_request.map(milli), milli(LEAST_REQUEST));
        replace(&mut own.limits, CPU, self.cpu_limit.map(milli), milli(LEAST_LIMIT));
        replace(&mut own.limits, MEMORY, self.memory_limit.map(Quantity::from_bytes), Quantity::ZERO);
        own
    }
}

fn replace(side: &mut Option<BTreeMap<String, Raw>>, name: &str, shown: Option<Quantity>, least: Quantity) {
    let (Some(raw), Some(shown)) = (side.as_mut().and_then(|side| side.get_mut(name)), shown) else { return };
    let Ok(asked) = Quantity::try_from(&*raw) else { return };
    if asked != shown && (asked > least || shown > least) {
        *raw = Raw(shown.to_string());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::{cpu_quota, cpu_shares};

    fn linux(milli: i64, limit: i64, memory_limit: i64) -> LinuxResources {
        LinuxResources {
            cpu_shares: cpu_shares(milli),
            cpu_quota: cpu_quota(limit, 100_000),
            cpu_period: 100_000,
            memory_limit,
        }
    }

    #[test]
    fn requests_and_limits_come_back_as_they_were_given() {
        for milli in [3, 15, 100, 101, 150, 333, 999, 1000, 2500, 64_000] {
            let actual = Actual::of(&linux(milli, milli.max(10), 0));
            assert_eq!(actual.cpu_request, Some(milli));
            assert_eq!(actual.cpu_limit, Some(milli.max(10)));
            assert_eq!(actual.memory_limit, None);
        }
    }

    #[test]
    fn what_is_shown_counts_where_it_differs() {
        let own: ResourceRequirements = serde_json::from_value(json!({
            "requests": {"cpu": "0.1", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}))
        .unwrap();
        let same = Actual::of(&linux(100, 200, 64 << 20)).shown(own.clone());
        assert_eq!(same, own);
        let other = Actual::of(&linux(150, 300, 128 << 20)).shown(own);
        assert_eq!(
            serde_json::to_value(other).unwrap(),
            json!({"requests": {"cpu": "150m", "memory": "32Mi"}, "limits": {"cpu": "300m", "memory": "128Mi"}})
        );
    }

    #[test]
    fn amounts_below_the_kernels_least_stay_as_asked() {
        let own: ResourceRequirements =
            serde_json::from_value(json!({"requests": {"cpu": "1m"}, "limits": {"cpu": "5m"}})).unwrap();
        assert_eq!(Actual::of(&linux(1, 5, 0)).shown(own.clone()), own);
        assert_eq!(Actual::default().shown(own.clone()), own);
    }
}
