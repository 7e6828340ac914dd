//! One type for every kind of connection, readable and writable at the same time from one thread.

use std::{
    cell::RefCell,
    future::poll_fn,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::TlsStream;

use crate::io::{Buffer, Watch};

/// A connection to a client or an upstream.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

macro_rules! delegate {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Tcp($stream) => $call,
            Stream::Tls($stream) => $call,
            Stream::Unix($stream) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        delegate!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

/// A stream that one task reads while it (or a future it drives) writes. A `RefCell` is enough:
/// both happen on the worker's own thread, and no borrow lives across an await.
#[derive(Debug)]
pub(crate) struct Io {
    stream: RefCell<Stream>,
}

impl Io {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream: RefCell::new(stream) }
    }

    pub(crate) fn into_inner(self) -> Stream {
        self.stream.into_inner()
    }

    /// The stream itself, for one poll.
    pub(crate) fn with<T>(&self, poll: impl FnOnce(&mut Stream) -> T) -> T {
        poll(&mut self.stream.borrow_mut())
    }

    /// Reads what is there into `buffer`; 0 at the end of the stream.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut Buffer,
    ) -> Poll<io::Result<usize>> {
        let mut stream = self.stream.borrow_mut();
        let mut space = ReadBuf::new(buffer.space());
        ready!(Pin::new(&mut *stream).poll_read(cx, &mut space))?;
        let len = space.filled().len();
        buffer.fill(len);
        Poll::Ready(Ok(len))
    }

    /// Makes the coming close a reset, for a peer that takes an orderly end for the end of the body.
    pub(crate) fn reset_on_close(&self) {
        self.with(|stream| match stream {
            // A socket that fails here is as good as reset.
            Stream::Tcp(tcp) => drop(tcp.set_zero_linger()),
            Stream::Tls(tls) => drop(tls.get_ref().0.set_zero_linger()),
            Stream::Unix(_) => {}
        });
    }

    /// Whether an idle connection is still good: nothing to read, not closed. Costs no system call
    /// while nothing has happened on the socket.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let mut byte = [0_u8; 1];
        let mut space = ReadBuf::new(&mut byte);
        Pin::new(&mut *self.stream.borrow_mut()).poll_read(&mut cx, &mut space).is_pending()
    }

    /// Writes `first` and then `second` in as few system calls as the stream allows.
    ///
    /// `watch` is armed with `idle_ms` anew after each piece that went out.
    pub(crate) async fn write_all(
        &self,
        watch: &Watch,
        idle_ms: u64,
        first: &[u8],
        second: &[u8],
    ) -> io::Result<()> {
        let (mut first, mut second) = (first, second);
        watch.arm(idle_ms);
        poll_fn(|cx| {
            while !first.is_empty() || !second.is_empty() {
                let wrote = match self.poll_write(cx, first, second) {
                    Poll::Ready(wrote) => wrote?,
                    Poll::Pending if watch.poll_expired(cx) => {
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                    Poll::Pending => return Poll::Pending,
                };
                if wrote == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                let of_first = wrote.min(first.len());
                first = first.get(of_first..).unwrap_or_default();
                second = second.get(wrote - of_first..).unwrap_or_default();
                watch.arm(idle_ms);
            }
            // TLS takes more than the socket does, so a client that reads nothing is met here.
            match self.poll_flush(cx) {
                Poll::Pending if watch.poll_expired(cx) => {
                    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
                }
                flushed => flushed,
            }
        })
        .await
    }

    fn poll_write(
        &self,
        cx: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut stream = self.stream.borrow_mut();
        let stream = Pin::new(&mut *stream);
        match (first.is_empty(), second.is_empty()) {
            (true, _) => stream.poll_write(cx, second),
            (_, true) => stream.poll_write(cx, first),
            _ => stream.poll_write_vectored(cx, &[IoSlice::new(first), IoSlice::new(second)]),
        }
    }

    /// TLS keeps records that the socket would not take; plain sockets have nothing to flush.
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_flush(cx)
    }

    /// Ends our direction, unless `watch` expires first.
    pub(crate) async fn shutdown(&self, watch: &Watch) -> io::Result<()> {
        poll_fn(|cx| match Pin::new(&mut *self.stream.borrow_mut()).poll_shutdown(cx) {
            Poll::Pending if watch.poll_expired(cx) => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            done => done,
        })
        .await
    }
}

/// A stream with bytes in front that were read from it already.
#[derive(Debug)]
pub(crate) struct Rewind {
    pub(crate) prefix: Vec<u8>,
    pub(crate) stream: Stream,
}

impl AsyncRead for Rewind {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.prefix.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, buf);
        }
        let len = this.prefix.len().min(buf.remaining());
        buf.put_slice(this.prefix.get(..len).unwrap_or_default());
        this.prefix.drain(..len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rewind {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
