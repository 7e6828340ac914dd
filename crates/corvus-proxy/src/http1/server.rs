//! An HTTP/1 connection from a client: one request after another.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll},
};

use corvus_core::event::Protocol;

use crate::{
    http::{
        body::{H1RequestBody, Meter, RequestBody},
        exchange::{ConnInfo, Exchange},
        name::Name,
        pipeline,
        rescue::{self, Failure},
        stages::queue::Keeper,
    },
    http1::{
        framing::{self, Length},
        parse::{HeadScanner, Malformed, RequestHead, Version},
        write,
    },
    io::{Buffer, Io, Stream, Watch},
    upstream::tunnel,
    worker::Worker,
};

/// Patience with a connection between two requests.
const KEEP_ALIVE_MS: u64 = 75_000;
/// Patience with a head: it must be whole this long after its first byte, however it trickles
/// (slowloris).
const HEAD_MS: u64 = 30_000;
/// Bytes read behind a request while its answer is under way, to notice that the client left.
const MAX_AHEAD: usize = 64 * 1024;
/// What is read and thrown away after a refusal, so that the client gets to read the answer: a
/// close with unread data makes the kernel send a reset, which discards it (RFC 9112 section 9.6).
const LINGER_BYTES: usize = 512 * 1024;
const LINGER_MS: u64 = 2_000;
/// What an HTTP/2 client with prior knowledge sends first.
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The client's connection, shared by the loop that serves it and the bodies that come over it.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) io: Io,
    pub(crate) buffer: RefCell<Buffer>,
    pub(crate) watch: Watch,
    /// Whether the body of the current request has been read to its end.
    pub(crate) body_done: Cell<bool>,
}

impl Inbound {
    /// Whether the client has left. Reads ahead a little, and wakes the task when more comes.
    pub(crate) fn poll_gone(&self, cx: &mut Context<'_>) -> bool {
        if !self.body_done.get() {
            return false;
        }
        let mut buffer = self.buffer.borrow_mut();
        while buffer.len() < MAX_AHEAD {
            match self.io.poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(0) | Err(_)) => return true,
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => return false,
            }
        }
        false
    }
}

/// How a connection goes on after HTTP/1.
pub(crate) enum End {
    Closed,
    /// The client speaks HTTP/2 without having asked: the stream and what was read of it.
    Http2(Stream, Vec<u8>),
}

enum Next {
    Request(usize),
    Malformed(Malformed),
    Http2,
    Closed,
}

/// Serves the connection until it ends.
pub(crate) async fn serve(worker: &Rc<Worker>, conn: &Rc<ConnInfo>, stream: Stream) -> End {
    let inbound = Rc::new(Inbound {
        io: Io::new(stream),
        buffer: RefCell::default(),
        watch: Watch::new(&worker.watches),
        body_done: Cell::new(true),
    });
    let counted = worker.monitor.connection(Protocol::Http11, conn.tls);
    let mut head = RequestHead::default();
    let mut out = Vec::with_capacity(2048);
    let mut first = true;
    loop {
        let limits = worker.active().snapshot.settings.limits;
        let malformed = match next_head(worker, &inbound, limits.header_bytes, first).await {
            Next::Closed => return End::Closed,
            Next::Http2 => break,
            Next::Malformed(why) => {
                head.salvage(inbound.buffer.borrow().filled());
                Some(why)
            }
            Next::Request(end) => {
                let mut buffer = inbound.buffer.borrow_mut();
                let bytes = buffer.filled().get(..end).unwrap_or_default();
                let parsed = head.parse(bytes, limits.header_count);
                if parsed.is_err() {
                    head.salvage(bytes);
                }
                buffer.consume(end);
                parsed.err()
            }
        };
        first = false;
        let mut x = exchange(worker, conn, &inbound, std::mem::take(&mut head), malformed);
        let then = serve_one(&mut x, &inbound, &mut out).await;
        // Recorded before lingering: the log does not wait for a client to go.
        head = x.finish();
        match then {
            Then::Next => {}
            Then::Linger => {
                linger(&inbound).await;
                return End::Closed;
            }
            Then::Close => return End::Closed,
        }
    }
    drop(counted);
    into_http2(inbound)
}

/// The stream back from under HTTP/1, with what was read.
fn into_http2(inbound: Rc<Inbound>) -> End {
    match Rc::try_unwrap(inbound) {
        Ok(inbound) => {
            let read = inbound.buffer.borrow_mut().take();
            End::Http2(inbound.io.into_inner(), read)
        }
        Err(_) => End::Closed,
    }
}

