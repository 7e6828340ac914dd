//! TLS for axum: handshakes happen beside each other, and none of them holds up the others.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{extract::connect_info::Connected, serve::IncomingStream};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Handshakes under way and connections not yet taken.
const PENDING: usize = 64;
const HANDSHAKE: Duration = Duration::from_secs(10);

type Accepted = (TlsStream<TcpStream>, SocketAddr);

pub(super) struct TlsListener {
    ready: mpsc::Receiver<Accepted>,
    local: SocketAddr,
}

impl TlsListener {
    pub(super) fn new(
        listener: std::net::TcpListener,
        tls: Arc<rustls::ServerConfig>,
    ) -> std::io::Result<Self> {
        let local = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        let (sender, ready) = mpsc::channel(PENDING);
        tokio::spawn(accept(listener, TlsAcceptor::from(tls), sender));
        Ok(Self { ready, local })
    }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, sender: mpsc::Sender<Accepted>) {
    loop {
        // Room for one more before it is taken from the kernel's queue.
        let Ok(permit) = sender.clone().reserve_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection to the console could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let tls = tls.clone();
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                Ok(Ok(stream)) => {
                    permit.send((stream, peer));
                }
                Ok(Err(error)) => tracing::debug!(%peer, %error, "console: handshake failed"),
                Err(_) => tracing::debug!(%peer, "console: no handshake in time"),
            }
        });
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // Only when the runtime is going down.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(self.local)
    }
}

/// The other end of a connection to the console.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

impl Connected<IncomingStream<'_, TlsListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Self {
        Self(*stream.remote_addr())
    }
}
