//! Stage 14: how much of a request body may come, and how long it may pause.

use std::{future::poll_fn, task::Poll};

use crate::{
    http::{body::BodyError, exchange::Exchange, pipeline::Stop, rescue::Failure},
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
    // What has come of the first chunk already is looked at now, so that one that is malformed
    // reaches no upstream.
    if x.body.length() == Length::Chunked
        && let Poll::Ready(Err(error)) = poll_fn(|cx| Poll::Ready(x.body.poll_fill(cx))).await
    {
        return Err(Failure::Body(error).into());
    }
    Ok(())
}
