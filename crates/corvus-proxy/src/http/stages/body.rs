//! Stage 14: how much of a request body may come, and how long it may pause.

use std::{future::poll_fn, task::Poll};

use corvus_core::event::Protocol;

use crate::{
    http::{
        body::{BodyError, RequestBody},
        exchange::Exchange,
        pipeline::Stop,
        rescue::Failure,
    },
    http1::framing::Length,
};

pub(crate) async fn bound(x: &mut Exchange) -> Result<(), Stop> {
    let Some(site) = &x.site else { return Ok(()) };
    let limit = site.host.body_limit;
    if let (Length::Known(length), Some(limit)) = (x.body.length(), limit)
        && length > limit
    {
        return Err(Failure::Body(BodyError::TooLarge).into());
    }
    x.body.bound(limit, site.idle_ms);
    if x.body.length() != Length::Chunked {
        return Ok(());
    }
    let first = if is_bodiless(x) {
        poll_fn(|cx| x.body.poll_fill(cx).map(Poll::Ready)).await
    } else {
        // What has come of the first chunk already is looked at now, so that one that is malformed
        // reaches no upstream.
        poll_fn(|cx| Poll::Ready(x.body.poll_fill(cx))).await
    };
    match first {
        Poll::Ready(Err(error)) => return Err(Failure::Body(error).into()),
        Poll::Ready(Ok(false)) if x.body.has_no_trailers() => x.body = RequestBody::Empty,
        _ => {}
    }
    Ok(())
}

/// Many HTTP/2 clients end a request without a body by a frame of its own, a moment later. Waiting
/// for it spares the upstream a chunked body with nothing in it, and its connection the end.
fn is_bodiless(x: &Exchange) -> bool {
    x.protocol == Protocol::Http2
        && matches!(x.head.method(), b"GET" | b"HEAD" | b"OPTIONS" | b"DELETE")
}
