//! The audit log: who changed or tried what. Entries are appended, never changed, and go only by
//! [`Writer::trim_audit`].

#[cfg(test)]
mod tests;

use rusqlite::{Row, types::Type};
use serde_json::Value;

use crate::{AccountId, MAX_PAGE, Reader, Result, Writer, error::check_length};

/// Longest actor, kind, subject and address, bytes each.
pub const MAX_FIELD: usize = 1024;
/// Longest detail as JSON, bytes.
pub const MAX_DETAIL: usize = 64 << 10;

/// An entry to be written.
#[derive(Clone, Debug, Default)]
pub struct NewEntry<'a> {
    /// `None`: nobody who is logged in.
    pub account: Option<AccountId>,
    /// The name under which it is shown; it stays when the account is gone.
    pub actor: &'a str,
    /// What was done: `session.created`, `config.saved`.
    pub kind: &'a str,
    /// To what: an id, a version, an address.
    pub subject: &'a str,
    pub detail: Value,
    /// Of the client; empty: it came from the machine itself.
    pub address: &'a str,
}

/// An entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Counts up with time.
    pub id: u64,
    pub at_ms: u64,
    pub account: Option<AccountId>,
    pub actor: String,
    pub kind: String,
    pub subject: String,
    pub detail: Value,
    pub address: String,
}

/// Which entries are wanted: those that match everything that is set.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditFilter<'a> {
    pub account: Option<AccountId>,
    pub actor: Option<&'a str>,
    /// A kind, or with a dot at its end all that begin so: `session.`.
    pub kind: Option<&'a str>,
    pub subject: Option<&'a str>,
    /// Not earlier than this.
    pub from_ms: Option<u64>,
    /// Earlier than this.
    pub until_ms: Option<u64>,
    /// Older than this entry: the last one of the page before.
    pub before: Option<u64>,
}

impl Reader<'_> {
    /// Entries that match, newest first, at most `limit` ([`MAX_PAGE`]).
    pub fn audit_entries(&self, filter: &AuditFilter<'_>, limit: usize) -> Result<Vec<Entry>> {
        let mut sql = "SELECT id, at_ms, account, actor, kind, subject, detail, address
                       FROM audit WHERE id < ?1"
            .to_owned();
        let before = filter.before.unwrap_or(i64::MAX as u64).min(i64::MAX as u64);
        let limit = limit.min(MAX_PAGE);
        let kind_length = filter.kind.map_or(0, str::len);
        let mut values: Vec<&dyn rusqlite::ToSql> = vec![&before];
        let mut add = |condition: &str, value| {
            values.push(value);
            sql.push_str(&condition.replace('?', &format!("?{}", values.len())));
        };
        if let Some(account) = &filter.account {
            add(" AND account = ?", account);
        }
        if let Some(actor) = &filter.actor {
            add(" AND actor = ?", actor);
        }
        if let Some(kind) = &filter.kind {
            if kind.ends_with('.') {
                add(" AND substr(CAST(kind AS BLOB), 1, ?)", &kind_length);
                add(" = CAST(? AS BLOB)", kind);
            } else {
                add(" AND kind = ?", kind);
            }
        }
        if let Some(subject) = &filter.subject {
            add(" AND subject = ?", subject);
        }
        if let Some(from) = &filter.from_ms {
            add(" AND at_ms >= ?", from);
        }
        if let Some(until) = &filter.until_ms {
            add(" AND at_ms < ?", until);
        }
        add(" ORDER BY id DESC LIMIT ?", &limit);
        let mut query = self.connection.prepare_cached(&sql)?;
        let rows = query.query_map(values.as_slice(), entry)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

impl Writer<'_> {
    /// Appends an entry. In the same transaction as what it tells of, so that neither is without
    /// the other.
    pub fn audit(&self, new: &NewEntry<'_>) -> Result<u64> {
        for (what, text) in [
            ("actor", new.actor),
            ("kind", new.kind),
            ("subject", new.subject),
            ("address", new.address),
        ] {
            check_length(what, text.as_bytes(), MAX_FIELD)?;
        }
        let detail = new.detail.to_string();
        check_length("detail", detail.as_bytes(), MAX_DETAIL)?;
        let sql = "INSERT INTO audit (at_ms, account, actor, kind, subject, detail, address)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) RETURNING id";
        let values =
            (self.now_ms, new.account, new.actor, new.kind, new.subject, detail, new.address);
        Ok(self.connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?)
    }

    /// Forgets entries from before `from_ms`, and the oldest beyond `max_entries`; says how many.
    pub fn trim_audit(&self, from_ms: u64, max_entries: u64) -> Result<usize> {
        let sql = "DELETE FROM audit WHERE at_ms < ?1 OR id <=
                   (SELECT id FROM audit ORDER BY id DESC LIMIT 1 OFFSET ?2)";
        Ok(self.connection.prepare_cached(sql)?.execute((from_ms, max_entries))?)
    }
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let detail: String = row.get(6)?;
    Ok(Entry {
        id: row.get(0)?,
        at_ms: row.get(1)?,
        account: row.get(2)?,
        actor: row.get(3)?,
        kind: row.get(4)?,
        subject: row.get(5)?,
        detail: serde_json::from_str(&detail).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(6, Type::Text, error.into())
        })?,
        address: row.get(7)?,
    })
}
