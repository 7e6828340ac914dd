//! `certificates`.

use super::Secret;
use crate::decode::{choice, section};

section! {
    /// A certificate, referred to by id.
    pub struct Certificate {
        /// `[a-z0-9][a-z0-9_-]{0,62}`
        id: String,
        /// Names it is for. With `upload` those in the certificate count.
        domains: Vec<String> = Vec::new(),
        /// Where it comes from. `acme` is not available in this version.
        issuer: Issuer,
        /// With `acme`: how the names are proven.
        challenge: AcmeChallenge = AcmeChallenge::Http01,
        /// With `acme`: the kind of key.
        key_type: KeyType = KeyType::Ecdsa,
        /// With `dns-01`: who serves the zone.
        dns: Option<DnsProvider> = None,
        /// With `upload`: the chain, `file:PATH` or PEM text.
        certificate: Option<String> = None,
        /// With `upload`: the private key, `file:PATH` or PEM text.
        key: Option<Secret> = None,
    }
}

choice! {
    /// Where a certificate comes from.
    pub enum Issuer {
        /// An ACME authority.
        Acme = "acme",
        /// A file of the operator's.
        Upload = "upload",
        /// Made here, for tests and closed networks.
        SelfSigned = "self_signed",
    }
}

choice! {
    /// How an ACME authority checks names.
    pub enum AcmeChallenge {
        /// A file on port 80.
        Http01 = "http-01",
        /// A TLS handshake on port 443.
        TlsAlpn01 = "tls-alpn-01",
        /// A TXT record; the only way to wildcards.
        Dns01 = "dns-01",
    }
}

choice! {
    /// The kind of a key.
    pub enum KeyType {
        /// P-256.
        Ecdsa = "ecdsa",
        /// RSA, 2048 bits.
        Rsa = "rsa",
    }
}

section! {
    /// Who serves a zone.
    pub struct DnsProvider {
        /// Its name.
        provider: String,
        /// Its API token.
        credentials: Secret,
    }
}
