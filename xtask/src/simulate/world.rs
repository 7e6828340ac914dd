//! The run: one virtual clock, the gateways and the store. What visitors do is in
//! [`super::browse`].

use std::{cmp::Reverse, collections::BinaryHeap};

use anyhow::Result;
use corvus_queue::op::{Caller, Op};

use super::{
    OPENING_MS,
    chance::{Chance, Draw},
    gateway::{Call, Gateway, PENDING_MAX, Sent},
    options::Options,
    store::Store,
    tally::{Holders, Tally},
    visitor::{Kind, Visitor, sid},
    wheel::Wheel,
};

/// Beyond the end of the run: the longest that an admission may still be valid, seconds.
const HOLDERS_BEYOND_S: u32 = 86_400 + 60;

/// The visitors of a gateway that ended connect again evenly over the longest interval of
/// check-ins, seconds.
const RECONNECT_S: u32 = 30;

pub(super) struct World<'a> {
    pub(super) options: &'a Options,
    pub(super) chance: Chance,
    pub(super) wheel: Wheel,
    pub(super) visitors: Vec<Visitor>,
    pub(super) gateways: Vec<Gateway>,
    pub(super) killed: Option<u32>,
    /// By time in us, then in the order in which they were set.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    set: u64,
    pub(super) store: Store,
    pub(super) holders: Holders,
    pub(super) tally: Tally,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Event {
    /// A gateway's pass, once a second.
    Tick(u32),
    /// A gateway has gathered long enough.
    Flush(u32),
    /// A call of a gateway is answered, or given up.
    Back(u32),
}

/// Plays `options` to the end.
pub(super) fn run(options: &Options) -> Result<World<'_>> {
    let length_s = options.horizon + OPENING_MS / 1_000;
    let chance = Chance::new(options.seed);
    let mut world = World {
        options,
        chance,
        wheel: Wheel::new(length_s * 1_000, options.visitors),
        visitors: vec![Visitor::NEW; options.visitors as usize],
        gateways: (0..options.gateways).map(|_| Gateway::default()).collect(),
        killed: None,
        events: BinaryHeap::new(),
        set: 0,
        store: Store::new(options, options.settings()?),
        holders: Holders::new(length_s + HOLDERS_BEYOND_S),
        tally: Tally::new(length_s),
    };
    for visitor in 0..options.visitors {
        world.wheel.file(OPENING_MS + arrival_ms(options, chance, visitor), visitor);
    }
    for gateway in 0..options.gateways {
        // Not all in the same moment.
        let first_us = u64::from(gateway) * 1_000_000 / u64::from(options.gateways);
        world.set(first_us, Event::Tick(gateway));
    }
    for now_ms in 0..length_s * 1_000 {
        world.millisecond(now_ms);
    }
    Ok(world)
}

/// Evenly within the burst; after it ever more thinly.
fn arrival_ms(options: &Options, chance: Chance, visitor: u32) -> u32 {
    let burst_ms = f64::from(options.open_burst.s) * 1e3;
    let u = chance.share(visitor, Draw::ArrivalTime, 0);
    if chance.share(visitor, Draw::Arrival, 0) < options.open_burst.share {
        return (burst_ms * u) as u32;
    }
    let tail_ms = f64::from(options.horizon) * 1e3 - burst_ms;
    (burst_ms + tail_ms * (1.0 - (1.0 - u).sqrt())) as u32
}

