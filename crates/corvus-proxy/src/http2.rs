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
    upstream::{UpstreamError, h2::LocalExec, pool::InFlight},
    worker::Worker,
};

/// Patience with a connection that has no request under way.
const KEEP_ALIVE_MS: u64 = 75_000;
/// Patience with a client that we have taken leave of.
const LEAVE_MS: u64 = 10_000;
/// Requests at once on one connection.
const MAX_STREAMS: u32 = 128;

/// Serves one connection until it ends.
pub(crate) async fn serve<S>(worker: &Rc<Worker>, conn: &Rc<ConnInfo>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let _counted = worker.monitor.connection(Protocol::Http2, conn.tls);
    let limits = worker.active().snapshot.settings.limits;
    let streams = Rc::new(Streams::default());
    let service = {
        let (worker, conn, streams) = (Rc::clone(worker), Rc::clone(conn), Rc::clone(&streams));
        service_fn(move |request| {
            let stream = OpenStream::new(&streams);
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
        if streams.moved.take() {
            watch.arm(streams.patience_ms.get().max(KEEP_ALIVE_MS));
        }
        if watch.poll_expired(cx) {
            // Nothing has moved on any stream although streams are open (a client that reads
            // nothing), or the client did not even begin, or did not take our leave.
            if leaving || streams.open.get() > 0 {
                return Poll::Ready(Ok(()));
            }
            leaving = true;
            watch.arm(LEAVE_MS);
            let _ = watch.poll_expired(cx);
            connection.as_mut().graceful_shutdown();
        } else if !leaving && worker.watches.is_draining() {
            leaving = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    })
    .await;
    if let Err(error) = ended {
        tracing::debug!(%error, peer = %conn.peer.0, "HTTP/2 connection ended");
    }
}

/// What the streams of one connection tell it.
#[derive(Debug, Default)]
struct Streams {
    open: Cell<u32>,
    /// Something has moved since the connection last looked. PINGs do not count: a client that
    /// answers them and reads nothing would hold upstream connections for ever.
    moved: Cell<bool>,
    /// The longest idle limit of the sites asked for.
    patience_ms: Cell<u64>,
}

/// One open stream, as its request and its response hold it.
#[derive(Clone, Debug)]
pub(crate) struct OpenStream(Rc<StreamGuard>);

#[derive(Debug)]
struct StreamGuard(Rc<Streams>);

impl OpenStream {
    fn new(streams: &Rc<Streams>) -> Self {
        streams.open.set(streams.open.get() + 1);
        streams.moved.set(true);
        Self(Rc::new(StreamGuard(Rc::clone(streams))))
    }

    /// Data of the request or the response has moved.
    pub(crate) fn moved(&self) {
        self.0.0.moved.set(true);
    }

    /// The site's own limit comes first; ours is there for clients.
    fn has_patience(&self, idle_ms: u64) {
        let streams = &self.0.0;
        streams.patience_ms.set(streams.patience_ms.get().max(idle_ms.saturating_add(LEAVE_MS)));
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get().saturating_sub(1));
        self.0.moved.set(true);
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
    let mut x = exchange(&worker, &conn, request, &stream);
    let mut response = pipeline::handle(&mut x).await;
    if response.silent {
        return Err(Silent);
    }
    if let Some(site) = &x.site {
        stream.has_patience(site.idle_ms);
    }
    let is_head = x.head.method() == b"HEAD";
    let bodiless = is_head || matches!(response.head.status, 204 | 304);
    let mut parts = http::Response::new(());
    *parts.status_mut() = http::StatusCode::from_u16(response.head.status).unwrap_or_default();
    *parts.headers_mut() = map_of(&response.head.headers);
    // What a HEAD or 304 would have had is the origin's to say; a 204 has none (RFC 9110 8.6).
    let own = !matches!(response.body, ResponseBody::Upstream(_));
    if !bodiless || response.head.status == 204 || (is_head && own) {
        parts.headers_mut().remove(http::header::CONTENT_LENGTH);
    }
    if let Length::Known(len) = response.body.length()
        && (!bodiless || (is_head && own))
    {
        parts.headers_mut().insert(http::header::CONTENT_LENGTH, len.into());
    }
    if bodiless {
        // Gives the upstream's connection back; then nothing, not even an empty frame, is sent.
        let _ = poll_fn(|cx| Poll::Ready(response.body.poll_fill(cx))).await;
        response.body = ResponseBody::Empty;
    }
    x.status = response.head.status;
    worker.recycle(response.head);
    let keeper = None;
    let in_flight = response.in_flight;
    let (body, ended) = (response.body, false);
    Ok(parts.map(|()| Outgoing { x, body, ended, keeper, _in_flight: in_flight, stream }))
}

fn exchange(
    worker: &Rc<Worker>,
    conn: &Rc<ConnInfo>,
    request: http::Request<Incoming>,
    stream: &OpenStream,
) -> Exchange {
    let (parts, incoming) = request.into_parts();
    let mut head = RequestHead::default();
    for (name, value) in &parts.headers {
        if name != http::header::COOKIE {
            head.headers.push(name.as_str().as_bytes(), value.as_bytes());
        }
    }
    // RFC 9113 section 8.2.3: browsers send cookies in pieces, and HTTP/1 knows one field.
    let crumbs: Vec<_> = parts.headers.get_all(http::header::COOKIE).iter().collect();
    if !crumbs.is_empty() {
        let cookies: Vec<_> = crumbs.iter().map(|value| value.as_bytes()).collect();
        head.headers.push(b"cookie", &cookies.join(&b"; "[..]));
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
        let (meter, stream) = (x.meter.clone(), stream.clone());
        let body = H2RequestBody::new(incoming, length, meter, watch, KEEP_ALIVE_MS, stream);
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
    _in_flight: Option<InFlight>,
    stream: OpenStream,
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
        let polled = ready!(polled);
        this.stream.moved();
        match polled {
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
