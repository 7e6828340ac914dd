//! gRPC at the level a gateway sees: HTTP/2, five bytes of framing for each message, and the status
//! in the trailers. The messages are any bytes; no protobuf is involved.

use std::collections::VecDeque;
use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::stream::{self, BoxStream, StreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use tokio::sync::mpsc;

use crate::h2_client::{H2Client, H2Response, next_frame};
use crate::headers::Headers;
use crate::patiently;
use crate::wire::bad;

const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// One message with its frame: a zero byte (not compressed), four bytes of length, the bytes.
fn encode(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.put_slice(message);
    framed.freeze()
}

#[derive(Default)]
struct Decoder(BytesMut);

impl Decoder {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let Some(head) = self.0.first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if head[0] != 0 || length > MAX_MESSAGE {
            return Err(bad(format!("a bad gRPC frame: {head:?}")));
        }
        if self.0.len() < 5 + length {
            return Ok(None);
        }
        self.0.advance(5);
        Ok(Some(self.0.split_to(length).freeze()))
    }

    fn end(&self) -> io::Result<()> {
        let whole = self.0.is_empty();
        whole.then_some(()).ok_or_else(|| bad("the stream ends within a gRPC message"))
    }
}

/// The messages of a request, framed again one by one as they come.
pub(crate) fn echo(incoming: Option<Incoming>) -> BoxStream<'static, io::Result<Bytes>> {
    let start = incoming.map(|incoming| (incoming, Decoder::default()));
    stream::try_unfold(start, |state| async move {
        let Some((mut incoming, mut decoder)) = state else { return Ok(None) };
        loop {
            if let Some(message) = decoder.next()? {
                return Ok(Some((encode(&message), Some((incoming, decoder)))));
            }
            match incoming.frame().await.transpose().map_err(io::Error::other)? {
                None => return decoder.end().map(|()| None),
                Some(frame) => {
                    if let Ok(data) = frame.into_data() {
                        decoder.0.extend_from_slice(&data);
                    }
                }
            }
        }
    })
    .boxed()
}

/// The end of a unary call.
#[derive(Clone, Debug)]
pub struct GrpcReply {
    pub http_status: u16,
    pub headers: Headers,
    pub messages: Vec<Bytes>,
    /// `grpc-status` of the trailers, or of the headers of an answer without messages.
    pub status: Option<u32>,
    pub trailers: Headers,
}

/// A client of the echo service of [`crate::Origin`].
#[derive(Clone)]
pub struct GrpcClient {
    http: H2Client,
}

impl GrpcClient {
    pub fn new(http: H2Client) -> Self {
        Self { http }
    }

    fn call(&self, path: &str, fields: &[(&str, &str)]) -> http::request::Builder {
        let call = self.http.request("POST", path);
        let call = call.header("content-type", "application/grpc").header("te", "trailers");
        fields.iter().fold(call, |call, (name, value)| call.header(*name, *value))
    }

    /// One message to `path` (`/echo.Echo/Unary`).
    pub async fn unary(
        &self,
        path: &str,
        message: &[u8],
        fields: &[(&str, &str)],
    ) -> io::Result<GrpcReply> {
        let call = self.call(path, fields).body(encode(message)).map_err(io::Error::other)?;
        let H2Response { status: http_status, headers, body, trailers } =
            self.http.send(call).await?;
        let mut decoder = Decoder(BytesMut::from(&body[..]));
        let mut messages = Vec::new();
        // An answer that is not gRPC (a page of the gateway) has no messages to read.
        let kind = headers.get("content-type").unwrap_or_default();
        if kind.starts_with("application/grpc") {
            while let Some(message) = decoder.next()? {
                messages.push(message);
            }
            decoder.end()?;
        }
        let status = grpc_status(&trailers).or_else(|| grpc_status(&headers));
        Ok(GrpcReply { http_status, headers, messages, status, trailers })
    }

    /// Opens a call with messages both ways at once; returns when the response head is there.
    pub async fn bidi(&self, path: &str, fields: &[(&str, &str)]) -> io::Result<Bidi> {
        let (sender, receiver) = mpsc::channel::<Bytes>(16);
        let frames = stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|message| (Ok(Frame::data(message)), receiver))
        });
        let body = StreamBody::new(frames.boxed());
        let call = self.call(path, fields).body(body).map_err(io::Error::other)?;
        let (head, incoming) = self.http.start(call).await?.into_parts();
        Ok(Bidi {
            http_status: head.status.as_u16(),
            headers: Headers::from_map(&head.headers),
            sender: Some(sender),
            incoming,
            decoder: Decoder::default(),
            arrived: VecDeque::new(),
            trailers: Headers::default(),
        })
    }
}

fn grpc_status(fields: &Headers) -> Option<u32> {
    fields.get("grpc-status")?.parse().ok()
}

/// An open bidirectional call.
pub struct Bidi {
    pub http_status: u16,
    pub headers: Headers,
    sender: Option<mpsc::Sender<Bytes>>,
    incoming: Incoming,
    decoder: Decoder,
    arrived: VecDeque<Bytes>,
    trailers: Headers,
}

impl Bidi {
    pub async fn send(&self, message: &[u8]) -> io::Result<()> {
        let closed = || io::Error::new(io::ErrorKind::BrokenPipe, "the call has ended");
        let sender = self.sender.as_ref().ok_or_else(closed)?;
        let framed = encode(message);
        patiently("send a message", async { sender.send(framed).await.map_err(|_| closed()) }).await
    }

    /// The next message; `None` at the end, when the trailers are there.
    pub async fn receive(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(message) = self.arrived.pop_front() {
                return Ok(Some(message));
            }
            let Some(frame) = next_frame(&mut self.incoming).await? else {
                return self.decoder.end().map(|()| None);
            };
            match frame.into_data() {
                Ok(data) => self.decoder.0.extend_from_slice(&data),
                Err(frame) => {
                    if let Ok(fields) = frame.into_trailers() {
                        self.trailers = Headers::from_map(&fields);
                    }
                }
            }
            while let Some(message) = self.decoder.next()? {
                self.arrived.push_back(message);
            }
        }
    }

    /// The next piece of the body as it comes, for an answer that is no gRPC.
    pub async fn receive_raw(&mut self) -> io::Result<Option<Bytes>> {
        let frame = next_frame(&mut self.incoming).await?;
        Ok(frame.and_then(|frame| frame.into_data().ok()))
    }

    /// Ends our side; the peer's messages and trailers still come.
    pub fn finish_sending(&mut self) {
        self.sender = None;
    }

    /// `grpc-status`, once [`Self::receive`] gave `None`.
    pub fn status(&self) -> Option<u32> {
        grpc_status(&self.trailers).or_else(|| grpc_status(&self.headers))
    }

    pub fn trailers(&self) -> &Headers {
        &self.trailers
    }
}
