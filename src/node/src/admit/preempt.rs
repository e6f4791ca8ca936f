//! Who makes room for a critical pod: as few guaranteed pods as can be, then burstable ones, then those that asked for
//! nothing; inside a class whoever brings it nearest to what is missing.

use k8s_openapi::api::core::v1::Pod;
use longshore_api::qos::{self, Qos};
use longshore_api::quantity::{Format, Quantity};
use longshore_api::resources::{Amounts, CPU, MEMORY};

use super::predicates::{Missing, shown};
use super::{Neighbour, is_critical, priority};
use crate::model::PodUid;

/// Fixed-point one of the distance.
const ONE: i128 = 1_000_000;

/// Returns the victims, or what would still be missing if all that may be taken were.
pub(super) fn victims(
    pod: &Pod,
    is_static: bool,
    short: &[Missing],
    others: &[Neighbour],
) -> Result<Vec<PodUid>, String> {
    let need: Amounts = short.iter().map(|entry| (entry.resource.clone(), entry.lacking())).collect();
    let mut classes: [Vec<&Neighbour>; 3] = Default::default();
    for other in others {
        let Some(own) = other.pod.as_deref().filter(|own| may_take(pod, is_static, own, other.is_static)) else {
            continue;
        };
        let class = match qos::of(own) {
            Qos::BestEffort => 0,
            Qos::Burstable => 1,
            Qos::Guaranteed => 2,
        };
        classes[class].push(other);
    }
    let [best_effort, burstable, guaranteed] = &classes;
    let lacking = after(&need, &[best_effort, burstable, guaranteed]);
    if !lacking.is_empty() {
        return Err(listed(&lacking));
    }
    let from_guaranteed = nearest(guaranteed, after(&need, &[best_effort, burstable]));
    let from_burstable = nearest(burstable, after(&need, &[best_effort, &from_guaranteed]));
    let from_best_effort = nearest(best_effort, after(&need, &[&from_burstable, &from_guaranteed]));
    let all = from_best_effort.into_iter().chain(from_burstable).chain(from_guaranteed);
    Ok(all.map(|victim| victim.uid.clone()).collect())
}

fn may_take(pod: &Pod, is_static: bool, other: &Pod, other_is_static: bool) -> bool {
    let critical = |pod, is_static| is_critical(pod, is_static);
    if critical(pod, is_static) && !critical(other, other_is_static) {
        return true;
    }
    matches!((priority(pod), priority(other)), (Some(own), Some(theirs)) if own > theirs)
}

fn held(victim: &Neighbour, name: &str) -> Quantity {
    if name == "pods" {
        return Quantity::from_value(1, Format::DecimalSi);
    }
    victim.requests.get(name).copied().unwrap_or(Quantity::ZERO)
}

/// What is still needed once those have gone.
fn after(need: &Amounts, gone: &[&Vec<&Neighbour>]) -> Amounts {
    let mut left = need.clone();
    for victim in gone.iter().copied().flatten() {
        take(&mut left, victim);
    }
    left
}

fn take(need: &mut Amounts, victim: &Neighbour) {
    for (name, amount) in need.iter_mut() {
        *amount = amount.minus(&held(victim, name));
    }
    need.retain(|_, amount| *amount > Quantity::ZERO);
}

/// Takes one after the other until nothing is missing any more.
fn nearest<'a>(class: &[&'a Neighbour], mut need: Amounts) -> Vec<&'a Neighbour> {
    let mut left = class.to_vec();
    let mut taken = Vec::new();
    while !need.is_empty() && !left.is_empty() {
        let request = |victim: &Neighbour, name: &str| shown(name, &held(victim, name));
        let best = (0..left.len()).min_by_key(|index| {
            (distance(left[*index], &need), request(left[*index], MEMORY), request(left[*index], CPU))
        });
        let Some(best) = best else { break };
        let victim = left.swap_remove(best);
        take(&mut need, victim);
        taken.push(victim);
    }
    taken
}

/// Sum of the squares of what would be missing, each as a share of what is needed.
fn distance(victim: &Neighbour, need: &Amounts) -> i128 {
    need.iter()
        .map(|(name, amount)| {
            let (needed, has) = (i128::from(shown(name, amount)), i128::from(shown(name, &held(victim, name))));
            let share = (needed - has).max(0) * ONE / needed.max(1);
            share * share
        })
        .sum()
}

fn listed(lacking: &Amounts) -> String {
    let entries: String =
        lacking.iter().map(|(name, amount)| format!("(res: {name}, q: {}), ", shown(name, amount))).collect();
    format!("[{entries}]")
}
