//! Whether a case has come to rest, and what is left when nothing is wanted any more.

use std::collections::BTreeSet;

use longshore_integration::fuzz::{Book, Life, Role};
use longshore_node::model::ReadPods as _;

use super::world::World;

impl World {
    /// Why a pod has not come to rest; nothing = it has.
    fn unrest(&self, uid: &str, book: &Book) -> Option<String> {
        let pod = book.pod(uid)?;
        if pod.is_final() {
            return (!pod.running().is_empty()).then(|| "it is over and runs".to_owned());
        }
        if pod.plan.deadline.is_some() {
            return Some("its time is not up".to_owned());
        }
        if pod.is_finished() {
            return Some("it is finished and not shown so".to_owned());
        }
        for part in &pod.plan.parts {
            let runs = pod.newest(&part.name).is_some_and(|made| made.life == Life::Runs);
            if part.role != Role::Init && !runs && !pod.is_over(&part.name) {
                return Some(format!("{} does not run", part.name));
            }
        }
        let Some(status) = pod.status() else { return Some("no status".to_owned()) };
        for container in status.container_statuses.iter().flatten() {
            if !container.ready && !pod.is_over(&container.name) {
                return Some(format!("{} is not ready: {:?}", container.name, container.state));
            }
        }
        pod.lie()
    }

    /// What has not come to rest of all pods.
    pub(crate) fn unrests(&mut self) -> Vec<String> {
        self.refresh();
        let book = self.machine.book.lock().unwrap();
        let mut unrests = Vec::new();
        for pod in &self.pods {
            let Some(uid) = &pod.uid else { continue };
            let object = self.machine.api.object(&pod.plan.name);
            let deleted = object.as_ref().is_some_and(|o| o["metadata"]["deletionTimestamp"].is_string());
            if deleted {
                unrests.push(format!("{uid} is deleted and still there"));
                continue;
            }
            unrests.extend(self.unrest(uid, &book).map(|text| format!("{uid}: {text}")));
            let Some((object, shown)) = object.zip(book.pod(uid).and_then(|pod| pod.status())) else { continue };
            let ours = serde_json::to_value(shown).unwrap();
            for field in ["phase", "containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
                if object["status"][field] != ours[field] {
                    unrests.push(format!(
                        "the API has another {field} of {uid}: {} and not {}",
                        object["status"][field], ours[field]
                    ));
                }
            }
        }
        let wanted: BTreeSet<&str> = self.pods.iter().filter_map(|pod| pod.uid.as_deref()).collect();
        for sandbox in self.machine.runtime.sandboxes() {
            let uid = sandbox.metadata.map(|meta| meta.uid).unwrap_or_default();
            if !wanted.contains(uid.as_str()) {
                unrests.push(format!("sandbox of {uid} that nobody wants"));
            }
        }
        unrests
    }

    /// What is left when nothing is wanted any more.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut left: Vec<String> = self.machine.hands.left();
        left.extend(self.machine.api.pods().into_iter().map(|pod| format!("object {:?}", pod.metadata.name)));
        left.extend(self.machine.runtime.sandboxes().into_iter().map(|sandbox| format!("sandbox {}", sandbox.id)));
        left.extend(
            self.machine.runtime.containers().into_iter().map(|container| format!("container {}", container.id)),
        );
        let table = self.agent.as_ref().map(|agent| agent.table.pods()).unwrap_or_default();
        left.extend(table.into_iter().map(|view| format!("pod {} in the table", view.desired.uid)));
        left
    }
}
