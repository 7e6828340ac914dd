//! A real origin: HTTP/1.1 by this crate's own reader, HTTP/2 by hyper (prior knowledge or ALPN),
//! with or without TLS on one port. [`Origin`] lists what each path answers.

mod h1;
mod h2;
mod routes;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::headers::Headers;
use crate::patiently;
use crate::server::{ServerThread, anywhere};
use crate::tls::{Certificate, server_config};
use crate::wire::{IoStream, Wire};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Requests remembered; later ones are counted only, so that a load test does not fill the memory.
const KEPT_REQUESTS: usize = 20_000;

/// One request as the origin saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `HTTP/1.1`, `HTTP/1.0` or `HTTP/2`.
    pub version: String,
    pub method: String,
    /// The raw target; with HTTP/2 `:path`.
    pub target: String,
    /// In order and spelling; with HTTP/2 `:authority` comes first if it was sent.
    pub headers: Headers,
    /// The number of the connection, from 0.
    pub connection: usize,
    pub peer: SocketAddr,
    /// The name that TLS asked for.
    pub sni: Option<String>,
}

impl Seen {
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    pub(crate) fn query(&self) -> &str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }
}

/// What an origin has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub requests: usize,
    /// Connections accepted.
    pub connections: usize,
    /// Connections open now.
    pub open: usize,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Vec<Seen>>,
    counts: watch::Sender<Counts>,
}

impl Shared {
    fn record(&self, request: &Seen) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < KEPT_REQUESTS {
            seen.push(request.clone());
        }
        drop(seen);
        self.counts.send_modify(|counts| counts.requests += 1);
    }
}

/// An origin server. By path (a query does not count unless told):
///
/// - `/bytes/N`, `/chunked/N`, `/until-close/N`: N bytes of [`crate::pattern()`] in that framing
/// - `/truncated/N`: promises N bytes, sends half, closes; `/close`: closes without an answer
/// - `/upload`: reads the body in constant memory; JSON `bytes`, `first_mismatch` (null: as sent
///   by [`crate::pattern()`])
/// - `/sse/MS/COUNT` (`/sse`: 20 ms, 10): server-sent events `data: 0`, `data: 1`, ...
/// - `/ws`: WebSocket echo; the first offered subprotocol is taken
/// - `/slow/MS`: answers after that time; `/status/N`: that status, with a short body
/// - `/trailers`: a body, then the trailer fields `x-checksum` and `x-last`
/// - `/early-hints`: 103 with a Link, then 200 (HTTP/2: only the 200)
/// - `/100/accept`, `/100/refuse`, `/100/ignore`: sends 100 and reads; answers 417 without
///   reading; reads without sending 100. Elsewhere 100 is sent when the body is wanted.
/// - `/early-response`: answers 413 before it reads the body, and closes
/// - `/set-cookie?a=1&b=2`: sets these cookies; `/header?X-Name=value`: adds these fields
/// - `/redirect?TO`: 302 to TO; `/release`: `Corvus-Queue: release`
/// - `/echo.Echo/Unary`, `/echo.Echo/Bidi`: gRPC echo; a request field `x-grpc-status` sets the
///   status of the trailers
/// - everything else, `/echo` too: JSON `method`, `target`, `version`, `sni`, `peer`, `headers`
///   (pairs in order and spelling), `trailers`, `body_length`, `body_sha256`, `body` (its first
///   4 KiB, byte for char)
#[derive(Debug)]
pub struct Origin {
    server: ServerThread,
    shared: Arc<Shared>,
    certificate: Option<Certificate>,
}

/// Settings of an [`Origin`].
#[derive(Debug)]
pub struct OriginBuilder {
    addr: SocketAddr,
    certificate: Option<Certificate>,
    alpn: Vec<&'static str>,
}

impl OriginBuilder {
    /// Listens here, for instance on the address of an origin that was dropped.
    #[must_use]
    pub fn addr(mut self, addr: SocketAddr) -> Self {
        self.addr = addr;
        self
    }

    /// Speaks TLS only, with this certificate.
    #[must_use]
    pub fn tls(mut self, certificate: Certificate) -> Self {
        self.certificate = Some(certificate);
        self
    }

