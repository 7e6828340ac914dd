//! What accounts prove themselves by: password, TOTP, recovery codes, passkeys, identities at
//! OpenID Connect providers. Hashing and checking is the caller's; this keeps it.

#[cfg(test)]
mod tests;

use rusqlite::{OptionalExtension as _, Row};
use serde_json::Value;
use zeroize::Zeroizing;

use super::AccountId;
use crate::{
    Reader, Result, StoreError, Writer,
    error::{check_length, found, unique},
    sessions::SessionId,
};

/// Longest hash of a password or recovery code, and longest TOTP secret, bytes.
pub const MAX_HASH: usize = 512;
/// Longest data of a passkey as JSON, bytes.
pub const MAX_PASSKEY: usize = 64 << 10;
/// Longest credential id (WebAuthn level 2, section 4), bytes.
pub const MAX_CREDENTIAL: usize = 1023;
/// Passkeys, identities and recovery codes of one account, each.
pub const MAX_EACH: u64 = 32;
/// Longest issuer and subject (OpenID Connect core, section 2, allows a subject of 255), bytes.
pub const MAX_IDENTITY: usize = 1024;

/// A passkey.
#[derive(Clone, Debug, PartialEq)]
pub struct Passkey {
    pub id: u64,
    pub account: AccountId,
    pub credential: Vec<u8>,
    pub name: String,
    /// What the WebAuthn library keeps, as it likes it.
    pub data: Value,
    pub created_ms: u64,
    pub last_used_ms: Option<u64>,
}

const PASSKEY: &str = "id, account, credential, name, data, created_ms, last_used_ms";

