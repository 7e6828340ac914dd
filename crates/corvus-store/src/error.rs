//! What can go wrong once a store is open.

use rusqlite::ErrorCode;

/// Why a read or a change failed. Nothing of the transaction was kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A change was made to a version that is not the newest any more.
    #[error("the configuration is at version {current} by now, and this change was made to {base}")]
    Stale { base: u64, current: u64 },
    /// What is to be changed is not there.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// A second one of what there may be once.
    #[error("there already is such a {0}")]
    Exists(&'static str),
    /// The change would leave nobody who can administer the gateway.
    #[error("at least one enabled account must keep the role admin")]
    LastAdmin,
    #[error("the {what} is longer than {max} bytes")]
    TooLong { what: &'static str, max: usize },
    #[error("there are {max} {what} already, more are not kept")]
    TooMany { what: &'static str, max: u64 },
    /// A value in the database does not decrypt, though the key is the right one.
    #[error("the stored {0} is damaged: it does not decrypt")]
    Sealed(String),
    #[error("the disk is full: nothing can be saved until there is space in the data folder")]
    Full,
    #[error("the data folder cannot be written")]
    ReadOnly,
    #[error("the database is held by another program")]
    Busy,
    #[error("the database is damaged ({0}); restore a backup")]
    Corrupt(String),
    #[error("database: {0}")]
    Database(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A result of the store.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::ReadOnly) => Self::ReadOnly,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Corrupt(error.to_string())
            }
            _ => Self::Database(Box::new(error)),
        }
    }
}

/// Names what exists twice when a UNIQUE constraint or a primary key says no.
pub(crate) fn unique<T>(result: rusqlite::Result<T>, what: &'static str) -> Result<T> {
    result.map_err(|error| match error.sqlite_error().map(|e| e.extended_code) {
        Some(
            rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE | rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY,
        ) => StoreError::Exists(what),
        _ => error.into(),
    })
}

/// [`StoreError::TooLong`] beyond `max` bytes.
pub(crate) fn check_length(what: &'static str, text: &[u8], max: usize) -> Result<()> {
    if text.len() > max { Err(StoreError::TooLong { what, max }) } else { Ok(()) }
}

/// [`StoreError::NotFound`] when a statement changed no row.
pub(crate) fn found(changed: usize, what: &'static str) -> Result<()> {
    if changed == 0 { Err(StoreError::NotFound(what)) } else { Ok(()) }
}
