//! The body of an upstream's answer, on its way to the client.

use std::{
    fmt,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::{
    http::{body::trailers_of, headers::Headers},
    http1::{
        body::{BodyDecoder, Progress},
        framing::Length,
    },
    upstream::{
        UpstreamError,
        h1::{Pump, poll_pump},
        h2::Upload,
        pool::UpstreamConn,
    },
    worker::Worker,
};

/// The answer's body, with whatever of the request is still under way.
pub(crate) struct UpstreamBody {
    source: Source,
    length: Length,
    idle_ms: u64,
}

enum Source {
    H1 {
        worker: Rc<Worker>,
        /// Gone back to the pool once the answer is complete.
        conn: Option<UpstreamConn>,
        decoder: BodyDecoder,
        available: usize,
        pump: Option<Pump>,
    },
    H2 {
        incoming: Incoming,
        chunk: Bytes,
        trailers: Option<Headers>,
        upload: Rc<Upload>,
    },
}

impl fmt::Debug for UpstreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamBody").field("length", &self.length).finish_non_exhaustive()
    }
}

impl UpstreamBody {
    pub(crate) fn h1(
        worker: &Rc<Worker>,
        mut conn: UpstreamConn,
        length: Length,
        pump: Option<Pump>,
        keeps: bool,
        idle_ms: u64,
    ) -> Self {
        conn.reusable &= keeps;
        conn.watch.arm(idle_ms);
        let source = Source::H1 {
            worker: Rc::clone(worker),
            conn: Some(conn),
            decoder: BodyDecoder::new(length),
            available: 0,
            pump,
        };
        Self { source, length, idle_ms }
    }

    pub(crate) fn h2(incoming: Incoming, length: Length, upload: Rc<Upload>, idle_ms: u64) -> Self {
        upload.moved();
        let source = Source::H2 { incoming, chunk: Bytes::new(), trailers: None, upload };
        Self { source, length, idle_ms }
    }

    pub(crate) fn length(&self) -> Length {
        self.length
    }

    /// True when there is data to look at, false at the end.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, UpstreamError>> {
        match &mut self.source {
            Source::H1 { worker, conn, decoder, available, pump } => {
                poll_fill_h1(cx, worker, conn, decoder, available, pump, self.idle_ms)
            }
            Source::H2 { incoming, chunk, trailers, upload } => {
                while chunk.is_empty() {
                    let frame = match Pin::new(&mut *incoming).poll_frame(cx) {
                        Poll::Ready(frame) => frame,
                        Poll::Pending => {
                            return upload.poll_idle(cx).map(Err);
                        }
                    };
                    upload.moved();
                    let frame = frame.transpose().map_err(|error| upload.blame(error))?;
                    match frame.map(http_body::Frame::into_data) {
                        None => return Poll::Ready(Ok(false)),
                        Some(Ok(data)) => *chunk = data,
                        Some(Err(other)) => {
                            *trailers = other.into_trailers().ok().map(|map| trailers_of(&map));
                        }
                    }
                }
                Poll::Ready(Ok(true))
            }
        }
    }

    pub(crate) fn is_pumping(&self) -> bool {
        matches!(&self.source, Source::H1 { pump: Some(_), .. })
    }

    /// Moves the request body on while the answer waits for the client.
    pub(crate) fn poll_pump(&mut self, cx: &mut Context<'_>) {
        if let Source::H1 { conn: Some(conn), pump, .. } = &mut self.source {
            conn.reusable &= poll_pump(pump, cx).unwrap_or(false);
        }
    }

    pub(crate) fn chunk(&self) -> &[u8] {
        match &self.source {
            Source::H1 { conn, available, .. } => conn
                .as_ref()
                .and_then(|conn| conn.buffer.filled().get(..*available))
                .unwrap_or_default(),
            Source::H2 { chunk, .. } => chunk,
        }
    }

    pub(crate) fn consume(&mut self, len: usize) {
        match &mut self.source {
            Source::H1 { conn, decoder, available, .. } => {
                let len = len.min(*available);
                if let Some(conn) = conn {
                    conn.buffer.consume(len);
                }
                decoder.took(len);
                *available -= len;
            }
            Source::H2 { chunk, .. } => chunk.advance(len.min(chunk.len())),
        }
    }

    /// The data at hand as one owned piece.
    pub(crate) fn take_bytes(&mut self) -> Bytes {
        if let Source::H2 { chunk, .. } = &mut self.source {
            return std::mem::take(chunk);
        }
        let bytes = Bytes::copy_from_slice(self.chunk());
        self.consume(bytes.len());
        bytes
    }

    pub(crate) fn take_trailers(&mut self) -> Option<Headers> {
        match &mut self.source {
            Source::H1 { decoder, .. } => decoder.take_trailers(),
            Source::H2 { trailers, .. } => trailers.take(),
        }
    }
}

fn poll_fill_h1(
    cx: &mut Context<'_>,
    worker: &Worker,
    slot: &mut Option<UpstreamConn>,
    decoder: &mut BodyDecoder,
    available: &mut usize,
    pump: &mut Option<Pump>,
    idle_ms: u64,
) -> Poll<Result<bool, UpstreamError>> {
    if *available > 0 {
        return Poll::Ready(Ok(true));
    }
    let Some(conn) = slot else { return Poll::Ready(Ok(false)) };
    let sending = pump.is_some();
    conn.reusable &= poll_pump(pump, cx)?;
    if sending && pump.is_none() {
        conn.watch.arm(idle_ms);
    }
    loop {
        match decoder.advance(&mut conn.buffer).map_err(UpstreamError::Malformed)? {
            Progress::Data(len) => {
                *available = len;
                return Poll::Ready(Ok(true));
            }
            Progress::Done => {
                // An answer before the end of the request: the rest of the request would be read
                // as the next one.
                if let Some(conn) = slot.take()
                    && conn.reusable
                    && pump.is_none()
                {
                    conn.keep(worker.watches.now_ms());
                }
                return Poll::Ready(Ok(false));
            }
            Progress::More => {}
        }
        match conn.io.poll_read(cx, &mut conn.buffer) {
            Poll::Ready(Ok(0)) if decoder.ended() => {}
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(UpstreamError::Closed)),
            Poll::Ready(Ok(_)) => conn.watch.arm(idle_ms),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(UpstreamError::Io(error))),
            Poll::Pending if pump.is_none() && conn.watch.poll_expired(cx) => {
                return Poll::Ready(Err(UpstreamError::Idle));
            }
            Poll::Pending => return Poll::Pending,
        }
    }
}