impl World<'_> {
    fn millisecond(&mut self, now_ms: u32) {
        if now_ms.is_multiple_of(1_000) {
            self.holders.advance(now_ms);
        }
        if self.options.kill_gateway_at.is_some_and(|s| s * 1_000 + OPENING_MS == now_ms) {
            self.kill(now_ms);
        }
        let end_us = (u64::from(now_ms) + 1) * 1_000;
        while let Some(Reverse((at_us, _, event))) =
            self.events.peek().filter(|Reverse((at_us, ..))| *at_us < end_us).copied()
        {
            self.events.pop();
            self.happen(at_us, event);
        }
        while let Some(visitor) = self.wheel.take(now_ms) {
            self.act(now_ms, visitor);
        }
        if now_ms % 1_000 == 999 {
            self.close_second(now_ms);
        }
    }

    fn set(&mut self, at_us: u64, event: Event) {
        self.set += 1;
        self.events.push(Reverse((at_us, self.set, event)));
    }

    fn happen(&mut self, at_us: u64, event: Event) {
        let (Event::Tick(g) | Event::Flush(g) | Event::Back(g)) = event;
        if self.killed == Some(g) {
            return;
        }
        match event {
            Event::Tick(_) => {
                self.set(at_us + 1_000_000, event);
                if self.gateways[g as usize].allows((at_us / 1_000) as u32) {
                    self.gateways[g as usize].due = true;
                    self.flush(at_us, g);
                }
            }
            Event::Flush(_) => {
                self.gateways[g as usize].scheduled = false;
                self.gateways[g as usize].due = true;
                self.flush(at_us, g);
            }
            Event::Back(_) => self.back(at_us, g),
        }
    }

    /// Which gateway a visitor's connection leads to: always the same while it lives.
    pub(super) fn gateway_of(&self, visitor: u32) -> u32 {
        let pick = |draw, n: u32| (self.chance.share(visitor, draw, 0) * f64::from(n)) as u32;
        let n = self.options.gateways;
        let first = pick(Draw::Gateway, n);
        if self.killed == Some(first) {
            return (first + 1 + pick(Draw::NextGateway, n - 1)) % n;
        }
        first
    }

    /// Hands an operation of a visitor to its gateway.
    pub(super) fn ask(&mut self, now_ms: u32, visitor: u32, kind: Kind) {
        let g = self.gateway_of(visitor);
        let gateway = &mut self.gateways[g as usize];
        if !gateway.allows(now_ms) {
            self.without_store(now_ms, visitor, kind);
            return;
        }
        if gateway.pending.len() >= PENDING_MAX {
            self.busy(now_ms, visitor, kind);
            return;
        }
        let op = self.visitors[visitor as usize].op(kind, sid(self.chance, visitor));
        gateway.pending.push(Sent { visitor, kind, at_ms: now_ms });
        gateway.ops.push(op);
        let second = self.tally.at(now_ms);
        match kind {
            Kind::Poll => second.polls += 1,
            Kind::Beat => second.heartbeats += 1,
            Kind::Enter | Kind::Leave => {}
        }
        if !std::mem::replace(&mut gateway.scheduled, true) {
            // At the end of this millisecond at the earliest: all of it goes together.
            let at_ms = now_ms + self.options.window_ms.max(1);
            self.set(u64::from(at_ms) * 1_000, Event::Flush(g));
        }
    }

    /// Sends what has gathered, unless a call is under way.
    fn flush(&mut self, at_us: u64, g: u32) {
        let gateway = &mut self.gateways[g as usize];
        if !gateway.due || gateway.call.is_some() {
            return;
        }
        let (sent, ops): (Vec<Sent>, Vec<Op>) = gateway.next_batch();
        gateway.due = !gateway.pending.is_empty();
        gateway.calls += 1;
        let caller = Caller { gateway: u64::from(g) + 1, report: gateway.report };
        let called = self.store.call(at_us, caller, &ops);
        gateway.call = Some(Call { sent, reply: called.reply, let_in: called.let_in });
        self.set(called.back_us, Event::Back(g));

        if !ops.is_empty() {
            self.tally.batches.note(ops.len() as u64);
        }
        self.tally.reaped += called.reaped;
        let second = self.tally.at((at_us / 1_000) as u32);
        second.calls += 1;
        second.ops += ops.len() as u64;
        second.store_us += called.work_us;
        second.admitted += called.admitted;
    }

    fn back(&mut self, at_us: u64, g: u32) {
        let now_ms = (at_us / 1_000) as u32;
        let gateway = &mut self.gateways[g as usize];
        let Some(call) = gateway.call.take() else { return };
        let Some(reply) = call.reply else {
            gateway.failed(now_ms);
            // Those who wait behind the call have no better luck.
            let behind = std::mem::take(&mut gateway.pending);
            gateway.ops.clear();
            gateway.due = false;
            self.tally.failed_calls += 1;
            for sent in call.sent.into_iter().chain(behind) {
                self.without_store(now_ms, sent.visitor, sent.kind);
            }
            return;
        };
        gateway.answered();
        gateway.report = Some(reply.report());
        gateway.due |= reply.more;
        let second = self.tally.at(now_ms);
        (second.waiting, second.inside) = (reply.waiting, reply.inside);
        let moment = super::browse::Moment {
            now_ms,
            told_ms: super::visitor::run_ms(reply.now_ms),
            let_in: call.let_in,
        };
        for (sent, answer) in call.sent.into_iter().zip(&reply.answers) {
            self.tally.answers_ms.note(u64::from(now_ms - sent.at_ms));
            self.answered(moment, sent, answer);
        }
        self.flush(at_us, g);
    }

    fn kill(&mut self, now_ms: u32) {
        // The first; they are all alike.
        let g = 0;
        self.killed = Some(g);
        let gateway = std::mem::take(&mut self.gateways[g as usize]);
        // They notice with their next request, which is a check-in for nearly all.
        for s in 0..RECONNECT_S {
            self.tally.at(now_ms + s * 1_000).handshakes +=
                gateway.connections / u64::from(RECONNECT_S);
        }
        for visitor in 0..self.options.visitors {
            let first = self.chance.share(visitor, Draw::Gateway, 0);
            let was_here = (first * f64::from(self.options.gateways)) as u32 == g;
            if was_here && self.visitors[visitor as usize].is_connected() {
                let to = self.gateway_of(visitor);
                self.gateways[to as usize].connections += 1;
            }
        }
        let under_way = gateway.call.map(|call| call.sent).unwrap_or_default();
        for sent in under_way.into_iter().chain(gateway.pending) {
            self.retry(now_ms, sent);
        }
    }

    fn close_second(&mut self, now_ms: u32) {
        let second = self.tally.at(now_ms);
        for gateway in &mut self.gateways {
            let (requests, calls) =
                (std::mem::take(&mut gateway.requests), std::mem::take(&mut gateway.calls));
            second.requests += requests;
            second.connections += gateway.connections;
            second.busiest_requests = second.busiest_requests.max(requests);
            second.busiest_calls = second.busiest_calls.max(calls);
            second.busiest_connections = second.busiest_connections.max(gateway.connections);
        }
        // Seconds without a reply look like the one before.
        let (waiting, inside) = (second.waiting, second.inside);
        let next = self.tally.at(now_ms + 1);
        (next.waiting, next.inside) = (waiting, inside);
    }
}
