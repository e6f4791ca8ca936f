//! The task that registers the node and keeps its status.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use longshore_host::facts::MachineFacts;
use longshore_transport::client::{Typed, brief};
use longshore_util::backoff::Backoff;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::images::ImageList;
use super::status::{self, Inputs};
use super::{Capacity, NodeDeps, NodeOptions, RuntimeState, address, csinode, jitter, register, seed_of};
use crate::event::EventTarget;

const TRIES: u32 = 5;
/// One call to the API.
const DEADLINE: Duration = Duration::from_secs(10);
const JITTER: f64 = 0.04;
/// Addresses are looked for anew this often.
const ADDRESS_PERIOD: Duration = Duration::from_secs(60);

/// Registers, then keeps the status.
pub(super) struct StatusTask {
    api: Api<Typed<Node>>,
    client: kube::Client,
    options: Arc<NodeOptions>,
    deps: NodeDeps,
    machine: MachineFacts,
    capacity: Capacity,
    runtime: watch::Receiver<RuntimeState>,
    addresses: watch::Sender<Vec<IpAddr>>,
    node: Arc<watch::Sender<Option<Arc<Node>>>>,
    images: ImageList,
    target: EventTarget,
    seed: u64,
    begun: Instant,
    report_due: Instant,
    addressed: Instant,
    unschedulable: Option<bool>,
    was_ready: bool,
}

impl StatusTask {
    #[expect(clippy::too_many_arguments, reason = "made in one place")]
    pub(super) fn new(
        client: kube::Client,
        options: Arc<NodeOptions>,
        deps: NodeDeps,
        machine: MachineFacts,
        capacity: Capacity,
        runtime: watch::Receiver<RuntimeState>,
        addresses: watch::Sender<Vec<IpAddr>>,
        node: Arc<watch::Sender<Option<Arc<Node>>>>,
    ) -> Self {
        let now = Instant::now();
        Self {
            // Status is a heartbeat as well: no flood of other requests delays it.
            api: Api::all(deps.heartbeat.clone().unwrap_or_else(|| client.clone())),
            images: ImageList::new(deps.images.clone(), options.max_images),
            target: EventTarget::node(&options.name),
            seed: seed_of(&options.name),
            client,
            options,
            deps,
            machine,
            capacity,
            runtime,
            addresses,
            node,
            begun: now,
            report_due: now,
            addressed: now,
            unschedulable: None,
            was_ready: false,
        }
    }

