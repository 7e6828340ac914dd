//! From counts to machines, and a recommendation in words.

use serde::Serialize;

use super::{
    OPENING_MS,
    costs::TARGET_BUSY,
    options::{OnFailure, Options},
    tally::Second,
    text::{bytes, grouped, times},
    world::World,
};

/// `max_waiting` of a configuration that does not name it.
const MAX_WAITING_DEFAULT: u64 = 100_000;
/// Memory of the smallest Valkey worth naming, bytes; its own needs are far below.
const STORE_BYTES_MIN: f64 = 1e9;

#[derive(Debug, Serialize)]
pub(crate) struct Sizing {
    /// Cores of the store at work, in the busiest second and over the whole run.
    pub(crate) store_cores_peak: f64,
    pub(crate) store_cores_mean: f64,
    pub(crate) store_bytes: f64,
    /// Cores of all gateways together.
    pub(crate) gateway_cores_peak: f64,
    pub(crate) gateway_cores_mean: f64,
    /// Of all gateways together.
    pub(crate) gateway_bytes: f64,
    /// Waiting pages, check-ins and redirects; without what the site itself sends.
    pub(crate) visitor_bits_per_s: f64,
    pub(crate) store_bits_per_s: f64,
    /// How many gateways carry the peak, and one more.
    pub(crate) gateways: u64,
    pub(crate) recommendation: Vec<String>,
}

pub(super) fn of(world: &World<'_>, still_waiting: u64, admitted_per_s: f64) -> Sizing {
    let (options, tally) = (world.options, &world.tally);
    let costs = &options.costs;
    let seconds = tally.seconds.get(OPENING_MS as usize / 1_000..).unwrap_or_default();
    let peak = |of: &dyn Fn(&Second) -> f64| seconds.iter().map(of).fold(0.0, f64::max);
    let mean =
        |of: &dyn Fn(&Second) -> f64| seconds.iter().map(of).sum::<f64>() / seconds.len() as f64;

    let store = |s: &Second| s.store_us / 1e6;
    let gateways = |s: &Second| {
        (s.requests as f64 * costs.request_us + s.handshakes as f64 * costs.handshake_us) / 1e6
    };
    let connections = peak(&|s| s.connections as f64);
    let sizing = Sizing {
        store_cores_peak: peak(&store),
        store_cores_mean: mean(&store),
        store_bytes: peak(&|s| (s.waiting + s.inside) as f64 * costs.waiter_bytes),
        gateway_cores_peak: peak(&gateways),
        gateway_cores_mean: mean(&gateways),
        gateway_bytes: connections * costs.connection_bytes,
        visitor_bits_per_s: 8.0
            * peak(&|s| s.pages as f64 * costs.page_bytes + s.small as f64 * costs.poll_bytes),
        store_bits_per_s: 8.0 * peak(&|s| (s.ops + s.calls) as f64 * costs.op_bytes),
        gateways: 0,
        recommendation: Vec::new(),
    };
    let by_cores = sizing.gateway_cores_peak / (f64::from(costs.gateway_cores) * TARGET_BUSY);
    let by_memory = sizing.gateway_bytes / (costs.gateway_gb * 1e9 * TARGET_BUSY);
    let carry = by_cores.max(by_memory).ceil().max(1.0) as u64;
    let limit = if by_cores >= by_memory { "cores" } else { "memory" };
    let recommendation = [
        Some(gateway_words(options, carry, limit)),
        Some(store_words(&sizing)),
        failure_words(world),
        line_words(options, peak(&|s| s.waiting as f64) as u64),
        rest_words(still_waiting, admitted_per_s),
    ];
    Sizing {
        gateways: carry + 1,
        recommendation: recommendation.into_iter().flatten().collect(),
        ..sizing
    }
}

fn gateway_words(options: &Options, carry: u64, limit: &str) -> String {
    let costs = &options.costs;
    let simulated = match u64::from(options.gateways) {
        n if n == carry + 1 => "as simulated".to_owned(),
        n => format!("{n} were simulated"),
    };
    let carriers = match carry {
        1 => "One carries".to_owned(),
        n => format!("{} together carry", grouped(n)),
    };
    format!(
        "Gateways: {} of {} cores and {} GB each ({simulated}). {carriers} the peak within {:.0} % of \
         the {limit}, and one more is there because one may fail.",
        carry + 1,
        costs.gateway_cores,
        costs.gateway_gb,
        TARGET_BUSY * 100.0,
    )
}

fn store_words(sizing: &Sizing) -> String {
    let busy = sizing.store_cores_peak;
    let gb = (2.0 * sizing.store_bytes).max(STORE_BYTES_MIN) / 1e9;
    let verdict = if busy <= TARGET_BUSY {
        "one instance with a replica is enough"
    } else if busy <= 0.9 {
        "one instance with a replica, on a fast core that it shares with nothing"
    } else {
        "one core does not carry this opening. A cluster does not help, since one queue is one slot: \
         spread the arrivals, or accept that visitors are told to come later"
    };
    format!(
        "Valkey: {verdict}. Its core is {:.0} % busy in the busiest second, and it holds {}: give it \
         {:.0} GB (twice that, because a snapshot may double it; at least 1 GB).",
        busy * 100.0,
        bytes(sizing.store_bytes),
        gb.ceil(),
    )
}

fn failure_words(world: &World<'_>) -> Option<String> {
    let (tally, options) = (&world.tally, world.options);
    if options.store_down.is_some() || tally.failed_calls == 0 {
        return None;
    }
    let then = match options.on_store_failure {
        OnFailure::Open => format!(
            "{} visitors were let through without a place (on_store_failure: open)",
            grouped(tally.through)
        ),
        OnFailure::Closed => {
            "visitors were told to try again (on_store_failure: closed)".to_owned()
        }
    };
    Some(format!(
        "The store was overrun: {} took longer than 500 ms, and {then}.",
        times(tally.failed_calls, "call", "calls"),
    ))
}

fn line_words(options: &Options, waiting: u64) -> Option<String> {
    (options.max_waiting.is_none() && waiting > MAX_WAITING_DEFAULT).then(|| {
        format!(
            "Set max_waiting above {}; {} is what a configuration has that does not name it.",
            grouped(waiting),
            grouped(MAX_WAITING_DEFAULT)
        )
    })
}

fn rest_words(still_waiting: u64, admitted_per_s: f64) -> Option<String> {
    (still_waiting > 0 && admitted_per_s > 0.0).then(|| {
        format!(
            "At the end of the run {} still wait: about {:.0} minutes more at {admitted_per_s:.1} \
             admissions a second.",
            grouped(still_waiting),
            (still_waiting as f64 / admitted_per_s / 60.0).ceil(),
        )
    })
}
