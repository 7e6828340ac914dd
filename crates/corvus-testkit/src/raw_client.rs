//! A client that sends exact bytes and reads responses strictly.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::headers::Headers;
use crate::pattern::{CHUNK, first_mismatch, pattern};
use crate::wire::{Body, Framing, IoStream, Wire, bad, declared_framing, parse_head};
use crate::{PATIENCE, tls, within};

/// The head of one response.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// As sent: `HTTP/1.1`.
    pub version: String,
    pub status: u16,
    pub reason: String,
    pub headers: Headers,
    /// The bytes of the head, with the empty line.
    pub raw: Bytes,
}

/// One whole response. Derefs to its head.
#[derive(Clone, Debug)]
pub struct RawResponse {
    pub head: ResponseHead,
    pub body: Bytes,
    pub trailers: Headers,
    /// The 1xx responses that came first.
    pub interim: Vec<ResponseHead>,
}

impl std::ops::Deref for RawResponse {
    type Target = ResponseHead;

    fn deref(&self) -> &ResponseHead {
        &self.head
    }
}

impl RawResponse {
    /// The body as text; what is not UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("not JSON ({e}): {}", self.text()))
    }
}

/// An HTTP/1 connection over TCP or TLS. Calls on it share the connection, as keep-alive does.
pub struct RawClient {
    wire: Wire,
    body: Body,
    patience: Duration,
    local: SocketAddr,
    alpn: Option<Vec<u8>>,
    certificate: Option<CertificateDer<'static>>,
}

impl RawClient {
    /// Connects without TLS.
    pub async fn connect(addr: SocketAddr) -> io::Result<Self> {
        let tcp = within(PATIENCE, "connect", TcpStream::connect(addr)).await?;
        Self::from_tcp(tcp)
    }

