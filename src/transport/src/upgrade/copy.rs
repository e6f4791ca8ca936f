//! Joins two byte streams until both have ended or nothing moves any more.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::last_word::LastWord;

/// One buffer a direction; a session costs two of them.
const BUFFER: usize = 16 * 1024;

/// A client takes its last word and the end in this time.
const LAST_WORD_WITHIN: Duration = Duration::from_secs(2);

/// When a joined pair is given up.
#[derive(Debug, Clone, Copy)]
pub struct CopyLimits {
    /// Nothing moved in either direction for this long (`streamingConnectionIdleTimeout`); zero never ends it.
    pub idle: Duration,
    /// One side has ended, and the other has been silent for this long since.
    pub half_closed: Duration,
}

impl Default for CopyLimits {
    fn default() -> Self {
        Self { idle: Duration::from_secs(4 * 60 * 60), half_closed: Duration::from_secs(60) }
    }
}

/// Copies both ways. The end of one side is passed on to the other, which may still send; returns when both have ended.
pub async fn copy<A, B>(left: A, right: B, limits: CopyLimits) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let movement = Movement::new();
    let (mut left_reader, mut left_writer) = tokio::io::split(left);
    let (mut right_reader, mut right_writer) = tokio::io::split(right);
    let forth = one_way(&mut left_reader, &mut right_writer, &movement);
    let back = one_way(&mut right_reader, &mut left_writer, &movement);
    tokio::select! {
        ended = async { tokio::try_join!(forth, back) } => ended.map(|_| ()),
        error = movement.stalled(limits) => Err(error),
    }
}

/// The same for the session of a command: a `target` that goes without having told its end, or is given up by `stop`, is
/// given a last word towards the `client`.
pub(super) async fn copy_command<A, B>(
    client: A,
    target: B,
    limits: CopyLimits,
    stop: impl Future<Output = ()>,
) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let movement = Movement::new();
    let word = Mutex::new(LastWord::default());
    let (mut client_reader, mut client_writer) = tokio::io::split(client);
    let (mut target_reader, mut target_writer) = tokio::io::split(target);
    let ended = {
        let forth = one_way(&mut client_reader, &mut target_writer, &movement);
        let back = told(&mut target_reader, &mut client_writer, &movement, &word);
        tokio::pin!(forth, back, stop);
        tokio::select! {
            biased;
            () = &mut stop => Ok(()),
            ended = &mut back => ended,
            ended = &mut forth => match ended {
                // The client has said all it has to say, and listens on.
                Ok(()) => tokio::select! {
                    biased;
                    () = &mut stop => Ok(()),
                    ended = &mut back => ended,
                    error = movement.stalled(limits) => Err(error),
                },
                Err(error) => Err(error),
            },
            error = movement.stalled(limits) => Err(error),
        }
    };
    // Whichever side failed: a client that is gone takes no harm.
    let missing = word.lock().missing();
    if let Some(frame) = missing {
        drop(tokio::time::timeout(LAST_WORD_WITHIN, client_writer.write_all(&frame)).await);
    }
    drop(tokio::time::timeout(LAST_WORD_WITHIN, client_writer.shutdown()).await);
    ended
}

/// Copies what the far side of a command's session sends until it has ended.
async fn told<R, W>(reader: &mut R, writer: &mut W, movement: &Movement, word: &Mutex<LastWord>) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = reader.read(&mut buffer).await?;
        movement.noticed();
        if read == 0 {
            return Ok(());
        }
        let bytes = buffer.get(..read).unwrap_or_default();
        word.lock().passing();
        writer.write_all(bytes).await?;
        writer.flush().await?;
        word.lock().passed(bytes);
        movement.noticed();
    }
}

async fn one_way<R, W>(reader: &mut R, writer: &mut W, movement: &Movement) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = reader.read(&mut buffer).await?;
        movement.noticed();
        if read == 0 {
            writer.shutdown().await?;
            movement.half_close();
            return Ok(());
        }
        writer.write_all(buffer.get(..read).unwrap_or_default()).await?;
        // A TLS stream may hold back what was written until it is flushed.
        writer.flush().await?;
        movement.noticed();
    }
}

struct Movement {
    start: Instant,
    last_millis: AtomicU64,
    half_closed: AtomicBool,
    changed: Notify,
}

impl Movement {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            last_millis: AtomicU64::new(0),
            half_closed: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    fn noticed(&self) {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_millis.store(elapsed, Ordering::Relaxed);
    }

    fn half_close(&self) {
        self.half_closed.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Returns once nothing has moved for too long.
    async fn stalled(&self, limits: CopyLimits) -> io::Error {
        loop {
            let half_closed = self.half_closed.load(Ordering::Relaxed);
            let limit = if half_closed { limits.half_closed } else { limits.idle };
            if limit.is_zero() {
                self.changed.notified().await;
                continue;
            }
            let due = self.start + Duration::from_millis(self.last_millis.load(Ordering::Relaxed)) + limit;
            if due <= Instant::now() {
                let what = if half_closed { "one side ended, the other is silent" } else { "idle" };
                return io::Error::new(io::ErrorKind::TimedOut, format!("{what} for {limit:?}"));
            }
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = self.changed.notified() => {}
            }
        }
    }
}
