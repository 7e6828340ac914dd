//! `certificates`.

use corvus_core::Id;

use super::{Context, pem_reference};
use crate::{
    document::{
        Secret,
        certificate::{AcmeChallenge, Certificate, Issuer, KeyType},
    },
    domain,
    snapshot::{CertificateSource, CertificateSpec},
};

pub(super) fn compile(certificates: &[Certificate], cx: &mut Context<'_>) -> Vec<CertificateSpec> {
    let mut specs = Vec::with_capacity(certificates.len());
    for (i, certificate) in certificates.iter().enumerate() {
        let at = format!("/certificates/{i}");
        let domains = names(certificate, &at, cx);
        let source = match certificate.issuer {
            Issuer::Acme => {
                cx.add(format!("{at}/issuer"), "`issuer: acme` is not available in this version");
                None
            }
            Issuer::Upload => upload(certificate, &at, cx),
            Issuer::SelfSigned => Some(CertificateSource::SelfSigned { domains }),
        };
        if let (Ok(id), Some(source)) = (Id::new(&certificate.id), source) {
            specs.push(CertificateSpec { id, source });
        }
    }
    specs
}

/// The names, and that keys of other issuers are not there to no effect.
fn names(certificate: &Certificate, at: &str, cx: &mut Context<'_>) -> Vec<String> {
    let issuer = certificate.issuer;
    let mut domains = Vec::new();
    for (i, text) in certificate.domains.iter().enumerate() {
        match domain::normalise(text) {
            Ok(name) if domains.contains(&name) => {
                cx.add(format!("{at}/domains/{i}"), format!("`{name}` stands here twice"));
            }
            Ok(name) => domains.push(name),
            Err(message) => cx.add(format!("{at}/domains/{i}"), message),
        }
    }
    if issuer != Issuer::Upload {
        if certificate.domains.is_empty() {
            cx.add(at, format!("`issuer: {}` needs `domains`", issuer.as_str()));
        }
        for (key, given) in
            [("certificate", certificate.certificate.is_some()), ("key", certificate.key.is_some())]
        {
            if given {
                cx.add(format!("{at}/{key}"), format!("`{key}` goes with `issuer: upload`"));
            }
        }
    }
    if issuer != Issuer::Acme {
        for (key, given) in [
            ("challenge", certificate.challenge != AcmeChallenge::Http01),
            ("key_type", certificate.key_type != KeyType::Ecdsa),
            ("dns", certificate.dns.is_some()),
        ] {
            if given {
                cx.add(format!("{at}/{key}"), format!("`{key}` goes with `issuer: acme`"));
            }
        }
    }
    domains
}

fn upload(certificate: &Certificate, at: &str, cx: &mut Context<'_>) -> Option<CertificateSource> {
    let mut part = |name: &str, text: Option<&str>| -> Option<String> {
        let Some(text) = text else {
            cx.add(at, format!("`issuer: upload` needs a `{name}`"));
            return None;
        };
        if let Err(message) = pem_reference(text) {
            cx.add(format!("{at}/{name}"), message);
        }
        Some(text.to_owned())
    };
    let chain = part("certificate", certificate.certificate.as_deref());
    let key = match &certificate.key {
        Some(Secret::Stored(_)) => {
            let message = "a stored secret is not available in this version; use `file:PATH`";
            cx.add(format!("{at}/key"), message);
            None
        }
        Some(Secret::Text(text)) => part("key", Some(text)),
        None => part("key", None),
    };
    Some(CertificateSource::Upload { certificate: chain?, key: key? })
}
