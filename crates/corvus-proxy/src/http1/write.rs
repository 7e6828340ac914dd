//! Writing a response to an HTTP/1 client.

use std::{
    future::{Future as _, poll_fn},
    pin::pin,
    task::{Context, Poll},
};

use crate::{
    http::{
        body::ResponseBody, exchange::Exchange, name::Name, response::Response,
        stages::queue::Keeper,
    },
    http1::{
        chunked,
        framing::Length,
        parse::{ResponseHead, Version},
        server::Inbound,
    },
    worker::Worker,
};

/// Small pieces are gathered up to this size, so that a response takes few system calls; larger
/// ones are sent from where they are.
const GATHER: usize = 16 * 1024;

/// The response did not reach the client whole; the reason is in the record.
#[derive(Debug)]
pub(crate) struct Failed;

/// How the end of the body is shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Framing {
    /// No body, whatever the fields say (HEAD, 204, 304).
    None,
    Length(u64),
    Chunked,
    Close,
}

/// Sends a response. True when another request may follow on the connection.
pub(crate) async fn response(
    x: &mut Exchange,
    inbound: &Inbound,
    response: Response,
    keep: bool,
    out: &mut Vec<u8>,
) -> Result<bool, Failed> {
    let Response { head, mut body, in_flight: _in_flight, .. } = response;
    let framing = framing(x, &head, &body);
    let keep = keep && framing != Framing::Close;
    x.status = head.status;
    out.clear();
    status_line(&head, out);
    fields(&head, framing, &x.worker, x.started_us, out);
    match (keep, x.head.version) {
        (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
        (true, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (true, Version::Http11) => {}
    }
    out.extend_from_slice(b"\r\n");
    let sent = send(x, inbound, &mut body, framing, out).await;
    x.worker.recycle(head);
    sent.map(|()| keep)
}

/// Writes the head of `101 Switching Protocols`.
pub(crate) fn switching(x: &mut Exchange, response: &Response, out: &mut Vec<u8>) {
    x.status = response.head.status;
    out.clear();
    status_line(&response.head, out);
    response.head.headers.write_to(out);
    let protocol = x.head.headers.get(Name::Upgrade).unwrap_or_default();
    out.extend_from_slice(b"Connection: upgrade\r\nUpgrade: ");
    out.extend_from_slice(protocol);
    out.extend_from_slice(b"\r\n\r\n");
}

fn framing(x: &Exchange, head: &ResponseHead, body: &ResponseBody) -> Framing {
    if x.head.method() == b"HEAD" || matches!(head.status, 204 | 304) {
        return Framing::None;
    }
    match (body.length(), x.head.version) {
        (Length::Known(len), _) => Framing::Length(len),
        (_, Version::Http11) => Framing::Chunked,
        (_, Version::Http10) => Framing::Close,
    }
}

fn status_line(head: &ResponseHead, out: &mut Vec<u8>) {
    if head.status == 200 && head.reason() == b"OK" {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(head.status).as_bytes());
    out.push(b' ');
    if head.reason().is_empty() {
        let status = http::StatusCode::from_u16(head.status).ok();
        let phrase = status.and_then(|status| status.canonical_reason()).unwrap_or_default();
        out.extend_from_slice(phrase.as_bytes());
    } else {
        out.extend_from_slice(head.reason());
    }
    out.extend_from_slice(b"\r\n");
}

fn fields(head: &ResponseHead, framing: Framing, worker: &Worker, now_us: u64, out: &mut Vec<u8>) {
    let mut dated = false;
    for (name, spelling, value) in head.headers.iter() {
        match name {
            // What a HEAD or 304 would have had is the origin's to say (RFC 9110 section 8.6).
            Name::ContentLength if framing != Framing::None || head.status == 204 => continue,
            Name::Date => dated = true,
            _ => {}
        }
        out.extend_from_slice(spelling);
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    if !dated {
        out.extend_from_slice(b"Date: ");
        worker.write_date(now_us, out);
        out.extend_from_slice(b"\r\n");
    }
    match framing {
        Framing::None | Framing::Close => {}
        Framing::Length(len) => {
            out.extend_from_slice(b"Content-Length: ");
            out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
}

/// Sends what stands in `out`, then the body; counts the body's bytes.
async fn send(
    x: &mut Exchange,
    inbound: &Inbound,
    body: &mut ResponseBody,
    framing: Framing,
    out: &mut Vec<u8>,
) -> Result<(), Failed> {
    let idle_ms = x.site.as_ref().map_or(60_000, |site| site.idle_ms);
    let mut keeper = None;
    loop {
        let filled = poll_fn(|cx| Poll::Ready(body.poll_fill(cx))).await;
        let filled = match filled {
            Poll::Ready(filled) => Some(filled),
            Poll::Pending if out.is_empty() => {
                keeper.get_or_insert_with(|| Keeper::start(x));
                Some(wait(x, inbound, body).await?)
            }
            // Nothing more for now: let go what has been gathered.
            Poll::Pending => None,
        };
        let (mut large, mut ended) = (false, false);
        match filled {
            None => {}
            Some(Err(error)) => {
                // The head is gone, so the client can only be told by ending the connection early.
                x.upstream_broke(&error);
                return Err(Failed);
            }
            Some(Ok(true)) if framing == Framing::None => {
                let len = body.chunk().len();
                body.consume(len);
                continue;
            }
            Some(Ok(true)) => {
                let len = body.chunk().len();
                if framing == Framing::Chunked {
                    chunked::write_size(out, len);
                }
                // What is still being sent upstream must go on meanwhile, see `write`.
                large = len > GATHER / 2 && !body.is_pumping();
                if !large {
                    out.extend_from_slice(body.chunk());
                    if framing == Framing::Chunked {
                        out.extend_from_slice(b"\r\n");
                    }
                    body.consume(len);
                    x.sent += len as u64;
                    if out.len() < GATHER {
                        continue;
                    }
                }
            }
            Some(Ok(false)) => {
                ended = true;
                if framing == Framing::Chunked {
                    chunked::write_end(out, body.take_trailers().as_ref());
                }
            }
        }
        let wrote = if large {
            inbound.io.write_all(&inbound.watch, idle_ms, out, body.chunk()).await
        } else {
            write(inbound, idle_ms, out, body).await
        };
        if wrote.is_err() {
            x.client_left();
            return Err(Failed);
        }
        out.clear();
        if large {
            let len = body.chunk().len();
            body.consume(len);
            x.sent += len as u64;
            if framing == Framing::Chunked {
                out.extend_from_slice(b"\r\n");
            }
        }
        if ended {
            return Ok(());
        }
    }
}

/// Writes what has been gathered. The request body goes on meanwhile: a client that sends all of it
/// before it reads would otherwise wait for us, and we for it.
async fn write(
    inbound: &Inbound,
    idle_ms: u64,
    out: &[u8],
    body: &mut ResponseBody,
) -> std::io::Result<()> {
    let mut wrote = pin!(inbound.io.write_all(&inbound.watch, idle_ms, out, b""));
    poll_fn(|cx| {
        body.poll_pump(cx);
        wrote.as_mut().poll(cx)
    })
    .await
}

/// Waits for more of the body, and notices when the client leaves meanwhile.
async fn wait(
    x: &mut Exchange,
    inbound: &Inbound,
    body: &mut ResponseBody,
) -> Result<Result<bool, crate::upstream::UpstreamError>, Failed> {
    let filled = poll_fn(|cx: &mut Context<'_>| match body.poll_fill(cx) {
        Poll::Ready(filled) => Poll::Ready(Some(filled)),
        Poll::Pending if inbound.poll_gone(cx) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await;
    filled.ok_or_else(|| {
        x.client_left();
        Failed
    })
}
