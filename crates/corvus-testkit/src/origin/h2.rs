//! HTTP/2 for [`crate::Origin`], by hyper.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt;

use super::Link;
use super::routes::{Length, Reply, RequestBody, route};
use crate::headers::{Headers, to_latin1};
use crate::wire::{Wire, bad};

type ReplyBody = StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>;

pub(super) async fn serve(wire: Wire, link: Link) -> io::Result<()> {
    let (read, write) = tokio::io::split(wire.stream);
    let io = tokio::io::join(io::Cursor::new(wire.buffer.freeze()).chain(read), write);
    let answer = service_fn(move |request| {
        let link = link.clone();
        async move { Ok::<_, Infallible>(answer(request, &link).await) }
    });
    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(io), answer)
        .await
        .map_err(io::Error::other)
}

async fn answer(request: Request<Incoming>, link: &Link) -> Response<ReplyBody> {
    let (head, incoming) = request.into_parts();
    let mut headers = Headers::default();
    if let Some(authority) = head.uri.authority() {
        headers.0.push((":authority".to_owned(), authority.to_string()));
    }
    headers.0.extend(Headers::from_map(&head.headers).0);
    let target = head.uri.path_and_query().map_or("/", |t| t.as_str());
    let seen = link.seen("HTTP/2", head.method.as_str(), target, headers);
    let mut body = RequestBody::H2 { incoming: Some(incoming), trailers: Headers::default() };
    let reply = route(&seen, &mut body).await;
    reply.and_then(response).unwrap_or_else(broken)
}

fn response(reply: Reply) -> io::Result<Response<ReplyBody>> {
    let data = reply.body.map(|piece| piece.map(Frame::data));
    let last = (!reply.trailers.0.is_empty()).then(|| map(&reply.trailers).map(Frame::trailers));
    let mut response = Response::new(StreamBody::new(data.chain(stream::iter(last)).boxed()));
    *response.status_mut() =
        http::StatusCode::from_u16(reply.status).map_err(|e| bad(e.to_string()))?;
    *response.headers_mut() = map(&reply.headers)?;
    response.headers_mut().remove("connection");
    if let Length::Known(length) = reply.length {
        response.headers_mut().insert("content-length", length.into());
    }
    Ok(response)
}

/// A response whose stream is reset after its head.
fn broken(error: io::Error) -> Response<ReplyBody> {
    Response::new(StreamBody::new(stream::iter([Err(error)]).boxed()))
}

fn map(headers: &Headers) -> io::Result<HeaderMap> {
    let mut map = HeaderMap::new();
    for (name, value) in &headers.0 {
        let name = http::HeaderName::from_bytes(name.as_bytes()).map_err(|e| bad(e.to_string()))?;
        let value =
            http::HeaderValue::from_bytes(&to_latin1(value)).map_err(|e| bad(e.to_string()))?;
        map.append(name, value);
    }
    Ok(map)
}
