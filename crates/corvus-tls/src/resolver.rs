//! Chooses the certificate of a handshake by the server name the client asks for (SNI, RFC 6066
//! section 3). Lookups allocate nothing and wait for nobody.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use corvus_config::Snapshot;
use corvus_core::{Clock, Id};
use foldhash::fast::FixedState;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::{
    certificate::{Certificate, CertificateError},
    self_signed,
    store::CertificateStore,
};

/// What clients get that name no host of ours. `.invalid` exists nowhere (RFC 6761 section 6.4), so
/// the certificate tells a scanner of addresses nothing about what is hosted here.
const FALLBACK_NAME: &str = "gateway.invalid";

/// The certificates of one Snapshot, ready to be asked by name.
#[derive(Debug)]
pub struct CertificateMap {
    snapshot: Arc<Snapshot>,
    by_id: HashMap<Id, Arc<CertifiedKey>, FixedState>,
    /// By the names inside the certificates: exact ones, and what follows `*.`.
    exact: HashMap<String, Arc<CertifiedKey>, FixedState>,
    wildcard: HashMap<String, Arc<CertifiedKey>, FixedState>,
}

impl CertificateMap {
    pub fn new(snapshot: Arc<Snapshot>, store: &CertificateStore) -> Self {
        let mut map = Self {
            snapshot,
            by_id: HashMap::default(),
            exact: HashMap::default(),
            wildcard: HashMap::default(),
        };
        let mut certificates: Vec<(&Id, &Certificate)> = store.iter().collect();
        // Where several cover a name the one that lasts longest is inserted last and wins; the id
        // decides between equals, so that a restart does not change the answer.
        certificates.sort_by_key(|(id, certificate)| (certificate.not_after_s, *id));
        for (id, certificate) in certificates {
            map.by_id.insert(id.clone(), certificate.certified_key());
            for name in &certificate.names {
                match name.strip_prefix("*.") {
                    Some(parent) => {
                        map.wildcard.insert(parent.to_owned(), certificate.certified_key())
                    }
                    None => map.exact.insert(name.clone(), certificate.certified_key()),
                };
            }
        }
        map
    }

    /// The certificate for `name` (lower case): that of the host which answers for it, else one
    /// that covers it.
    pub fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let of_host = || self.by_id.get(self.snapshot.index.find(name)?.tls.certificate.as_ref()?);
        let of_parent = || self.wildcard.get(name.split_once('.')?.1);
        of_host().or_else(|| self.exact.get(name)).or_else(of_parent)
    }
}

/// Serves the newest [`CertificateMap`], and a certificate with a neutral name to clients that ask
/// for nothing or for what we do not have.
#[derive(Debug)]
pub struct SniResolver {
    map: ArcSwap<CertificateMap>,
    fallback: Arc<CertifiedKey>,
}

impl SniResolver {
    /// Makes the fallback certificate, in memory only.
    pub fn new(map: CertificateMap, clock: &dyn Clock) -> Result<Self, CertificateError> {
        let fallback = self_signed::in_memory(FALLBACK_NAME, clock)?.certified_key();
        Ok(Self { map: ArcSwap::from_pointee(map), fallback })
    }

    /// Handshakes from now on use `map`; connections that stand are not touched.
    pub fn publish(&self, map: CertificateMap) {
        self.map.store(Arc::new(map));
    }

    /// The certificate a client that asks for `name` gets.
    pub fn certificate_for(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let map = self.map.load();
        Arc::clone(name.and_then(|name| map.find(name)).unwrap_or(&self.fallback))
    }
}

impl ResolvesServerCert for SniResolver {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // rustls hands the name over in lower case.
        Some(self.certificate_for(client_hello.server_name()))
    }
}
