//! Watches over HTTP: the store's shared frames go out as they are unless a client asked for another form or a filter
//! changes what it may see. A client that reads slower than the history lasts gets 410 and lists again.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::error::{ApiError, Cause};
use super::limits::WatchSlot;
use super::negotiate::{Form, Wanted};
use super::object::{Object, metadata, parse};
use super::registry::{ListOptions, Registry, Selection};
use super::request::Query;
use super::resources::{PODS, Resource};
use super::table::{Tabler, partial};
use crate::store::{Event, EventKind, Revision, Text, Watch};

/// How often an idle watch that wants bookmarks gets one; as often as the stock server.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// How long a watch lasts that asks for nothing; then spread, so that clients do not all come back at once.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);

/// Longest that a watch may ask for.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Answers a watch request.
pub(crate) fn serve(
    registry: &Registry,
    resource: &'static Resource,
    namespace: &str,
    query: &Query,
    wanted: Wanted,
    slot: WatchSlot,
    stop: CancellationToken,
) -> Result<Response<Body>, ApiError> {
    let selection = Selection::parse(resource.stored(), query.get("labelSelector"), query.get("fieldSelector"))?;
    let from = query.get("resourceVersion");
    let initial = query.flag("sendInitialEvents");
    if !query.get("sendInitialEvents").is_empty() && query.get("resourceVersionMatch") != "NotOlderThan" {
        let text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        return Err(ApiError::invalid_list(Cause::forbidden("resourceVersionMatch", text)));
    }
    let version = read_version(from)?;
    let shape = match wanted.form {
        Form::Plain | Form::Discovery if resource.stored_as.is_some() => Shape::Face(resource),
        Form::Plain | Form::Discovery if resource.custom.is_some() => Shape::Custom(resource),
        Form::Plain | Form::Discovery => Shape::Plain,
        Form::Metadata => Shape::Metadata,
        Form::Table => {
            Shape::Table(Box::new(Tabler::new(resource, query.get("includeObject"), registry.clock().now())?), true)
        }
    };
    let timeout = read_timeout(query.get("timeoutSeconds"));
    let bookmarks = query.flag("allowWatchBookmarks");

    let mut queue = VecDeque::new();
    let with_list = initial || (version.0 == 0 && query.get("sendInitialEvents") != "false");
    let start = if with_list {
        let list = registry.list(
            resource.stored(),
            namespace,
            &ListOptions { selection: selection.clone(), not_before: Some(version), ..ListOptions::default() },
        )?;
        queue.extend(list.items.into_iter().map(Pending::Initial));
        if initial && bookmarks {
            queue.push_back(Pending::InitialEnd(list.revision));
        }
        list.revision
    } else if version.0 == 0 {
        registry.revision()
    } else {
        version
    };
    let watch = match open(registry, resource.stored(), namespace, &selection, start) {
        Ok(watch) => Some(watch),
        // A version that is gone is told inside the stream, as clients of the stock server expect.
        Err(error) if error.code == StatusCode::GONE => {
            queue.push_back(Pending::Error(error));
            None
        }
        Err(error) => return Err(error),
    };
    let now = Instant::now();
    // Cancelled when the definition of a custom kind changes: the client comes again and sees it as it is then.
    let gone = resource.custom.and_then(|custom| custom.served()).map(|served| served.gone.clone());
    let state = Stream {
        resource,
        selection,
        shape,
        watch,
        queue,
        bookmarks,
        next_bookmark: now + BOOKMARK_EVERY,
        ends: now + timeout,
        timer: Box::pin(sleep_until(now + if bookmarks { timeout.min(BOOKMARK_EVERY) } else { timeout })),
        over: Box::pin(over(stop, gone)),
        ended: false,
        _slot: slot,
    };
    let body = Body::from_stream(stream::unfold(state, |mut state| async move {
        let chunk = state.next().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), state))
    }));
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn read_version(text: &str) -> Result<Revision, ApiError> {
    if text.is_empty() {
        return Ok(Revision(0));
    }
    text.parse().map(Revision).map_err(|_| bad_version(text))
}