    /// What TLS offers; `h2` and `http/1.1` unless set.
    #[must_use]
    pub fn alpn(mut self, protocols: &[&'static str]) -> Self {
        self.alpn = protocols.to_vec();
        self
    }

    pub fn start(self) -> Origin {
        let shared = Arc::new(Shared::default());
        let acceptor =
            self.certificate.as_ref().map(|c| TlsAcceptor::from(server_config(c, &self.alpn)));
        let for_server = shared.clone();
        let server =
            ServerThread::listen(self.addr, move |listener| accept(listener, acceptor, for_server));
        Origin { server, shared, certificate: self.certificate }
    }
}

impl Origin {
    /// Starts without TLS.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Starts with TLS and a self-signed certificate for `localhost` and 127.0.0.1.
    pub fn start_tls() -> Self {
        Self::builder().tls(Certificate::self_signed(&["localhost", "127.0.0.1"])).start()
    }

    pub fn builder() -> OriginBuilder {
        OriginBuilder { addr: anywhere(), certificate: None, alpn: vec!["h2", "http/1.1"] }
    }

    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// `http://127.0.0.1:PORT` or `https://...`, as a Document names an upstream.
    pub fn url(&self) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.addr())
    }

    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// The requests so far; the first 20,000 are kept.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn requests(&self) -> usize {
        self.counts().requests
    }

    /// How many connections came.
    pub fn connections(&self) -> usize {
        self.counts().connections
    }

    /// How many connections are open now.
    pub fn open_connections(&self) -> usize {
        self.counts().open
    }

    pub fn counts(&self) -> Counts {
        *self.shared.counts.borrow()
    }

    /// Waits until the counts satisfy `done`: a connection has been closed, a request has come.
    pub async fn wait_for(
        &self,
        what: &str,
        mut done: impl FnMut(Counts) -> bool,
    ) -> std::io::Result<Counts> {
        let mut counts = self.shared.counts.subscribe();
        patiently(what, async {
            let found = counts.wait_for(|counts| done(*counts)).await;
            found.map(|counts| *counts).map_err(std::io::Error::other)
        })
        .await
    }
}

struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.counts.send_modify(|counts| counts.open -= 1);
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    while let Ok((stream, peer)) = listener.accept().await {
        let connection = shared.counts.borrow().connections;
        shared.counts.send_modify(|counts| {
            counts.connections += 1;
            counts.open += 1;
        });
        let (tls, counted) = (tls.clone(), Counted(shared.clone()));
        tokio::spawn(async move {
            // What a gateway does to a connection is judged by the test, not by the origin.
            let _ = serve(stream, peer, connection, tls, &counted.0).await;
            drop(counted);
        });
    }
}

async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    connection: usize,
    tls: Option<TlsAcceptor>,
    shared: &Arc<Shared>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut sni = None;
    let stream: IoStream = match tls {
        None => Box::new(stream),
        Some(tls) => {
            let stream = tls.accept(stream).await?;
            sni = stream.get_ref().1.server_name().map(str::to_owned);
            Box::new(stream)
        }
    };
    let link = Link { connection, peer, sni, shared: shared.clone() };
    let mut wire = Wire::new(stream);
    while wire.buffer.len() < PREFACE.len() && PREFACE.starts_with(&wire.buffer) {
        if wire.fill().await? == 0 {
            return Ok(());
        }
    }
    if wire.buffer.starts_with(PREFACE) {
        h2::serve(wire, link).await
    } else {
        h1::serve(wire, &link).await
    }
}

/// What requests of one connection share.
#[derive(Clone)]
struct Link {
    connection: usize,
    peer: SocketAddr,
    sni: Option<String>,
    shared: Arc<Shared>,
}

impl Link {
    fn seen(&self, version: &str, method: &str, target: &str, headers: Headers) -> Seen {
        let seen = Seen {
            version: version.to_owned(),
            method: method.to_owned(),
            target: target.to_owned(),
            headers,
            connection: self.connection,
            peer: self.peer,
            sni: self.sni.clone(),
        };
        self.shared.record(&seen);
        seen
    }
}
