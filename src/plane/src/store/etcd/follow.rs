//! Memory follows etcd: all objects are read once, then one watch tells every change in order. A watch that breaks goes
//! on behind the last event; if etcd has dropped that much history, everything is read anew and our watchers must too.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_util::Tasks;
use longshore_util::backoff::Backoff;
use serde_json::Value;

use super::wire::{self, pb};
use super::{Hub, fence, layout, unsigned};
use crate::store::types::{Draft, Entry, Event, EventKind, Revision};

/// How a watch ended.
enum End {
    /// It goes on behind the last event.
    Broken(String),
    /// What comes next is not there any more.
    Compacted,
}

impl Hub {
    /// Whether this is not the etcd that memory was read from: another cluster, or one put back to an older state.
    fn is_another(&self, header: Option<&pb::ResponseHeader>) -> bool {
        let Some(header) = header else { return false };
        let known = self.cluster.load(Ordering::Relaxed);
        header.cluster_id != known || unsigned(header.revision) < *self.reached.borrow()
    }
}

/// All objects as they are at one revision.
pub(super) struct Loaded {
    pub(super) entries: Vec<Entry>,
    pub(super) revision: Revision,
    /// What could not be read, and why.
    pub(super) unreadable: Vec<(Arc<str>, String)>,
}

/// Reads all objects as they are at one revision. A damaged value is passed over; one that a stock apiserver wrote as
/// protobuf is not, for then there are more, and others at work on them.
pub(super) async fn load(hub: &Hub) -> Result<Loaded, String> {
    let (mut from, end) = hub.range();
    let (mut entries, mut revision, mut unreadable) = (Vec::new(), 0, Vec::new());
    loop {
        let page =
            hub.wire.page(from.clone(), end.clone(), revision).await.map_err(|status| wire::describe(&status))?;
        if revision == 0
            && let Some(header) = page.header
        {
            revision = header.revision;
            hub.cluster.store(header.cluster_id, Ordering::Relaxed);
        }
        let last = page.kvs.last().map(|kv| kv.key.clone());
        for kv in page.kvs {
            if let Some(key) = own_key(hub, &kv) {
                let draft = match draft(&kv.value) {
                    Ok(draft) => draft,
                    Err(Unreadable::Protobuf) => return Err(foreign(&kv)),
                    Err(Unreadable::Damaged(why)) => {
                        tell_damaged(&kv, &why);
                        unreadable.push((key, why));
                        continue;
                    }
                };
                let revision = Revision(unsigned(kv.mod_revision));
                let event = Event::from_draft(revision, EventKind::Created, key, &draft, None);
                entries.extend(event.entry());
            }
        }
        let (true, Some(mut last)) = (page.more, last) else { break };
        last.push(0);
        from = last;
    }
    Ok(Loaded { entries, revision: Revision(unsigned(revision)), unreadable })
}

/// Why a value is no object of ours.
enum Unreadable {
    Protobuf,
    Damaged(String),
}

fn tell_damaged(kv: &pb::KeyValue, why: &str) {
    let key = kv.key.escape_ascii();
    tracing::error!(%key, error = why, "a value in etcd cannot be read: it is in no list, and its key stays taken until it is put right there");
}

fn foreign(kv: &pb::KeyValue) -> String {
    format!(
        "{} is stored as protobuf by a stock apiserver; hint: name another --etcd-prefix, or have the stock apiserver rewrite its objects with \
         --storage-media-type=application/json",
        kv.key.escape_ascii()
    )
}

/// Follows until the tasks are cancelled.
pub(super) fn start(hub: Hub, tasks: &Tasks) {
    let token = tasks.token().clone();
    tasks.essential("etcd-follower", async move {
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            () = run(&hub) => {}
        }
    });
}

