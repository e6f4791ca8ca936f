//! Creates, adopts, starts and kills containers on behalf of one pod.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use longshore_cri::{CriError, v1};

use super::config::CONFIG_ERROR;
use super::observed::InstanceState;
use super::ports::{ContainerRequest, Failure};
use super::slots::Slot;
use super::worker::Worker;
use super::{read, sandbox, wanted};
use crate::model::ContainerId;

/// Longest name of a link in the folder of legacy logs, without its extension.
const LEGACY_NAME: usize = 251;

impl Worker {
    /// Makes a container run; returns whether it does.
    pub(super) async fn start(
        &mut self,
        name: &str,
        attempt: u32,
        adopt: Option<ContainerId>,
        after_exit: Option<Timestamp>,
        slot: &mut Option<Slot>,
    ) -> bool {
        let adopted = adopt.is_some();
        let id = match adopt {
            Some(id) => id,
            None => match self.create(name, attempt, after_exit, slot).await {
                Some(id) => id,
                None => return false,
            },
        };
        let runtime = Arc::clone(&self.cx.options.runtime);
        let request = v1::StartContainerRequest { container_id: id.to_string() };
        let call = self.uncut(async move { runtime.start_container(request).await });
        let answer = match slot {
            Some(slot) => slot.run(call).await,
            None => call.await,
        };
        let Some(answer) = answer else { return false };
        self.cx.changes.tell();
        let seen = self.see(&id).await;
        if let Err(error) = answer {
            // It may run in spite of the answer.
            let runs =
                seen && self.observed.newest(name).is_some_and(|c| c.id == id && c.state == InstanceState::Running);
            if !runs && adopted && !self.observed.containers.iter().any(|c| c.id == id) {
                // An earlier agent's start, cut off by its end, stood in the way; it was undone, the next pass starts anew.
                return false;
            }
            if !runs {
                self.events().warning(&self.container_target(name), "Failed", format!("Error: {}", error.message));
                self.container_failed(name, &Failure::new("RunContainerError", error.message));
                return false;
            }
        }
        self.events().normal(&self.container_target(name), "Started", "Container started");
        self.cx.options.metrics.container_started(wanted::container_type(&self.desired.pod, name));
        tracing::info!(pod = %self.desired.key, container = name, %id, attempt, "container started");
        self.waiting.remove(name);
        self.holds.remove(name);
        self.succeeded(name);
        self.link_legacy_log(name, &id);
        self.post_start(name, &id).await;
        self.save();
        true
    }

