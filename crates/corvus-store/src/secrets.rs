//! Named values that are encrypted at rest: DNS credentials, addresses of webhooks.

#[cfg(test)]
mod tests;

use rusqlite::OptionalExtension as _;
use zeroize::Zeroizing;

use crate::{
    Reader, Result, StoreError, Writer,
    error::{check_length, found},
};

/// Longest name, bytes.
pub const MAX_NAME: usize = 128;
/// Longest value, bytes.
pub const MAX_VALUE: usize = 64 << 10;
/// Secrets in all.
pub const MAX_SECRETS: u64 = 10_000;

/// What a list shows of a secret: everything but the value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SecretInfo {
    pub name: String,
    pub updated_ms: u64,
}

impl Reader<'_> {
    /// The value of a secret.
    pub fn secret(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>> {
        let sql = "SELECT value FROM secrets WHERE name = ?1";
        let mut query = self.connection.prepare_cached(sql)?;
        let sealed: Option<Vec<u8>> = query.query_row([name], |row| row.get(0)).optional()?;
        sealed.map(|sealed| self.unseal(&context(name), &sealed)).transpose()
    }

    /// All secrets by name, without their values.
    pub fn secrets(&self) -> Result<Vec<SecretInfo>> {
        let sql = "SELECT name, updated_ms FROM secrets ORDER BY name";
        let mut query = self.connection.prepare_cached(sql)?;
        let rows = query
            .query_map([], |row| Ok(SecretInfo { name: row.get(0)?, updated_ms: row.get(1)? }))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    pub(crate) fn unseal(&self, context: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
        self.key.open(context, sealed).map_err(|_| StoreError::Sealed(context.replace(':', " ")))
    }
}

impl Writer<'_> {
    /// Sets a secret, new or not.
    pub fn put_secret(&self, name: &str, value: &[u8]) -> Result<()> {
        check_length("secret's name", name.as_bytes(), MAX_NAME)?;
        check_length("secret", value, MAX_VALUE)?;
        let sql = "SELECT count(*) FROM secrets WHERE name != ?1";
        let others: u64 = self.connection.query_row(sql, [name], |row| row.get(0))?;
        if others >= MAX_SECRETS {
            return Err(StoreError::TooMany { what: "secrets", max: MAX_SECRETS });
        }
        let sealed = self.seal(&context(name), value)?;
        let sql = "INSERT INTO secrets (name, value, updated_ms) VALUES (?1, ?2, ?3)
                   ON CONFLICT (name) DO UPDATE SET
                   value = excluded.value, updated_ms = excluded.updated_ms";
        self.connection.prepare_cached(sql)?.execute((name, sealed, self.now_ms))?;
        Ok(())
    }

    /// Removes a secret.
    pub fn remove_secret(&self, name: &str) -> Result<()> {
        let sql = "DELETE FROM secrets WHERE name = ?1";
        found(self.connection.prepare_cached(sql)?.execute([name])?, "secret")
    }

    pub(crate) fn seal(&self, context: &str, plain: &[u8]) -> Result<Vec<u8>> {
        self.key
            .seal(context, plain)
            .map_err(|_| StoreError::Database("the secret key does not encrypt".into()))
    }
}

fn context(name: &str) -> String {
    format!("secret:{name}")
}
