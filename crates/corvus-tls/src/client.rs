//! The upstream end of TLS.

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

use crate::{
    certificate::{CertificateError, Part, parse_chain},
    danger::AcceptAnything,
    pinned::PinnedOrIssued,
    reference,
};

/// How an upstream proves who it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verify<'a> {
    /// By a certificate from an authority this machine trusts.
    System,
    /// By a certificate from one of these authorities, or one of these itself: PEM text, `file:PATH`
    /// or `${ENV}`.
    Ca(&'a str),
    /// Not at all.
    None,
}

/// Why no client configuration could be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientConfigError {
    #[error(
        "this machine has no certificate authorities to check upstreams by; install the package \
         `ca-certificates` or set `upstream_tls.ca`"
    )]
    NoSystemAuthorities,
    #[error("the authority for the upstream cannot be used: {0}")]
    Ca(#[source] CertificateError),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// A configuration for connections to upstreams that offers `alpn` (for example `[b"h2"]`; empty:
/// no offer). It remembers sessions behind a lock of its own: make one for each worker.
pub fn client_config(
    verify: Verify<'_>,
    alpn: &[&[u8]],
) -> Result<Arc<ClientConfig>, ClientConfigError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(rustls::ALL_VERSIONS)?;
    let mut config = match verify {
        Verify::System => builder.with_root_certificates(system_roots()?).with_no_client_auth(),
        Verify::Ca(reference) => {
            let verifier = authorities(reference)
                .and_then(|certificates| PinnedOrIssued::new(certificates, Arc::clone(&provider)));
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(
                    verifier.map_err(ClientConfigError::Ca)?,
                ))
                .with_no_client_auth()
        }
        Verify::None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAnything::new(&provider)))
            .with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

fn authorities(
    reference: &str,
) -> Result<Vec<rustls_pki_types::CertificateDer<'static>>, CertificateError> {
    let part = Part::Certificate;
    let pem =
        reference::read(reference).map_err(|source| CertificateError::Read { part, source })?;
    parse_chain(&pem)
}

/// The machine's authorities, read when the first upstream needs them and once: some hundred files
/// and a few milliseconds. Having found none is not remembered, so that installing them helps.
fn system_roots() -> Result<Arc<RootCertStore>, ClientConfigError> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(Arc::clone(roots));
    }
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "a certificate authority of this machine cannot be read");
    }
    let mut roots = RootCertStore::empty();
    let (added, ignored) = roots.add_parsable_certificates(found.certs);
    tracing::debug!(added, ignored, "read the certificate authorities of this machine");
    if roots.is_empty() {
        return Err(ClientConfigError::NoSystemAuthorities);
    }
    Ok(Arc::clone(ROOTS.get_or_init(|| Arc::new(roots))))
}
