//! Versions of the configuration: whole Documents as texts, appended, never updated.

#[cfg(test)]
mod tests;

use rusqlite::{OptionalExtension as _, Row};

use crate::{MAX_PAGE, Reader, Result, StoreError, Writer, error::check_length};

/// Longest text of a Document, bytes.
pub const MAX_DOCUMENT: usize = 16 << 20;
/// Longest comment and author, bytes.
pub const MAX_COMMENT: usize = 4096;

/// A Document to be appended.
#[derive(Clone, Copy, Debug)]
pub struct NewVersion<'a> {
    /// The version that the change was made to (`If-Match`); 0 when there is none yet.
    pub base: u64,
    /// Who made it.
    pub author: &'a str,
    pub comment: &'a str,
    /// JSON or YAML, kept byte for byte.
    pub document: &'a str,
}

/// What a list shows of a version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VersionInfo {
    /// 1 and counting, without gaps.
    pub version: u64,
    pub created_ms: u64,
    pub author: String,
    pub comment: String,
    /// A rollback: the version whose text this is.
    pub restores: Option<u64>,
}

/// A version with its text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Version {
    pub info: VersionInfo,
    pub document: String,
}

impl Reader<'_> {
    /// The newest version's number; 0 when there is none.
    pub fn current_version(&self) -> Result<u64> {
        let sql = "SELECT coalesce(max(version), 0) FROM versions";
        Ok(self.connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    }

    /// The newest version.
    pub fn newest_version(&self) -> Result<Option<Version>> {
        self.version(self.current_version()?)
    }

    /// One version.
    pub fn version(&self, version: u64) -> Result<Option<Version>> {
        let sql = "SELECT version, created_ms, author, comment, restores, document
                   FROM versions WHERE version = ?1";
        let mut query = self.connection.prepare_cached(sql)?;
        let found = query.query_row([version], |row| {
            Ok(Version { info: info(row)?, document: row.get("document")? })
        });
        Ok(found.optional()?)
    }

    /// Versions without their texts, newest first, at most `limit` ([`MAX_PAGE`]) of those older
    /// than `before`; `None`: from the newest.
    pub fn versions(&self, before: Option<u64>, limit: usize) -> Result<Vec<VersionInfo>> {
        let sql = "SELECT version, created_ms, author, comment, restores
                   FROM versions WHERE version < ?1 ORDER BY version DESC LIMIT ?2";
        let before = before.unwrap_or(i64::MAX as u64).min(i64::MAX as u64);
        let mut query = self.connection.prepare_cached(sql)?;
        let rows = query.query_map((before, limit.min(MAX_PAGE)), info)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

impl Writer<'_> {
    /// Appends a version and says its number. [`StoreError::Stale`] when `base` is not the newest.
    pub fn append_version(&self, new: &NewVersion<'_>) -> Result<u64> {
        self.insert_version(new, None)
    }

    /// Appends the text of an old version again. `base` is the newest one, as for any change.
    pub fn rollback(&self, to: u64, base: u64, author: &str, comment: &str) -> Result<u64> {
        let old = self.version(to)?.ok_or(StoreError::NotFound("version"))?;
        let new = NewVersion { base, author, comment, document: &old.document };
        self.insert_version(&new, Some(to))
    }

    fn insert_version(&self, new: &NewVersion<'_>, restores: Option<u64>) -> Result<u64> {
        check_length("document", new.document.as_bytes(), MAX_DOCUMENT)?;
        check_length("comment", new.comment.as_bytes(), MAX_COMMENT)?;
        check_length("author", new.author.as_bytes(), MAX_COMMENT)?;
        let current = self.current_version()?;
        if new.base != current {
            return Err(StoreError::Stale { base: new.base, current });
        }
        let sql = "INSERT INTO versions (version, created_ms, author, comment, restores, document)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let values = (current + 1, self.now_ms, new.author, new.comment, restores, new.document);
        self.connection.prepare_cached(sql)?.execute(values)?;
        Ok(current + 1)
    }
}

fn info(row: &Row<'_>) -> rusqlite::Result<VersionInfo> {
    Ok(VersionInfo {
        version: row.get("version")?,
        created_ms: row.get("created_ms")?,
        author: row.get("author")?,
        comment: row.get("comment")?,
        restores: row.get("restores")?,
    })
}
