//! Making and opening a store, and every reason why not.

#[cfg(test)]
mod tests;

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use corvus_core::Clock;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _};
use rusqlite_migration::{M, Migrations};

use crate::{
    KeyError, Store,
    backup::{self, RESTORING},
    files,
    key::SecretKey,
};

/// Name of the database in the data folder.
pub const DATABASE: &str = "corvus.db";
/// Name of the file that says: this folder has had a database.
pub const MARKER: &str = "corvus.marker";
/// Name of the secret key in the data folder.
pub const SECRET_KEY: &str = "secret.key";
const LOCK: &str = "corvus.db.lock";

pub(crate) const MARKER_TEXT: &str = "This folder has had a database. While this file is here, the gateway does \
not begin with an\nempty one beside old data: if corvus.db is missing, put it back from a backup.\n";

const STEPS: &[M<'_>] = &[M::up(include_str!("../migrations/0001_initial.sql"))];
const MIGRATIONS: Migrations<'_> = Migrations::from_slice(STEPS);

/// `Corv`, as the first migration sets it.
const APPLICATION_ID: i64 = 0x436f_7276;

/// Row of `meta`: a sealed nothing, which only the right key opens.
const KEY_CHECK: &str = "key_check";

/// How long a statement waits for another program that holds the database.
const BUSY: Duration = Duration::from_secs(5);

/// Why a store cannot be opened. Whatever was there has not been changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the data folder {} cannot be used", .path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("the data folder {} is in use by another gateway", .path.display())]
    InUse { path: PathBuf },
    /// The marker is there and the database is not.
    #[error(
        "the database {} is missing or empty, though this folder has had one; put it back from a \
         backup, or remove {MARKER} there to begin with an empty one", .path.display()
    )]
    Missing { path: PathBuf },
    #[error("there is no database {}", .path.display())]
    None { path: PathBuf },
    #[error(
        "a backup was being restored into {} and did not finish; empty the folder and restore \
         again", .path.display()
    )]
    RestoreUnfinished { path: PathBuf },
    #[error(
        "the database {} is damaged ({detail}); restore a backup into an empty folder",
        .path.display()
    )]
    Corrupt { path: PathBuf, detail: String },
    #[error("{} cannot be written; the gateway needs to write all of its data folder", .path.display())]
    ReadOnly { path: PathBuf },
    #[error("the database {} is held by another program", .path.display())]
    Locked { path: PathBuf },
    #[error("the disk with {} is full", .path.display())]
    Full { path: PathBuf },
    /// Made by a later version of the gateway.
    #[error(
        "the database {} has schema {found}, and this version knows schemas up to {known}; start \
         the later version that wrote it, or restore a backup of the earlier one", .path.display()
    )]
    Newer { path: PathBuf, found: u64, known: u64 },
    /// [`Store::attach`] does not migrate.
    #[error(
        "the database {} has schema {found} and this version works on {known}; start the gateway \
         once, which brings it up to date", .path.display()
    )]
    Older { path: PathBuf, found: u64, known: u64 },
    #[error("{} is not a database of this gateway", .path.display())]
    Foreign { path: PathBuf },
    #[error(
        "the file system of {} cannot hold the database: it offers no shared memory, as some \
         network file systems do not; use a local disk", .path.display()
    )]
    FileSystem { path: PathBuf },
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("the database {} cannot be opened", .path.display())]
    Database { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
}

/// What tests turn.
#[derive(Clone, Copy)]
pub(crate) struct Tuning {
    pub(crate) busy: Duration,
    /// Pages beyond which the disk counts as full.
    pub(crate) max_pages: Option<u32>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { busy: BUSY, max_pages: None }
    }
}

/// Number of the newest schema.
pub(crate) const fn newest_schema() -> u64 {
    STEPS.len() as u64
}

impl Store {
    /// Opens the store in the folder `data`, brings its schema up to date, and makes it when the
    /// folder has never had one. `key_file` is where the secret key is; `None`: `DATA/secret.key`.
    /// The key is made when it is missing and nothing has been encrypted yet.
    ///
    /// As long as the store is open no second one can be, in this process or another.
    pub fn open(
        data: &Path,
        clock: Arc<dyn Clock>,
        key_file: Option<&Path>,
    ) -> Result<Self, OpenError> {
        open(data, clock, key_file, Tuning::default())
    }

