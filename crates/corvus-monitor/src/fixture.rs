//! Test fixtures: an ordinary request.

use corvus_core::{
    ClientIp, Event,
    event::{Outcome, Protocol},
};

/// 2027-01-15 08:00:00.042 UTC, an unknown host, answered by us.
pub(crate) fn event() -> Event<'static> {
    Event {
        at_ms: 1_800_000_000_042,
        request_id: "r-1",
        client: ClientIp::new([192, 0, 2, 10].into()),
        method: b"GET",
        host: b"shop.example.com",
        target: b"/a?b=c",
        protocol: Protocol::Http11,
        tls: true,
        site: None,
        version: 7,
        status: 200,
        sent: 1000,
        received: 0,
        duration_us: 1500,
        upstream_us: None,
        upstream: None,
        outcome: Outcome::Answered,
        reason: None,
        user_agent: b"curl/8",
        referer: b"",
    }
}
