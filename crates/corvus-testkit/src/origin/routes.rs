//! What each path answers, for both protocol versions.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use hyper::body::Incoming;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::Seen;
use crate::grpc;
use crate::headers::Headers;
use crate::pattern::{first_mismatch, patterned};
use crate::wire::{Body, Wire, bad};

const KEPT_BODY: usize = 4096;

/// A request body of either version. HTTP/1 sends 100 when the first byte is wanted.
pub(super) enum RequestBody<'a> {
    H1 { wire: &'a mut Wire, body: Body, expects_100: bool },
    H2 { incoming: Option<Incoming>, trailers: Headers },
}

impl RequestBody<'_> {
    pub(super) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        match self {
            Self::H1 { wire, body, expects_100 } => {
                if std::mem::take(expects_100) {
                    wire.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                }
                wire.read_body(body).await
            }
            Self::H2 { incoming: Some(incoming), trailers } => {
                use http_body_util::BodyExt;
                while let Some(frame) = incoming.frame().await {
                    let frame = match frame.map_err(io::Error::other)?.into_data() {
                        Ok(data) => return Ok(Some(data)),
                        Err(frame) => frame,
                    };
                    if let Ok(fields) = frame.into_trailers() {
                        *trailers = Headers::from_map(&fields);
                    }
                }
                Ok(None)
            }
            Self::H2 { incoming: None, .. } => Ok(None),
        }
    }

    fn trailers(&self) -> &Headers {
        match self {
            Self::H1 { body, .. } => &body.trailers,
            Self::H2 { trailers, .. } => trailers,
        }
    }

    fn without_100(&mut self) {
        if let Self::H1 { expects_100, .. } = self {
            *expects_100 = false;
        }
    }
}

pub(super) type Pieces = BoxStream<'static, io::Result<Bytes>>;

/// How HTTP/1 frames a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Known(u64),
    Chunked,
    UntilClose,
}

pub(super) struct Reply {
    pub status: u16,
    pub interim: Option<(u16, Headers)>,
    pub headers: Headers,
    pub body: Pieces,
    pub length: Length,
    pub trailers: Headers,
}

impl Reply {
    fn whole(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let length = Length::Known(body.len() as u64);
        let pieces = stream::iter((!body.is_empty()).then_some(Ok(body))).boxed();
        Self::pieces(status, content_type, length, pieces)
    }

    fn pieces(status: u16, content_type: &str, length: Length, body: Pieces) -> Self {
        let headers = Headers::from_pairs(&[("Content-Type", content_type)]);
        let (interim, trailers) = (None, Headers::default());
        Self { status, interim, headers, body, length, trailers }
    }

