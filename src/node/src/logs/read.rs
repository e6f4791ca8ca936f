//! The reader: a task that walks through the file and fills a short queue of chunks; it ends when the reader goes away.

use std::collections::VecDeque;
use std::fs::Metadata;
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{BoxStream, unfold};
use longshore_util::{Tasks, spawn};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio::sync::mpsc;

use super::LogOptions;
use super::follow::{Change, Follower};
use super::parts::{self, Part};
use super::tail::start_of_last;
use super::write::{Next, Output};

/// Read at once, and about the size of a chunk given out.
const CHUNK: usize = 32 * 1024;
/// Chunks that wait for a slow reader.
const QUEUE: usize = 2;
/// A longer line is left out; runtimes split far below.
const LONGEST_LINE: usize = 1024 * 1024;
/// How often a quiet container is asked about.
const RECHECK: Duration = Duration::from_secs(1);
/// After the writer closed the file, its end is soon known.
const RECHECK_CLOSED: Duration = Duration::from_millis(50);

/// Says whether a container has ended for good, so that following its log comes to an end.
#[async_trait]
pub trait IsFinished: Send + Sync {
    /// Whether nothing more will be written.
    async fn is_finished(&self) -> bool;
}

/// Why a log cannot be read; the texts stand in the answer.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The runtime names a file that is not there (yet).
    #[error("failed to open log file \"{path}\": {source}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It cannot be searched.
    #[error("failed to read log file \"{path}\": {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Opens the log at `path` and gives out what `options` ask for. `finished` is asked only when following.
pub async fn open(
    path: &Path,
    options: LogOptions,
    finished: impl IsFinished + 'static,
    tasks: &Tasks,
) -> Result<BoxStream<'static, io::Result<Bytes>>, OpenError> {
    // Links are resolved once: legacy links point at the file proper, whose directory is the one to watch.
    let open_error = |source| OpenError::Open { path: path.to_owned(), source };
    let real = tokio::fs::canonicalize(path).await.map_err(open_error)?;
    // Watch before reading: what is written in between is not missed.
    let follower = options.follow.then(|| Follower::new(real.parent().unwrap_or_else(|| Path::new("/"))));
    let file = File::open(&real).await.map_err(open_error)?.into_std().await;
    let read_error = |source| OpenError::Read { path: path.to_owned(), source };
    let (log, wanted) = (real.clone(), options.clone());
    let begun = tokio::task::spawn_blocking(move || begin(&log, file, &wanted)).await;
    let (file, later, end) = begun.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(read_error)?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    let reader = Reader {
        path: real,
        file: File::from_std(file),
        later,
        end,
        left: None,
        output: Output::new(&options),
        pending: Vec::new(),
        too_long: false,
        buffer: vec![0; CHUNK],
        sender,
    };
    let token = tasks.token().clone();
    drop(spawn(tasks, "log-reader", async move {
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            () = reader.run(follower, finished) => {}
        }
    }));
    let chunks = unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|chunk| (chunk, receiver)) });
    Ok(chunks.boxed())
}

/// A file that is read later.
enum Piece {
    Part(Part),
    Open(std::fs::File),
}

impl Piece {
    fn open(self) -> io::Result<std::fs::File> {
        match self {
            Self::Part(part) => part.open(),
            Self::Open(file) => Ok(file),
        }
    }
}

/// The first file to read, standing where reading begins, those that follow, and where the last one ended at that moment.
/// Blocking.
fn begin(
    path: &Path,
    current: std::fs::File,
    options: &LogOptions,
) -> io::Result<(std::fs::File, VecDeque<Piece>, u64)> {
    let own = current.metadata()?;
    let (file, later) = start(path, current, &own, options)?;
    Ok((file, later, own.len()))
}

