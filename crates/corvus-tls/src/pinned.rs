//! `upstream_tls.ca`: an upstream proves itself by a certificate from one of the given authorities,
//! or by being one of the given certificates.
//!
//! The second is what a self-signed upstream needs. What `openssl req -x509` makes is marked as an
//! authority, and path building refuses an authority as a server's own certificate, although the
//! operator has handed over exactly this one.

use std::sync::Arc;

use rustls::{
    CertificateError as Refusal, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    server::ParsedCertificate,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::certificate::{CertificateError, parse_x509};

#[derive(Debug)]
pub(crate) struct PinnedOrIssued {
    pinned: Vec<Pinned>,
    issued: Arc<WebPkiServerVerifier>,
}

#[derive(Debug)]
struct Pinned {
    certificate: CertificateDer<'static>,
    not_before_s: i64,
    not_after_s: i64,
}

impl PinnedOrIssued {
    pub(crate) fn new(
        certificates: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, CertificateError> {
        let bad =
            |error: &dyn std::error::Error| CertificateError::BadCertificate(error.to_string());
        let mut roots = RootCertStore::empty();
        let mut pinned = Vec::new();
        for certificate in certificates {
            roots.add(certificate.clone()).map_err(|error| bad(&error))?;
            let validity = parse_x509(&certificate)?.validity().clone();
            pinned.push(Pinned {
                certificate,
                not_before_s: validity.not_before.timestamp(),
                not_after_s: validity.not_after.timestamp(),
            });
        }
        let issued = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| bad(&error))?;
        Ok(Self { pinned, issued })
    }
}

impl ServerCertVerifier for PinnedOrIssued {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(pinned) = self.pinned.iter().find(|pinned| pinned.certificate == *end_entity)
        else {
            return self.issued.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            );
        };
        let now_s = now.as_secs().cast_signed();
        if now_s < pinned.not_before_s {
            return Err(Refusal::NotValidYet.into());
        }
        if now_s > pinned.not_after_s {
            return Err(Refusal::Expired.into());
        }
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issued.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issued.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issued.supported_verify_schemes()
    }
}