    fn text(status: u16, text: &str) -> Self {
        Self::whole(status, "text/plain", text.to_owned())
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.0.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Answers one request. An error closes the connection (HTTP/2: resets the stream).
pub(super) async fn route(seen: &Seen, body: &mut RequestBody<'_>) -> io::Result<Reply> {
    let parts: Vec<_> = seen.path().trim_start_matches('/').split('/').collect();
    let number = |index: usize| parts.get(index).and_then(|n| n.parse::<u64>().ok());
    let octets = "application/octet-stream";
    Ok(match (parts[0], number(1)) {
        ("bytes", Some(n)) => Reply::pieces(200, octets, Length::Known(n), patterned(n)),
        ("chunked", Some(n)) => Reply::pieces(200, octets, Length::Chunked, patterned(n)),
        ("until-close", Some(n)) => Reply::pieces(200, octets, Length::UntilClose, patterned(n)),
        ("truncated", Some(n)) => {
            let broken = stream::iter([Err(bad("cut off, as the path asks"))]);
            let body = patterned(n / 2).chain(broken).boxed();
            Reply::pieces(200, octets, Length::Known(n), body)
        }
        ("close", _) => return Err(bad("closed, as the path asks")),
        ("upload", _) => upload(body).await?,
        ("sse", _) => events(number(1).unwrap_or(20), number(2).unwrap_or(10)),
        ("slow", Some(ms)) => {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Reply::text(200, "slow\n")
        }
        ("status", Some(code)) => {
            let status = u16::try_from(code).unwrap_or(500);
            let bodiless = matches!(status, 204 | 304);
            Reply::text(status, if bodiless { "" } else { "status\n" })
        }
        ("trailers", _) => {
            let mut reply = Reply::pieces(200, octets, Length::Chunked, patterned(1000));
            reply.trailers = Headers::from_pairs(&[("x-checksum", "1000"), ("x-last", "yes")]);
            reply.with("Trailer", "x-checksum, x-last")
        }
        ("early-hints", _) => {
            let mut reply = Reply::text(200, "hinted\n");
            let link = Headers::from_pairs(&[("Link", "</style.css>; rel=preload; as=style")]);
            reply.interim = Some((103, link));
            reply
        }
        ("100", _) => match parts.get(1) {
            Some(&"refuse") => Reply::text(417, "not with Expect\n"),
            Some(&"ignore") => {
                body.without_100();
                upload(body).await?
            }
            _ => upload(body).await?,
        },
        ("early-response", _) => Reply::text(413, "enough\n").with("Connection", "close"),
        ("set-cookie", _) => pairs(seen.query())
            .fold(Reply::text(200, "set\n"), |reply, (n, v)| {
                reply.with("Set-Cookie", &format!("{n}={v}; Path=/"))
            }),
        ("header", _) => {
            pairs(seen.query()).fold(Reply::text(200, "header\n"), |r, (n, v)| r.with(n, v))
        }
        ("redirect", _) => Reply::text(302, "moved\n").with("Location", seen.query()),
        ("release", _) => Reply::text(200, "released\n").with("Corvus-Queue", "release"),
        ("echo.Echo", _) => call(seen, parts.get(1).copied().unwrap_or_default(), body),
        _ => echo(seen, body).await?,
    })
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter_map(|pair| pair.split_once('='))
}

fn events(interval_ms: u64, count: u64) -> Reply {
    let events = stream::unfold(0, move |n| async move {
        if n == count {
            return None;
        }
        if n > 0 {
            tokio::time::sleep(Duration::from_millis(interval_ms)).await;
        }
        Some((Ok(Bytes::from(format!("data: {n}\n\n"))), n + 1))
    });
    Reply::pieces(200, "text/event-stream", Length::Chunked, events.boxed())
        .with("Cache-Control", "no-cache")
}

async fn upload(body: &mut RequestBody<'_>) -> io::Result<Reply> {
    let (mut bytes, mut wrong) = (0, None);
    while let Some(piece) = body.next().await? {
        wrong = wrong.or_else(|| first_mismatch(bytes, &piece));
        bytes += piece.len() as u64;
    }
    let report = json!({"bytes": bytes, "first_mismatch": wrong});
    Ok(Reply::whole(200, "application/json", report.to_string()))
}

async fn echo(seen: &Seen, body: &mut RequestBody<'_>) -> io::Result<Reply> {
    let (mut length, mut hash, mut kept) = (0, Sha256::new(), String::new());
    while let Some(piece) = body.next().await? {
        let room = KEPT_BODY.saturating_sub(length).min(piece.len());
        kept.extend(piece[..room].iter().map(|&b| char::from(b)));
        hash.update(&piece);
        length += piece.len();
    }
    let mut digest = String::new();
    for byte in hash.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(digest, "{byte:02x}");
    }
    let report = json!({
        "method": seen.method,
        "target": seen.target,
        "version": seen.version,
        "sni": seen.sni,
        "peer": seen.peer.to_string(),
        "headers": seen.headers.0,
        "trailers": body.trailers().0,
        "body_length": length,
        "body_sha256": digest,
        "body": kept,
    });
    Ok(Reply::whole(200, "application/json", report.to_string()))
}

/// A gRPC call, which needs HTTP/2 for its trailers.
fn call(seen: &Seen, method: &str, body: &mut RequestBody<'_>) -> Reply {
    let RequestBody::H2 { incoming, .. } = body else {
        return Reply::text(505, "gRPC needs HTTP/2\n");
    };
    let kind = seen.headers.get("content-type").unwrap_or_default();
    if seen.method != "POST" || !kind.starts_with("application/grpc") {
        return Reply::text(415, "not a gRPC call\n");
    }
    let messages = grpc::echo(incoming.take());
    let (status, messages): (_, Pieces) = match method {
        "Bidi" => ("0", messages),
        "Unary" => ("0", messages.take(1).boxed()),
        _ => ("12", stream::empty().boxed()),
    };
    let status = seen.headers.get("x-grpc-status").unwrap_or(status);
    let mut reply = Reply::pieces(200, "application/grpc", Length::Chunked, messages);
    reply.trailers = Headers::from_pairs(&[("grpc-status", status), ("grpc-message", "told")]);
    reply
}
