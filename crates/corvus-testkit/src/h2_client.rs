//! An HTTP/2 client, by hyper: prior knowledge or TLS.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::headers::Headers;
use crate::patiently;
use crate::pattern::{first_mismatch, patterned};
use crate::raw_client::RawClient;
use crate::wire::bad;

pub(crate) type RequestStream = StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>;

/// One whole response.
#[derive(Clone, Debug)]
pub struct H2Response {
    pub status: u16,
    pub headers: Headers,
    pub body: Bytes,
    pub trailers: Headers,
}

impl H2Response {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("not JSON ({e}): {}", self.text()))
    }
}

/// An HTTP/2 connection. Clones share it; it closes with the last.
#[derive(Clone)]
pub struct H2Client {
    sender: SendRequest<RequestStream>,
    scheme: &'static str,
    host: String,
}

impl H2Client {
    /// Connects without TLS, by prior knowledge. `host` becomes `:authority`.
    pub async fn connect(addr: SocketAddr, host: &str) -> io::Result<Self> {
        Self::over(RawClient::connect(addr).await?, "http", host).await
    }

    /// Connects with TLS, accepting any certificate; another ALPN than `h2` is an error.
    pub async fn connect_tls(addr: SocketAddr, host: &str) -> io::Result<Self> {
        let client = RawClient::connect_tls(addr, host, &["h2"]).await?;
        if client.alpn() != Some(b"h2") {
            return Err(bad("the peer did not agree to h2"));
        }
        Self::over(client, "https", host).await
    }

    async fn over(client: RawClient, scheme: &'static str, host: &str) -> io::Result<Self> {
        let (stream, _) = client.into_parts();
        let handshake = Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream));
        let handshake = async { handshake.await.map_err(io::Error::other) };
        let (sender, connection) = patiently("HTTP/2 handshake", handshake).await?;
        // Ends when the last sender is dropped; its error reaches the senders too.
        tokio::spawn(connection);
        Ok(Self { sender, scheme, host: host.to_owned() })
    }

    /// A request for `path` on this connection's host, to be completed by the caller.
    pub fn request(&self, method: &str, path: &str) -> http::request::Builder {
        Request::builder().method(method).uri(format!("{}://{}{path}", self.scheme, self.host))
    }

    pub async fn get(&self, path: &str, fields: &[(&str, &str)]) -> io::Result<H2Response> {
        let builder = fields.iter().fold(self.request("GET", path), |b, (n, v)| b.header(*n, *v));
        self.send(builder.body(Bytes::new()).map_err(io::Error::other)?).await
    }

    /// Sends a request with a whole body and reads the whole response.
    pub async fn send(&self, request: Request<Bytes>) -> io::Result<H2Response> {
        let request = request.map(|body| {
            let frame = (!body.is_empty()).then(|| Ok(Frame::data(body)));
            StreamBody::new(futures_util::stream::iter(frame).boxed())
        });
        collect(self.start(request).await?).await
    }

    /// POSTs `total` bytes of [`crate::pattern()`] in constant memory.
    pub async fn upload(&self, path: &str, total: u64) -> io::Result<H2Response> {
        let frames = patterned(total).map(|piece| piece.map(Frame::data)).boxed();
        let request = self.request("POST", path).body(StreamBody::new(frames));
        collect(self.start(request.map_err(io::Error::other)?).await?).await
    }

    /// GETs a body in constant memory: its length, if it is [`crate::pattern()`] throughout.
    pub async fn download(&self, path: &str) -> io::Result<u64> {
        let body = StreamBody::new(futures_util::stream::empty().boxed());
        let request = self.request("GET", path).body(body).map_err(io::Error::other)?;
        let mut incoming = self.start(request).await?.into_body();
        let mut read = 0;
        while let Some(frame) = next_frame(&mut incoming).await? {
            let Ok(piece) = frame.into_data() else { continue };
            if let Some(at) = first_mismatch(read, &piece) {
                return Err(bad(format!("the body differs from the pattern at byte {at}")));
            }
            read += piece.len() as u64;
        }
        Ok(read)
    }

    /// Sends a request whose body comes in pieces; returns when the response head is there.
    pub(crate) async fn start(
        &self,
        request: Request<RequestStream>,
    ) -> io::Result<Response<Incoming>> {
        let mut sender = self.sender.clone();
        patiently("HTTP/2 response", async {
            sender.ready().await.map_err(io::Error::other)?;
            sender.send_request(request).await.map_err(io::Error::other)
        })
        .await
    }
}

async fn collect(response: Response<Incoming>) -> io::Result<H2Response> {
    let (head, mut incoming) = response.into_parts();
    let (mut body, mut trailers) = (Vec::new(), Headers::default());
    while let Some(frame) = next_frame(&mut incoming).await? {
        match frame.into_data() {
            Ok(data) => body.extend_from_slice(&data),
            Err(frame) => {
                if let Ok(fields) = frame.into_trailers() {
                    trailers = Headers::from_map(&fields);
                }
            }
        }
    }
    let headers = Headers::from_map(&head.headers);
    Ok(H2Response { status: head.status.as_u16(), headers, body: body.into(), trailers })
}

pub(crate) async fn next_frame(incoming: &mut Incoming) -> io::Result<Option<Frame<Bytes>>> {
    patiently("HTTP/2 body", async { incoming.frame().await.transpose().map_err(io::Error::other) })
        .await
}
