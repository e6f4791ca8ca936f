//! The database file: opening, loading, committing, and opening again after the disk has refused something.

use std::fmt;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use redb::{Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, StorageError, TableDefinition};

use super::super::state::State;
use super::super::types::{Event, Revision};
use super::super::{OpenError, StoreError};
use super::codec;

const OBJECTS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("objects");
const LOG: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
const META_FORMAT: &str = "format";
const META_REVISION: &str = "revision";
const META_COMPACTED: &str = "compacted";

/// Opens the database; the flag asks for a check of the whole file.
pub(in crate::store) type Opener = Box<dyn Fn(bool) -> Result<Database, DatabaseError> + Send>;

/// Makes the file if there is none: whole under another name first, so that a start that is cut short leaves nothing
/// half-made under the real one. Readable by its owner only.
pub(super) fn prepare_file(path: &Path) -> Result<(), OpenError> {
    if path.exists() {
        return Ok(());
    }
    let io = |detail: String| OpenError::Io { path: path.to_owned(), detail };
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| io("not a file name".to_owned()))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let unfinished = format!("{name}.new.");
    let draft = folder.join(format!("{unfinished}{}", std::process::id()));
    let made = make_file(&draft).and_then(|()| {
        // Unlike a rename this never replaces a file that another process has made meanwhile.
        match std::fs::hard_link(&draft, path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(redb::Error::Io(error)),
            Ok(()) | Err(_) => Ok(std::fs::File::open(folder)?.sync_all()?),
        }
    });
    let leftovers = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for leftover in leftovers.filter(|entry| entry.file_name().to_string_lossy().starts_with(&unfinished)) {
        if let Err(error) = std::fs::remove_file(leftover.path()) {
            tracing::debug!(path = %leftover.path().display(), %error, "leftover stays");
        }
    }
    made.map_err(|error| io(error.to_string()))
}

fn make_file(path: &Path) -> Result<(), redb::Error> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let database = Database::create(path)?;
    initialise(&database)?;
    drop(database);
    Ok(std::fs::File::open(path)?.sync_all()?)
}

pub(super) fn open_file(path: &Path, cache: usize, check: bool) -> Result<Database, DatabaseError> {
    Database::builder().set_cache_size(cache).set_check_integrity_on_open(check).create(path)
}

/// Owner of the open database.
pub(super) struct Engine {
    opener: Opener,
    path: PathBuf,
    database: Option<Database>,
    /// Set when a sync failed for another reason than space: what the disk holds is then unknown until a restart.
    broken: Option<Arc<str>>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("path", &self.path).field("open", &self.database.is_some()).finish()
    }
}

impl Engine {
    pub(super) fn new(opener: Opener, path: &Path) -> Self {
        Self { opener, path: path.to_owned(), database: None, broken: None }
    }

    /// Opens the file and fills the state with what it holds.
    pub(super) fn load(&mut self, state: &mut State) -> Result<(), OpenError> {
        let database = match (self.opener)(true) {
            // The check writes a little; a full disk must not keep a control plane from starting.
            Err(DatabaseError::Storage(StorageError::Io(error))) if is_full(&error) => (self.opener)(false),
            other => other,
        }
        .map_err(|error| self.open_error(error))?;
        let found = self.read_meta(&database, META_FORMAT)?;
        match found {
            None => initialise(&database)
                .map_err(|error| OpenError::Io { path: self.path.clone(), detail: error.to_string() })?,
            Some(found) if found > codec::FORMAT => {
                return Err(OpenError::TooNew { path: self.path.clone(), found, supported: codec::FORMAT });
            }
            Some(_) => self.fill(&database, state)?,
        }
        self.database = Some(database);
        Ok(())
    }

