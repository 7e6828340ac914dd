//! HTTP/1 for [`crate::Origin`].

use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;

use super::Link;
use super::routes::{Length, Reply, RequestBody, route};
use crate::headers::{Headers, to_latin1};
use crate::websocket;
use crate::wire::{Body, Framing, Wire, bad, declared_framing, parse_head};

pub(super) async fn serve(mut wire: Wire, link: &Link) -> io::Result<()> {
    while let Some(head) = wire.read_head().await? {
        let (line, headers) = match parse_head(&head) {
            Ok(parsed) => parsed,
            Err(error) => return refuse(&mut wire, &error).await,
        };
        let [method, target, version @ ("HTTP/1.1" | "HTTP/1.0")] =
            line.split(' ').collect::<Vec<_>>()[..]
        else {
            return refuse(&mut wire, &bad(format!("not a request line: {line:?}"))).await;
        };
        let framing = match declared_framing(&headers) {
            Ok(framing) => framing.unwrap_or(Framing::Length(0)),
            Err(error) => return refuse(&mut wire, &error).await,
        };
        let seen = link.seen(version, method, target, headers);
        if seen.path() == "/ws" && seen.headers.has_token("upgrade", "websocket") {
            return websocket::serve_echo(wire, &seen.headers).await;
        }
        let asks_to_close = seen.headers.has_token("connection", "close")
            || (version == "HTTP/1.0" && !seen.headers.has_token("connection", "keep-alive"));
        let expects_100 = seen.headers.has_token("expect", "100-continue");
        let mut body = RequestBody::H1 { wire: &mut wire, body: Body::new(framing), expects_100 };
        let reply = route(&seen, &mut body).await?;
        let RequestBody::H1 { body, .. } = body else { return Ok(()) };
        let unread = !body.done;
        let close = asks_to_close
            || unread
            || reply.length == Length::UntilClose
            || reply.headers.has_token("connection", "close");
        respond(&mut wire, reply, method == "HEAD", close).await?;
        if close {
            return linger(&mut wire).await;
        }
    }
    Ok(())
}

async fn refuse(wire: &mut Wire, error: &io::Error) -> io::Result<()> {
    let text = format!("{error}\n");
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    wire.write(&[head.as_bytes(), text.as_bytes()].concat()).await?;
    linger(wire).await
}

/// Ends our side and reads what still comes: closing with unread bytes would reset the connection,
/// and the reset can overtake the response (RFC 9112 section 9.6).
async fn linger(wire: &mut Wire) -> io::Result<()> {
    wire.stream.shutdown().await?;
    let drain = async {
        loop {
            wire.buffer.clear();
            if wire.fill().await? == 0 {
                return Ok::<_, io::Error>(());
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(2), drain).await.unwrap_or(Ok(()))
}

fn write_head(out: &mut Vec<u8>, status: u16, headers: &Headers) {
    let reason = http::StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason());
    out.extend_from_slice(format!("HTTP/1.1 {status} {}\r\n", reason.unwrap_or("")).as_bytes());
    for (name, value) in &headers.0 {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(&to_latin1(value));
        out.extend_from_slice(b"\r\n");
    }
}

async fn respond(wire: &mut Wire, mut reply: Reply, is_head: bool, close: bool) -> io::Result<()> {
    let mut out = Vec::with_capacity(512);
    if let Some((status, headers)) = &reply.interim {
        write_head(&mut out, *status, headers);
        out.extend_from_slice(b"\r\n");
        wire.write(&out).await?;
        out.clear();
    }
    write_head(&mut out, reply.status, &reply.headers);
    let bodiless = is_head || matches!(reply.status, 204 | 304);
    match reply.length {
        Length::Known(_) if matches!(reply.status, 204 | 304) => {}
        Length::Known(n) => out.extend_from_slice(format!("Content-Length: {n}\r\n").as_bytes()),
        Length::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Length::UntilClose => {}
    }
    if close && !reply.headers.has_token("connection", "close") {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
    if bodiless {
        return wire.write(&out).await;
    }
    let chunked = reply.length == Length::Chunked;
    while let Some(piece) = reply.body.next().await {
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                // What was sent must arrive before the connection breaks off.
                wire.write(&out).await?;
                return Err(error);
            }
        };
        if chunked {
            out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        }
        out.extend_from_slice(&piece);
        if chunked {
            out.extend_from_slice(b"\r\n");
        }
        wire.write(&out).await?;
        out.clear();
    }
    if chunked {
        out.extend_from_slice(b"0\r\n");
        for (name, value) in &reply.trailers.0 {
            out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }
    wire.write(&out).await
}