/// The stock server answers a version that is no number with 500 and no reason.
pub(crate) fn bad_version(text: &str) -> ApiError {
    let message =
        format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
}

fn read_timeout(text: &str) -> Duration {
    match text.parse::<u64>() {
        Ok(seconds) if seconds > 0 => Duration::from_secs(seconds).min(MAX_TIMEOUT),
        _ => {
            let spread = uuid::Uuid::new_v4().as_bytes()[0];
            DEFAULT_TIMEOUT + Duration::from_secs(u64::from(spread) * 7)
        }
    }
}

fn open(
    registry: &Registry,
    resource: &'static Resource,
    namespace: &str,
    selection: &Selection,
    from: Revision,
) -> Result<Watch, ApiError> {
    // A watch of one named object wakes only for that key: agents hold one for each ConfigMap and Secret in use.
    let watch = match selection.only_name() {
        Some(name) if !resource.namespaced || !namespace.is_empty() => {
            registry.watch_key(&resource.key(namespace, name), from)
        }
        _ => match selection.only_node() {
            // An agent wakes only for its own node's pods.
            Some(node) if std::ptr::eq(resource, &PODS) => registry.watch_node(resource, namespace, node, from),
            _ => registry.watch(resource, namespace, from),
        },
    };
    watch.map_err(|error| ApiError::from_store(&error, resource, ""))
}

/// Waits for the server's end, or that of what is watched.
async fn over(stop: CancellationToken, gone: Option<CancellationToken>) {
    match gone {
        None => stop.cancelled().await,
        Some(gone) => tokio::select! {
            () = stop.cancelled() => {}
            () = gone.cancelled() => {}
        },
    }
}