async fn next_head(worker: &Worker, inbound: &Inbound, max: usize, first: bool) -> Next {
    let mut scanner = HeadScanner::default();
    let mut begun = false;
    let watch = &inbound.watch;
    watch.arm(KEEP_ALIVE_MS);
    poll_fn(|cx| {
        let mut buffer = inbound.buffer.borrow_mut();
        loop {
            if !begun && !buffer.is_empty() {
                if skip_empty_line(&mut buffer) {
                    continue;
                }
                if first && is_h2_preface(buffer.filled()) {
                    if buffer.len() >= H2_PREFACE.len() {
                        return Poll::Ready(Next::Http2);
                    }
                } else if buffer.filled() != b"\r" {
                    begun = true;
                    watch.set_idle(false);
                    watch.arm(HEAD_MS);
                }
            }
            if begun {
                match scanner.scan(buffer.filled()) {
                    Ok(Some(end)) if end > max => {
                        return Poll::Ready(Next::Malformed(Malformed::HeadTooLarge));
                    }
                    Ok(Some(end)) => return Poll::Ready(Next::Request(end)),
                    Ok(None) if buffer.len() > max => {
                        return Poll::Ready(Next::Malformed(Malformed::HeadTooLarge));
                    }
                    Ok(None) => {}
                    Err(why) => return Poll::Ready(Next::Malformed(why)),
                }
            } else if worker.watches.is_draining() {
                return Poll::Ready(Next::Closed);
            } else {
                watch.set_idle(true);
                buffer.shrink();
            }
            match inbound.io.poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Next::Closed),
                Poll::Ready(Ok(_)) => {}
                Poll::Pending if watch.poll_expired(cx) => return Poll::Ready(Next::Closed),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

/// RFC 9112 section 2.2: an empty line before a request is read over, since old clients sent one
/// after a body.
fn skip_empty_line(buffer: &mut Buffer) -> bool {
    let empty = buffer.filled().starts_with(b"\r\n");
    if empty {
        buffer.consume(2);
    }
    empty
}

fn is_h2_preface(bytes: &[u8]) -> bool {
    let len = bytes.len().min(H2_PREFACE.len());
    bytes.get(..len) == H2_PREFACE.get(..len)
}

fn exchange(
    worker: &Rc<Worker>,
    conn: &Rc<ConnInfo>,
    inbound: &Rc<Inbound>,
    head: RequestHead,
    malformed: Option<Malformed>,
) -> Exchange {
    let protocol = match head.version {
        Version::Http10 => Protocol::Http10,
        Version::Http11 => Protocol::Http11,
    };
    let mut x = Exchange::new(worker, conn, head, protocol);
    x.inbound = Some(Rc::clone(inbound));
    let length = match malformed {
        Some(why) => Err(why),
        None => framing::request_length(&x.head),
    };
    inbound.body_done.set(length == Ok(Length::NONE));
    match length {
        Ok(Length::NONE) => {}
        Ok(length) => {
            let expects = x.head.version == Version::Http11
                && x.head
                    .headers
                    .all(Name::Expect)
                    .any(|e| e.eq_ignore_ascii_case(b"100-continue"));
            let inbound = Rc::clone(inbound);
            x.meter = Meter::new();
            let meter = x.meter.clone();
            let body = H1RequestBody::new(inbound, length, meter, KEEP_ALIVE_MS, expects);
            x.body = RequestBody::H1(body);
        }
        Err(why) => x.malformed = Some(why),
    }
    x
}

/// How a connection goes on after a response.
enum Then {
    Next,
    /// Close when the client has had time to read the response.
    Linger,
    Close,
}

/// One request and its answer.
async fn serve_one(x: &mut Exchange, inbound: &Inbound, out: &mut Vec<u8>) -> Then {
    let mut response = pipeline::handle(x).await;
    if response.silent {
        return Then::Close;
    }
    if let Some(upstream) = response.tunnel.take() {
        write::switching(x, &response, out);
        let idle_ms = x.site.as_ref().map_or(KEEP_ALIVE_MS, |site| site.idle_ms);
        if inbound.io.write_all(&inbound.watch, idle_ms, out, b"").await.is_ok() {
            let _open = x.worker.monitor.upgrade();
            let _keeper = Keeper::start(x);
            let carried = tunnel::run(inbound, upstream, idle_ms).await;
            x.sent += carried.to_client;
            x.tunnelled = carried.from_client;
        }
        return Then::Close;
    }
    // An answer that is broken before any of it has left is replaced by one that says so.
    let begun = poll_fn(|cx| Poll::Ready(response.body.poll_fill(cx))).await;
    if let Poll::Ready(Err(error)) = begun {
        response = rescue::respond(x, Failure::Upstream(error));
        x.outcome = response.outcome;
        if response.silent {
            return Then::Close;
        }
    }
    let keep = framing::keeps_alive(&x.head.headers, x.head.version)
        && x.malformed.is_none()
        && !response.close
        // Answered before the end of the body, which the client may now send or not.
        && inbound.body_done.get()
        && !x.worker.watches.is_draining();
    let sent = write::response(x, inbound, response, keep, out).await;
    match sent {
        Ok(keep) if keep && inbound.body_done.get() => Then::Next,
        Ok(_) => Then::Linger,
        Err(write::Failed) => {
            // To an HTTP/1.0 client a close means that the body is whole.
            if x.head.version == Version::Http10 {
                inbound.io.reset_on_close();
            }
            Then::Close
        }
    }
}

/// Ends our direction, then reads until the client ends its own, for a while.
async fn linger(inbound: &Inbound) {
    let mut left = LINGER_BYTES;
    inbound.watch.arm(LINGER_MS);
    if inbound.io.shutdown(&inbound.watch).await.is_err() {
        return;
    }
    // The client has sent all that it announced: nothing unread that would make the close a reset.
    if inbound.body_done.get() && inbound.buffer.borrow().is_empty() {
        return;
    }
    poll_fn(|cx| {
        let mut buffer = inbound.buffer.borrow_mut();
        while left > 0 {
            let waiting = buffer.len();
            buffer.consume(waiting);
            match inbound.io.poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(0) | Err(_)) => break,
                Poll::Ready(Ok(read)) => left = left.saturating_sub(read),
                Poll::Pending if inbound.watch.poll_expired(cx) => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    })
    .await;
}