    /// Connects from another loopback address (`127.0.0.2`), to be another client.
    pub async fn connect_from(source: std::net::IpAddr, addr: SocketAddr) -> io::Result<Self> {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(source, 0))?;
        Self::from_tcp(within(PATIENCE, "connect", socket.connect(addr)).await?)
    }

    /// Connects with TLS, accepting any certificate. An empty `alpn` sends no ALPN.
    pub async fn connect_tls(addr: SocketAddr, sni: &str, alpn: &[&str]) -> io::Result<Self> {
        let tcp = within(PATIENCE, "connect", TcpStream::connect(addr)).await?;
        Self::from_tcp(tcp)?.start_tls(sni, alpn).await
    }

    /// Begins TLS on this connection, for instance after a PROXY protocol header was sent.
    pub async fn start_tls(self, sni: &str, alpn: &[&str]) -> io::Result<Self> {
        self.start_tls_with(sni, tls::client_config(alpn)).await
    }

    /// Begins TLS with settings of the test's own: a client certificate, one TLS version.
    pub async fn start_tls_with(
        self,
        sni: &str,
        config: Arc<rustls::ClientConfig>,
    ) -> io::Result<Self> {
        let name = ServerName::try_from(sni.to_owned()).map_err(|e| bad(e.to_string()))?;
        let connector = tokio_rustls::TlsConnector::from(config);
        let connect = connector.connect(name, self.wire.stream);
        let tls = within(self.patience, "TLS handshake", connect).await?;
        let (_, session) = tls.get_ref();
        let alpn = session.alpn_protocol().map(<[u8]>::to_vec);
        let shown = session.peer_certificates().and_then(|c| c.first());
        let certificate = shown.map(|c| c.clone().into_owned());
        Ok(Self { wire: Wire::new(Box::new(tls)), alpn, certificate, ..self })
    }

    fn from_tcp(tcp: TcpStream) -> io::Result<Self> {
        tcp.set_nodelay(true)?;
        let local = tcp.local_addr()?;
        Ok(Self {
            wire: Wire::new(Box::new(tcp)),
            body: Body::new(Framing::Length(0)),
            patience: PATIENCE,
            local,
            alpn: None,
            certificate: None,
        })
    }

    /// Waits this long for each step instead of [`PATIENCE`].
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Our end of the connection.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The protocol that TLS agreed on.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.alpn.as_deref()
    }

    /// The certificate that the peer showed.
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.certificate.as_ref()
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        within(self.patience, "send", self.wire.write(bytes.as_ref())).await
    }

    /// Ends our side (FIN, or close_notify and FIN); reading goes on.
    pub async fn finish_sending(&mut self) -> io::Result<()> {
        within(self.patience, "shutdown", self.wire.stream.shutdown()).await
    }

    /// Reads the next head, 1xx included. `method` is that of the request, since a response to HEAD
    /// has no body.
    pub async fn read_head(&mut self, method: &str) -> io::Result<ResponseHead> {
        let read = within(self.patience, "response head", self.wire.read_head()).await?;
        let raw = read.ok_or_else(|| {
            io::Error::new(io::ErrorKind::UnexpectedEof, "closed without an answer")
        })?;
        let (line, headers) = parse_head(&raw)?;
        let (version, status, reason) = parse_status_line(&line)?;
        let bodiless = method == "HEAD" || status < 200 || matches!(status, 204 | 304);
        let framing = if bodiless {
            Framing::Length(0)
        } else {
            declared_framing(&headers)?.unwrap_or(Framing::UntilClose)
        };
        self.body = Body::new(framing);
        Ok(ResponseHead { version, status, reason, headers, raw })
    }

    /// The next piece of the body that belongs to the last head; `None` at its end.
    pub async fn read_body(&mut self) -> io::Result<Option<Bytes>> {
        within(self.patience, "response body", self.wire.read_body(&mut self.body)).await
    }

    /// The trailers, once [`Self::read_body`] gave `None`.
    pub fn trailers(&self) -> &Headers {
        &self.body.trailers
    }

    /// One whole response, with the 1xx before it. 101 counts as final.
    pub async fn read_response(&mut self, method: &str) -> io::Result<RawResponse> {
        let mut interim = Vec::new();
        let head = loop {
            let head = self.read_head(method).await?;
            if head.status >= 200 || head.status == 101 {
                break head;
            }
            interim.push(head);
        };
        let mut body = Vec::new();
        while let Some(piece) = self.read_body().await? {
            body.extend_from_slice(&piece);
        }
        Ok(RawResponse { head, body: body.into(), trailers: self.trailers().clone(), interim })
    }

    /// Sends bytes and reads one response; the method is the first word of the bytes.
    pub async fn exchange(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<RawResponse> {
        let bytes = bytes.as_ref();
        self.send(bytes).await?;
        let method = bytes.split(|&b| b == b' ').next().unwrap_or_default();
        self.read_response(&String::from_utf8_lossy(method)).await
    }

    /// A GET with a Host field, and more fields if wanted.
    pub async fn get(
        &mut self,
        host: &str,
        target: &str,
        fields: &[(&str, &str)],
    ) -> io::Result<RawResponse> {
        let mut text = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n");
        for (name, value) in fields {
            // Writing to a String cannot fail.
            let _ = write!(text, "{name}: {value}\r\n");
        }
        text.push_str("\r\n");
        self.exchange(text).await
    }

    /// Sends `total` bytes of [`crate::pattern()`] as a body, in constant memory.
    pub async fn send_pattern(&mut self, total: u64) -> io::Result<()> {
        let mut sent = 0;
        while sent < total {
            let piece = pattern(sent, (total - sent).min(CHUNK as u64) as usize);
            self.send(&piece).await?;
            sent += piece.len() as u64;
        }
        Ok(())
    }

    /// The same in chunked framing, with the last chunk.
    pub async fn send_pattern_chunked(&mut self, total: u64) -> io::Result<()> {
        let mut sent = 0;
        while sent < total {
            let piece = pattern(sent, (total - sent).min(CHUNK as u64) as usize);
            self.send(format!("{:x}\r\n", piece.len())).await?;
            self.send([&piece[..], b"\r\n"].concat()).await?;
            sent += piece.len() as u64;
        }
        self.send("0\r\n\r\n").await
    }

    /// Reads the body of the last head in constant memory: its length, if it is
    /// [`crate::pattern()`] throughout.
    pub async fn read_pattern(&mut self) -> io::Result<u64> {
        let mut read = 0;
        while let Some(piece) = self.read_body().await? {
            if let Some(at) = first_mismatch(read, &piece) {
                return Err(bad(format!("the body differs from the pattern at byte {at}")));
            }
            read += piece.len() as u64;
        }
        Ok(read)
    }

    /// Everything until the peer closes. A reset is an error.
    pub async fn read_to_close(&mut self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            all.extend_from_slice(&self.wire.buffer.split());
            if within(self.patience, "close", self.wire.fill()).await? == 0 {
                return Ok(all);
            }
        }
    }

    /// Reads once: the bytes, or nothing when the peer closed.
    pub async fn read_some(&mut self) -> io::Result<Bytes> {
        if self.wire.buffer.is_empty() {
            within(self.patience, "bytes", self.wire.fill()).await?;
        }
        Ok(self.wire.buffer.split().freeze())
    }

    /// Whether the peer has closed, as far as can be seen without waiting; bytes count as open.
    pub async fn closed(&mut self) -> bool {
        if !self.wire.buffer.is_empty() {
            return false;
        }
        let mut fill = std::pin::pin!(self.wire.fill());
        let seen = std::future::poll_fn(|cx| {
            std::task::Poll::Ready(match fill.as_mut().poll(cx) {
                std::task::Poll::Ready(read) => Some(read),
                std::task::Poll::Pending => None,
            })
        });
        matches!(seen.await, Some(Ok(0) | Err(_)))
    }

    pub(crate) fn into_parts(self) -> (IoStream, Bytes) {
        (self.wire.stream, self.wire.buffer.freeze())
    }
}

fn parse_status_line(line: &str) -> io::Result<(String, u16, String)> {
    let mut words = line.splitn(3, ' ');
    let version = words.next().unwrap_or_default();
    let status = words.next().unwrap_or_default();
    let digits = status.len() == 3 && status.bytes().all(|b| b.is_ascii_digit());
    match status.parse() {
        Ok(code) if digits && matches!(version, "HTTP/1.1" | "HTTP/1.0") => {
            Ok((version.to_owned(), code, words.next().unwrap_or_default().to_owned()))
        }
        _ => Err(bad(format!("not a status line: {line:?}"))),
    }
}