impl Reader<'_> {
    /// The password's hash; `None`: no password, or no such account.
    pub fn password_hash(&self, id: AccountId) -> Result<Option<String>> {
        let sql = "SELECT password_hash FROM accounts WHERE id = ?1";
        let mut query = self.connection.prepare_cached(sql)?;
        Ok(query.query_row([id], |row| row.get(0)).optional()?.flatten())
    }

    /// The TOTP secret; `None`: no second factor, or no such account.
    pub fn totp_secret(&self, id: AccountId) -> Result<Option<Zeroizing<Vec<u8>>>> {
        let sql = "SELECT totp_secret FROM accounts WHERE id = ?1";
        let mut query = self.connection.prepare_cached(sql)?;
        let sealed: Option<Vec<u8>> = query.query_row([id], |row| row.get(0)).optional()?.flatten();
        sealed.map(|sealed| self.unseal(&totp_context(id), &sealed)).transpose()
    }

    /// Hashes of the recovery codes that are left.
    pub fn recovery_codes(&self, id: AccountId) -> Result<Vec<String>> {
        let sql = "SELECT hash FROM recovery_codes WHERE account = ?1";
        let mut query = self.connection.prepare_cached(sql)?;
        let rows = query.query_map([id], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The passkeys of an account.
    pub fn passkeys(&self, id: AccountId) -> Result<Vec<Passkey>> {
        let sql = format!("SELECT {PASSKEY} FROM passkeys WHERE account = ?1 ORDER BY id");
        let mut query = self.connection.prepare_cached(&sql)?;
        let rows = query.query_map([id], passkey)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The passkey with this credential id.
    pub fn passkey(&self, credential: &[u8]) -> Result<Option<Passkey>> {
        let sql = format!("SELECT {PASSKEY} FROM passkeys WHERE credential = ?1");
        let mut query = self.connection.prepare_cached(&sql)?;
        Ok(query.query_row([credential], passkey).optional()?)
    }

    /// The account that is `subject` at the provider `issuer`.
    pub fn account_of_identity(&self, issuer: &str, subject: &str) -> Result<Option<AccountId>> {
        let sql = "SELECT account FROM identities WHERE issuer = ?1 AND subject = ?2";
        let mut query = self.connection.prepare_cached(sql)?;
        Ok(query.query_row((issuer, subject), |row| row.get(0)).optional()?)
    }

    /// Issuer and subject of each identity of an account.
    pub fn identities(&self, id: AccountId) -> Result<Vec<(String, String)>> {
        let sql = "SELECT issuer, subject FROM identities WHERE account = ?1
                   ORDER BY issuer, subject";
        let mut query = self.connection.prepare_cached(sql)?;
        let rows = query.query_map([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

impl Writer<'_> {
    /// Sets or takes away the password, and ends every session but `keep`.
    pub fn set_password_hash(
        &self,
        id: AccountId,
        hash: Option<&str>,
        keep: Option<SessionId>,
    ) -> Result<()> {
        check_password_hash(hash)?;
        let sql = "UPDATE accounts SET password_hash = ?2 WHERE id = ?1";
        found(self.connection.prepare_cached(sql)?.execute((id, hash))?, "account")?;
        self.revoke_sessions(id, keep)?;
        Ok(())
    }

    /// Writes the same password's hash anew, with another cost. Sessions go on.
    pub fn rehash_password(&self, id: AccountId, old: &str, new: &str) -> Result<()> {
        check_password_hash(Some(new))?;
        let sql = "UPDATE accounts SET password_hash = ?3 WHERE id = ?1 AND password_hash = ?2";
        found(self.connection.prepare_cached(sql)?.execute((id, old, new))?, "password")
    }

    /// Sets or takes away the TOTP secret. Taken away, its recovery codes go too.
    pub fn set_totp_secret(&self, id: AccountId, secret: Option<&[u8]>) -> Result<()> {
        check_length("TOTP secret", secret.unwrap_or_default(), MAX_HASH)?;
        let sealed = secret.map(|secret| self.seal(&totp_context(id), secret)).transpose()?;
        let sql = "UPDATE accounts SET totp_secret = ?2, totp_step = 0 WHERE id = ?1";
        found(self.connection.prepare_cached(sql)?.execute((id, sealed))?, "account")?;
        if secret.is_none() {
            self.set_recovery_codes(id, &[])?;
        }
        Ok(())
    }

    /// Uses up a TOTP code of the given time step. False: a code of this step or a later one was
    /// used already (RFC 6238, section 5.2: each is good for one login).
    pub fn use_totp_step(&self, id: AccountId, step: u64) -> Result<bool> {
        let sql = "UPDATE accounts SET totp_step = ?2
                   WHERE id = ?1 AND totp_step < ?2 AND totp_secret IS NOT NULL";
        Ok(self.connection.prepare_cached(sql)?.execute((id, step))? > 0)
    }

    /// Puts these recovery codes in place of those there are.
    pub fn set_recovery_codes(&self, id: AccountId, hashes: &[String]) -> Result<()> {
        if hashes.len() as u64 > MAX_EACH {
            return Err(StoreError::TooMany { what: "recovery codes", max: MAX_EACH });
        }
        for hash in hashes {
            check_length("recovery code", hash.as_bytes(), MAX_HASH)?;
        }
        self.account(id)?.ok_or(StoreError::NotFound("account"))?;
        let sql = "DELETE FROM recovery_codes WHERE account = ?1";
        self.connection.prepare_cached(sql)?.execute([id])?;
        let sql = "INSERT INTO recovery_codes (account, hash) VALUES (?1, ?2)";
        let mut insert = self.connection.prepare_cached(sql)?;
        for hash in hashes {
            unique(insert.execute((id, hash)), "recovery code")?;
        }
        Ok(())
    }

    /// Uses up a recovery code. False: it is gone, so of two who use it at once one gets in.
    pub fn use_recovery_code(&self, id: AccountId, hash: &str) -> Result<bool> {
        let sql = "DELETE FROM recovery_codes WHERE account = ?1 AND hash = ?2";
        Ok(self.connection.prepare_cached(sql)?.execute((id, hash))? > 0)
    }

    /// Adds a passkey and says its number. [`StoreError::Exists`] when any account has it.
    pub fn add_passkey(
        &self,
        id: AccountId,
        credential: &[u8],
        name: &str,
        data: &Value,
    ) -> Result<u64> {
        let data = data.to_string();
        check_length("credential", credential, MAX_CREDENTIAL)?;
        check_length("passkey's name", name.as_bytes(), super::MAX_TEXT)?;
        check_length("passkey", data.as_bytes(), MAX_PASSKEY)?;
        self.account(id)?.ok_or(StoreError::NotFound("account"))?;
        self.check_count("passkeys", id)?;
        let sql = "INSERT INTO passkeys (account, credential, name, data, created_ms)
                   VALUES (?1, ?2, ?3, ?4, ?5) RETURNING id";
        let mut insert = self.connection.prepare_cached(sql)?;
        let values = (id, credential, name, data, self.now_ms);
        unique(insert.query_row(values, |row| row.get(0)), "passkey")
    }

    /// Notes that a passkey was used, with its new data (it counts).
    pub fn note_passkey_use(&self, credential: &[u8], data: &Value) -> Result<()> {
        let data = data.to_string();
        check_length("passkey", data.as_bytes(), MAX_PASSKEY)?;
        let sql = "UPDATE passkeys SET data = ?2, last_used_ms = ?3 WHERE credential = ?1";
        let mut update = self.connection.prepare_cached(sql)?;
        found(update.execute((credential, data, self.now_ms))?, "passkey")
    }

    /// Removes a passkey of an account.
    pub fn remove_passkey(&self, id: AccountId, passkey: u64) -> Result<()> {
        let sql = "DELETE FROM passkeys WHERE account = ?1 AND id = ?2";
        found(self.connection.prepare_cached(sql)?.execute((id, passkey))?, "passkey")
    }

    /// Lets an account log in by a provider. [`StoreError::Exists`] when the identity is taken.
    pub fn add_identity(&self, id: AccountId, issuer: &str, subject: &str) -> Result<()> {
        check_length("issuer", issuer.as_bytes(), MAX_IDENTITY)?;
        check_length("subject", subject.as_bytes(), MAX_IDENTITY)?;
        self.account(id)?.ok_or(StoreError::NotFound("account"))?;
        self.check_count("identities", id)?;
        let sql = "INSERT INTO identities (issuer, subject, account) VALUES (?1, ?2, ?3)";
        let mut insert = self.connection.prepare_cached(sql)?;
        unique(insert.execute((issuer, subject, id)), "identity")?;
        Ok(())
    }

    /// Takes an identity from an account.
    pub fn remove_identity(&self, id: AccountId, issuer: &str, subject: &str) -> Result<()> {
        let sql = "DELETE FROM identities WHERE account = ?1 AND issuer = ?2 AND subject = ?3";
        let mut delete = self.connection.prepare_cached(sql)?;
        found(delete.execute((id, issuer, subject))?, "identity")
    }

    fn check_count(&self, table: &'static str, id: AccountId) -> Result<()> {
        let sql = format!("SELECT count(*) FROM {table} WHERE account = ?1");
        let count: u64 = self.connection.query_row(&sql, [id], |row| row.get(0))?;
        if count >= MAX_EACH {
            return Err(StoreError::TooMany { what: table, max: MAX_EACH });
        }
        Ok(())
    }
}

pub(super) fn check_password_hash(hash: Option<&str>) -> Result<()> {
    check_length("password hash", hash.unwrap_or_default().as_bytes(), MAX_HASH)
}

fn totp_context(id: AccountId) -> String {
    format!("totp:{id}")
}

fn passkey(row: &Row<'_>) -> rusqlite::Result<Passkey> {
    let data: String = row.get(4)?;
    Ok(Passkey {
        id: row.get(0)?,
        account: row.get(1)?,
        credential: row.get(2)?,
        name: row.get(3)?,
        data: serde_json::from_str(&data).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(4, rusqlite::types::Type::Text, error.into())
        })?,
        created_ms: row.get(5)?,
        last_used_ms: row.get(6)?,
    })
}
