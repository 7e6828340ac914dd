//! Bytes both ways, after `101 Switching Protocols`.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

use crate::{
    http1::server::Inbound,
    io::{Buffer, Io},
    upstream::pool::UpstreamConn,
};

/// Bytes a tunnel carried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carried {
    pub(crate) from_client: u64,
    pub(crate) to_client: u64,
}

/// One direction: what was read and not yet written, and whether its source has ended.
#[derive(Debug, Default)]
struct Flow {
    ended: bool,
    shut: bool,
    carried: u64,
}

impl Flow {
    /// Moves what can be moved. Ready when the direction is over.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &Io,
        buffer: &mut Buffer,
        to: &Io,
        progress: &mut bool,
    ) -> Poll<std::io::Result<()>> {
        loop {
            while !buffer.is_empty() {
                let len = std::task::ready!(to.poll_write_some(cx, buffer.filled()))?;
                buffer.consume(len);
                self.carried += len as u64;
                *progress = true;
            }
            // A TLS stream may hold back what the socket did not take.
            let flushed = to.poll_flush_some(cx)?;
            if self.ended {
                if flushed.is_pending() {
                    return Poll::Pending;
                }
                if !self.shut {
                    std::task::ready!(to.poll_shutdown_some(cx))?;
                    self.shut = true;
                }
                return Poll::Ready(Ok(()));
            }
            let read = std::task::ready!(from.poll_read(cx, buffer))?;
            *progress = true;
            self.ended = read == 0;
        }
    }
}

/// Copies until both sides have ended, one of them fails, or nothing moves for `idle_ms`.
pub(crate) async fn run(inbound: &Inbound, mut upstream: UpstreamConn, idle_ms: u64) -> Carried {
    let (mut out, mut back) = (Flow::default(), Flow::default());
    let UpstreamConn { io, buffer, .. } = &mut upstream;
    inbound.watch.arm(idle_ms);
    poll_fn(|cx| {
        let mut client_buffer = inbound.buffer.borrow_mut();
        let mut progress = false;
        let sent = out.poll(cx, &inbound.io, &mut client_buffer, io, &mut progress);
        let received = back.poll(cx, io, buffer, &inbound.io, &mut progress);
        if progress {
            inbound.watch.arm(idle_ms);
        }
        match (sent, received) {
            (Poll::Ready(Err(_)), _)
            | (_, Poll::Ready(Err(_)))
            | (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(()),
            _ if inbound.watch.poll_expired(cx) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    })
    .await;
    Carried { from_client: out.carried, to_client: back.carried }
}

impl Io {
    fn poll_write_some(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.with(|stream| tokio::io::AsyncWrite::poll_write(Pin::new(stream), cx, bytes))
    }

    fn poll_flush_some(&self, cx: &mut Context<'_>) -> std::io::Result<Poll<()>> {
        match self.with(|stream| tokio::io::AsyncWrite::poll_flush(Pin::new(stream), cx)) {
            Poll::Ready(flushed) => flushed.map(Poll::Ready),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    fn poll_shutdown_some(&self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.with(|stream| tokio::io::AsyncWrite::poll_shutdown(Pin::new(stream), cx))
    }
}
