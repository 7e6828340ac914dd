//! Certificates: chain, encrypted private key, and what their issuer needs to renew them.

#[cfg(test)]
mod tests;

use corvus_core::Id;
use rusqlite::{OptionalExtension as _, Row, types::Type};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::{
    Reader, Result, StoreError, Writer,
    error::{check_length, found},
};

/// Longest chain, key and issuer data, bytes each.
pub const MAX_PART: usize = 1 << 20;
/// Certificates in all.
pub const MAX_CERTIFICATES: u64 = 10_000;

/// What is known of a certificate without its private key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateInfo {
    pub id: Id,
    /// PEM, the leaf first.
    pub chain: String,
    /// What the issuer needs to know again, as it likes it.
    pub issuer: Value,
    /// When the leaf expires.
    pub not_after_ms: u64,
    pub updated_ms: u64,
}

/// A certificate to be kept.
#[derive(Clone, Copy)]
pub struct NewCertificate<'a> {
    pub id: &'a Id,
    /// PEM, the leaf first.
    pub chain: &'a str,
    /// PEM.
    pub private_key: &'a str,
    pub issuer: &'a Value,
    pub not_after_ms: u64,
}

impl Reader<'_> {
    /// One certificate.
    pub fn certificate(&self, id: &Id) -> Result<Option<CertificateInfo>> {
        let sql = "SELECT id, chain, issuer, not_after_ms, updated_ms
                   FROM certificates WHERE id = ?1";
        let mut query = self.connection.prepare_cached(sql)?;
        Ok(query.query_row([id.as_str()], info).optional()?)
    }

    /// The private key of a certificate, PEM.
    pub fn certificate_key(&self, id: &Id) -> Result<Option<Zeroizing<Vec<u8>>>> {
        let sql = "SELECT private_key FROM certificates WHERE id = ?1";
        let mut query = self.connection.prepare_cached(sql)?;
        let sealed: Option<Vec<u8>> =
            query.query_row([id.as_str()], |row| row.get(0)).optional()?;
        sealed.map(|sealed| self.unseal(&context(id), &sealed)).transpose()
    }

    /// All certificates by id.
    pub fn certificates(&self) -> Result<Vec<CertificateInfo>> {
        let sql = "SELECT id, chain, issuer, not_after_ms, updated_ms
                   FROM certificates ORDER BY id";
        let mut query = self.connection.prepare_cached(sql)?;
        let rows = query.query_map([], info)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

impl Writer<'_> {
    /// Keeps a certificate in place of the one with this id, if there is one.
    pub fn put_certificate(&self, new: &NewCertificate<'_>) -> Result<()> {
        let issuer = new.issuer.to_string();
        check_length("certificate chain", new.chain.as_bytes(), MAX_PART)?;
        check_length("private key", new.private_key.as_bytes(), MAX_PART)?;
        check_length("issuer data", issuer.as_bytes(), MAX_PART)?;
        let sql = "SELECT count(*) FROM certificates WHERE id != ?1";
        let others: u64 = self.connection.query_row(sql, [new.id.as_str()], |row| row.get(0))?;
        if others >= MAX_CERTIFICATES {
            return Err(StoreError::TooMany { what: "certificates", max: MAX_CERTIFICATES });
        }
        let sealed = self.seal(&context(new.id), new.private_key.as_bytes())?;
        let sql = "INSERT INTO certificates
                   (id, chain, private_key, issuer, not_after_ms, updated_ms)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                   ON CONFLICT (id) DO UPDATE SET chain = excluded.chain,
                   private_key = excluded.private_key, issuer = excluded.issuer,
                   not_after_ms = excluded.not_after_ms, updated_ms = excluded.updated_ms";
        let values = (new.id.as_str(), new.chain, sealed, issuer, new.not_after_ms, self.now_ms);
        self.connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    /// Removes a certificate and its key.
    pub fn remove_certificate(&self, id: &Id) -> Result<()> {
        let sql = "DELETE FROM certificates WHERE id = ?1";
        found(self.connection.prepare_cached(sql)?.execute([id.as_str()])?, "certificate")
    }
}

fn context(id: &Id) -> String {
    format!("certificate:{id}")
}

fn info(row: &Row<'_>) -> rusqlite::Result<CertificateInfo> {
    let unreadable = |column, error: Box<dyn std::error::Error + Send + Sync>| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error)
    };
    let id: String = row.get(0)?;
    let issuer: String = row.get(2)?;
    Ok(CertificateInfo {
        id: Id::new(&id).map_err(|error| unreadable(0, error.into()))?,
        chain: row.get(1)?,
        issuer: serde_json::from_str(&issuer).map_err(|error| unreadable(2, error.into()))?,
        not_after_ms: row.get(3)?,
        updated_ms: row.get(4)?,
    })
}
