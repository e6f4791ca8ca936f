//! Sources, mirrors and the status writer, joined to the pod table.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use longshore_util::Tasks;

use super::AgentOptions;
use crate::event::EventRecorder;
use crate::mirror::{MirrorOptions, MirrorSink, Mirrors};
use crate::model::{MirrorUid, PodSink, PodUid, ReadPods};
use crate::pod::PodTable;
use crate::source::{RecallOptions, SourceOptions, Sources};
use crate::status::StatusWriter;

/// Tells all who care about the mirror of a static pod.
#[derive(Debug)]
struct Notes {
    table: PodTable,
    writer: StatusWriter,
}

impl MirrorSink for Notes {
    fn mirror(&self, uid: &PodUid, mirror: Option<&Pod>) {
        let id = mirror.and_then(|pod| pod.metadata.uid.as_deref()).map(MirrorUid::from);
        self.table.set_mirror(uid, id);
        self.writer.mirror(uid, mirror);
    }
}

/// Starts every source; from here on pods come in.
pub(super) fn start(
    options: &AgentOptions,
    recall: RecallOptions,
    table: &PodTable,
    writer: &StatusWriter,
    events: &EventRecorder,
    tasks: &Tasks,
) {
    let client = options.client();
    let mirrors = client.clone().map(|client| {
        let notes = Arc::new(Notes { table: table.clone(), writer: writer.clone() });
        let pods: Arc<dyn ReadPods> = Arc::new(table.clone());
        Mirrors::start(MirrorOptions { client, node_name: options.node_name.clone(), pods, notes }, tasks)
    });
    let config = &options.settings.config;
    let mut wanted = SourceOptions::new(config, &options.node_name, events.clone(), Arc::clone(&options.clock));
    wanted.client = client;
    wanted.mirrors = mirrors;
    wanted.recall = Some(recall);
    let sink: Arc<dyn PodSink> = Arc::new(writer.tap(Arc::new(table.clone())));
    Sources::start(wanted, sink, tasks);
}