    fn read_meta(&self, database: &Database, name: &str) -> Result<Option<u64>, OpenError> {
        let read = || -> Result<Option<u64>, redb::Error> {
            let transaction = database.begin_read()?;
            match transaction.open_table(META) {
                Ok(meta) => Ok(meta.get(name)?.map(|value| value.value())),
                Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        read().map_err(|error| self.corrupt(error.to_string()))
    }

    fn fill(&self, database: &Database, state: &mut State) -> Result<(), OpenError> {
        let compacted = self.read_meta(database, META_COMPACTED)?.unwrap_or(0);
        let revision = self.read_meta(database, META_REVISION)?.unwrap_or(0);
        state.load([], Revision(compacted));
        let mut read = || -> Result<(), redb::Error> {
            let transaction = database.begin_read()?;
            for row in transaction.open_table(OBJECTS)?.iter()? {
                let (key, value) = row?;
                state.put(
                    codec::read_object(key.value(), value.value())
                        .ok_or_else(|| redb::Error::Corrupted(format!("object {}", key.value())))?,
                );
            }
            Ok(())
        };
        read().map_err(|error| self.corrupt(error.to_string()))?;
        for (event, at) in self.read_log(database, Revision(compacted)).map_err(|error| self.corrupt(error))? {
            state.remember(event, at);
        }
        if state.revision().0 != revision {
            return Err(self.corrupt(format!("log ends at {}, not at revision {revision}", state.revision())));
        }
        Ok(())
    }

    fn read_log(&self, database: &Database, after: Revision) -> Result<Vec<(Event, Timestamp)>, String> {
        let read = || -> Result<Vec<_>, redb::Error> {
            let transaction = database.begin_read()?;
            let mut events = Vec::new();
            let first = after.next().0;
            for (expected, row) in (first..).zip(transaction.open_table(LOG)?.range(first..)?) {
                let (revision, row) = row?;
                let event = codec::read_event(revision.value(), row.value())
                    .filter(|_| revision.value() == expected)
                    .ok_or_else(|| redb::Error::Corrupted(format!("log row {}", revision.value())))?;
                events.push(event);
            }
            Ok(events)
        };
        read().map_err(|error| error.to_string())
    }

    /// Makes sure that the file is open. Returns events that are on disk but not yet known (their write was answered
    /// as uncertain when the disk failed).
    pub(super) fn ensure_open(&mut self, known: Revision) -> Result<Vec<(Event, Timestamp)>, StoreError> {
        if let Some(detail) = &self.broken {
            return Err(StoreError::Io { path: self.path.clone(), detail: Arc::clone(detail) });
        }
        if self.database.is_some() {
            return Ok(Vec::new());
        }
        let database = (self.opener)(false).map_err(|error| self.refused(redb::Error::from(error)))?;
        let unknown = self
            .read_log(&database, known)
            .map_err(|detail| StoreError::Io { path: self.path.clone(), detail: detail.into() })?;
        tracing::info!(path = %self.path.display(), "store opened again after a refused write");
        self.database = Some(database);
        Ok(unknown)
    }

    /// Commits a batch and syncs it. On an error nothing of it counts as done, and the file is closed.
    pub(super) fn commit(
        &mut self,
        events: &[Event],
        at: Timestamp,
        compact: Option<Revision>,
    ) -> Result<(), StoreError> {
        let Some(database) = &self.database else { return Err(StoreError::Closed) };
        write(database, events, at, compact).map_err(|error| {
            self.database = None;
            self.refused(error)
        })
    }

    fn refused(&mut self, error: redb::Error) -> StoreError {
        let path = self.path.clone();
        let detail: Arc<str> = error.to_string().into();
        match error {
            redb::Error::Io(error) if is_full(&error) => StoreError::Full { path, detail },
            redb::Error::Io(_) => {
                // After a failed sync the kernel may drop the pages and report success next time, so only a restart,
                // which reads what the disk really has, may write again.
                let text: Arc<str> =
                    format!("{detail}; hint: check the disk, then restart the control plane to write again").into();
                self.broken = Some(Arc::clone(&text));
                StoreError::Io { path, detail: text }
            }
            _ => StoreError::Io { path, detail },
        }
    }

    fn corrupt(&self, detail: String) -> OpenError {
        OpenError::Corrupt { path: self.path.clone(), detail }
    }

    fn open_error(&self, error: DatabaseError) -> OpenError {
        let path = self.path.clone();
        match error {
            DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => OpenError::Locked { path },
            DatabaseError::Storage(StorageError::Corrupted(detail)) => OpenError::Corrupt { path, detail },
            DatabaseError::Storage(StorageError::Io(error))
                if matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof) =>
            {
                OpenError::Corrupt { path, detail: error.to_string() }
            }
            DatabaseError::UpgradeRequired(format) => {
                OpenError::Corrupt { path, detail: format!("file format {format} of another generation") }
            }
            other => OpenError::Io { path, detail: other.to_string() },
        }
    }
}

fn initialise(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        transaction.open_table(OBJECTS)?;
        transaction.open_table(LOG)?;
        let mut meta = transaction.open_table(META)?;
        meta.insert(META_FORMAT, codec::FORMAT)?;
        meta.insert(META_REVISION, 0)?;
        meta.insert(META_COMPACTED, 0)?;
    }
    transaction.commit()?;
    Ok(())
}

fn write(database: &Database, events: &[Event], at: Timestamp, compact: Option<Revision>) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        let mut log = transaction.open_table(LOG)?;
        let mut meta = transaction.open_table(META)?;
        for event in events {
            match event.entry() {
                Some(entry) => objects.insert(&*event.key, codec::object(&entry).as_slice())?,
                None => objects.remove(&*event.key)?,
            };
            log.insert(event.revision.0, codec::event(event, at).as_slice())?;
            meta.insert(META_REVISION, event.revision.0)?;
        }
        if let Some(upto) = compact {
            log.retain_in(..=upto.0, |_, _| false)?;
            meta.insert(META_COMPACTED, upto.0)?;
        }
    }
    transaction.commit()?;
    Ok(())
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded | std::io::ErrorKind::FileTooLarge
    )
}
