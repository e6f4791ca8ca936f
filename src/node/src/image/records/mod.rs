//! Who may use an image that is already here: what this agent pulled is noted with the logins that were good for it, and a
//! pod that shows none of them has to pull for itself. Owns the notes, in memory and on disk.
//!
//! ```text
//! begin -> intent on disk -> pull -> record on disk -> intent gone
//! ```
//! An intent that is left over says that the image, if it is here, came by us: nobody may use it without a login.

mod disk;
mod policy;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use longshore_api::image_name;
use longshore_cri::{SharedImages, v1};
use longshore_util::atomic::AtomicWriteError;
use longshore_util::clock::SharedClock;
use parking_lot::Mutex;

use self::disk::{AccountEntry, Credentials, Disk, Pulled, SecretEntry};
use super::login::{Login, Source};
pub use policy::VerifyPolicy;

#[derive(Debug, Default)]
struct State {
    pulled: BTreeMap<String, Pulled>,
    /// Pulls under way by image.
    begun: BTreeMap<String, u32>,
    /// Pulls of which nobody knows how they ended.
    left_over: BTreeSet<String>,
}

/// The notes. Clones share them.
#[derive(Debug, Clone)]
pub struct Records(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    disk: Disk,
    policy: VerifyPolicy,
    clock: SharedClock,
    state: Mutex<State>,
    /// Held across a change in memory and on disk, so that both go through the same order. Taken by threads that may
    /// block alone, and before `state`.
    order: Mutex<()>,
}

/// What a pod must show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Proof {
    /// Nothing.
    None,
    /// One of the logins that were good before.
    Login,
    /// Nothing that it shows is enough: it has to pull.
    Pull,
}

impl Records {
    /// Reads what is on disk.
    pub fn open(root: &Path, policy: VerifyPolicy, clock: SharedClock) -> io::Result<Self> {
        let disk = Disk::open(root)?;
        let state = State {
            pulled: disk.records().into_iter().map(|record| (record.image_ref.clone(), record)).collect(),
            begun: BTreeMap::new(),
            left_over: disk.intents().into_iter().collect(),
        };
        Ok(Self(Arc::new(Inner { disk, policy, clock, state: Mutex::new(state), order: Mutex::default() })))
    }