    /// Opens the store beside a gateway that may have it open too: for commands that do one thing
    /// and end (a backup, a forgotten password). Makes nothing and migrates nothing.
    pub fn attach(
        data: &Path,
        clock: Arc<dyn Clock>,
        key_file: Option<&Path>,
    ) -> Result<Self, OpenError> {
        refuse_unfinished(data)?;
        let path = data.join(DATABASE);
        if !exists(&path)? {
            return Err(if exists(&data.join(MARKER))? {
                OpenError::Missing { path }
            } else {
                OpenError::None { path }
            });
        }
        let place = Place { path: &path, tuning: Tuning::default() };
        let connection = place.connect()?;
        let (found, known) = (place.schema(&connection)?, newest_schema());
        if found < known {
            return Err(OpenError::Older { path, found, known });
        }
        place.configure(&connection)?;
        let key_path = key_file.map_or_else(|| data.join(SECRET_KEY), Path::to_owned);
        let key = place.key(&connection, &key_path, false)?;
        Ok(Self::new(data, clock, key, connection, None))
    }
}

pub(crate) fn open(
    data: &Path,
    clock: Arc<dyn Clock>,
    key_file: Option<&Path>,
    tuning: Tuning,
) -> Result<Store, OpenError> {
    files::create_folder(data).map_err(|source| folder_error(data, source))?;
    let lock = lock(data)?;
    refuse_unfinished(data)?;
    backup::remove_copies(data).map_err(|source| folder_error(data, source))?;

    let path = data.join(DATABASE);
    let marker = data.join(MARKER);
    let marked = exists(&marker)?;
    if !exists(&path)? {
        if marked {
            return Err(OpenError::Missing { path });
        }
        // Made here and not by SQLite so that nobody but the owner may read it; SQLite gives its
        // other files the same mode.
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|source| folder_error(&path, source))?;
    }

    let place = Place { path: &path, tuning };
    let mut connection = place.connect()?;
    if place.schema(&connection)? == 0 && marked {
        return Err(OpenError::Missing { path });
    }
    place.configure(&connection)?;
    place.check(&connection)?;
    MIGRATIONS.to_latest(&mut connection).map_err(|error| match error {
        rusqlite_migration::Error::RusqliteError { err, .. } => place.error(err),
        other => OpenError::Database { path: path.clone(), source: Box::new(other) },
    })?;
    let key_path = key_file.map_or_else(|| data.join(SECRET_KEY), Path::to_owned);
    let key = place.key(&connection, &key_path, true)?;
    if !marked {
        files::create_whole(&marker, |file| file.write_all(MARKER_TEXT.as_bytes()))
            .map_err(|source| folder_error(&marker, source))?;
    }
    Ok(Store::new(data, clock, key, connection, Some(lock)))
}

/// A database file, and how to speak to it.
struct Place<'a> {
    path: &'a Path,
    tuning: Tuning,
}