#[derive(Debug)]
enum Shape {
    Plain,
    /// In the words of another row than the stored one.
    Face(&'static Resource),
    /// As a custom kind's definition says.
    Custom(&'static Resource),
    Metadata,
    /// The flag: columns are still to be told.
    Table(Box<Tabler>, bool),
}

#[derive(Debug)]
enum Pending {
    Initial(Object),
    InitialEnd(Revision),
    Event(Arc<Event>),
    Error(ApiError),
}

struct Stream {
    resource: &'static Resource,
    selection: Selection,
    shape: Shape,
    watch: Option<Watch>,
    queue: VecDeque<Pending>,
    bookmarks: bool,
    next_bookmark: Instant,
    ends: Instant,
    /// Rings at the next of the two.
    timer: Pin<Box<Sleep>>,
    /// Done when the watch must end.
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: bool,
    _slot: WatchSlot,
}

impl Stream {
    /// Returns the next frame; nothing at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.ended {
                return None;
            }
            while let Some(pending) = self.queue.pop_front() {
                match self.encode(pending) {
                    Ok(Some(frame)) => return Some(frame),
                    Ok(None) => {}
                    Err(error) => return Some(self.fail(&error)),
                }
            }
            let Some(watch) = &mut self.watch else { return None };
            tokio::select! {
                biased;
                () = self.over.as_mut() => return None,
                events = watch.next() => match events {
                    Ok(events) => self.queue.extend(events.into_iter().map(Pending::Event)),
                    Err(error) => return Some(self.fail(&ApiError::from_store(&error, self.resource, ""))),
                },
                () = self.timer.as_mut() => {
                    self.next_bookmark += BOOKMARK_EVERY;
                    self.ended = Instant::now() >= self.ends;
                    if !self.bookmarks {
                        return None;
                    }
                    self.timer.as_mut().reset(self.next_bookmark.min(self.ends));
                    // At the end so that the client resumes from here and not from its last event.
                    let progress = watch.progress();
                    return Some(self.bookmark(progress, false));
                }
            }
        }
    }

    fn fail(&mut self, error: &ApiError) -> Bytes {
        self.ended = true;
        frame("ERROR", &error.status())
    }

    fn encode(&mut self, pending: Pending) -> Result<Option<Bytes>, ApiError> {
        match pending {
            Pending::Initial(object) => self.shaped("ADDED", &object.bytes()).map(Some),
            Pending::InitialEnd(revision) => Ok(Some(self.bookmark(revision, true))),
            Pending::Error(error) => Err(error),
            Pending::Event(event) => self.event(&event),
        }
    }

    fn event(&mut self, event: &Event) -> Result<Option<Bytes>, ApiError> {
        if self.selection.is_everything() {
            return match self.shape {
                Shape::Plain => Ok(Some(event.frame())),
                Shape::Face(_) | Shape::Custom(_) | Shape::Metadata | Shape::Table(..) => {
                    self.shaped(event.kind.word(), &event.object()).map(Some)
                }
            };
        }
        let may_match = |bytes: &[u8]| self.selection.may_match(bytes);
        if !may_match(&event.object()) && !event.previous.as_ref().is_some_and(|before| may_match(&before.bytes())) {
            return Ok(None);
        }
        let views = event.views(|bytes| self.selection.read(bytes));
        // What is damaged is shown.
        let matches = |view: &Option<Value>| view.as_ref().is_none_or(|object| self.selection.matches(object));
        let before = event.previous.is_some() && matches(&views.before);
        let now = event.kind != EventKind::Deleted && matches(&views.now);
        match (before, now) {
            (false, false) => Ok(None),
            (true, true) if matches!(self.shape, Shape::Plain) => Ok(Some(event.frame())),
            (true, true) => self.shaped("MODIFIED", &event.object()).map(Some),
            (false, true) => self.shaped("ADDED", &event.object()).map(Some),
            (true, false) if event.kind == EventKind::Deleted => self.shaped("DELETED", &event.object()).map(Some),
            (true, false) => {
                // It left the selection: the client sees it go as it last knew it, at the version it left.
                let mut object = parse(&event.previous.as_ref().map(Text::bytes).unwrap_or_default())?;
                metadata(&mut object).insert("resourceVersion".to_owned(), event.revision.to_string().into());
                let bytes = serde_json::to_vec(&object).map_err(ApiError::internal)?;
                self.shaped("DELETED", &bytes).map(Some)
            }
        }
    }

    fn shaped(&mut self, word: &str, bytes: &[u8]) -> Result<Bytes, ApiError> {
        match &mut self.shape {
            Shape::Plain => {
                let mut out = Vec::with_capacity(bytes.len() + 40);
                out.extend_from_slice(format!("{{\"type\":\"{word}\",\"object\":").as_bytes());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"}\n");
                Ok(out.into())
            }
            Shape::Face(face) => Ok(frame(word, &face.strategy.shown(parse(bytes)?))),
            Shape::Custom(row) => Ok(frame(word, &row.read_value(parse(bytes)?))),
            Shape::Metadata => Ok(frame(word, &partial(&parse(bytes)?))),
            Shape::Table(tabler, columns) => {
                let with_columns = std::mem::take(columns);
                Ok(frame(word, &tabler.single(parse(bytes)?, with_columns)))
            }
        }
    }

    fn bookmark(&mut self, revision: Revision, initial_end: bool) -> Bytes {
        let mut meta = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_end {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match &self.shape {
            Shape::Plain | Shape::Face(_) | Shape::Custom(_) => {
                json!({"kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": meta})
            }
            Shape::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta})
            }
            Shape::Table(..) => json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": revision.to_string()}, "columnDefinitions": null, "rows": [
                    {"cells": [], "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                        "metadata": meta}}]}),
        };
        frame("BOOKMARK", &object)
    }
}

fn frame(word: &str, object: &Value) -> Bytes {
    format!("{{\"type\":\"{word}\",\"object\":{object}}}\n").into()
}
