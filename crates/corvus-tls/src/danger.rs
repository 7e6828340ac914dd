//! `upstream_tls.verify: false`: encryption without knowing to whom.
//!
//! Home servers talk to appliances whose certificates are expired, nameless, or X.509 version 1.
//! Whoever can step between the gateway and such an upstream can read and change everything; that
//! is what the switch says, and the console says so beside it. Handshake signatures are not checked
//! either: an attacker signs with a key of his own, so the check would protect nothing and would
//! only refuse the old certificates the switch exists for.

use rustls::{
    DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// Takes every certificate for every name.
#[derive(Debug)]
pub(crate) struct AcceptAnything {
    schemes: Vec<SignatureScheme>,
}

impl AcceptAnything {
    pub(crate) fn new(provider: &CryptoProvider) -> Self {
        Self { schemes: provider.signature_verification_algorithms.supported_schemes() }
    }
}

impl ServerCertVerifier for AcceptAnything {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
