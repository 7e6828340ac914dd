//! One request and its answer over HTTP/2, for gRPC and h2c upstreams. hyper does the protocol.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::{
    http::{
        body::{BodyError, RequestBody, headers_of, map_of},
        exchange::Exchange,
        response::Response,
    },
    http1::{
        framing::{self, Length},
        parse::{Malformed, ResponseHead},
    },
    io::Watch,
    upstream::{UpstreamError, body::UpstreamBody, connect, head, pool::UpstreamState},
    worker::Worker,
};

pub(crate) type H2Sender = SendRequest<OutgoingBody>;

/// Runs hyper's tasks on the worker's own thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalExec;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExec {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move {
            future.await;
        });
    }
}

/// A connection that takes more requests: one for each upstream and worker, since requests share
/// it. Made when there is none.
pub(crate) async fn sender(
    worker: &Worker,
    state: &Rc<UpstreamState>,
    limit: Duration,
) -> Result<(H2Sender, bool), UpstreamError> {
    let known = state.h2.borrow().clone().filter(|sender| !sender.is_closed());
    if let Some(mut sender) = known
        && sender.ready().await.is_ok()
    {
        return Ok((sender, true));
    }
    let stream = connect::connect(worker, state, limit).await?;
    let (sender, connection) = http2::Builder::new(LocalExec)
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10))
        .adaptive_window(true)
        .max_header_list_size(256 * 1024)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(UpstreamError::Http2)?;
    tokio::task::spawn_local(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "upstream HTTP/2 connection ended");
        }
    });
    if !state.retired.get() {
        *state.h2.borrow_mut() = Some(sender.clone());
    }
    Ok((sender, false))
}

/// Builds the request; a raw target that HTTP/2 libraries cannot carry unchanged is refused rather
/// than altered.
pub(crate) fn request(
    x: &Exchange,
    state: &UpstreamState,
) -> Result<http::Request<()>, UpstreamError> {
    let not_http2 = || UpstreamError::NotHttp2;
    let target = x.head.target();
    let path = http::uri::PathAndQuery::try_from(target).map_err(|_| not_http2())?;
    if path.as_str().as_bytes() != target {
        return Err(not_http2());
    }
    let scheme = if state.key.upstream.tls { "https" } else { "http" };
    let authority = http::uri::Authority::try_from(head::host(x)).map_err(|_| not_http2())?;
    let uri = http::Uri::builder().scheme(scheme).authority(authority).path_and_query(path).build();
    let method = http::Method::from_bytes(x.head.method()).map_err(|_| not_http2())?;
    let mut request = http::Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri.map_err(|_| not_http2())?;
    *request.version_mut() = http::Version::HTTP_2;
    *request.headers_mut() = head::map_h2(x, x.body.length());
    Ok(request)
}

/// Sends the request and waits for the head of its answer.
pub(crate) async fn send(
    worker: &Rc<Worker>,
    mut sender: H2Sender,
    request: http::Request<()>,
    body: &mut RequestBody,
    idle_ms: u64,
) -> Result<Response, UpstreamError> {
    // A client that waits for it would otherwise wait for ever: HTTP/2 has no use for Expect here.
    body.send_continue().await.map_err(|_| UpstreamError::ClientGone)?;
    let is_head = request.method() == http::Method::HEAD;
    let mut body = std::mem::replace(body, RequestBody::Empty);
    body.trust_idle();
    let upload = Rc::new(Upload::new(Watch::new(&worker.watches), idle_ms));
    let request = {
        let upload = Rc::clone(&upload);
        request.map(|()| OutgoingBody { body, ended: false, upload })
    };
    let mut answer = std::pin::pin!(sender.send_request(request));
    let answer = poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(answer.map_err(|error| upload.blame(error))),
        Poll::Pending => upload.poll_idle(cx).map(Err),
    })
    .await?;
    let (parts, incoming) = answer.into_parts();
    let mut head = ResponseHead::new(parts.status.as_u16());
    head.headers = headers_of(&parts.headers);
    if head.status < 200 {
        return Err(UpstreamError::Malformed(Malformed::Response));
    }
    let method: &[u8] = if is_head { b"HEAD" } else { b"GET" };
    let length = match framing::response_length(&head, method).map_err(UpstreamError::Malformed)? {
        Length::Known(len) => Length::Known(len),
        // The stream's end is the body's.
        Length::Chunked | Length::Close => Length::Chunked,
    };
    Ok(Response::forwarded(head, UpstreamBody::h2(incoming, length, upload, idle_ms)))
}

/// What both directions of one exchange share. An exchange is idle when nothing moves in either: a
/// gRPC client that only listens, or an upstream that waits for the end of a long upload, is not.
#[derive(Debug)]
pub(crate) struct Upload {
    watch: Watch,
    idle_ms: u64,
    /// The body waits for the client, not the client for the upstream.
    awaits_client: Cell<bool>,
    failed: RefCell<Option<BodyError>>,
}

impl Upload {
    fn new(watch: Watch, idle_ms: u64) -> Self {
        watch.arm(idle_ms);
        Self { watch, idle_ms, awaits_client: Cell::new(false), failed: RefCell::new(None) }
    }

    /// Something has moved.
    pub(crate) fn moved(&self) {
        self.watch.arm(self.idle_ms);
    }

    /// Ready when nothing has moved for too long: who kept the other waiting.
    pub(crate) fn poll_idle(&self, cx: &Context<'_>) -> Poll<UpstreamError> {
        if !self.watch.poll_expired(cx) {
            return Poll::Pending;
        }
        Poll::Ready(if self.awaits_client.get() {
            UpstreamError::RequestBody(BodyError::Idle)
        } else {
            UpstreamError::Idle
        })
    }

    /// hyper tells only that the stream failed; if the client's body was the cause, that is the
    /// answer.
    pub(crate) fn blame(&self, error: hyper::Error) -> UpstreamError {
        match self.failed.take() {
            Some(cause) => UpstreamError::RequestBody(cause),
            None => UpstreamError::Http2(error),
        }
    }
}

/// The request body was refused or failed; `Upload` knows why.
#[derive(Debug, thiserror::Error)]
#[error("the request body failed")]
pub(crate) struct UploadFailed;

/// A request body as hyper wants it.
#[derive(Debug)]
pub(crate) struct OutgoingBody {
    body: RequestBody,
    ended: bool,
    upload: Rc<Upload>,
}

impl http_body::Body for OutgoingBody {
    type Data = Bytes;
    type Error = UploadFailed;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        let filled = this.body.poll_fill(cx);
        this.upload.awaits_client.set(filled.is_pending());
        let filled = std::task::ready!(filled);
        this.upload.moved();
        match filled {
            Ok(true) => {
                let bytes = Bytes::copy_from_slice(&this.body.chunk());
                this.body.consume(bytes.len());
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Ok(false) => {
                this.ended = true;
                let trailers = this.body.take_trailers();
                Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(map_of(&trailers)))))
            }
            Err(error) => {
                this.ended = true;
                this.upload.failed.replace(Some(error));
                Poll::Ready(Some(Err(UploadFailed)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.body.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.length() {
            Length::Known(len) => SizeHint::with_exact(len),
            _ => SizeHint::default(),
        }
    }
}
