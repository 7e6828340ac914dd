//! The open store: one connection that writes, a few that read.

#[cfg(test)]
mod tests;

use std::{
    fmt,
    fs::File,
    ops::Deref,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use corvus_core::Clock;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::{
    Result,
    key::SecretKey,
    open::{self, DATABASE},
};

/// Rows in one page of a list.
pub const MAX_PAGE: usize = 500;

/// Connections kept for readers. More readers at once open their own and close it again.
const READERS: usize = 4;

/// Everything the control plane keeps.
pub struct Store {
    data: PathBuf,
    clock: Arc<dyn Clock>,
    key: SecretKey,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
    /// Held as long as the store is open. `None`: attached beside the one that holds it.
    _lock: Option<File>,
}

/// Queries, all on one state of the database.
pub struct Reader<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) key: &'a SecretKey,
    /// When the transaction began.
    pub(crate) now_ms: u64,
}

/// Changes, which are kept together or not at all. Whatever a [`Reader`] can be asked a `Writer`
/// can be too, and sees its own changes.
pub struct Writer<'a>(Reader<'a>);

impl<'a> Deref for Writer<'a> {
    type Target = Reader<'a>;

    fn deref(&self) -> &Reader<'a> {
        &self.0
    }
}

impl Store {
    pub(crate) fn new(
        data: &Path,
        clock: Arc<dyn Clock>,
        key: SecretKey,
        connection: Connection,
        lock: Option<File>,
    ) -> Self {
        Self {
            data: data.to_owned(),
            clock,
            key,
            writer: Mutex::new(connection),
            readers: Mutex::default(),
            _lock: lock,
        }
    }

    /// Runs changes as one transaction. When this returns `Ok` they are on the disk and outlive a
    /// crash; when `work` fails, or saving does, nothing of them is kept.
    ///
    /// One runs at a time. A call from within `work` would wait for itself.
    pub fn write<T>(&self, work: impl FnOnce(Writer<'_>) -> Result<T>) -> Result<T> {
        // A panic in `work` poisons the lock, and has rolled back what it was in.
        let mut connection = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = Transaction::new(&mut connection, TransactionBehavior::Immediate)?;
        let answer = work(Writer(self.reader(&transaction)))?;
        transaction.commit()?;
        Ok(answer)
    }

    /// Runs queries. They see one state, whatever is written meanwhile, and wait for no writer.
    pub fn read<T>(&self, work: impl FnOnce(Reader<'_>) -> Result<T>) -> Result<T> {
        let kept = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.connect_reader()?,
        };
        let transaction = Transaction::new(&mut connection, TransactionBehavior::Deferred)?;
        let answer = work(self.reader(&transaction));
        // A connection that cannot even end a transaction is not used again.
        if transaction.finish().is_ok() {
            let mut kept = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < READERS {
                kept.push(connection);
            }
        }
        answer
    }

    /// The folder that everything is in.
    pub fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn key(&self) -> &SecretKey {
        &self.key
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    fn reader<'a>(&'a self, connection: &'a Connection) -> Reader<'a> {
        Reader { connection, key: &self.key, now_ms: self.now_ms() }
    }

    fn connect_reader(&self) -> Result<Connection> {
        let connection = open::connect(&self.data.join(DATABASE))?;
        open::configure(&connection)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("data", &self.data).finish_non_exhaustive()
    }
}
