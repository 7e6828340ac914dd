//! API tokens: for programs, with scopes and an end.

#[cfg(test)]
mod tests;

use rusqlite::{OptionalExtension as _, Row, types::Type};

use crate::{
    Account, AccountId, Reader, Result, StoreError, Writer,
    accounts::{self, MAX_TEXT, account},
    error::{check_length, found, unique},
    sessions::{SEEN_MS, TokenHash},
};

/// Tokens of one account.
pub const MAX_TOKENS: u64 = 100;
/// Scopes of one token, and bytes of each.
pub const MAX_SCOPES: usize = 64;

/// A token to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewToken<'a> {
    pub token: TokenHash,
    pub account: AccountId,
    pub name: &'a str,
    pub scopes: &'a [String],
    /// `None`: never.
    pub expires_ms: Option<u64>,
}

/// A token, without the hash.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ApiToken {
    /// For lists and for revoking it. It opens nothing.
    pub id: u64,
    pub account: AccountId,
    pub name: String,
    pub scopes: Vec<String>,
    pub created_ms: u64,
    pub expires_ms: Option<u64>,
    /// Last use, up to [`SEEN_MS`] too early.
    pub last_used_ms: Option<u64>,
}

const TOKEN: &str = "api_tokens.id AS token_id, account, api_tokens.name AS token_name, scopes,
    api_tokens.created_ms AS token_created_ms, expires_ms, last_used_ms";

impl Reader<'_> {
    /// The token and its account; `None`: there is none, it has expired, or the account is disabled.
    pub fn token(&self, token: &TokenHash) -> Result<Option<(ApiToken, Account)>> {
        let sql = format!(
            "SELECT {TOKEN}, {} FROM api_tokens JOIN accounts ON accounts.id = account
             WHERE token_hash = ?1 AND (expires_ms IS NULL OR expires_ms > ?2) AND NOT disabled",
            accounts::COLUMNS
        );
        let mut query = self.connection.prepare_cached(&sql)?;
        let found =
            query.query_row((token, self.now_ms), |row| Ok((api_token(row)?, account(row)?)));
        Ok(found.optional()?)
    }

    /// The tokens of an account, those that have expired too.
    pub fn tokens(&self, id: AccountId) -> Result<Vec<ApiToken>> {
        let sql = format!("SELECT {TOKEN} FROM api_tokens WHERE account = ?1 ORDER BY id");
        let mut query = self.connection.prepare_cached(&sql)?;
        let rows = query.query_map([id], api_token)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

impl Writer<'_> {
    /// Makes a token and says its number.
    pub fn create_token(&self, new: &NewToken<'_>) -> Result<u64> {
        check_length("token's name", new.name.as_bytes(), MAX_TEXT)?;
        if new.scopes.len() > MAX_SCOPES {
            return Err(StoreError::TooMany { what: "scopes", max: MAX_SCOPES as u64 });
        }
        for scope in new.scopes {
            check_length("scope", scope.as_bytes(), MAX_SCOPES)?;
        }
        self.account(new.account)?.ok_or(StoreError::NotFound("account"))?;
        let sql = "SELECT count(*) FROM api_tokens WHERE account = ?1";
        let count: u64 = self.connection.query_row(sql, [new.account], |row| row.get(0))?;
        if count >= MAX_TOKENS {
            return Err(StoreError::TooMany { what: "tokens", max: MAX_TOKENS });
        }
        let sql = "INSERT INTO api_tokens
                   (token_hash, account, name, scopes, created_ms, expires_ms)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6) RETURNING id";
        let scopes = serde_json::Value::from(new.scopes).to_string();
        let values = (new.token, new.account, new.name, scopes, self.now_ms, new.expires_ms);
        let mut insert = self.connection.prepare_cached(sql)?;
        unique(insert.query_row(values, |row| row.get(0)), "token")
    }

    /// Notes that a token is used, if that was noted longer than [`SEEN_MS`] ago.
    pub fn touch_token(&self, id: u64) -> Result<()> {
        let sql = "UPDATE api_tokens SET last_used_ms = ?2
                   WHERE id = ?1 AND (last_used_ms IS NULL OR last_used_ms + ?3 <= ?2)";
        self.connection.prepare_cached(sql)?.execute((id, self.now_ms, SEEN_MS))?;
        Ok(())
    }

    /// Takes a token of an account away.
    pub fn revoke_token(&self, id: AccountId, token: u64) -> Result<()> {
        let sql = "DELETE FROM api_tokens WHERE account = ?1 AND id = ?2";
        found(self.connection.prepare_cached(sql)?.execute((id, token))?, "token")
    }
}

fn api_token(row: &Row<'_>) -> rusqlite::Result<ApiToken> {
    let scopes: String = row.get("scopes")?;
    Ok(ApiToken {
        id: row.get("token_id")?,
        account: row.get("account")?,
        name: row.get("token_name")?,
        scopes: serde_json::from_str(&scopes).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(3, Type::Text, error.into())
        })?,
        created_ms: row.get("token_created_ms")?,
        expires_ms: row.get("expires_ms")?,
        last_used_ms: row.get("last_used_ms")?,
    })
}