    /// Numbers of intents and records, for the figures.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.0.state.lock();
        (state.begun.len() + state.left_over.len(), state.pulled.len())
    }

    /// What a pod must show to use an image that is here.
    pub(super) fn proof(&self, image: &str, image_ref: &str) -> Proof {
        let repository = repository(image);
        let state = self.0.state.lock();
        let record = state.pulled.get(image_ref);
        let pulled_here = record.is_some() || state.begun.contains_key(image) || state.left_over.contains(image);
        if !self.0.policy.wants_proof(&repository, pulled_here) {
            return Proof::None;
        }
        match record.and_then(|record| record.credential_mapping.get(&repository)) {
            None => Proof::Pull,
            Some(known) if known.node_pods_accessible => Proof::None,
            Some(known) if known.kubernetes_secrets.is_empty() && known.kubernetes_service_accounts.is_empty() => {
                Proof::Pull
            }
            Some(_) => Proof::Login,
        }
    }

    /// Says whether one of the logins was good for the image before, and notes under which name it is known now.
    pub(super) async fn accepts(&self, image: &str, image_ref: &str, logins: &[Login]) -> bool {
        let repository = repository(image);
        let fitting = {
            let state = self.0.state.lock();
            let known = state.pulled.get(image_ref).and_then(|record| record.credential_mapping.get(&repository));
            let Some(known) = known else { return false };
            logins.iter().find(|login| fits(known, login)).map(|login| (login.clone(), is_listed(known, login)))
        };
        match fitting {
            None => false,
            Some((_, true)) => true,
            Some((login, false)) => {
                let (image, image_ref) = (image.to_owned(), image_ref.to_owned());
                self.blocking(move |this| this.note(&image, &image_ref, Some(&login))).await;
                true
            }
        }
    }

    /// Notes that a pull begins. An image whose intent cannot be written is not pulled: it would be free for all.
    pub(super) async fn begin(&self, image: &str) -> Result<(), String> {
        let name = image.to_owned();
        let written = self.blocking(move |this| this.begin(&name).map_err(|error| error.to_string())).await;
        let written = written.unwrap_or_else(|| Err("the thread that writes it broke".to_owned()));
        written.map_err(|error| format!("failed to record image pull intent for image {image:?}: {error}"))
    }

    /// Notes that a pull ended well, and with which login.
    pub(super) async fn pulled(&self, image: &str, image_ref: &str, login: Option<&Login>) {
        let (image, image_ref, login) = (image.to_owned(), image_ref.to_owned(), login.cloned());
        self.blocking(move |this| {
            this.note(&image, &image_ref, login.as_ref());
            this.end(&image);
        })
        .await;
    }

    /// Notes that a pull ended badly.
    pub(super) async fn failed(&self, image: &str) {
        let image = image.to_owned();
        self.blocking(move |this| this.end(&image)).await;
    }

    /// A pull was given up, and the runtime may have ended it all the same: looks, and leaves no open end.
    pub(super) async fn settle(&self, image: &str, images: &SharedImages) {
        self.look(image, images, Inner::end).await;
    }

    async fn look(&self, image: &str, images: &SharedImages, end: fn(&Inner, &str)) {
        let spec = v1::ImageSpec { image: image.to_owned(), ..v1::ImageSpec::default() };
        let request = v1::ImageStatusRequest { image: Some(spec), verbose: false };
        match images.image_status(request).await {
            Ok(answer) => {
                let found = answer.image.map(|found| found.id).filter(|id| !id.is_empty());
                let image = image.to_owned();
                self.blocking(move |this| {
                    if let Some(image_ref) = found {
                        this.note_unproven(&image_ref);
                    }
                    end(this, &image);
                })
                .await;
            }
            Err(error) => tracing::debug!(image, %error, "a pull that was given up stays noted as begun"),
        }
    }

    /// Brings notes of an earlier agent in step with the runtime; returns whether the runtime could tell.
    pub(super) async fn reconcile(&self, images: &SharedImages) -> bool {
        let begin = self.0.clock.now();
        let Ok(listed) = images.list_images(v1::ListImagesRequest::default()).await else { return false };
        let left_over: Vec<String> = self.0.state.lock().left_over.iter().cloned().collect();
        for image in left_over {
            self.look(&image, images, Inner::end_left_over).await;
        }
        let known = listed.images.into_iter().map(|image| image.id).collect();
        self.prune(known, begin).await;
        true
    }

    /// Forgets images that are gone, except what was noted after `since`.
    pub(super) async fn prune(&self, known: BTreeSet<String>, since: Timestamp) {
        self.blocking(move |this| {
            let is_old =
                |record: &Pulled| record.last_updated_time.parse::<Timestamp>().map_or(true, |time| time < since);
            let gone: Vec<String> = {
                let mut state = this.state.lock();
                let gone =
                    state.pulled.extract_if(.., |image_ref, record| !known.contains(image_ref) && is_old(record));
                gone.map(|(image_ref, _)| image_ref).collect()
            };
            for image_ref in gone {
                this.disk.remove(&image_ref);
            }
        })
        .await;
    }

    /// Disk work stands on a thread that may block, and is done once begun; `None` if it broke.
    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(&Inner) -> T + Send + 'static) -> Option<T> {
        let inner = Arc::clone(&self.0);
        let work = move || {
            let _order = inner.order.lock();
            work(&inner)
        };
        tokio::task::spawn_blocking(work).await.ok()
    }
}

/// The changes; each under the lock `order`.
impl Inner {
    fn begin(&self, image: &str) -> Result<(), AtomicWriteError> {
        let count = {
            let mut state = self.state.lock();
            let count = state.begun.entry(image.to_owned()).or_insert(0);
            *count += 1;
            *count
        };
        if count > 1 {
            return Ok(());
        }
        let written = self.disk.write_intent(image);
        if written.is_err() {
            self.state.lock().begun.remove(image);
        }
        written
    }

    fn note(&self, image: &str, image_ref: &str, login: Option<&Login>) {
        let changed = {
            let mut state = self.state.lock();
            let record = state.pulled.entry(image_ref.to_owned()).or_insert_with(|| Pulled::new(image_ref));
            let known = record.credential_mapping.entry(repository(image)).or_default();
            let before = known.clone();
            add(known, login);
            if *known == before && !record.last_updated_time.is_empty() {
                return;
            }
            self.stamp(record)
        };
        self.save(&changed);
    }

