//! The downstream end of TLS.

use std::sync::Arc;

use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    server::{NoServerSessionStorage, ResolvesServerCert},
};

/// TLS 1.2 and 1.3 with HTTP/2 and HTTP/1.1 offered, certificates from `resolver` (an
/// [`crate::SniResolver`], or `rustls::sign::SingleCertAndKey` for one fixed certificate).
///
/// Sessions are resumed by tickets alone, under keys that live in this process and rotate. Make one
/// configuration and share it between workers, so that a ticket works on whichever the client
/// reaches next. Early data stays off: it can be replayed (RFC 8446 section 8).
pub fn server_config(
    resolver: Arc<dyn ResolvesServerCert>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(rustls::ALL_VERSIONS)?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    // The session cache is one mutex for all cores, and serves only TLS 1.2 clients without tickets.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}
