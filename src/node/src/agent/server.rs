//! The node's servers.

use std::sync::Arc;

use longshore_util::Tasks;

use super::{AgentError, AgentOptions};
use crate::node::NodeHandle;
use crate::pod::PodTable;
use crate::server::{self, HealthCheck, HealthChecks, ServerDeps, ServerHandle, ServerOptions};
use crate::telemetry::SharedTelemetry;

/// No beat of the main runtime for this long makes the agent unhealthy.
const BEAT_WITHIN: std::time::Duration = std::time::Duration::from_secs(120);

/// Starts what the configuration turns on.
pub(super) async fn start(
    options: &AgentOptions,
    node: &NodeHandle,
    table: &PodTable,
    telemetry: &SharedTelemetry,
    tasks: &Tasks,
) -> Result<Option<ServerHandle>, AgentError> {
    let health = HealthChecks::new([HealthCheck::beat(tasks, BEAT_WITHIN)]);
    if let Some(address) = server::health_address(&options.settings) {
        server::start_health(address, health.clone(), tasks)?;
    }
    let Some(wanted) = ServerOptions::from_settings(&options.settings, &options.node_name, node.host_ips()) else {
        return Ok(None);
    };
    let deps = ServerDeps {
        client: options.client(),
        runtime: options.runtime(),
        pods: Arc::new(table.clone()),
        clock: Arc::clone(&options.clock),
        telemetry: Arc::clone(telemetry),
        health,
    };
    Ok(Some(server::start(wanted, deps, tasks).await?))
}