    fn note_unproven(&self, image_ref: &str) {
        let changed = {
            let mut state = self.state.lock();
            if state.pulled.contains_key(image_ref) {
                return;
            }
            let record = state.pulled.entry(image_ref.to_owned()).or_insert_with(|| Pulled::new(image_ref));
            self.stamp(record)
        };
        self.save(&changed);
    }

    fn stamp(&self, record: &mut Pulled) -> Pulled {
        // Whole seconds, as all times of the API.
        let now = self.clock.now();
        record.last_updated_time = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        record.clone()
    }

    fn save(&self, record: &Pulled) {
        if let Err(error) = self.disk.write(record) {
            tracing::warn!(image = record.image_ref, %error, "record of a pull cannot be written");
        }
    }

    fn end(&self, image: &str) {
        {
            let mut state = self.state.lock();
            if let Some(count) = state.begun.get_mut(image) {
                *count -= 1;
                if *count > 0 {
                    return;
                }
                state.begun.remove(image);
            }
            state.left_over.remove(image);
        }
        self.disk.remove_intent(image);
    }

    fn end_left_over(&self, image: &str) {
        {
            let mut state = self.state.lock();
            state.left_over.remove(image);
            // A new pull of the same image has taken over the file.
            if state.begun.contains_key(image) {
                return;
            }
        }
        self.disk.remove_intent(image);
    }
}

/// The name under which logins are noted: without tag and digest.
fn repository(image: &str) -> String {
    image_name::parse(image).map_or_else(|_| image.to_owned(), |name| name.repository())
}

fn entry(login: &Login) -> Option<SecretEntry> {
    match &login.source {
        Source::Secret(origin) => Some(SecretEntry {
            uid: origin.uid.clone(),
            namespace: origin.namespace.clone(),
            name: origin.name.clone(),
            credential_hash: login.hash(),
        }),
        Source::Node | Source::ServiceAccount(_) => None,
    }
}

fn account(login: &Login) -> Option<AccountEntry> {
    match &login.source {
        Source::ServiceAccount(origin) => Some(AccountEntry {
            uid: origin.uid.clone(),
            namespace: origin.namespace.clone(),
            name: origin.name.clone(),
        }),
        Source::Node | Source::Secret(_) => None,
    }
}

/// Adds the login that was good; none, or one of the node, is good for everybody.
fn add(known: &mut Credentials, login: Option<&Login>) {
    let (secret, account) = (login.and_then(entry), login.and_then(account));
    if secret.is_none() && account.is_none() {
        *known = Credentials { node_pods_accessible: true, ..Credentials::default() };
        return;
    }
    if known.node_pods_accessible {
        return;
    }
    if let Some(secret) = secret {
        // The same secret with other content replaces itself.
        known.kubernetes_secrets.retain(|other| {
            (&other.uid, &other.namespace, &other.name) != (&secret.uid, &secret.namespace, &secret.name)
        });
        known.kubernetes_secrets.push(secret);
        known.kubernetes_secrets.sort();
    }
    if let Some(account) = account
        && !known.kubernetes_service_accounts.contains(&account)
    {
        known.kubernetes_service_accounts.push(account);
        known.kubernetes_service_accounts.sort();
    }
}

/// The same secret, another one with the same content, or the same account.
fn fits(known: &Credentials, login: &Login) -> bool {
    let secret = entry(login).is_some_and(|secret| {
        known.kubernetes_secrets.iter().any(|other| {
            let same = (&other.uid, &other.namespace, &other.name) == (&secret.uid, &secret.namespace, &secret.name);
            same || (!other.credential_hash.is_empty() && other.credential_hash == secret.credential_hash)
        })
    });
    secret || account(login).is_some_and(|account| known.kubernetes_service_accounts.contains(&account))
}

/// Says that nothing about the login is new.
fn is_listed(known: &Credentials, login: &Login) -> bool {
    entry(login).is_none_or(|secret| known.kubernetes_secrets.contains(&secret))
}
