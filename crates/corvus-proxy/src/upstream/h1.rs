//! One request and its answer over an HTTP/1 connection.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use crate::{
    http::{body::RequestBody, response::Response},
    http1::{
        chunked,
        framing::{self, Length},
        parse::{HeadScanner, Malformed, ResponseHead},
        server::Inbound,
    },
    io::Io,
    upstream::{UpstreamError, body::UpstreamBody, head::Hop, pool::UpstreamConn},
    worker::Worker,
};

/// Bytes and fields of a response head.
const MAX_HEAD: usize = 256 * 1024;
const MAX_FIELDS: usize = 500;
/// How long an upstream may take to say `100 Continue` before the body is sent all the same (RFC
/// 9110 section 10.1.1: clients must not wait for ever, and some servers never say it).
const CONTINUE_WAIT_MS: u64 = 1_000;
/// Interim responses before the final one.
const MAX_INTERIM: usize = 16;

/// Sends the rest of a request body while the answer is awaited and passed on.
pub(crate) type Pump = Pin<Box<dyn Future<Output = Result<(), UpstreamError>>>>;

/// A request ready to go.
pub(crate) struct Outgoing<'a> {
    pub(crate) worker: &'a Rc<Worker>,
    /// To notice that the client has left; HTTP/2 cancels the whole future instead.
    pub(crate) inbound: Option<&'a Inbound>,
    pub(crate) method: &'a [u8],
    pub(crate) head: &'a [u8],
    pub(crate) hop: Hop<'a>,
    pub(crate) idle_ms: u64,
}

/// What became of the request body, for whoever decides about another try.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) body_begun: Cell<bool>,
    pub(crate) answer_begun: Cell<bool>,
}

/// Sends the request and reads the head of its final answer.
pub(crate) async fn send(
    out: Outgoing<'_>,
    mut conn: UpstreamConn,
    body: &mut RequestBody,
    progress: &Progress,
) -> Result<Response, UpstreamError> {
    let mut pump = None;
    if out.hop.expects_continue {
        write(&conn, out.idle_ms, out.head, b"").await?;
    } else {
        pump = send_with_body(&out, &conn, body, progress).await?;
    }
    conn.watch.arm(out.idle_ms);
    let mut head = out.worker.spare_head();
    for _ in 0..MAX_INTERIM {
        let continue_wait = out.hop.expects_continue && !progress.body_begun.get();
        let wait_ms = if continue_wait { CONTINUE_WAIT_MS } else { out.idle_ms };
        conn.watch.arm(wait_ms);
        let read = read_head(&out, &mut conn, &mut pump, &mut head, progress).await;
        match read {
            Err(UpstreamError::Idle) if continue_wait && conn.buffer.is_empty() => {}
            Err(error) => return Err(error),
            Ok(()) if head.status == 100 && continue_wait => {}
            Ok(()) if head.status == 101 => return switched(&out, conn, head),
            // Other interim responses are not passed on (docs/deviations.md).
            Ok(()) if head.status < 200 => continue,
            Ok(()) if continue_wait => {
                // A final answer without the body: the upstream may still take what comes next on
                // this connection for that body, so nothing may.
                conn.reusable = false;
                return answered(&out, conn, head, None);
            }
            Ok(()) => return answered(&out, conn, head, pump),
        }
        body.send_continue().await.map_err(|_| UpstreamError::ClientGone)?;
        progress.body_begun.set(true);
        pump = Some(start_pump(&conn, body, out.idle_ms));
    }
    Err(UpstreamError::Malformed(Malformed::Response))
}

async fn write(
    conn: &UpstreamConn,
    idle_ms: u64,
    head: &[u8],
    body: &[u8],
) -> Result<(), UpstreamError> {
    conn.io.write_all(&conn.watch, idle_ms, head, body).await.map_err(write_error)
}

fn write_error(error: std::io::Error) -> UpstreamError {
    match error.kind() {
        std::io::ErrorKind::TimedOut => UpstreamError::Idle,
        std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset => {
            UpstreamError::Closed
        }
        _ => UpstreamError::Io(error),
    }
}

/// Sends the head, with as much of the body as is at hand; gives the pump for what is left.
async fn send_with_body(
    out: &Outgoing<'_>,
    conn: &UpstreamConn,
    body: &mut RequestBody,
    progress: &Progress,
) -> Result<Option<Pump>, UpstreamError> {
    if body.is_empty() {
        write(conn, out.idle_ms, out.head, b"").await?;
        return Ok(None);
    }
    // A small form has usually come together with its head: one system call sends both.
    let at_hand = match poll_fn(|cx| Poll::Ready(body.poll_fill(cx))).await {
        Poll::Ready(filled) => filled.map_err(UpstreamError::RequestBody)?,
        Poll::Pending => false,
    };
    if let (true, Length::Known(length)) = (at_hand, body.length()) {
        progress.body_begun.set(true);
        let len = {
            let chunk = body.chunk();
            write(conn, out.idle_ms, out.head, &chunk).await?;
            chunk.len()
        };
        body.consume(len);
        if len as u64 == length {
            // Lets the body notice its end; over HTTP/2 the frame that says so may come later.
            let _ = poll_fn(|cx| Poll::Ready(body.poll_fill(cx))).await;
            return Ok(None);
        }
    } else {
        write(conn, out.idle_ms, out.head, b"").await?;
        progress.body_begun.set(true);
    }
    Ok(Some(start_pump(conn, body, out.idle_ms)))
}

