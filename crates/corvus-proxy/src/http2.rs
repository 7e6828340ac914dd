//! HTTP/2 connections from clients. hyper does the protocol; requests go the same way as over
//! HTTP/1.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use corvus_core::event::Protocol;
use http_body::{Body as _, Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    http::{
        body::{H2RequestBody, Meter, RequestBody, ResponseBody, map_of},
        exchange::{ConnInfo, Exchange},
        name::Name,
        pipeline,
        stages::queue::Keeper,
    },
    http1::{
        framing::{Length, parse_decimal},
        parse::{Malformed, RequestHead},
    },
    io::Watch,
    upstream::{UpstreamError, h2::LocalExec},
    worker::Worker,
};

/// Patience with a connection that has no request under way.
const KEEP_ALIVE_MS: u64 = 75_000;
/// Requests at once on one connection.
const MAX_STREAMS: u32 = 128;

/// Serves one connection until it ends.
pub(crate) async fn serve<S>(worker: &Rc<Worker>, conn: &Rc<ConnInfo>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let _counted = worker.monitor.connection(Protocol::Http2, conn.tls);
    let limits = worker.active().snapshot.settings.limits;
    let open = Rc::new(Cell::new(0_u32));
    let service = {
        let (worker, conn, open) = (Rc::clone(worker), Rc::clone(conn), Rc::clone(&open));
        service_fn(move |request| {
            let stream = OpenStream::new(&open);
            answer(Rc::clone(&worker), Rc::clone(&conn), request, stream)
        })
    };
    let connection = http2::Builder::new(LocalExec)
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .adaptive_window(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let watch = Watch::new(&worker.watches);
    watch.arm(KEEP_ALIVE_MS);
    watch.set_idle(true);
    let mut leaving = false;
    let ended = poll_fn(|cx| {
        if open.get() > 0 {
            watch.arm(KEEP_ALIVE_MS);
        }
        if !leaving && (watch.poll_expired(cx) || worker.watches.is_draining()) {
            leaving = true;
            watch.disarm();
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    })
    .await;
    if let Err(error) = ended {
        tracing::debug!(%error, peer = %conn.peer.0, "HTTP/2 connection ended");
    }
}

/// Counts a stream while it is open.
#[derive(Debug)]
struct OpenStream(Rc<Cell<u32>>);

impl OpenStream {
    fn new(open: &Rc<Cell<u32>>) -> Self {
        open.set(open.get() + 1);
        Self(Rc::clone(open))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// The client gets no answer: its stream is reset.
#[derive(Debug, thiserror::Error)]
#[error("no answer")]
struct Silent;

async fn answer(
    worker: Rc<Worker>,
    conn: Rc<ConnInfo>,
    request: http::Request<Incoming>,
    stream: OpenStream,
) -> Result<http::Response<Outgoing>, Silent> {
    let mut x = exchange(&worker, &conn, request);
    let response = pipeline::handle(&mut x).await;
    if response.silent {
        return Err(Silent);
    }
    let bodiless = x.head.method() == b"HEAD" || matches!(response.head.status, 204 | 304);
    let mut parts = http::Response::new(());
    *parts.status_mut() = http::StatusCode::from_u16(response.head.status).unwrap_or_default();
    *parts.headers_mut() = map_of(&response.head.headers);
    if !bodiless {
        parts.headers_mut().remove(http::header::CONTENT_LENGTH);
        if let Length::Known(len) = response.body.length() {
            parts.headers_mut().insert(http::header::CONTENT_LENGTH, len.into());
        }
    }
    x.status = response.head.status;
    worker.recycle(response.head);
    let keeper = None;
    Ok(parts.map(|()| Outgoing { x, body: response.body, ended: false, keeper, _stream: stream }))
}

fn exchange(
    worker: &Rc<Worker>,
    conn: &Rc<ConnInfo>,
    request: http::Request<Incoming>,
) -> Exchange {
    let (parts, incoming) = request.into_parts();
    let mut head = RequestHead::default();
    for (name, value) in &parts.headers {
        head.headers.push(name.as_str().as_bytes(), value.as_bytes());
    }
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    head.set_line(parts.method.as_str().as_bytes(), target.as_bytes());
    let mut x = Exchange::new(worker, conn, head, Protocol::Http2);
    x.authority = parts.uri.authority().map_or(Vec::new(), |a| a.as_str().as_bytes().to_vec());
    if x.head.headers.len() > x.active.snapshot.settings.limits.header_count {
        x.malformed = Some(Malformed::TooManyFields);
    }
    let declared = x.head.headers.get(Name::ContentLength).map(parse_decimal);
    let length = match declared {
        Some(None) => {
            x.malformed = Some(Malformed::ContentLength);
            Length::NONE
        }
        Some(Some(length)) => Length::Known(length),
        None if incoming.is_end_stream() => Length::NONE,
        None => Length::Chunked,
    };
    if length != Length::NONE {
        let watch = Watch::new(&worker.watches);
        x.meter = Meter::new();
        let body = H2RequestBody::new(incoming, length, x.meter.clone(), watch, KEEP_ALIVE_MS);
        x.body = RequestBody::H2(body);
    }
    x
}

/// A response body as hyper wants it. Dropping it records the request.
struct Outgoing {
    x: Exchange,
    body: ResponseBody,
    ended: bool,
    /// Keeps an admitted session alive while the stream is open.
    keeper: Option<Keeper>,
    _stream: OpenStream,
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        let polled = this.body.poll_bytes(cx);
        if polled.is_pending() && this.keeper.is_none() {
            this.keeper = Some(Keeper::start(&this.x));
        }
        match ready!(polled) {
            Ok(Some(bytes)) => {
                this.x.sent += bytes.len() as u64;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Ok(None) => {
                this.ended = true;
                let trailers = this.body.take_trailers();
                Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(map_of(&trailers)))))
            }
            Err(error) => {
                this.ended = true;
                let shown = UpstreamError::Closed;
                this.x.upstream_broke(&error);
                Poll::Ready(Some(Err(shown)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || matches!(&self.body, ResponseBody::Empty)
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.length() {
            Length::Known(len) => SizeHint::with_exact(len),
            _ => SizeHint::default(),
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        // hyper stops asking once a known length is sent; anything else that was not read to its
        // end was cut off by the client.
        let whole = match self.body.length() {
            Length::Known(len) => self.x.sent >= len || self.x.head.method() == b"HEAD",
            _ => false,
        };
        if !self.ended && !whole && !matches!(self.body, ResponseBody::Empty) {
            self.x.client_left();
        }
    }
}
