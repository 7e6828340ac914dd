//! Certificates for test origins, and a TLS client that accepts any certificate.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};

/// A self-signed certificate with its key.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub certificate_pem: String,
    pub key_pem: String,
    pub der: CertificateDer<'static>,
    key_der: Vec<u8>,
}

impl Certificate {
    /// For host names and addresses (`localhost`, `127.0.0.1`, `*.example.com`).
    pub fn self_signed(names: &[&str]) -> Self {
        let names: Vec<_> = names.iter().map(|n| (*n).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).expect("a self-signed certificate");
        Self {
            certificate_pem: made.cert.pem(),
            key_pem: made.signing_key.serialize_pem(),
            der: made.cert.der().clone(),
            key_der: made.signing_key.serialize_der(),
        }
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key_der.clone()))
    }
}

/// A certificate authority of a test: what a host trusts (`client_ca`, `upstream_tls.ca`), and what
/// signs the certificates that pass.
#[derive(Debug)]
pub struct Authority {
    /// The authority's own certificate.
    pub certificate_pem: String,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let certificate = params.self_signed(&key).expect("an authority's certificate");
        Self { certificate_pem: certificate.pem(), issuer: rcgen::Issuer::new(params, key) }
    }

    /// A certificate for servers and clients with these names.
    pub fn issue(&self, names: &[&str]) -> Certificate {
        let names: Vec<_> = names.iter().map(|n| (*n).to_owned()).collect();
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(names).expect("names of a certificate");
        let made = params.signed_by(&key, &self.issuer).expect("a signed certificate");
        Certificate {
            certificate_pem: made.pem(),
            key_pem: key.serialize_pem(),
            der: made.der().clone(),
            key_der: key.serialize_der(),
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn protocols(alpn: &[&str]) -> Vec<Vec<u8>> {
    alpn.iter().map(|p| p.as_bytes().to_vec()).collect()
}

/// A server configuration with one certificate for every name.
pub fn server_config(certificate: &Certificate, alpn: &[&str]) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider's TLS versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der.clone()], certificate.key())
        .expect("a certificate and its key");
    config.alpn_protocols = protocols(alpn);
    Arc::new(config)
}

/// A client configuration that accepts any certificate; signatures are checked, so the peer does
/// hold the key of what it shows.
pub fn client_config(alpn: &[&str]) -> Arc<ClientConfig> {
    let mut config = any_server().with_no_client_auth();
    config.alpn_protocols = protocols(alpn);
    Arc::new(config)
}

/// [`client_config`] for a client that shows a certificate when it is asked for one.
pub fn client_config_as(certificate: &Certificate, alpn: &[&str]) -> Arc<ClientConfig> {
    let mut config = any_server()
        .with_client_auth_cert(vec![certificate.der.clone()], certificate.key())
        .expect("a certificate and its key");
    config.alpn_protocols = protocols(alpn);
    Arc::new(config)
}

/// A client configuration that accepts what the authority `ca` has signed, for the right name.
pub fn client_config_trusting(ca: CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca).expect("an authority's certificate");
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider's TLS versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

fn any_server() -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider's TLS versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider())))
}

#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
