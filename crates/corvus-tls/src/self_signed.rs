//! Self-signed certificates: made on the spot, kept under DATA so that an exception a person has
//! clicked in a browser stays valid over restarts.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use corvus_core::{Clock, Id};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};

use crate::certificate::{Certificate, CertificateError};

const DAY: Duration = Duration::from_hours(24);
/// The longest that browsers accepted of public certificates; some apply it to all.
const VALID_DAYS: u32 = 397;
const RENEW_DAYS: i64 = 30;

/// The certificate `id` for `domains` (DNS names, wildcards, IP addresses): the one kept in
/// `DATA/certificates/self-signed/<id>.pem` while its names are these and more than 30 days are
/// left, else a new one, stored there with its key before it is returned.
pub fn self_signed(
    data: &Path,
    id: &Id,
    domains: &[String],
    clock: &dyn Clock,
) -> Result<Certificate, CertificateError> {
    let folder = data.join("certificates").join("self-signed");
    let path = folder.join(format!("{id}.pem"));
    let now_s = (clock.wall_ms() / 1000).cast_signed();
    if let Some(kept) = read_kept(&path)
        && fits(&kept, domains, now_s)
    {
        return Ok(kept);
    }
    let pem = make(domains, now_s, VALID_DAYS)?;
    let written = write_private(&folder, &path, pem.as_bytes());
    written.map_err(|source| CertificateError::Write { path, source })?;
    parse(&pem)
}

/// A certificate that is never stored and speaks for `name` only.
pub(crate) fn in_memory(name: &str, clock: &dyn Clock) -> Result<Certificate, CertificateError> {
    let now_s = (clock.wall_ms() / 1000).cast_signed();
    parse(&make(&[name.to_owned()], now_s, 3650)?)
}

/// A damaged or missing file means that a new certificate is made; nothing is lost by that.
fn read_kept(path: &Path) -> Option<Certificate> {
    let pem = fs::read(path).ok()?;
    Certificate::from_pem(&pem, &pem).ok().map(|(certificate, _)| certificate)
}

fn fits(kept: &Certificate, domains: &[String], now_s: i64) -> bool {
    let wanted: BTreeSet<String> = domains.iter().map(|name| name.to_ascii_lowercase()).collect();
    let names: BTreeSet<String> = kept.names.iter().cloned().collect();
    let left_s = kept.not_after_s - now_s;
    names == wanted
        && kept.not_before_s <= now_s
        && left_s > RENEW_DAYS * DAY.as_secs().cast_signed()
}

fn make(domains: &[String], now_s: i64, valid_days: u32) -> Result<String, CertificateError> {
    let make = || -> Result<String, rcgen::Error> {
        let mut params = CertificateParams::new(domains)?;
        params.distinguished_name = DistinguishedName::new();
        // X.520 caps a common name at 64 characters; clients read the alternative names.
        if let Some(name) = domains.iter().find(|name| name.len() <= 64) {
            params.distinguished_name.push(DnType::CommonName, name.as_str());
        }
        let now = date_time_ymd(1970, 1, 1) + Duration::from_secs(now_s.max(0).unsigned_abs());
        // A day back, for clients whose clock is behind ours.
        params.not_before = now - DAY;
        params.not_after = now + DAY * valid_days;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.self_signed(&key)?;
        Ok(certificate.pem() + &key.serialize_pem())
    };
    make().map_err(CertificateError::Make)
}

fn parse(pem: &str) -> Result<Certificate, CertificateError> {
    Certificate::from_pem(pem.as_bytes(), pem.as_bytes()).map(|(certificate, _)| certificate)
}

/// Writes a file only we can read (0600, from its creation on), whole or not at all: a temporary
/// file beside it, made durable, then renamed.
fn write_private(folder: &Path, path: &PathBuf, bytes: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}