fn start(
    path: &Path,
    mut current: std::fs::File,
    own: &Metadata,
    options: &LogOptions,
) -> io::Result<(std::fs::File, VecDeque<Piece>)> {
    let mut parts = parts::list(path)?;
    // Rotated between our opening and our looking.
    parts.retain(|part| !part.is(own));
    if let Some(since) = options.since {
        let since = std::time::SystemTime::from(since);
        parts.retain(|part| part.modified().is_none_or(|modified| modified >= since));
    }
    let Some(mut wanted) = options.tail else {
        let mut later: VecDeque<Piece> = parts.into_iter().map(Piece::Part).collect();
        later.push_back(Piece::Open(current));
        return first(later);
    };
    let (mut later, mut end) = (VecDeque::new(), own.len());
    loop {
        let (start, found) = start_of_last(&mut current, end, wanted)?;
        current.seek(SeekFrom::Start(start))?;
        later.push_front(Piece::Open(current));
        wanted -= found;
        let older = if wanted > 0 { parts.pop() } else { None };
        match older.map(|part| part.open()) {
            None => return first(later),
            Some(Ok(file)) => {
                current = file;
                end = current.seek(SeekFrom::End(0))?;
            }
            // Gone to make room meanwhile, and all that is older with it.
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => return first(later),
            Some(Err(error)) => return Err(error),
        }
    }
}

