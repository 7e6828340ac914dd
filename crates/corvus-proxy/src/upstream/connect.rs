//! Making a connection to an upstream.

use std::{io, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use corvus_config::snapshot::{UpstreamAddress, UpstreamProtocol};
use corvus_tls::Verify;
use rustls_pki_types::ServerName;
use tokio::{
    net::{TcpStream, UnixStream},
    time::{error::Elapsed, timeout},
};
use tokio_rustls::TlsConnector;

use crate::{
    io::Stream,
    upstream::{UpstreamError, pool::UpstreamState},
    worker::Worker,
};

/// Connects, TLS included, within `limit`.
pub(crate) async fn connect(
    worker: &Worker,
    state: &UpstreamState,
    limit: Duration,
) -> Result<Stream, UpstreamError> {
    let attempt = async {
        match &state.key.upstream.address {
            UpstreamAddress::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(classify)?;
                Ok(Stream::Unix(stream))
            }
            UpstreamAddress::Tcp { host, port } => {
                let tcp = connect_name(worker, host, *port, limit).await?;
                if state.key.upstream.tls {
                    handshake(state, host, tcp).await
                } else {
                    Ok(Stream::Tcp(tcp))
                }
            }
        }
    };
    // Twice the limit in all: once for the name and the addresses, once for TLS.
    let elapsed: Result<_, Elapsed> = timeout(limit * 2, attempt).await;
    elapsed.unwrap_or(Err(UpstreamError::ConnectTimeout))
}

async fn connect_name(
    worker: &Worker,
    host: &str,
    port: u16,
    limit: Duration,
) -> Result<TcpStream, UpstreamError> {
    let resolver = &worker.resolver;
    let resolve = || async {
        let found = resolver.resolve(host, port, &*worker.clock).await;
        found.map_err(|source| UpstreamError::NameNotFound { name: host.to_owned(), source })
    };
    let addresses = resolve().await?;
    match connect_any(&addresses, limit).await {
        Ok(stream) => Ok(stream),
        Err(error) => {
            // Perhaps the name has moved since it was looked up (a container made anew).
            resolver.forget(host).await;
            let again = resolve().await?;
            if again == addresses { Err(error) } else { connect_any(&again, limit).await }
        }
    }
}

/// Tries each address in turn; together they have the limit.
async fn connect_any(
    addresses: &[SocketAddr],
    limit: Duration,
) -> Result<TcpStream, UpstreamError> {
    let each = limit / u32::try_from(addresses.len().max(1)).unwrap_or(1);
    let mut last = UpstreamError::ConnectTimeout;
    for address in addresses {
        match timeout(each, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true).map_err(UpstreamError::Connect)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = classify(error),
            Err(_) => last = UpstreamError::ConnectTimeout,
        }
    }
    Err(last)
}

fn classify(error: io::Error) -> UpstreamError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => UpstreamError::Refused(error),
        io::ErrorKind::TimedOut => UpstreamError::ConnectTimeout,
        _ => UpstreamError::Connect(error),
    }
}

async fn handshake(
    state: &UpstreamState,
    host: &str,
    tcp: TcpStream,
) -> Result<Stream, UpstreamError> {
    let config = tls_config(state)?;
    let name = state.key.tls.server_name.as_deref().unwrap_or(host);
    let name = ServerName::try_from(name.to_owned())
        .map_err(|error| UpstreamError::TlsConfig(Box::new(error)))?;
    let tls = TlsConnector::from(config).connect(name, tcp).await.map_err(UpstreamError::Tls)?;
    Ok(Stream::Tls(Box::new(tls.into())))
}

fn tls_config(state: &UpstreamState) -> Result<Arc<rustls::ClientConfig>, UpstreamError> {
    if let Some(config) = &*state.tls_config.borrow() {
        return Ok(Arc::clone(config));
    }
    let verify = match (&state.key.tls.ca, state.key.tls.verify) {
        (_, false) => Verify::None,
        (Some(ca), true) => Verify::Ca(ca),
        (None, true) => Verify::System,
    };
    let alpn: &[&[u8]] = match state.key.upstream.protocol {
        UpstreamProtocol::Http1 => &[b"http/1.1"],
        UpstreamProtocol::Http2 => &[b"h2"],
    };
    let config = corvus_tls::client_config(verify, alpn)
        .map_err(|error| UpstreamError::TlsConfig(Box::new(error)))?;
    *state.tls_config.borrow_mut() = Some(Arc::clone(&config));
    Ok(config)
}

/// A fresh HTTP/1 connection.
pub(crate) async fn connect_h1(
    worker: &Worker,
    state: &Rc<UpstreamState>,
    limit: Duration,
) -> Result<crate::upstream::pool::UpstreamConn, UpstreamError> {
    let stream = connect(worker, state, limit).await?;
    let io = crate::io::Io::new(stream);
    Ok(crate::upstream::pool::UpstreamConn::new(io, &worker.watches, state))
}