impl Place<'_> {
    fn connect(&self) -> Result<Connection, OpenError> {
        let connect = || {
            let connection = connect(self.path)?;
            connection.busy_timeout(self.tuning.busy)?;
            Ok(connection)
        };
        connect().map_err(|error| self.error(error))
    }

    /// The number of the schema; 0: an empty database. Reads the header, and changes nothing.
    fn schema(&self, connection: &Connection) -> Result<u64, OpenError> {
        let read = |name: &str| {
            connection
                .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
                .map_err(|error| self.error(error))
        };
        let (found, known) = (read("user_version")?, newest_schema());
        let tables = connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, u64>(0))
            .map_err(|error| self.error(error))?;
        let path = self.path.to_owned();
        let ours = read("application_id")? == APPLICATION_ID;
        match u64::try_from(found) {
            Ok(0) if tables == 0 => Ok(0),
            Ok(found) if ours && found > known => Err(OpenError::Newer { path, found, known }),
            Ok(found) if ours && found > 0 => Ok(found),
            _ => Err(OpenError::Foreign { path }),
        }
    }

    fn configure(&self, connection: &Connection) -> Result<(), OpenError> {
        if connection.is_readonly("main").map_err(|error| self.error(error))? {
            return Err(OpenError::ReadOnly { path: self.path.to_owned() });
        }
        let mode = configure(connection).map_err(|error| self.error(error))?;
        if mode != "wal" {
            return Err(OpenError::FileSystem { path: self.path.to_owned() });
        }
        if let Some(pages) = self.tuning.max_pages {
            connection
                .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
                .map_err(|error| self.error(error))?;
        }
        // Whether it can be written shows now, and not with somebody's first change.
        connection.execute_batch("BEGIN IMMEDIATE; COMMIT").map_err(|error| self.error(error))
    }

    /// Reads every page: damage shows now, and not after years in the one page that nobody read.
    fn check(&self, connection: &Connection) -> Result<(), OpenError> {
        let answer: String = connection
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .map_err(|error| self.error(error))?;
        if answer == "ok" {
            return Ok(());
        }
        Err(OpenError::Corrupt { path: self.path.to_owned(), detail: answer })
    }

    /// The key that belongs to this database. It is made only when nothing was encrypted yet.
    fn key(
        &self,
        connection: &Connection,
        file: &Path,
        create: bool,
    ) -> Result<SecretKey, OpenError> {
        let missing = || KeyError::Missing { path: file.to_owned() };
        let check: Option<Vec<u8>> = connection
            .query_row("SELECT value FROM meta WHERE name = ?1", [KEY_CHECK], |row| row.get(0))
            .optional()
            .map_err(|error| self.error(error))?;
        let key = SecretKey::read(file)?;
        if let Some(check) = check {
            let key = key.ok_or_else(missing)?;
            let opened = key.open(KEY_CHECK, &check);
            opened.map_err(|_| KeyError::Wrong { path: file.to_owned() })?;
            return Ok(key);
        }
        let key = match key {
            Some(key) => key,
            None if create => SecretKey::create(file)?,
            None => return Err(missing().into()),
        };
        let sealed = key.seal(KEY_CHECK, b"").map_err(|_| OpenError::Database {
            path: self.path.to_owned(),
            source: "the secret key does not encrypt".into(),
        })?;
        connection
            .execute("INSERT INTO meta (name, value) VALUES (?1, ?2)", (KEY_CHECK, sealed))
            .map_err(|error| self.error(error))?;
        Ok(key)
    }

    fn error(&self, error: rusqlite::Error) -> OpenError {
        let path = self.path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                OpenError::Corrupt { path, detail: error.to_string() }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenError::Locked { path },
            Some(ErrorCode::ReadOnly) => OpenError::ReadOnly { path },
            Some(ErrorCode::DiskFull) => OpenError::Full { path },
            _ => OpenError::Database { path, source: Box::new(error) },
        }
    }
}

/// A connection to a database that is there.
pub(crate) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

/// Sets what each connection needs, and says which journal the database has.
pub(crate) fn configure(connection: &Connection) -> rusqlite::Result<String> {
    let mode = connection
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0))?;
    // What was answered with success is on the disk.
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    // A big change leaves no big log behind. 16 MiB.
    connection.pragma_update_and_check(None, "journal_size_limit", 16 << 20, |_| Ok(()))?;
    Ok(mode)
}

fn lock(data: &Path) -> Result<File, OpenError> {
    let path = data.join(LOCK);
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|source| folder_error(&path, source))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: data.to_owned() }),
        Err(TryLockError::Error(source)) => Err(folder_error(&path, source)),
    }
}

fn refuse_unfinished(data: &Path) -> Result<(), OpenError> {
    if exists(&data.join(RESTORING))? {
        return Err(OpenError::RestoreUnfinished { path: data.to_owned() });
    }
    Ok(())
}

fn exists(path: &Path) -> Result<bool, OpenError> {
    path.try_exists().map_err(|source| folder_error(path, source))
}

fn folder_error(path: &Path, source: io::Error) -> OpenError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            OpenError::ReadOnly { path }
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => OpenError::Full { path },
        _ => OpenError::Folder { path, source },
    }
}
