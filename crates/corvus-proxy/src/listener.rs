//! Sockets that clients connect to, and what happens to a connection before its first request.

pub(crate) mod bind;
pub(crate) mod proxy_protocol;

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use corvus_config::snapshot;
use corvus_core::PeerAddr;
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    http::exchange::ConnInfo,
    http1::server::{self, End},
    http2,
    io::{Stream, stream::Rewind},
    worker::Worker,
};

/// Time for a PROXY header and a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// What a listener does with its connections.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    pub(crate) port: u16,
    pub(crate) https_port: Option<u16>,
}

/// Accepts until the worker drains.
pub(crate) async fn accept(worker: Rc<Worker>, listener: TcpListener, endpoint: Endpoint) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, mostly: accepting again at once would spin.
                tracing::warn!(%error, port = endpoint.port, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (worker, endpoint) = (Rc::clone(&worker), endpoint.clone());
        tokio::task::spawn_local(async move {
            let _open = worker.open_connection();
            serve(&worker, stream, PeerAddr(peer), endpoint).await;
        });
    }
}

async fn serve(worker: &Rc<Worker>, mut stream: TcpStream, peer: PeerAddr, endpoint: Endpoint) {
    if stream.set_nodelay(true).is_err() {
        return; // The client has left already.
    }
    let mut peer = peer;
    let active = worker.active();
    if snapshot::contains(&active.snapshot.settings.proxy_protocol_from, peer.ip()) {
        match timeout(HANDSHAKE, proxy_protocol::read(&mut stream)).await {
            Ok(Ok(Some(source))) => peer = PeerAddr(source),
            Ok(Ok(None)) => {} // The proxy speaks for itself (health checks).
            Ok(Err(error)) => {
                tracing::info!(peer = %peer.0, %error, "connection without a valid PROXY header");
                return;
            }
            Err(_) => return,
        }
    }
    drop(active);
    let conn = Rc::new(ConnInfo {
        peer,
        peer_text: peer.ip().to_string(),
        tls: endpoint.tls.is_some(),
        local_port: endpoint.port,
        https_port: endpoint.https_port,
        shown: RefCell::default(),
    });
    let stream = match endpoint.tls {
        None => Stream::Tcp(stream),
        Some(config) => match timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await {
            Ok(Ok(tls)) => {
                let h2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
                let stream = Stream::Tls(Box::new(tls.into()));
                if h2 {
                    return http2::serve(worker, &conn, stream).await;
                }
                stream
            }
            Ok(Err(error)) => {
                tracing::debug!(peer = %peer.0, %error, "TLS handshake failed");
                return;
            }
            Err(_) => return,
        },
    };
    if let End::Http2(stream, prefix) = server::serve(worker, &conn, stream).await {
        http2::serve(worker, &conn, Rewind { prefix, stream }).await;
    }
}