/// Opens the first that is still there; the last one is open already.
fn first(mut later: VecDeque<Piece>) -> io::Result<(std::fs::File, VecDeque<Piece>)> {
    while let Some(piece) = later.pop_front() {
        match piece.open() {
            Ok(file) => return Ok((file, later)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !later.is_empty() => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

struct Reader {
    path: PathBuf,
    file: File,
    /// What is read after `file`; the last one is written to.
    later: VecDeque<Piece>,
    /// Where the file that is written to ended when reading began.
    end: u64,
    /// Bytes of `file` that are wanted; all there are and come when none.
    left: Option<u64>,
    output: Output,
    /// The start of a line whose end is not there yet.
    pending: Vec<u8>,
    too_long: bool,
    buffer: Vec<u8>,
    sender: mpsc::Sender<io::Result<Bytes>>,
}

/// Why reading stops.
enum Stop {
    /// The limit is reached or the reader has gone.
    Done,
    Failed(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Reader {
    async fn run(mut self, follower: Option<Follower>, finished: impl IsFinished) {
        let result = match follower {
            Some(follower) => self.follow(follower, finished).await,
            None => self.read_all().await,
        };
        if let Err(Stop::Failed(error)) = result {
            tracing::warn!(%error, path = %self.path.display(), "reading a container log");
            let _gone = self.sender.send(Err(error)).await;
        }
    }

    /// Reads on up to the file that is written.
    async fn catch_up(&mut self) -> Result<(), Stop> {
        while !self.later.is_empty() {
            self.drain().await?;
            self.finish_line().await?;
            let later = std::mem::take(&mut self.later);
            let next = tokio::task::spawn_blocking(move || first(later)).await;
            let (file, later) = next.unwrap_or_else(|error| Err(io::Error::other(error)))?;
            (self.file, self.later) = (File::from_std(file), later);
        }
        Ok(())
    }

    /// Parts that were rotated away after the file that is being read: a slow reader must not lose them.
    async fn passed_over(&mut self) -> VecDeque<Piece> {
        let (Ok(own), path) = (self.file.metadata().await, self.path.clone()) else { return VecDeque::new() };
        let look = move || {
            let parts = parts::list(&path).unwrap_or_default();
            let at = parts.iter().position(|part| part.is(&own));
            at.map_or_else(VecDeque::new, |at| parts.into_iter().skip(at + 1).map(Piece::Part).collect())
        };
        tokio::task::spawn_blocking(look).await.unwrap_or_default()
    }

    /// Up to the end that was seen when the start was found: a container that writes meanwhile adds no line to those that
    /// were asked for, and one that writes faster than is read does not keep the reader for ever.
    async fn read_all(&mut self) -> Result<(), Stop> {
        self.catch_up().await?;
        self.left = Some(self.end.saturating_sub(self.file.stream_position().await?));
        self.drain().await?;
        self.finish_line().await
    }

    async fn follow(&mut self, mut follower: Follower, finished: impl IsFinished) -> Result<(), Stop> {
        let mut wait = RECHECK;
        self.catch_up().await?;
        loop {
            self.drain().await?;
            if self.was_replaced().await {
                // The writer may have added to the old file until it opened the new one.
                self.drain().await?;
                self.finish_line().await?;
                let mut later = self.passed_over().await;
                match File::open(&self.path).await {
                    Ok(file) => {
                        later.push_back(Piece::Open(file.into_std().await));
                        self.later = later;
                        self.catch_up().await?;
                        continue;
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error.into()),
                }
            }
            let change = tokio::select! {
                biased;
                () = self.sender.closed() => return Err(Stop::Done),
                change = follower.changed(wait) => change,
            };
            match change {
                Change::Written => wait = RECHECK,
                Change::Closed => wait = RECHECK_CLOSED,
                Change::Nothing => {
                    wait = (wait * 2).min(RECHECK);
                    if finished.is_finished().await {
                        // What came between the last look and the end.
                        self.drain().await?;
                        return self.finish_line().await;
                    }
                }
            }
        }
    }

    /// Whether another file stands under the name, or this one was cut.
    async fn was_replaced(&mut self) -> bool {
        let (Ok(here), Ok(there)) = (self.file.metadata().await, tokio::fs::metadata(&self.path).await) else {
            return false;
        };
        if (here.dev(), here.ino()) != (there.dev(), there.ino()) {
            return true;
        }
        self.file.stream_position().await.is_ok_and(|position| position > there.len())
    }

    /// Gives out all whole lines up to the present end of the file, or up to what is wanted of it.
    async fn drain(&mut self) -> Result<(), Stop> {
        loop {
            let most = self.left.map_or(CHUNK, |left| usize::try_from(left).unwrap_or(CHUNK).min(CHUNK));
            let size = self.file.read(&mut self.buffer[..most]).await?;
            if size == 0 {
                return Ok(());
            }
            self.left = self.left.map(|left| left.saturating_sub(u64::try_from(size).unwrap_or(left)));
            let mut out = Vec::with_capacity(size);
            let mut next = Next::More;
            let buffer = std::mem::take(&mut self.buffer);
            for piece in buffer[..size].split_inclusive(|byte| *byte == b'\n') {
                next = self.piece(piece, &mut out);
                if next == Next::Full {
                    break;
                }
            }
            self.buffer = buffer;
            self.give(out, next).await?;
        }
    }

    /// A piece of the file that is a line, or the start or the end of one.
    fn piece(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Next {
        let is_end = piece.ends_with(b"\n");
        if self.too_long {
            self.too_long = !is_end;
            return Next::More;
        }
        if is_end && self.pending.is_empty() {
            return self.output.line(piece, out);
        }
        self.pending.extend_from_slice(piece);
        if is_end {
            let line = std::mem::take(&mut self.pending);
            return self.output.line(&line, out);
        }
        if self.pending.len() > LONGEST_LINE {
            self.pending = Vec::new();
            self.too_long = true;
        }
        Next::More
    }

    /// A last line without its newline is shown as far as it goes.
    async fn finish_line(&mut self) -> Result<(), Stop> {
        self.too_long = false;
        if self.pending.is_empty() {
            return Ok(());
        }
        let line = std::mem::take(&mut self.pending);
        let mut out = Vec::new();
        let next = self.output.line(&line, &mut out);
        self.give(out, next).await
    }

    async fn give(&self, out: Vec<u8>, next: Next) -> Result<(), Stop> {
        if !out.is_empty() && self.sender.send(Ok(Bytes::from(out))).await.is_err() {
            return Err(Stop::Done);
        }
        if next == Next::Full { Err(Stop::Done) } else { Ok(()) }
    }
}
