//! Stage 15: pick an upstream, send the request, try again where that is safe.

use std::rc::Rc;

use corvus_config::snapshot::{LoadBalancing, UpstreamProtocol};
use corvus_core::Stage;

use crate::{
    http::{
        exchange::Exchange, headers::list, name::Name, pipeline::Stop, rescue::Failure,
        response::Response,
    },
    http1::{framing::Length, parse::Version},
    upstream::{
        UpstreamError, connect,
        h1::{self, Outgoing, Progress},
        h2,
        head::{self, Hop},
        pool::{InFlight, UpstreamState},
    },
    worker::Site,
};

/// Upstreams tried for one request.
const MAX_TRIES: usize = 3;
/// A request that came through us so often goes in a circle.
const MAX_HOPS: usize = 8;

pub(crate) async fn forward(x: &mut Exchange) -> Result<Response, Stop> {
    let Some(site) = x.site.clone() else {
        return Err(Failure::denied(404, Stage::Host, "unknown_host").into());
    };
    let hops = x.head.headers.all(Name::Via).flat_map(list);
    if hops.filter(|hop| hop.ends_with(b" corvus")).count() >= MAX_HOPS {
        return Err(Failure::denied(508, Stage::Upstream, "loop").into());
    }
    let mut tried = Vec::new();
    loop {
        let now_ms = x.worker.watches.now_ms();
        let picked = site.balance.pick(&site.upstreams, x.client, &tried, now_ms);
        let Some((index, state)) = picked.and_then(|i| Some((i, site.upstreams.get(i)?))) else {
            return Err(Failure::denied(502, Stage::Upstream, "no_upstream").into());
        };
        x.upstream = Some(Rc::clone(state));
        let error = match attempt(x, &site, state).await {
            Ok(response) => {
                state.health.succeeded();
                return Ok(response);
            }
            Err(error) => error,
        };
        if error.error.counts_against_upstream() && !error.stale {
            let now_ms = x.worker.watches.now_ms();
            state.health.failed(now_ms);
            let upstream = &state.label;
            let failure = crate::http::rescue::chain(&error.error);
            tracing::debug!(request_id = x.id(), upstream, failure, "upstream failed");
        }
        tried.push(index);
        if !error.may_repeat || tried.len() >= MAX_TRIES.min(site.upstreams.len()) {
            return Err(Failure::Upstream(error.error).into());
        }
    }
}

#[derive(Debug)]
struct Failed {
    error: UpstreamError,
    may_repeat: bool,
    /// A kept connection had been closed meanwhile, which says nothing about the upstream.
    stale: bool,
}

/// RFC 9110 section 9.2.2: repeating these changes nothing.
fn is_idempotent(method: &[u8]) -> bool {
    matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"PUT" | b"DELETE")
}

async fn attempt(
    x: &mut Exchange,
    site: &Site,
    state: &Rc<UpstreamState>,
) -> Result<Response, Failed> {
    let sent_us = x.worker.clock.mono_us();
    let in_flight = match site.host.load_balancing {
        LoadBalancing::LeastConnections | LoadBalancing::RandomTwo => {
            Some(InFlight::new(&state.health))
        }
        LoadBalancing::RoundRobin | LoadBalancing::IpHash => None,
    };
    let result = match state.key.upstream.protocol {
        UpstreamProtocol::Http1 => attempt_h1(x, site, state).await,
        UpstreamProtocol::Http2 => attempt_h2(x, site, state).await,
    };
    let elapsed_us = x.worker.clock.mono_us().saturating_sub(sent_us);
    x.upstream_us = Some(elapsed_us);
    result.map(|mut response| {
        response.in_flight = in_flight;
        response
    })
}

async fn attempt_h1(
    x: &mut Exchange,
    site: &Site,
    state: &Rc<UpstreamState>,
) -> Result<Response, Failed> {
    let worker = Rc::clone(&x.worker);
    let upgrade = upgrade_of(x, site);
    let idempotent = is_idempotent(x.head.method());
    let mut reused = state.checkout(worker.watches.now_ms(), idempotent && upgrade.is_none());
    loop {
        let conn = match reused.take() {
            Some(conn) => conn,
            None => connect::connect_h1(&worker, state, site.host.connect_timeout).await.map_err(
                |error| Failed { may_repeat: error.before_connected(), stale: false, error },
            )?,
        };
        let was_reused = conn.reused;
        let hop = Hop {
            length: x.body.length(),
            upgrade: upgrade.as_deref(),
            expects_continue: x.body.expects_continue(),
        };
        let mut head = worker.take_scratch();
        head::write_h1(&mut head, x, hop);
        let progress = Progress::default();
        let mut body = std::mem::replace(&mut x.body, crate::http::body::RequestBody::Empty);
        let out = Outgoing {
            worker: &worker,
            inbound: x.inbound.as_deref(),
            method: x.head.method(),
            head: &head,
            hop,
            idle_ms: site.idle_ms,
        };
        let sent = h1::send(out, conn, &mut body, &progress).await;
        x.body = body;
        worker.give_scratch(head);
        let error = match sent {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        let untouched = !progress.body_begun.get() && !progress.answer_begun.get();
        let broke = matches!(error, UpstreamError::Closed | UpstreamError::Io(_));
        // The upstream closed an idle connection while the request was under way: nothing was
        // wrong with it or with the upstream, so once more on a new connection.
        if was_reused && untouched && broke && idempotent {
            continue;
        }
        let stale = was_reused && untouched && broke;
        return Err(Failed { may_repeat: untouched && broke && idempotent, stale, error });
    }
}

async fn attempt_h2(
    x: &mut Exchange,
    site: &Site,
    state: &Rc<UpstreamState>,
) -> Result<Response, Failed> {
    let worker = Rc::clone(&x.worker);
    let never = |error| Failed { error, may_repeat: false, stale: false };
    let has_body = !x.body.is_empty();
    loop {
        let request = h2::request(x, state).map_err(never)?;
        let (sender, reused) =
            h2::sender(&worker, state, site.host.connect_timeout).await.map_err(|error| {
                Failed { may_repeat: error.before_connected(), stale: false, error }
            })?;
        match h2::send(&worker, sender, request, &mut x.body, site.idle_ms).await {
            Ok(response) => return Ok(response),
            // A connection that the upstream gave up while idle.
            Err(UpstreamError::Http2(error))
                if reused && !has_body && is_idempotent(x.head.method()) =>
            {
                tracing::debug!(%error, "HTTP/2 connection to the upstream was stale");
                state.h2.borrow_mut().take();
            }
            Err(error) => return Err(never(error)),
        }
    }
}

/// The protocol to upgrade to, if the client asks for one that this host allows. `h2c` never
/// passes, whatever the host says: it opens a tunnel past every stage.
fn upgrade_of(x: &Exchange, site: &Site) -> Option<Vec<u8>> {
    let headers = &x.head.headers;
    if x.head.version != Version::Http11 || x.head.method() != b"GET" || x.inbound.is_none() {
        return None;
    }
    let mut values = headers.all(Name::Upgrade);
    let protocol = values.next()?;
    let listed = headers
        .all(Name::Connection)
        .flat_map(list)
        .any(|option| option.eq_ignore_ascii_case(b"upgrade"));
    let allowed =
        site.host.upgrades.iter().any(|token| protocol.eq_ignore_ascii_case(token.as_bytes()));
    let plain = values.next().is_none() && x.body.length() == Length::NONE;
    let forbidden = protocol.eq_ignore_ascii_case(b"h2c");
    (listed && allowed && plain && !forbidden).then(|| protocol.to_vec())
}
