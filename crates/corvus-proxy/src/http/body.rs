//! Bodies in motion: what the client sends and what the upstream answers, over either protocol.
//!
//! Both kinds read the same way: `poll_fill` until there is data, `with_chunk` to look at it,
//! `consume` what was used. Nothing is collected; the slower side sets the pace.

use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::{
    http::headers::Headers,
    http1::{
        body::{BodyDecoder, Progress},
        framing::Length,
        parse::Malformed,
        server::Inbound,
    },
    http2::OpenStream,
    io::Watch,
    upstream::body::UpstreamBody,
};

/// Why a request body ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body is malformed")]
    Malformed(#[from] Malformed),
    #[error("the connection ended inside the body")]
    Truncated,
    #[error("no data within the idle timeout")]
    Idle,
    #[error("the body is larger than this site allows")]
    TooLarge,
    #[error("the connection failed")]
    Io(#[from] std::io::Error),
    #[error("the stream failed")]
    Stream(#[from] hyper::Error),
}

/// The body of a request.
#[derive(Debug)]
pub(crate) enum RequestBody {
    Empty,
    H1(H1RequestBody),
    H2(H2RequestBody),
}

/// Bytes of body data seen, shared with the record of the request, and the most that may be. Empty
/// for a request without a body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Option<Rc<Cells>>);

#[derive(Debug, Default)]
struct Cells {
    bytes: Cell<u64>,
    limit: Cell<Option<u64>>,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self(Some(Rc::default()))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |cells| cells.bytes.get())
    }

    fn set_limit(&self, limit: Option<u64>) {
        if let Some(cells) = &self.0 {
            cells.limit.set(limit);
        }
    }

    fn count(&self, len: usize) -> Result<(), BodyError> {
        if let Some(cells) = &self.0 {
            cells.bytes.set(cells.bytes.get() + len as u64);
        }
        self.check()
    }

    /// Whether all that was counted may be; asked each time, since what was refused once must not
    /// pass as the end of the body.
    fn check(&self) -> Result<(), BodyError> {
        match &self.0 {
            Some(cells) if cells.limit.get().is_some_and(|limit| cells.bytes.get() > limit) => {
                Err(BodyError::TooLarge)
            }
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct H1RequestBody {
    inbound: Rc<Inbound>,
    decoder: BodyDecoder,
    length: Length,
    /// Data at the front of the inbound buffer, already counted.
    available: usize,
    meter: Meter,
    idle_ms: u64,
    /// The client waits for `100 Continue` before it sends.
    expects_continue: bool,
}

impl H1RequestBody {
    pub(crate) fn new(
        inbound: Rc<Inbound>,
        length: Length,
        meter: Meter,
        idle_ms: u64,
        expects_continue: bool,
    ) -> Self {
        let decoder = BodyDecoder::new(length);
        Self { inbound, decoder, length, available: 0, meter, idle_ms, expects_continue }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        self.meter.check()?;
        if self.available > 0 {
            return Poll::Ready(Ok(true));
        }
        let inbound = Rc::clone(&self.inbound);
        let mut buffer = inbound.buffer.borrow_mut();
        loop {
            match self.decoder.advance(&mut buffer)? {
                Progress::Data(len) => {
                    // Counted first: what is over the limit is never handed on, however often it
                    // is asked for.
                    self.meter.count(len)?;
                    self.available = len;
                    return Poll::Ready(Ok(true));
                }
                Progress::Done => {
                    inbound.body_done.set(true);
                    return Poll::Ready(Ok(false));
                }
                Progress::More => {}
            }
            match inbound.io.poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(BodyError::Truncated)),
                Poll::Ready(read) => {
                    read?;
                    inbound.watch.arm(self.idle_ms);
                }
                Poll::Pending if inbound.watch.poll_expired(cx) => {
                    return Poll::Ready(Err(BodyError::Idle));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct H2RequestBody {
    incoming: Incoming,
    chunk: Bytes,
    trailers: Option<Headers>,
    length: Length,
    meter: Meter,
    watch: Watch,
    idle_ms: u64,
    stream: OpenStream,
}

impl H2RequestBody {
    pub(crate) fn new(
        incoming: Incoming,
        length: Length,
        meter: Meter,
        watch: Watch,
        idle_ms: u64,
        stream: OpenStream,
    ) -> Self {
        watch.arm(idle_ms);
        let (chunk, trailers) = (Bytes::new(), None);
        Self { incoming, chunk, trailers, length, meter, watch, idle_ms, stream }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        self.meter.check()?;
        while self.chunk.is_empty() {
            let frame = match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending if self.watch.poll_expired(cx) => {
                    return Poll::Ready(Err(BodyError::Idle));
                }
                Poll::Pending => return Poll::Pending,
            };
            self.watch.arm(self.idle_ms);
            self.stream.moved();
            match frame.transpose()?.map(http_body::Frame::into_data) {
                None => return Poll::Ready(Ok(false)),
                Some(Ok(data)) => {
                    self.meter.count(data.len())?;
                    self.chunk = data;
                }
                Some(Err(other)) => {
                    if let Ok(trailers) = other.into_trailers() {
                        self.trailers = Some(trailers_of(&trailers));
                    }
                }
            }
        }
        Poll::Ready(Ok(true))
    }
}

impl RequestBody {
    pub(crate) fn length(&self) -> Length {
        match self {
            Self::Empty => Length::NONE,
            Self::H1(body) => body.length,
            Self::H2(body) => body.length,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length() == Length::NONE
    }

    /// From now on at most `limit` bytes, and so much patience between two pieces.
    pub(crate) fn bound(&mut self, limit: Option<u64>, idle: u64) {
        match self {
            Self::Empty => {}
            Self::H1(body) => {
                body.meter.set_limit(limit);
                body.idle_ms = idle;
                body.inbound.watch.arm(idle);
            }
            Self::H2(body) => {
                body.meter.set_limit(limit);
                body.idle_ms = idle;
                body.watch.arm(idle);
            }
        }
    }

    /// No limit on pauses from now on: somebody else watches both directions.
    pub(crate) fn trust_idle(&mut self) {
        match self {
            Self::Empty => {}
            Self::H1(body) => {
                body.idle_ms = u64::MAX;
                body.inbound.watch.disarm();
            }
            Self::H2(body) => {
                body.idle_ms = u64::MAX;
                body.watch.disarm();
            }
        }
    }

    /// For an HTTP/2 body that has ended: whether that was all. An HTTP/1 body keeps its decoder,
    /// which knows the trailers.
    pub(crate) fn has_no_trailers(&self) -> bool {
        matches!(self, Self::Empty) || matches!(self, Self::H2(body) if body.trailers.is_none())
    }

    pub(crate) fn expects_continue(&self) -> bool {
        matches!(self, Self::H1(body) if body.expects_continue)
    }

    /// Tells a client that waits for it to send the body.
    pub(crate) async fn send_continue(&mut self) -> std::io::Result<()> {
        if let Self::H1(body) = self
            && std::mem::take(&mut body.expects_continue)
        {
            let inbound = &body.inbound;
            let line = b"HTTP/1.1 100 Continue\r\n\r\n";
            inbound.io.write_all(&inbound.watch, body.idle_ms, line, b"").await?;
        }
        Ok(())
    }

    /// True when there is data to look at, false at the end.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        match self {
            Self::Empty => Poll::Ready(Ok(false)),
            Self::H1(body) => body.poll_fill(cx),
            Self::H2(body) => body.poll_fill(cx),
        }
    }

    pub(crate) fn chunk(&self) -> Chunk<'_> {
        match self {
            Self::Empty => Chunk::Plain(&[]),
            Self::H1(body) => Chunk::Shared(body.inbound.buffer.borrow(), body.available),
            Self::H2(body) => Chunk::Plain(&body.chunk),
        }
    }

    pub(crate) fn consume(&mut self, len: usize) {
        match self {
            Self::Empty => {}
            Self::H1(body) => {
                let len = len.min(body.available);
                body.inbound.buffer.borrow_mut().consume(len);
                body.decoder.took(len);
                body.available -= len;
                // A body of known length ends with its last byte; nobody need ask again.
                if body.decoder.is_whole() {
                    body.inbound.body_done.set(true);
                }
            }
            Self::H2(body) => body.chunk.advance(len.min(body.chunk.len())),
        }
    }

    pub(crate) fn take_trailers(&mut self) -> Option<Headers> {
        match self {
            Self::Empty => None,
            Self::H1(body) => body.decoder.take_trailers(),
            Self::H2(body) => body.trailers.take(),
        }
    }
}

/// A view of body data.
pub(crate) enum Chunk<'a> {
    Plain(&'a [u8]),
    Shared(std::cell::Ref<'a, crate::io::Buffer>, usize),
}

impl std::ops::Deref for Chunk<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Shared(buffer, len) => buffer.filled().get(..*len).unwrap_or_default(),
        }
    }
}

/// The body of a response.
#[derive(Debug)]
pub(crate) enum ResponseBody {
    Empty,
    Full(Bytes),
    Upstream(Box<UpstreamBody>),
}

impl ResponseBody {
    pub(crate) fn length(&self) -> Length {
        match self {
            Self::Empty => Length::NONE,
            Self::Full(bytes) => Length::Known(bytes.len() as u64),
            Self::Upstream(body) => body.length(),
        }
    }

    /// True when there is data to look at, false at the end.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, crate::upstream::UpstreamError>> {
        match self {
            Self::Empty => Poll::Ready(Ok(false)),
            Self::Full(bytes) => Poll::Ready(Ok(!bytes.is_empty())),
            Self::Upstream(body) => body.poll_fill(cx),
        }
    }

    /// Whether the request body is still on its way to the upstream.
    pub(crate) fn is_pumping(&self) -> bool {
        matches!(self, Self::Upstream(body) if body.is_pumping())
    }

    /// Moves the request body on, if any of it is left.
    pub(crate) fn poll_pump(&mut self, cx: &mut Context<'_>) {
        if let Self::Upstream(body) = self {
            body.poll_pump(cx);
        }
    }

    pub(crate) fn chunk(&self) -> &[u8] {
        match self {
            Self::Empty => &[],
            Self::Full(bytes) => bytes,
            Self::Upstream(body) => body.chunk(),
        }
    }

    pub(crate) fn consume(&mut self, len: usize) {
        match self {
            Self::Empty => {}
            Self::Full(bytes) => bytes.advance(len.min(bytes.len())),
            Self::Upstream(body) => body.consume(len),
        }
    }

    /// The data at hand as one piece, for a protocol that wants to own it.
    pub(crate) fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, crate::upstream::UpstreamError>> {
        if !ready!(self.poll_fill(cx))? {
            return Poll::Ready(Ok(None));
        }
        let bytes = match self {
            Self::Full(bytes) => std::mem::take(bytes),
            Self::Upstream(body) => body.take_bytes(),
            Self::Empty => Bytes::new(),
        };
        Poll::Ready(Ok(Some(bytes)))
    }

    pub(crate) fn take_trailers(&mut self) -> Option<Headers> {
        match self {
            Self::Upstream(body) => body.take_trailers(),
            _ => None,
        }
    }
}

/// Header fields of the `http` crate as ours.
pub(crate) fn headers_of(map: &http::HeaderMap) -> Headers {
    let mut headers = Headers::default();
    for (name, value) in map {
        headers.push(name.as_str().as_bytes(), value.as_bytes());
    }
    headers
}

/// A trailer section of the `http` crate as ours.
pub(crate) fn trailers_of(map: &http::HeaderMap) -> Headers {
    let mut trailers = headers_of(map);
    trailers.keep_trailers();
    trailers
}

/// Our header fields as the `http` crate's; what it cannot express is left out.
pub(crate) fn map_of(headers: &Headers) -> http::HeaderMap {
    let mut map = http::HeaderMap::with_capacity(headers.len());
    for (_, name, value) in headers.iter() {
        let name = http::HeaderName::from_bytes(name);
        if let (Ok(name), Ok(value)) = (name, http::HeaderValue::from_bytes(value)) {
            map.append(name, value);
        }
    }
    map
}