    /// Creates the container; `None` when that failed and a later try is noted.
    async fn create(
        &mut self,
        name: &str,
        attempt: u32,
        after_exit: Option<Timestamp>,
        slot: &mut Option<Slot>,
    ) -> Option<ContainerId> {
        let pull = self.pulls.remove(name)?;
        let image = pull.outcome.lock().take()?;
        let image = match image {
            Ok(image) => image,
            Err(failure) => {
                self.events().warning(&self.container_target(name), "Failed", format!("Error: {}", failure.reason));
                self.container_failed(name, &failure);
                return None;
            }
        };
        let sandbox = self.observed.newest_sandbox()?.clone();
        let prepare = Arc::clone(&self.cx.options.prepare);
        let target = match self.target_of(name) {
            Ok(target) => target,
            Err(failure) => {
                self.events().warning(&self.container_target(name), "Failed", format!("Error: {}", failure.message));
                self.container_failed(name, &failure);
                return None;
            }
        };
        let request = ContainerRequest {
            pod: &self.desired,
            container: name,
            attempt,
            image: &image,
            pod_ips: &sandbox.ips,
            target: target.as_ref(),
        };
        let config = prepare.container_config(request).await;
        let sandbox_config = prepare.sandbox_config(&self.desired, sandbox.attempt, false).await;
        let (config, sandbox_config) = match (config, sandbox_config) {
            (Ok(config), Ok(sandbox_config)) => (config, sandbox_config),
            (Err(failure), _) | (_, Err(failure)) => {
                self.events().warning(&self.container_target(name), "Failed", format!("Error: {}", failure.message));
                self.container_failed(name, &failure);
                return None;
            }
        };
        let log = Path::new(&sandbox_config.log_directory).join(&config.log_path);
        if let Some(folder) = log.parent()
            && let Err(error) = sandbox::make_log_folder(folder)
        {
            let message = format!("make the log folder {}: {error}", folder.display());
            self.events().warning(&self.container_target(name), "Failed", format!("Error: {message}"));
            self.container_failed(name, &Failure::new("CreateContainerError", message));
            return None;
        }
        if let Some(last) = self.observed.newest(name).filter(|last| last.state == InstanceState::Exited) {
            self.cx.options.cgroups.clear(&self.desired, &last.id).await;
        }
        self.note_intent(name, attempt, after_exit);
        self.save_and_wait().await;
        let runtime = Arc::clone(&self.cx.options.runtime);
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.id.to_string(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let call = self.uncut(async move { runtime.create_container(request).await });
        let answer = match slot {
            Some(slot) => slot.run(call).await,
            None => call.await,
        };
        let id = match answer? {
            Ok(answer) => ContainerId::from(answer.container_id),
            Err(error) => self.create_uncertain(name, attempt, &error).await?,
        };
        self.made.insert(name.to_owned(), id.clone());
        self.events().normal(&self.container_target(name), "Created", "Container created");
        Some(id)
    }

    /// The container whose processes an ephemeral container wants to see.
    fn target_of(&self, name: &str) -> Result<Option<ContainerId>, Failure> {
        let wanted = wanted::guest_of(&self.desired.pod, name).and_then(|guest| guest.target_container_name.as_deref());
        let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) else { return Ok(None) };
        match self.observed.newest(wanted) {
            Some(target) => Ok(Some(target.id.clone())),
            None => Err(Failure::new(CONFIG_ERROR, format!("unable to find target container {wanted}"))),
        }
    }

    /// Notes what is about to be made, and the growing restart delay if it follows an exit.
    fn note_intent(&mut self, name: &str, attempt: u32, after_exit: Option<Timestamp>) {
        let now = self.now();
        let hash = wanted::hash_of(&self.wanted, name);
        let rule = self.cx.backoff;
        let lifecycle = wanted::find(&self.desired.pod, name).and_then(|(c, _)| c.lifecycle.as_ref());
        let has_hook = lifecycle.is_some_and(|l| l.post_start.is_some());
        let facts = self.facts.containers.entry(name.to_owned()).or_default();
        // A create that is tried again under the same number must not lengthen the delay twice.
        if let Some(finished) = after_exit
            && facts.intent != Some(attempt)
        {
            facts.backoff = Some(rule.next(facts.backoff.as_ref(), &hash, finished, now));
        }
        facts.intent = Some(attempt);
        facts.hook_due = has_hook.then_some(attempt);
    }

    /// The call failed, which does not say that nothing was made: look before trying again.
    async fn create_uncertain(&mut self, name: &str, attempt: u32, error: &CriError) -> Option<ContainerId> {
        let making = error.is_still_being_made();
        if (error.is_uncertain() || making) && self.look().await {
            let made = self.observed.newest(name).filter(|c| c.attempt == attempt && c.state == InstanceState::Created);
            if let Some(made) = made {
                return Some(made.id.clone());
            }
        }
        if making {
            let failure = Failure {
                retry_after: Some(Duration::from_millis(500)),
                ..Failure::new("CreateContainerError", error.message.clone())
            };
            self.fresh = false;
            self.container_failed(name, &failure);
            return None;
        }
        self.events().warning(&self.container_target(name), "Failed", format!("Error: {}", error.message));
        self.container_failed(name, &Failure::new("CreateContainerError", error.message.clone()));
        None
    }

