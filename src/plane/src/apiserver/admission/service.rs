//! Services: an address of their own.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::apiserver::error::{ApiError, Cause};
use crate::apiserver::object::{child, meta, text};
use crate::apiserver::registry::Registry;
use crate::apiserver::resources::SERVICES;

/// Gives a service its cluster address, or checks the one it asks for. The caller holds the lock on addresses.
pub(crate) fn service_address(registry: &Registry, service: &mut Value) -> Result<(), ApiError> {
    let wanted = text(service, "/spec/clusterIP").to_owned();
    if text(service, "/spec/type") == "ExternalName" {
        return Ok(());
    }
    if wanted == "None" {
        child(service, "spec").insert("clusterIPs".to_owned(), json!(["None"]));
        return Ok(());
    }
    let (services, _) = registry.list_values(&SERVICES, "")?;
    let taken: HashSet<Ipv4Addr> =
        services.iter().filter_map(|other| text(other, "/spec/clusterIP").parse().ok()).collect();
    let facts = registry.facts();
    let invalid = |text: &str| {
        let cause = Cause::invalid("spec.clusterIPs", &json!([wanted]), text);
        ApiError::invalid(&SERVICES, meta(service, "name"), vec![cause])
    };
    let chosen = if wanted.is_empty() {
        let size = facts.service_size();
        // The first address is the API's own; a random start spreads addresses, so that one is not soon used again.
        let seed = uuid::Uuid::new_v4().as_u128() % u128::from(size.max(1));
        let start = u32::try_from(seed).unwrap_or(0);
        (0..size)
            .filter_map(|step| facts.service_address((start + step) % size))
            .find(|address| !taken.contains(address) && Some(*address) != facts.service_address(0))
            .ok_or_else(|| ApiError::internal("failed to allocate a serviceIP: range is full"))?
    } else {
        let address: Ipv4Addr = wanted.parse().map_err(|_| invalid("must be a valid IPv4 address"))?;
        if !facts.holds(address) {
            return Err(invalid(&format!(
                "failed to allocate IP {address}: the provided IP ({address}) is not in the valid range. The range of \
                 valid IPs is {}/{}",
                facts.service_base, facts.service_prefix
            )));
        }
        if taken.contains(&address) {
            return Err(invalid(&format!("failed to allocate IP {address}: provided IP is already allocated")));
        }
        address
    };
    let spec = child(service, "spec");
    spec.insert("clusterIP".to_owned(), json!(chosen.to_string()));
    spec.insert("clusterIPs".to_owned(), json!([chosen.to_string()]));
    Ok(())
}
