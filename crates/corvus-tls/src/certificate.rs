//! One certificate with its key, read from PEM and checked.

mod chain;
#[cfg(test)]
mod tests;

use std::{fmt, io, net::IpAddr, path::PathBuf, sync::Arc};

use rustls::{crypto::aws_lc_rs, sign::CertifiedKey};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::reference::ReferenceError;

/// A certificate ready to be served.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Lower-case DNS names (`*.` for wildcards) and IP addresses of its subject alternative names.
    pub names: Vec<String>,
    /// The distinguished name of who issued it, for people.
    pub issuer: String,
    /// Unix seconds.
    pub not_before_s: i64,
    /// Unix seconds.
    pub not_after_s: i64,
    /// Issuer and subject are the same.
    pub self_signed: bool,
    pub(crate) key: Arc<CertifiedKey>,
}

/// Which of the two texts of a certificate is meant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    Certificate,
    Key,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate => "certificate",
            Self::Key => "key",
        })
    }
}

/// Why a certificate cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("its {part} cannot be read")]
    Read { part: Part, source: ReferenceError },
    #[error(
        "its {0} is binary (DER or PKCS#12), PEM is needed: text with a line `-----BEGIN ...-----`"
    )]
    Binary(Part),
    #[error("its {0} holds no PEM section for one: a line `-----BEGIN ...-----` is missing")]
    Missing(Part),
    #[error("its {part} is damaged PEM text ({reason})")]
    BadPem { part: Part, reason: pem::Error },
    #[error("its key is encrypted with a passphrase; store it decrypted (`openssl pkey`)")]
    EncryptedKey,
    #[error("one of its certificates is not a valid X.509 certificate ({0})")]
    BadCertificate(String),
    #[error("its key is of a kind or size that is not supported")]
    UnsupportedKey(#[source] rustls::Error),
    #[error("its key belongs to none of the certificates given")]
    KeyMismatch,
    #[error("a self-signed certificate for its names cannot be made")]
    Make(#[source] rcgen::Error),
    #[error("`{path}` cannot be written")]
    Write { path: PathBuf, source: io::Error },
}

impl Certificate {
    /// Reads a chain and a key (PKCS#1, PKCS#8 or SEC1) from PEM. The chain is put in order; what
    /// had to be mended, and what clients will object to, comes back as sentences.
    pub(crate) fn from_pem(
        certificate: &[u8],
        key: &[u8],
    ) -> Result<(Self, Vec<String>), CertificateError> {
        let key = parse_key(key)?;
        let signing_key = aws_lc_rs::default_provider()
            .key_provider
            .load_private_key(key)
            .map_err(CertificateError::UnsupportedKey)?;
        let public_key = signing_key.public_key().ok_or(CertificateError::KeyMismatch)?;

        let given = parse_chain(certificate)?;
        let (chain, mut notes) = chain::mend(&given, &public_key)?;
        let leaf = chain.first().ok_or(CertificateError::Missing(Part::Certificate))?;
        let leaf = parse_x509(leaf)?;
        let names = subject_alternative_names(&leaf);
        if names.is_empty() {
            notes.push(
                "it has no subject alternative names, so browsers accept it for no name".to_owned(),
            );
        }
        let certificate = Self {
            names,
            issuer: leaf.issuer().to_string(),
            not_before_s: leaf.validity().not_before.timestamp(),
            not_after_s: leaf.validity().not_after.timestamp(),
            self_signed: leaf.issuer().as_raw() == leaf.subject().as_raw(),
            key: Arc::new(CertifiedKey::new(chain, signing_key)),
        };
        Ok((certificate, notes))
    }

    /// What rustls serves.
    pub fn certified_key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }

    /// Whether clients accept it for `name` (lower case, or `*.` before a parent name).
    pub fn covers(&self, name: &str) -> bool {
        self.names.iter().any(|pattern| crate::names::covers(pattern, name))
    }
}

/// All certificates in `pem`, in the order given.
pub(crate) fn parse_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let part = Part::Certificate;
    let chain = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|reason| CertificateError::BadPem { part, reason })?;
    if chain.is_empty() {
        return Err(nothing_found(part, pem));
    }
    Ok(chain)
}

fn parse_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, CertificateError> {
    let part = Part::Key;
    match PrivateKeyDer::from_pem_slice(pem) {
        // The old OpenSSL form says so in a header inside an ordinary-looking section.
        Ok(_) if contains(pem, b"Proc-Type: 4,ENCRYPTED") => Err(CertificateError::EncryptedKey),
        Ok(key) => Ok(key),
        Err(_) if contains(pem, b"ENCRYPTED") => Err(CertificateError::EncryptedKey),
        Err(pem::Error::NoItemsFound) => Err(nothing_found(part, pem)),
        Err(reason) => Err(CertificateError::BadPem { part, reason }),
    }
}

/// Tells a binary file from a text without what we look for: a DER value of this size begins with
/// SEQUENCE, 0x30, and a long-form length, 0x8x.
fn nothing_found(part: Part, bytes: &[u8]) -> CertificateError {
    match bytes {
        [0x30, 0x80..=0x8f, ..] => CertificateError::Binary(part),
        _ => CertificateError::Missing(part),
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

pub(crate) fn parse_x509<'a>(
    der: &'a CertificateDer<'_>,
) -> Result<X509Certificate<'a>, CertificateError> {
    X509Certificate::from_der(der)
        .map(|(_, certificate)| certificate)
        .map_err(|error| CertificateError::BadCertificate(error.to_string()))
}

fn subject_alternative_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => ip_address(bytes).map(|ip| ip.to_string()),
        _ => None,
    };
    extension.value.general_names.iter().filter_map(text).collect()
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}