    pub(super) async fn run(mut self, token: CancellationToken) {
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            () = self.register() => {}
        }
        let mut pressure = self.deps.pressure.clone();
        loop {
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = self.round() => {}
            }
            let period = jitter(self.options.update_frequency, JITTER, &mut self.seed);
            // A change of the runtime or of pressure is told at once, not at the next tick.
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                Ok(()) = self.runtime.changed() => {}
                Ok(()) = pressure.changed() => {}
                () = tokio::time::sleep(period) => {}
            }
        }
    }

    async fn register(&mut self) {
        if !self.options.register {
            let mut node = self.node.subscribe();
            let _seen = node.wait_for(Option::is_some).await.map(drop);
        } else {
            let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(7), self.seed);
            let mut told = String::new();
            loop {
                match tokio::time::timeout(DEADLINE, self.try_register()).await {
                    Ok(Ok(())) => break,
                    Ok(Err(error)) => self.not_registered(&mut told, brief(&error)),
                    Err(_) => self.not_registered(&mut told, "no answer".to_owned()),
                }
                tokio::time::sleep(backoff.next_delay()).await;
            }
            tracing::info!(node = %self.options.name, "node registered");
        }
        self.deps.telemetry.node.registration.set(self.begun.elapsed().as_secs_f64());
        let node = self.node.borrow().clone();
        if let Some(node) = node {
            self.was_ready = is_ready(&node);
            match tokio::time::timeout(DEADLINE, csinode::ensure(&self.client, &node)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(error = brief(&error), "CSINode not made"),
                Err(_) => tracing::warn!("CSINode not made: no answer"),
            }
        }
    }

    /// Tells a fault once, until another one comes.
    fn not_registered(&self, told: &mut String, error: String) {
        if *told == error {
            tracing::debug!(error, node = %self.options.name, "node not registered yet");
        } else {
            tracing::warn!(error, node = %self.options.name, "node not registered yet; trying again");
            *told = error;
        }
    }

    async fn try_register(&mut self) -> Result<(), kube::Error> {
        let mut node = Typed(register::initial(&self.options));
        let (status, events) = self.compute(None).await;
        node.status = Some(status);
        match self.api.create(&PostParams::default(), &node).await {
            Ok(made) => {
                self.tell(&events);
                self.seen(made.0);
                return Ok(());
            }
            // Not allowed to create does not mean not allowed to be: it may have been made for us.
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 403 => {
                tracing::debug!(reason = %status.reason, "node not created; looking for an older one");
            }
            Err(error) => return Err(error),
        }
        let mut existing = self.api.get(&self.options.name).await?;
        let boot =
            existing.status.as_ref().and_then(|status| status.node_info.as_ref()).map(|info| info.boot_id.clone());
        if let Some(patch) = register::reconcile(&existing, &self.options) {
            existing = self.api.patch(&self.options.name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        }
        if boot.is_some_and(|boot| !boot.is_empty() && boot != self.machine.boot_id) {
            let message = format!("Node {} has been rebooted, boot id: {}", self.options.name, self.machine.boot_id);
            self.deps.events.warning(&self.target, "Rebooted", message);
        }
        self.seen(existing.0);
        Ok(())
    }

    /// One computation, and a write if there is something to say.
    async fn round(&mut self) {
        self.find_addresses().await;
        for attempt in 0..TRIES {
            match tokio::time::timeout(DEADLINE, self.try_round(attempt)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => tracing::debug!(error = brief(&error), attempt, "node status not written"),
                Err(_) => tracing::debug!(attempt, "node status not written: no answer"),
            }
        }
        tracing::warn!(node = %self.options.name, "node status could not be written");
    }

    async fn try_round(&mut self, attempt: u32) -> Result<(), kube::Error> {
        let cached = self.node.borrow().clone().filter(|_| attempt == 0);
        let node = match cached {
            Some(node) => node,
            None => Arc::new(self.api.get(&self.options.name).await?.0),
        };
        self.note_schedulable(&node);
        let (status, events) = self.compute(Some(&node)).await;
        let (patch, changed) = status::patch(&node, &status);
        if !changed && Instant::now() < self.report_due {
            return Ok(());
        }
        let written =
            self.api.patch_status(&self.options.name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        self.tell(&events);
        if !self.was_ready && is_ready(&written) {
            self.was_ready = true;
            self.deps.telemetry.node.startup.set(self.begun.elapsed().as_secs_f64());
            tracing::info!(node = %self.options.name, elapsed = ?self.begun.elapsed(), "node is ready");
        }
        self.seen(written.0);
        self.report_due = Instant::now() + jitter(self.options.report_frequency / 2, 2.0, &mut self.seed);
        Ok(())
    }

    async fn compute(&mut self, node: Option<&Node>) -> (k8s_openapi::api::core::v1::NodeStatus, Vec<&'static str>) {
        let images = if self.runtime.borrow().is_ready() { self.images.get().await } else { Vec::new() };
        // Marked as seen now: what changes while the patch is on its way leads to another round.
        let runtime = self.runtime.borrow_and_update().clone();
        let errors = self.deps.checks.iter().filter_map(|check| check.run().err()).collect();
        let inputs = Inputs {
            options: &self.options,
            machine: &self.machine,
            capacity: &self.capacity,
            runtime: &runtime,
            addresses: &self.addresses.borrow().clone(),
            images,
            pressure: *self.deps.pressure.borrow(),
            errors,
            now: self.deps.clock.now(),
        };
        status::compute(inputs, node.and_then(|node| node.status.as_ref()))
    }

    async fn find_addresses(&mut self) {
        if !self.addresses.borrow().is_empty() && self.addressed.elapsed() < ADDRESS_PERIOD {
            return;
        }
        self.addressed = Instant::now();
        match address::find(&self.options).await {
            Ok(found) => drop(self.addresses.send_if_modified(|have| {
                let changed = *have != found;
                *have = found;
                changed
            })),
            Err(error) => tracing::warn!(%error, "address of the node not found"),
        }
    }

    fn seen(&self, mut node: Node) {
        node.metadata.managed_fields = None;
        self.node.send_replace(Some(Arc::new(node)));
    }

    fn note_schedulable(&mut self, node: &Node) {
        let now = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        let before = self.unschedulable.replace(now);
        if before.is_some_and(|before| before != now) {
            self.tell(&[if now { "NodeNotSchedulable" } else { "NodeSchedulable" }]);
        }
    }

    fn tell(&self, events: &[&'static str]) {
        for event in events {
            let message = format!("Node {} status is now: {event}", self.options.name);
            self.deps.events.normal(&self.target, event, message);
        }
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
