//! TLS for axum: handshakes happen beside each other, and none of them holds up the others.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{extract::connect_info::Connected, serve::IncomingStream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Connections at once. What comes beyond is closed: this address is for a few people and programs,
/// and its file descriptors are the data plane's as well.
const MAX_OPEN: usize = 512;
/// Connections whose handshake is done and that are not yet taken.
const PENDING: usize = 64;
const HANDSHAKE: Duration = Duration::from_secs(10);

type Accepted = (Open, SocketAddr);

pub(super) struct TlsListener {
    ready: mpsc::Receiver<Accepted>,
    local: SocketAddr,
}

impl TlsListener {
    pub(super) fn new(
        listener: std::net::TcpListener,
        tls: Arc<rustls::ServerConfig>,
    ) -> io::Result<Self> {
        let local = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        let (sender, ready) = mpsc::channel(PENDING);
        tokio::spawn(accept(listener, TlsAcceptor::from(tls), sender));
        Ok(Self { ready, local })
    }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, sender: mpsc::Sender<Accepted>) {
    let open = Arc::new(Semaphore::new(MAX_OPEN));
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection to the console could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&open).try_acquire_owned() else { continue };
        let (tls, sender) = (tls.clone(), sender.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                Ok(Ok(stream)) => {
                    // An error means that the console is going down.
                    let _ = sender.send((Open { stream, _permit: permit }, peer)).await;
                }
                Ok(Err(error)) => tracing::debug!(%peer, %error, "console: handshake failed"),
                Err(_) => tracing::debug!(%peer, "console: no handshake in time"),
            }
        });
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = Open;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // Only when the runtime is going down.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }
}

/// A connection that counts as long as it is open.
pub(super) struct Open {
    stream: TlsStream<TcpStream>,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for Open {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Open {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
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
