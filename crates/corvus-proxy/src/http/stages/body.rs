//! Stage 14: how much of a request body may come, and how long it may pause.

use crate::{
    http::{body::BodyError, exchange::Exchange, pipeline::Stop, rescue::Failure},
    http1::framing::Length,
};

pub(crate) fn bound(x: &mut Exchange) -> Result<(), Stop> {
    let Some(site) = &x.site else { return Ok(()) };
    let limit = site.host.body_limit;
    if let (Length::Known(length), Some(limit)) = (x.body.length(), limit)
        && length > limit
    {
        return Err(Failure::Body(BodyError::TooLarge).into());
    }
    x.body.bound(limit, site.idle_ms);
    Ok(())
}
