//! The writer thread's loop: take what waits, decide, commit once, publish, answer.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_util::clock::SharedClock;
use tokio::sync::{mpsc, oneshot};

use super::super::StoreError;
use super::super::plan::{Operation, answer, plan};
use super::super::state::Shared;
use super::super::types::{Entry, Event};
use super::engine::Engine;

/// Most writes committed by one sync; bounds what is lost at once when the disk refuses, and the transaction's memory.
const BATCH: usize = 256;

/// What the writer thread is told.
pub(super) enum Message {
    /// Write and answer.
    Write(Request),
    /// Finish what was accepted, close the file, end.
    Close,
}

pub(super) struct Request {
    pub(super) operation: Operation,
    pub(super) reply: oneshot::Sender<Result<Entry, StoreError>>,
}

pub(super) struct Writer {
    engine: Engine,
    shared: Shared,
    clock: SharedClock,
}

impl Writer {
    pub(super) fn new(engine: Engine, shared: Shared, clock: SharedClock) -> Self {
        Self { engine, shared, clock }
    }

    /// Runs until it is told to close or all senders are gone.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Message>) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut open = true;
        while open && let Some(first) = queue.blocking_recv() {
            let mut next = Some(first);
            while let Some(message) = next.take() {
                match message {
                    Message::Write(request) => batch.push(request),
                    Message::Close => open = false,
                }
                if open && batch.len() < BATCH {
                    next = queue.try_recv().ok();
                }
            }
            if !batch.is_empty() {
                self.step(&mut batch);
            }
        }
    }

    fn step(&mut self, batch: &mut Vec<Request>) {
        let now = self.clock.now();
        if let Err(error) = self.recover() {
            tracing::warn!(%error, writes = batch.len(), "store refuses writes");
            for request in batch.drain(..) {
                send(request.reply, Err(error.clone()));
            }
            return;
        }
        let (events, answers) = self.decide(batch);
        if events.is_empty() {
            answers.into_iter().for_each(|(reply, result)| send(reply, result));
            return;
        }
        let compact = self.shared.read().compaction(now);
        match self.engine.commit(&events, now, compact) {
            Ok(()) => {
                let mut state = self.shared.write();
                events.into_iter().for_each(|event| state.publish(event, now));
                if let Some(upto) = compact {
                    state.compact(upto);
                }
                drop(state);
                answers.into_iter().for_each(|(reply, result)| send(reply, result));
            }
            Err(error) => {
                tracing::error!(%error, writes = answers.len(), "store could not write");
                // Refusals of this batch may rest on writes of this batch, so they are void as well.
                answers.into_iter().for_each(|(reply, _)| send(reply, Err(error.clone())));
            }
        }
    }

    fn recover(&mut self) -> Result<(), StoreError> {
        let known = self.shared.read().revision();
        let unknown = self.engine.ensure_open(known)?;
        if !unknown.is_empty() {
            let mut state = self.shared.write();
            unknown.into_iter().for_each(|(event, at)| state.publish(event, at));
        }
        Ok(())
    }

    /// Decides each write on top of those before it in the batch.
    #[expect(clippy::type_complexity, reason = "a list of replies with what to send")]
    fn decide(
        &self,
        batch: &mut Vec<Request>,
    ) -> (Vec<Event>, Vec<(oneshot::Sender<Result<Entry, StoreError>>, Result<Entry, StoreError>)>) {
        let state = self.shared.read();
        let mut overlay: HashMap<Arc<str>, Option<Entry>> = HashMap::new();
        let mut events: Vec<Event> = Vec::with_capacity(batch.len());
        let mut answers = Vec::with_capacity(batch.len());
        let mut revision = state.revision().next();
        for Request { operation, reply } in batch.drain(..) {
            let key = Arc::clone(operation.key());
            let current = match overlay.get(&key) {
                Some(entry) => entry.as_ref(),
                None => state.get(&key),
            };
            match plan(operation, current, revision) {
                Ok(event) => {
                    overlay.insert(key, event.entry());
                    answers.push((reply, Ok(answer(&event))));
                    events.push(event);
                    revision = revision.next();
                }
                Err(error) => answers.push((reply, Err(error))),
            }
        }
        (events, answers)
    }
}

fn send(reply: oneshot::Sender<Result<Entry, StoreError>>, result: Result<Entry, StoreError>) {
    // The caller may have gone away; its write stands all the same.
    drop(reply.send(result));
}