    /// Looks at one container; returns whether that gave an answer.
    pub(super) async fn see(&mut self, id: &ContainerId) -> bool {
        let sandbox = match self.observed.containers.iter().find(|c| c.id == *id) {
            Some(known) => known.sandbox.to_string(),
            None => self.observed.newest_sandbox().map(|s| s.id.to_string()).unwrap_or_default(),
        };
        match read::container(&*self.cx.options.runtime, id, &sandbox).await {
            Ok(Some(instance)) if self.was_cut_off(&instance) => {
                if !self.undo(&instance).await {
                    self.took_instance(instance);
                    return true;
                }
                self.fresh = false;
                self.inbox.nudge();
                false
            }
            Ok(Some(instance)) => {
                self.took_instance(instance);
                true
            }
            Ok(None) | Err(_) => {
                self.fresh = false;
                self.inbox.nudge();
                false
            }
        }
    }

    /// Forgets a container that has ended: its record goes, its logs and its number stay.
    pub(super) async fn forget_container(
        &mut self,
        id: &ContainerId,
        name: &str,
        after_exit: Option<Timestamp>,
    ) -> bool {
        let request = v1::RemoveContainerRequest { container_id: id.to_string() };
        match self.cx.options.runtime.remove_container(request).await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(pod = %self.desired.key, container = name, %id, %error, "container cannot be removed");
                self.fresh = false;
                let at = self.retry_at("remove", None);
                self.wake_by(at);
                return false;
            }
        }
        self.succeeded("remove");
        self.observed.containers.retain(|c| c.id != *id);
        let (rule, now, hash) = (self.cx.backoff, self.now(), wanted::hash_of(&self.wanted, name));
        let facts = self.facts.containers.entry(name.to_owned()).or_default();
        if let Some(gone) = facts.instances.iter().position(|known| known.id == *id) {
            let gone = facts.instances.remove(gone);
            facts.counted = facts.counted.max(Some(gone.attempt));
        }
        // Who asked for it waits longer the next time; the others begin anew.
        facts.backoff = after_exit.map(|finished| rule.next(facts.backoff.as_ref(), &hash, finished, now));
        self.told.remove(name);
        self.unsaved = true;
        self.save();
        true
    }

    /// Links the log under the name that log shippers of old look for.
    fn link_legacy_log(&self, name: &str, id: &ContainerId) {
        let Some(instance) = self.observed.containers.iter().find(|c| c.id == *id) else { return };
        if instance.log_path.is_empty() {
            return;
        }
        let key = &self.desired.key;
        let link = legacy_link(&self.cx.options.legacy_logs, &key.name, &key.namespace, name, id);
        if let Err(error) = point(&link, Path::new(&instance.log_path)) {
            tracing::debug!(link = %link.display(), %error, "legacy log link cannot be made");
        }
    }
}

/// Makes a link, also in place of a stale one.
fn point(link: &Path, log: &Path) -> std::io::Result<()> {
    match std::os::unix::fs::symlink(log, link) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            if std::fs::read_link(link)? == log {
                return Ok(());
            }
            std::fs::remove_file(link)?;
            std::os::unix::fs::symlink(log, link)
        }
        other => other,
    }
}

/// The path of a legacy link.
pub(super) fn legacy_link(folder: &Path, pod: &str, namespace: &str, container: &str, id: &ContainerId) -> PathBuf {
    let mut name = format!("{pod}_{namespace}_{container}-{id}");
    name.truncate(LEGACY_NAME);
    folder.join(name + ".log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_link_gives_way_and_what_is_no_link_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (link, log) = (folder.path().join("l"), folder.path().join("0.log"));
        std::os::unix::fs::symlink("/gone", &link).unwrap();
        point(&link, &log).unwrap();
        point(&link, &log).unwrap();
        assert_eq!(std::fs::read_link(&link).unwrap(), log);
        let file = folder.path().join("file");
        std::fs::write(&file, "somebody's").unwrap();
        assert!(point(&file, &log).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "somebody's");
    }

    #[test]
    fn a_long_legacy_name_is_cut() {
        let id = ContainerId::from("f".repeat(64));
        let link = legacy_link(Path::new("/l"), &"p".repeat(200), "ns", "c", &id);
        let name = link.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(name.len(), 255);
        assert_eq!(legacy_link(Path::new("/l"), "p", "n", "c", &"1".into()), PathBuf::from("/l/p_n_c-1.log"));
    }
}