fn start_pump(conn: &UpstreamConn, body: &mut RequestBody, idle_ms: u64) -> Pump {
    let body = std::mem::replace(body, RequestBody::Empty);
    let watch = conn.sibling_watch();
    Box::pin(pump(Rc::clone(&conn.io), watch, body, idle_ms))
}

async fn pump(
    io: Rc<Io>,
    watch: crate::io::Watch,
    mut body: RequestBody,
    idle_ms: u64,
) -> Result<(), UpstreamError> {
    let chunked = body.length() == Length::Chunked;
    let mut frame = Vec::new();
    loop {
        let more = poll_fn(|cx| body.poll_fill(cx)).await.map_err(UpstreamError::RequestBody)?;
        if !more {
            break;
        }
        let len = {
            let chunk = body.chunk();
            if chunked {
                chunked::write_size(&mut frame, chunk.len());
            }
            io.write_all(&watch, idle_ms, &frame, &chunk).await.map_err(write_error)?;
            chunk.len()
        };
        frame.clear();
        if chunked {
            frame.extend_from_slice(b"\r\n");
        }
        body.consume(len);
    }
    if chunked {
        chunked::write_end(&mut frame, body.take_trailers().as_ref());
        io.write_all(&watch, idle_ms, &frame, b"").await.map_err(write_error)?;
    }
    Ok(())
}

/// Drives the pump. An upstream that stops reading may have answered already, so a broken
/// connection ends the pump without an error: the answer, or the lack of it, tells the rest.
pub(crate) fn poll_pump(
    pump: &mut Option<Pump>,
    cx: &mut Context<'_>,
) -> Result<bool, UpstreamError> {
    let Some(running) = pump else { return Ok(true) };
    match running.as_mut().poll(cx) {
        Poll::Pending => Ok(true),
        Poll::Ready(ended) => {
            *pump = None;
            match ended {
                Ok(()) => Ok(true),
                Err(UpstreamError::Closed | UpstreamError::Io(_)) => Ok(false),
                Err(error) => Err(error),
            }
        }
    }
}

async fn read_head(
    out: &Outgoing<'_>,
    conn: &mut UpstreamConn,
    pump: &mut Option<Pump>,
    head: &mut ResponseHead,
    progress: &Progress,
) -> Result<(), UpstreamError> {
    let mut scanner = HeadScanner::default();
    let UpstreamConn { io, buffer, watch, reusable, .. } = conn;
    poll_fn(|cx| {
        let sending = pump.is_some();
        *reusable &= poll_pump(pump, cx)?;
        if sending && pump.is_none() {
            watch.arm(out.idle_ms);
        }
        loop {
            match scanner.scan(buffer.filled()) {
                Ok(Some(end)) => {
                    let bytes = buffer.filled().get(..end).unwrap_or_default();
                    head.parse(bytes, MAX_FIELDS).map_err(UpstreamError::Malformed)?;
                    buffer.consume(end);
                    return Poll::Ready(Ok(()));
                }
                Ok(None) if buffer.len() > MAX_HEAD => {
                    return Poll::Ready(Err(UpstreamError::Malformed(Malformed::HeadTooLarge)));
                }
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(UpstreamError::Malformed(error))),
            }
            match io.poll_read(cx, buffer) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(UpstreamError::Closed)),
                Poll::Ready(Ok(_)) => {
                    progress.answer_begun.set(true);
                    watch.arm(out.idle_ms);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(write_error(error))),
                Poll::Pending => break,
            }
        }
        // An upload may take longer than an upstream may keep silent. While it goes on, the pump
        // watches both ends.
        if pump.is_none() && watch.poll_expired(cx) {
            return Poll::Ready(Err(UpstreamError::Idle));
        }
        match out.inbound {
            Some(inbound) if pump.is_none() && inbound.poll_gone(cx) => {
                Poll::Ready(Err(UpstreamError::ClientGone))
            }
            _ => Poll::Pending,
        }
    })
    .await
}

fn answered(
    out: &Outgoing<'_>,
    conn: UpstreamConn,
    head: ResponseHead,
    pump: Option<Pump>,
) -> Result<Response, UpstreamError> {
    let length = framing::response_length(&head, out.method).map_err(UpstreamError::Malformed)?;
    let keeps = framing::keeps_alive(&head.headers, head.version) && length != Length::Close;
    let body = UpstreamBody::h1(out.worker, conn, length, pump, keeps, out.idle_ms);
    Ok(Response::forwarded(head, body))
}

/// `101 Switching Protocols`: only to the upgrade that was asked for.
fn switched(
    out: &Outgoing<'_>,
    conn: UpstreamConn,
    head: ResponseHead,
) -> Result<Response, UpstreamError> {
    use crate::http::name::Name;
    let agreed = head.headers.get(Name::Upgrade);
    match (out.hop.upgrade, agreed) {
        (Some(asked), Some(agreed)) if asked.eq_ignore_ascii_case(agreed) => {
            Ok(Response::switched(head, conn))
        }
        _ => Err(UpstreamError::Malformed(Malformed::Response)),
    }
}
