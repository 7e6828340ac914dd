//! The least that an HTTP/1.1 proxy on hyper must do: one thread, one current-thread runtime, a pool
//! of upstream connections that is a plain `Vec`. No TLS, no log, no policy: the floor that Corvus's
//! own codec and stages are compared with.
//!
//! `bench-prototype LISTEN_ADDR UPSTREAM_ADDR`

use std::cell::RefCell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONNECTION, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Reply = Response<Either<Pooled, Full<Bytes>>>;

struct Upstream {
    addr: SocketAddr,
    idle: RefCell<Vec<SendRequest<Incoming>>>,
}

/// A response body that gives its connection back when it has been read to the end.
struct Pooled {
    body: Incoming,
    connection: Option<SendRequest<Incoming>>,
    upstream: Rc<Upstream>,
}

impl Body for Pooled {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && self.body.is_end_stream()
        {
            self.upstream.idle.borrow_mut().push(connection);
        }
    }
}

async fn connection(upstream: &Upstream) -> Result<SendRequest<Incoming>, Error> {
    loop {
        let idle = upstream.idle.borrow_mut().pop();
        let Some(mut connection) = idle else { break };
        if !connection.is_closed() && connection.ready().await.is_ok() {
            return Ok(connection);
        }
    }
    let stream = TcpStream::connect(upstream.addr).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::task::spawn_local(connection);
    Ok(sender)
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    for name in [CONNECTION, TE, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}

async fn forward(
    mut request: Request<Incoming>,
    upstream: &Rc<Upstream>,
    client: &HeaderValue,
) -> Result<Reply, Error> {
    remove_hop_by_hop(request.headers_mut());
    request.headers_mut().insert("x-forwarded-for", client.clone());
    request.headers_mut().insert("x-forwarded-proto", HeaderValue::from_static("http"));
    let mut connection = connection(upstream).await?;
    let mut response = connection.send_request(request).await?;
    remove_hop_by_hop(response.headers_mut());
    Ok(response.map(|body| {
        Either::Left(Pooled { body, connection: Some(connection), upstream: upstream.clone() })
    }))
}

async fn answer(
    request: Request<Incoming>,
    upstream: Rc<Upstream>,
    client: HeaderValue,
) -> Result<Reply, Infallible> {
    Ok(forward(request, &upstream, &client).await.unwrap_or_else(|error| {
        let mut reply = Response::new(Either::Right(Full::from(format!("{error}\n"))));
        *reply.status_mut() = StatusCode::BAD_GATEWAY;
        reply
    }))
}

async fn serve(listen: SocketAddr, upstream: SocketAddr) -> Result<(), Error> {
    let listener = TcpListener::bind(listen).await?;
    let upstream = Rc::new(Upstream { addr: upstream, idle: RefCell::default() });
    loop {
        let (stream, peer) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let client = HeaderValue::from_str(&peer.ip().to_string())?;
        let upstream = upstream.clone();
        let service = service_fn(move |r| answer(r, upstream.clone(), client.clone()));
        let io = TokioIo::new(stream);
        tokio::task::spawn_local(
            hyper::server::conn::http1::Builder::new().serve_connection(io, service),
        );
    }
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(upstream)) = (arguments.next(), arguments.next()) else {
        return Err("usage: bench-prototype LISTEN_ADDR UPSTREAM_ADDR".into());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, serve(listen.parse()?, upstream.parse()?))
}
