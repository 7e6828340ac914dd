//! The store: the real room behind one core that works through calls one after the other, with the
//! faults that were asked for, and an eye on the laws that a reply shows.

use std::ops::Range;

use corvus_config::snapshot::QueueSettings;
use corvus_queue::{
    op::{Answer, Caller, Op, Reply},
    room::Room,
};

use super::{OPENING_MS, options::Options};

/// The room's time at the start of a run, Unix ms: any that is far from 0.
pub(super) const START_MS: u64 = 1_800_000_000_000;
/// A gateway gives up on a call after this long (specification, section 6).
const TIMEOUT_US: u64 = 500_000;
/// Keys the hash that draws lots.
const DRAW_KEY: [u8; 16] = *b"simulated visits";

pub(super) struct Store {
    settings: QueueSettings,
    room: Room,
    /// When its core has worked off all calls so far, us.
    free_us: u64,
    wipe_us: Option<u64>,
    down_us: Option<Range<u64>>,
    call_us: f64,
    op_us: f64,
    half_trip_us: u64,
    /// Of the room's counters after the latest call.
    admitted: u64,
    reaped: u64,
    pub(super) laws: Laws,
}

/// What one call was and brought.
pub(super) struct Called {
    /// `None`: no answer within the time that a gateway waits. The room may have done it all the
    /// same.
    pub(super) reply: Option<Reply>,
    /// When the gateway has the reply, or gives up, us.
    pub(super) back_us: u64,
    pub(super) work_us: f64,
    /// Let in by this call.
    pub(super) admitted: u64,
    /// Given up by this call, because they did not check in.
    pub(super) reaped: u64,
    /// Highest ticket known to be let in before this call.
    pub(super) let_in: u64,
}

/// Breaches that replies show.
#[derive(Default)]
pub(super) struct Laws {
    /// Calls after which more were inside than may be.
    pub(super) over_capacity: u64,
    /// Calls that let in more than rate and burst allow since any moment before.
    pub(super) over_rate: u64,
    /// Highest ticket known to be let in: all who have stood in line since then are behind it.
    let_in: u64,
    /// Admissions above the rate, as a bucket that leaks at the rate.
    level: f64,
    level_us: u64,
}

impl Store {
    pub(super) fn new(options: &Options, settings: QueueSettings) -> Self {
        let us = |s: u32| (u64::from(s) * 1_000 + u64::from(OPENING_MS)) * 1_000;
        Self {
            room: Room::new(settings.clone(), DRAW_KEY, false),
            settings,
            free_us: 0,
            wipe_us: options.wipe_at.map(us),
            down_us: options.store_down.as_ref().map(|span| us(span.start)..us(span.end)),
            call_us: options.costs.call_us,
            op_us: options.costs.op_us,
            half_trip_us: options.costs.store_round_trip_us / 2,
            admitted: 0,
            reaped: 0,
            laws: Laws::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn judge_by(&mut self, settings: QueueSettings) {
        self.settings = settings;
    }

    /// One call that a gateway sends at `sent_us`. Calls come in the order in which they are sent.
    pub(super) fn call(&mut self, sent_us: u64, caller: Caller, ops: &[Op]) -> Called {
        let start_us = (sent_us + self.half_trip_us).max(self.free_us);
        let timeout_us = sent_us + TIMEOUT_US;
        let let_in = self.laws.let_in;
        if self.down_us.as_ref().is_some_and(|down| down.contains(&start_us)) {
            let lost = Called {
                reply: None,
                back_us: timeout_us,
                work_us: 0.0,
                admitted: 0,
                reaped: 0,
                let_in,
            };
            return lost;
        }
        if self.wipe_us.is_some_and(|wipe_us| start_us >= wipe_us) {
            self.wipe_us = None;
            self.room = Room::new(self.settings.clone(), DRAW_KEY, false);
            (self.admitted, self.reaped) = (0, 0);
        }
        let now_ms = START_MS + start_us / 1_000;
        let reply = self.room.call(now_ms, caller, ops);
        let stats = self.room.stats(now_ms);
        let admitted = stats.admitted - std::mem::replace(&mut self.admitted, stats.admitted);
        let reaped = stats.abandoned - std::mem::replace(&mut self.reaped, stats.abandoned);
        self.laws.note(&self.settings, start_us, &reply, ops, admitted);

        let done = ops.len() as u64 + admitted + reaped;
        let work_us = self.call_us + self.op_us * done as f64;
        self.free_us = start_us + work_us as u64;
        let back_us = self.free_us + self.half_trip_us;
        let in_time = back_us <= timeout_us;
        Called {
            reply: in_time.then_some(reply),
            back_us: back_us.min(timeout_us),
            work_us,
            admitted,
            reaped,
            let_in,
        }
    }
}

impl Laws {
    fn note(
        &mut self,
        settings: &QueueSettings,
        now_us: u64,
        reply: &Reply,
        ops: &[Op],
        admitted: u64,
    ) {
        self.over_capacity += u64::from(reply.inside > settings.capacity);
        if let Some(rate) = settings.rate {
            let per_s = rate.count / rate.per_s;
            let leaked = (now_us / 1_000 - self.level_us / 1_000) as f64 * per_s / 1e3;
            self.level = (self.level - leaked).max(0.0) + admitted as f64;
            self.level_us = now_us;
            self.over_rate += u64::from(self.level > per_s.max(1.0) + 1e-6);
        }
        for (op, answer) in ops.iter().zip(&reply.answers) {
            let ticket = match (op, answer) {
                // A newcomer past an empty line: as if with the ticket of this moment.
                (_, Answer::Admitted { joined: true, .. }) => reply.now_ms * 1_000,
                (Op::Enter { place, .. }, Answer::Admitted { .. })
                | (Op::Poll { place, .. }, Answer::Ready) => {
                    place.map_or(0, |place| super::visitor::number(place.ticket))
                }
                _ => 0,
            };
            self.let_in = self.let_in.max(ticket);
        }
    }
}
