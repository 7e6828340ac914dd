//! Sessions of the console. The database knows tokens by their hashes only: whoever reads it cannot
//! use one.

#[cfg(test)]
mod tests;

use std::fmt;

use aws_lc_rs::digest;
use rusqlite::{
    OptionalExtension as _, Row, ToSql,
    types::{FromSql, FromSqlResult, ToSqlOutput, ValueRef},
};

use crate::{
    Account, AccountId, Reader, Result, StoreError, Writer,
    accounts::{self, account},
    error::{found, unique},
};

/// Sessions of one account. One more ends the one that was idle longest.
pub const MAX_SESSIONS: u64 = 50;
/// Kept of a user agent and of an address, bytes.
pub const MAX_AGENT: usize = 256;
/// How much later than noted a session may have been used: noting it costs a write to the disk.
pub const SEEN_MS: u64 = 60_000;

/// SHA-256 of a token. Tokens are long and random, so a slow hash would add nothing.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct TokenHash([u8; 32]);

/// The number of a session, for lists and for ending one. It opens nothing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SessionId(pub u64);

/// A session to be begun.
#[derive(Clone, Copy, Debug)]
pub struct NewSession<'a> {
    pub token: TokenHash,
    pub account: AccountId,
    /// When it ends, used or not.
    pub expires_ms: u64,
    /// Cut at [`MAX_AGENT`].
    pub user_agent: &'a str,
    /// Of the client.
    pub address: &'a str,
}

/// A session.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Session {
    pub id: SessionId,
    pub account: AccountId,
    pub created_ms: u64,
    /// Last use, up to [`SEEN_MS`] too early.
    pub seen_ms: u64,
    pub expires_ms: u64,
    pub user_agent: String,
    pub address: String,
}

const SESSION: &str =
    "sessions.id AS session_id, account, sessions.created_ms AS session_created_ms,
    seen_ms, expires_ms, user_agent, address";

impl TokenHash {
    /// Hashes a token.
    pub fn of(token: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, token).as_ref());
        Self(hash)
    }
}

impl Reader<'_> {
    /// The session with this token and its account; `None`: there is none, it has expired, or the
    /// account is disabled.
    pub fn session(&self, token: &TokenHash) -> Result<Option<(Session, Account)>> {
        let sql = format!(
            "SELECT {SESSION}, {} FROM sessions JOIN accounts ON accounts.id = account
             WHERE token_hash = ?1 AND expires_ms > ?2 AND NOT disabled",
            accounts::COLUMNS
        );
        let mut query = self.connection.prepare_cached(&sql)?;
        let found = query.query_row((token, self.now_ms), |row| Ok((session(row)?, account(row)?)));
        Ok(found.optional()?)
    }

    /// The sessions of an account that have not expired, the one used last first.
    pub fn sessions(&self, id: AccountId) -> Result<Vec<Session>> {
        let sql = format!(
            "SELECT {SESSION} FROM sessions WHERE account = ?1 AND expires_ms > ?2
             ORDER BY seen_ms DESC, id DESC"
        );
        let mut query = self.connection.prepare_cached(&sql)?;
        let rows = query.query_map((id, self.now_ms), session)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

impl Writer<'_> {
    /// Begins a session. Those that have expired, of any account, are forgotten on the way.
    pub fn create_session(&self, new: &NewSession<'_>) -> Result<SessionId> {
        self.account(new.account)?.ok_or(StoreError::NotFound("account"))?;
        self.connection
            .prepare_cached("DELETE FROM sessions WHERE expires_ms <= ?1")?
            .execute([self.now_ms])?;
        let oldest = "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE account = ?1
                      ORDER BY seen_ms DESC, id DESC LIMIT -1 OFFSET ?2)";
        self.connection.prepare_cached(oldest)?.execute((new.account, MAX_SESSIONS - 1))?;
        let sql = "INSERT INTO sessions
                   (token_hash, account, created_ms, seen_ms, expires_ms, user_agent, address)
                   VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6) RETURNING id";
        let mut insert = self.connection.prepare_cached(sql)?;
        let (agent, address) = (cut(new.user_agent), cut(new.address));
        let values = (new.token, new.account, self.now_ms, new.expires_ms, agent, address);
        unique(insert.query_row(values, |row| row.get(0)), "session").map(SessionId)
    }

    /// Notes that a session is used, if that was noted longer than [`SEEN_MS`] ago. The caller can
    /// tell by [`Session::seen_ms`] that there is nothing to note, and saves the transaction.
    pub fn touch_session(&self, id: SessionId, address: &str) -> Result<()> {
        let sql = "UPDATE sessions SET seen_ms = ?2, address = ?3
                   WHERE id = ?1 AND seen_ms + ?4 <= ?2";
        let values = (id, self.now_ms, cut(address), SEEN_MS);
        self.connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    /// Gives a session another token; the old one is worth nothing from now on.
    /// [`StoreError::NotFound`] when the old one was not a session's any more.
    pub fn rotate_session(&self, old: &TokenHash, new: &TokenHash) -> Result<()> {
        let sql = "UPDATE sessions SET token_hash = ?2 WHERE token_hash = ?1 AND expires_ms > ?3";
        let mut update = self.connection.prepare_cached(sql)?;
        found(unique(update.execute((old, new, self.now_ms)), "session")?, "session")
    }

    /// Ends one session of an account.
    pub fn revoke_session(&self, id: AccountId, session: SessionId) -> Result<()> {
        let sql = "DELETE FROM sessions WHERE account = ?1 AND id = ?2";
        found(self.connection.prepare_cached(sql)?.execute((id, session))?, "session")
    }

    /// Ends the sessions of an account, all but `keep`, and says how many.
    pub fn revoke_sessions(&self, id: AccountId, keep: Option<SessionId>) -> Result<usize> {
        let sql = "DELETE FROM sessions WHERE account = ?1 AND id IS NOT ?2";
        Ok(self.connection.prepare_cached(sql)?.execute((id, keep))?)
    }
}

/// The beginning of a text that clients can make as long as they like.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_AGENT)).unwrap_or(text)
}

fn session(row: &Row<'_>) -> rusqlite::Result<Session> {
    Ok(Session {
        id: SessionId(row.get("session_id")?),
        account: row.get("account")?,
        created_ms: row.get("session_created_ms")?,
        seen_ms: row.get("seen_ms")?,
        expires_ms: row.get("expires_ms")?,
        user_agent: row.get("user_agent")?,
        address: row.get("address")?,
    })
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(..)")
    }
}

impl ToSql for TokenHash {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(&self.0)))
    }
}

impl ToSql for SessionId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for SessionId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        u64::column_result(value).map(Self)
    }
}