async fn run(hub: &Hub) {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(3), u64::from(std::process::id()));
    let mut told = false;
    loop {
        let before = *hub.reached.borrow();
        let end = follow(hub).await;
        if *hub.reached.borrow() != before {
            backoff.reset();
            told = false;
        }
        let trouble = match end {
            End::Broken(why) => why,
            End::Compacted => match load(hub).await {
                Ok(Loaded { entries, revision, unreadable }) => {
                    tracing::warn!(%revision, "etcd has dropped what this apiserver had not seen, or is another one: all is read anew");
                    let mut state = hub.shared.write();
                    state.reset(entries, revision);
                    unreadable.into_iter().for_each(|(key, why)| state.cannot_read(key, why));
                    drop(state);
                    hub.reached.send_replace(revision.0);
                    continue;
                }
                Err(why) => why,
            },
        };
        if !told {
            tracing::warn!(servers = %hub.wire.name, error = trouble, "etcd cannot be followed; tried again");
            told = true;
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

/// Watches from behind the last event until the watch ends.
async fn follow(hub: &Hub) -> End {
    let (start, end) = hub.range();
    // An etcd that is behind us would let us wait for ever: its revision is looked at first.
    match hub.wire.now(start.clone()).await {
        Ok(now) if hub.is_another(Some(&now)) => return End::Compacted,
        Ok(_) => {}
        Err(status) => return End::Broken(wire::describe(&status)),
    }
    let from = hub.shared.read().revision().next().0;
    let mut answers = match hub.wire.watch(start, end, i64::try_from(from).unwrap_or(i64::MAX)).await {
        Ok(answers) => answers,
        Err(status) => return End::Broken(wire::describe(&status)),
    };
    loop {
        let answer = match answers.message().await {
            Ok(Some(answer)) => answer,
            Ok(None) => return End::Broken("the watch ended".to_owned()),
            Err(status) => return End::Broken(wire::describe(&status)),
        };
        if answer.compact_revision > 0 || hub.is_another(answer.header.as_ref()) {
            return End::Compacted;
        }
        if answer.canceled {
            return End::Broken(format!("the watch was cancelled: {}", answer.cancel_reason));
        }
        for event in answer.events {
            take(hub, event);
        }
    }
}

/// Applies one change.
fn take(hub: &Hub, change: pb::Event) {
    let is_delete = change.r#type() == pb::event::EventType::Delete;
    let Some(kv) = change.kv else { return };
    let revision = Revision(unsigned(kv.mod_revision));
    let (now, mut state) = (hub.clock.now(), hub.shared.write());
    let event = own_key(hub, &kv).and_then(|key| {
        let old = state.get(&key).cloned();
        state.can_read(&key);
        if is_delete {
            let last = old?;
            let before = last.value.bytes();
            let known = Draft::of_rendered(&before, &last.revision.to_string());
            let draft = known.or_else(|| draft(&before).ok())?;
            return Some(Event::from_draft(revision, EventKind::Deleted, key, &draft, Some(last.value)));
        }
        let old = old.map(|entry| entry.value);
        match draft(&kv.value) {
            Ok(draft) => {
                let kind = if old.is_some() { EventKind::Updated } else { EventKind::Created };
                Some(Event::from_draft(revision, kind, key, &draft, old))
            }
            Err(Unreadable::Protobuf) => {
                tracing::error!(error = foreign(&kv), "an object in etcd cannot be read");
                state.cannot_read(key, "stored as protobuf".to_owned());
                None
            }
            Err(Unreadable::Damaged(why)) => {
                tell_damaged(&kv, &why);
                state.cannot_read(key, why);
                None
            }
        }
    });
    match event {
        Some(event) => state.publish(event, now),
        None => state.pass(revision),
    }
    if let Some(upto) = state.compaction(now) {
        state.compact(upto);
    }
    drop(state);
    hub.reached.send_if_modified(|reached| {
        let is_news = revision.0 > *reached;
        *reached = revision.0.max(*reached);
        is_news
    });
}

/// Returns the store's own key; none for what is not an object.
fn own_key(hub: &Hub, kv: &pb::KeyValue) -> Option<Arc<str>> {
    let key = std::str::from_utf8(&kv.key).ok()?.strip_prefix(&*hub.prefix)?;
    // Stock apiservers keep their ranges of addresses and ports here, which are no objects of the API.
    if key == fence::KEY || key.starts_with("ranges/") || key.starts_with("masterleases/") {
        return None;
    }
    Some(layout::from_etcd(key).into())
}

/// Reads a stored value, without the revision that it may carry.
fn draft(value: &[u8]) -> Result<Draft, Unreadable> {
    if value.starts_with(b"k8s\0") {
        return Err(Unreadable::Protobuf);
    }
    if let Some(draft) = Draft::of_rendered(value, "") {
        return Ok(draft);
    }
    match serde_json::from_slice::<Value>(value) {
        Ok(object @ Value::Object(_)) => Ok(Draft::of(&object)),
        Ok(_) => Err(Unreadable::Damaged("no object".to_owned())),
        Err(error) => Err(Unreadable::Damaged(format!("not JSON: {error}"))),
    }
}
