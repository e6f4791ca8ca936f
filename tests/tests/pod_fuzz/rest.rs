//! Whether a case has come to rest, and what is left when nothing is wanted any more.

use std::collections::BTreeSet;

use longshore_integration::fuzz::{Book, PodBook, Size};
use longshore_node::model::ReadPods as _;
use longshore_node::pod::fakes::Groups;

use super::world::World;

impl World {
    /// Whether the pod's control group has not got the size that its spec asks for and that it was granted.
    fn unrest_of_group(&self, uid: &str, book: &Book) -> Option<String> {
        let pod = book.pod(uid).filter(|pod| !pod.is_final() && !pod.is_refused())?;
        let conditions = pod.status()?.conditions.as_deref().unwrap_or_default();
        if conditions.iter().any(|condition| condition.type_ == "PodResizePending") {
            return None;
        }
        let wanted = Groups::wanted(&self.agent.as_ref()?.table.by_uid(uid)?.desired);
        let now = self.machine.hands.group(uid);
        (now != Some(wanted)).then(|| format!("the group of {uid} is {now:?} and not {wanted:?}"))
    }

    /// What has not come to rest of all pods.
    pub(crate) fn unrests(&mut self) -> Vec<String> {
        self.refresh();
        let book = self.machine.book.lock().unwrap();
        let mut unrests = Vec::new();
        for pod in &self.pods {
            let Some(uid) = &pod.uid else { continue };
            let object = self.machine.api.object(&pod.plan.name);
            if object.is_none() {
                unrests.push(format!("the API shows nothing of {uid}"));
            }
            let deleted = object.as_ref().is_some_and(|o| o["metadata"]["deletionTimestamp"].is_string());
            if deleted {
                unrests.push(format!("{uid} is deleted and still there"));
                continue;
            }
            let actual = |id: &str| {
                let all = self.machine.runtime.containers();
                let own = all.into_iter().find(|container| container.id == id)?;
                let linux = own.resources?.linux?;
                Size::told(linux.cpu_quota, linux.memory_limit_in_bytes)
            };
            let unrest = book.pod(uid).and_then(PodBook::unrest);
            let unrest = unrest.or_else(|| book.unrest_of_sizes(uid, self.machine.hands.cpu(), &actual));
            unrests.extend(unrest.map(|text| format!("{uid}: {text}")));
            unrests.extend(self.unrest_of_group(uid, &book));
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
        let objects = [false, true].into_iter().flat_map(|mirrors| self.machine.api.pods(mirrors));
        left.extend(objects.map(|pod| format!("object {:?}", pod.metadata.name)));
        left.extend(self.machine.runtime.sandboxes().into_iter().map(|sandbox| format!("sandbox {}", sandbox.id)));
        left.extend(
            self.machine.runtime.containers().into_iter().map(|container| format!("container {}", container.id)),
        );
        let table = self.agent.as_ref().map(|agent| agent.table.pods()).unwrap_or_default();
        left.extend(table.into_iter().map(|view| format!("pod {} in the table", view.desired.uid)));
        left
    }
}
