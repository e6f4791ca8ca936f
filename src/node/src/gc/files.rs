//! Folders, links and control groups that pods have left behind.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::Collector;
use crate::model::PodUid;

impl Collector {
    pub(super) async fn collect_files(&self, own: &BTreeSet<PodUid>, stuck: &BTreeSet<PodUid>) {
        for name in names(&self.pods_folder) {
            let uid = PodUid::from(name);
            if self.may_remove(&uid, own, stuck) {
                self.remove_folder(&uid).await;
            }
        }
        self.collect_logs(own, stuck);
        self.collect_links();
        let Some(cgroups) = &self.cgroups else { return };
        for (uid, class) in cgroups.uids() {
            if self.may_remove(&uid, own, stuck)
                && let Err(error) = cgroups.remove_orphan(&uid, class)
                && self.told.is_news(&format!("group {uid}"), &error.to_string())
            {
                tracing::warn!(%uid, %error, "control group of a pod that is gone cannot be removed");
            }
        }
    }

    pub(super) async fn remove_folder(&self, uid: &PodUid) {
        if let Err(failure) = self.prepare.forget_uid(uid).await
            && self.told.is_news(&format!("folder {uid}"), &failure.message)
        {
            tracing::warn!(%uid, error = %failure.message, "folder of a pod that is gone cannot be removed");
        }
    }

    /// Removes the logs of pods that are gone: folders named `<namespace>_<name>_<uid>`.
    fn collect_logs(&self, own: &BTreeSet<PodUid>, stuck: &BTreeSet<PodUid>) {
        for name in names(&self.pod_logs) {
            let parts: Vec<&str> = name.split('_').collect();
            let [_, _, uid] = parts.as_slice() else { continue };
            if !self.may_remove(&PodUid::from(*uid), own, stuck) {
                continue;
            }
            let path = self.pod_logs.join(&name);
            // A link in that place is not ours.
            let is_folder = std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir() && meta.nlink() > 0);
            if is_folder
                && let Err(error) = std::fs::remove_dir_all(&path)
                && self.told.is_news(&path.to_string_lossy(), &error.to_string())
            {
                tracing::warn!(path = %path.display(), %error, "logs of a pod that is gone cannot be removed");
            }
        }
    }

    /// Removes legacy links whose log is gone.
    fn collect_links(&self) {
        for name in names(&self.legacy_logs) {
            let path = self.legacy_logs.join(&name);
            let ours = std::fs::read_link(&path).is_ok_and(|target| target.starts_with(&self.pod_logs));
            if ours && !path.exists() {
                drop(std::fs::remove_file(&path));
            }
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
