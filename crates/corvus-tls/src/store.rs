//! Loads the certificates of a Snapshot. Blocking (files, key generation): for the control plane,
//! before a Snapshot is published. Loading again picks up files that were replaced on disk and
//! renews self-signed certificates that near their end, so do it daily too.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, error::Error, path::Path};

use corvus_config::{
    Snapshot,
    snapshot::{CertificateSource, CertificateSpec},
};
use corvus_core::{Clock, Id};
use foldhash::fast::FixedState;

use crate::{
    certificate::{Certificate, CertificateError, Part},
    reference,
    self_signed::self_signed,
};

/// The certificates that could be loaded, by id.
#[derive(Clone, Debug, Default)]
pub struct CertificateStore {
    certificates: HashMap<Id, Certificate, FixedState>,
}

/// A certificate that is not served, and why, in a sentence for the operator.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateFailure {
    pub id: Id,
    pub sentence: String,
}

/// A certificate that is served although something about it is wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateWarning {
    pub id: Id,
    pub sentence: String,
}

/// What [`load`] found.
#[derive(Debug, Default)]
pub struct Loaded {
    pub store: CertificateStore,
    pub failures: Vec<CertificateFailure>,
    pub warnings: Vec<CertificateWarning>,
}

impl CertificateStore {
    pub fn get(&self, id: &Id) -> Option<&Certificate> {
        self.certificates.get(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Id, &Certificate)> {
        self.certificates.iter()
    }
}

/// Loads every certificate of `snapshot`. One that fails is reported and left out.
pub fn load(snapshot: &Snapshot, data: &Path, clock: &dyn Clock) -> Loaded {
    let mut loaded = Loaded::default();
    let now_s = (clock.wall_ms() / 1000).cast_signed();
    for spec in &snapshot.certificates {
        let id = &spec.id;
        match load_one(spec, data, clock) {
            Ok((certificate, mut notes)) => {
                notes.extend(validity(&certificate, now_s));
                notes.extend(uncovered_names(snapshot, id, &certificate));
                loaded.warnings.extend(notes.into_iter().map(|note| CertificateWarning {
                    id: id.clone(),
                    sentence: format!("Certificate `{id}`: {note}."),
                }));
                loaded.store.certificates.insert(id.clone(), certificate);
            }
            Err(error) => loaded.failures.push(CertificateFailure {
                id: id.clone(),
                sentence: format!("Certificate `{id}` is not served: {}.", with_causes(&error)),
            }),
        }
    }
    loaded
}

fn load_one(
    spec: &CertificateSpec,
    data: &Path,
    clock: &dyn Clock,
) -> Result<(Certificate, Vec<String>), CertificateError> {
    match &spec.source {
        CertificateSource::Upload { certificate, key } => {
            let read = |part, reference: &str| {
                reference::read(reference).map_err(|source| CertificateError::Read { part, source })
            };
            let certificate = read(Part::Certificate, certificate)?;
            Certificate::from_pem(&certificate, &read(Part::Key, key)?)
        }
        CertificateSource::SelfSigned { domains } => {
            Ok((self_signed(data, &spec.id, domains, clock)?, Vec::new()))
        }
    }
}

/// An expired certificate is still served: visitors get a warning they can pass, and other names
/// and sites of the gateway are not touched.
fn validity(certificate: &Certificate, now_s: i64) -> Option<String> {
    if certificate.not_after_s < now_s {
        let days = (now_s - certificate.not_after_s) / 86_400;
        return Some(format!("it expired {days} days ago, so browsers warn about it"));
    }
    (certificate.not_before_s > now_s).then(|| {
        "it is not valid yet; check the clock of this machine and of who issued it".to_owned()
    })
}

fn uncovered_names(snapshot: &Snapshot, id: &Id, certificate: &Certificate) -> Vec<String> {
    let uses = snapshot.hosts.iter().filter(|host| host.tls.certificate.as_ref() == Some(id));
    uses.flat_map(|host| host.domains.iter().map(move |domain| (host, domain)))
        .filter(|(_, domain)| !certificate.covers(domain))
        .map(|(host, domain)| format!("it does not cover `{domain}` of host `{}`", host.id))
        .collect()
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
