//! The state of one access queue, and everything that can happen to it.
//!
//! A pure state machine: the time comes in with each call, nothing goes out but the reply. It
//! follows the queue specification to the letter; section numbers in comments are that page's.

mod callers;
mod deadlines;
mod draw;
mod line;
mod ops;
mod pace;
mod pass;
mod save;
mod table;

use corvus_config::snapshot::{Method, QueueSettings};

pub(crate) use self::draw::Draw;
#[cfg(not(test))]
use self::pace::Pace;
#[cfg(test)]
pub(crate) use self::pace::Pace;
use self::{callers::Callers, deadlines::Deadlines, line::Line, save::Changes, table::Table};
use crate::op::{Answer, Caller, Op, Reply, Stats, WAIT_BUCKETS_S};

pub use self::{
    pace::{eta_ms, poll_ms},
    save::{LoadError, Loader},
};

/// After a wipe, and after a gap, how long the surviving gateways get to report.
const EPOCH_MS: u64 = 5_000;
/// Nobody in contact for longer than this is a gap.
const GAP_MS: u64 = 5_000;
/// After a gap, a check-in counts as due this much later.
const RESUME_GRACE_MS: u64 = 30_000;
/// Entries one pass reaps, and separately promotes, at most: a pass stays below a millisecond.
const PASS_BOUND: usize = 1_000;

/// One queue's state.
#[derive(Clone, Debug)]
pub struct Room {
    settings: QueueSettings,
    /// How tickets are drawn: changes only while nobody waits.
    order: Order,
    draw: Draw,
    table: Table,
    /// `queue`, by ticket.
    line: Line,
    /// `active`, by expiry.
    expiries: Deadlines,
    /// `seen`, by due time.
    dues: Deadlines,
    /// `spent`, by time.
    spents: Deadlines,
    counts: Counts,
    vars: Vars,
    pace: Pace,
    totals: Totals,
    callers: Callers,
    /// No other gateway can have survived what this engine did not: no epoch wait.
    lone: bool,
    /// Just loaded from its own saved state: its first pass is one after a gap.
    restored: bool,
    /// What the next save must write; `None`: nothing is saved.
    changes: Option<Changes>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Order {
    Fifo,
    Random,
}

/// Sizes of the sets that [`Table`] holds as fields.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Counts {
    /// `active`.
    inside: usize,
    /// In `active` and in `seen`.
    granted: usize,
    /// `seen`.
    seen: usize,
    /// Sessions with an entry in `spent`.
    spent: usize,
}

/// The `rate` hash and `seq` of section 2.
#[derive(Clone, Debug, Default, PartialEq)]
struct Vars {
    seq: u64,
    tokens: f64,
    at: u64,
    /// 0: missing, the state is new.
    born: u64,
    n: u64,
    last_pass: u64,
    gap_from: u64,
    resumed_at: u64,
    owed: u64,
    owed_until: u64,
    flushed_at: u64,
    released_at: u64,
    admitted: u64,
    abandoned: u64,
    cfg: u64,
}

/// Wait times of all who claimed after waiting.
#[derive(Clone, Debug, Default, PartialEq)]
struct Totals {
    waits: u64,
    wait_sum_ms: u64,
    wait_buckets: [u64; WAIT_BUCKETS_S.len() + 1],
}

/// What of a change of settings does not hold yet, and why.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Deferred {
    #[error(
        "people wait under the old order: the new method holds once the line is empty or flushed"
    )]
    Method,
    #[error("people wait for a draw: its start cannot be earlier than now, so it is held now")]
    Start,
}

impl Room {
    /// A queue nobody has been to. `draw_key` keys the hash that draws lots. `lone`: no other
    /// gateway shares this state, and no token for it can be out, so newcomers need not wait for
    /// survivors to report.
    pub fn new(settings: QueueSettings, draw_key: [u8; 16], lone: bool) -> Self {
        let order = if settings.method == Method::Random { Order::Random } else { Order::Fifo };
        let mut room = Self {
            settings,
            order,
            draw: Draw::new(draw_key),
            table: Table::default(),
            line: Line::default(),
            expiries: Deadlines::default(),
            dues: Deadlines::default(),
            spents: Deadlines::default(),
            counts: Counts::default(),
            vars: Vars { cfg: 1, ..Vars::default() },
            pace: Pace::default(),
            totals: Totals::default(),
            callers: Callers::default(),
            lone,
            restored: false,
            changes: None,
        };
        room.draw.follow(&room.settings.schedule);
        room
    }

    pub fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    /// Takes new settings. What must not change while people wait is held back and named; a held
    /// back method is taken as soon as the line is empty.
    pub fn configure(&mut self, mut settings: QueueSettings, now_ms: u64) -> Vec<Deferred> {
        let mut deferred = Vec::new();
        let waits = self.line.len() > 0;
        let old_start = self.settings.schedule.starts_at_ms.filter(|start| now_ms < *start);
        if waits
            && old_start.is_some()
            && settings.schedule.starts_at_ms.is_none_or(|start| start < now_ms)
        {
            settings.schedule.starts_at_ms = Some(now_ms);
            deferred.push(Deferred::Start);
        }
        let level = |s: &QueueSettings| (s.capacity, s.rate, s.paused);
        if level(&settings) != level(&self.settings) {
            self.vars.cfg += 1;
        }
        self.settings = settings;
        self.draw.follow(&self.settings.schedule);
        if self.take_order() {
            deferred.push(Deferred::Method);
        }
        deferred
    }

    /// Follows the method's order if nobody waits; says whether it still has to.
    fn take_order(&mut self) -> bool {
        let wanted = match self.settings.method {
            Method::Fifo => Order::Fifo,
            Method::Random => Order::Random,
            Method::Passthrough | Method::Reject => return false,
        };
        if self.line.len() == 0 {
            self.order = wanted;
        }
        self.order != wanted
    }

    /// One call: a pass, then `ops` in order.
    pub fn call(&mut self, now_ms: u64, caller: Caller, ops: &[Op]) -> Reply {
        let mut more = self.pass(now_ms, caller);
        let answers: Vec<Answer> = ops.iter().map(|op| self.apply(now_ms, op, &mut more)).collect();
        Reply {
            now_ms,
            born_ms: self.vars.born,
            n: self.vars.n,
            inside: self.counts.inside as u64,
            claimed: self.claimed(),
            owed: self.owed(now_ms),
            waiting: self.line.len() as u64,
            cfg: self.vars.cfg,
            more,
            answers,
        }
    }

    pub fn stats(&self, now_ms: u64) -> Stats {
        Stats {
            inside: self.counts.inside as u64,
            claimed: self.claimed(),
            waiting: self.line.len() as u64,
            capacity: self.settings.capacity,
            paused: self.settings.paused,
            owed: self.owed(now_ms),
            admitted: self.vars.admitted,
            abandoned: self.vars.abandoned,
            per_s: self.pace.per_s(),
            waits: self.totals.waits,
            wait_sum_ms: self.totals.wait_sum_ms,
            wait_buckets: self.totals.wait_buckets,
        }
    }

    fn claimed(&self) -> u64 {
        (self.counts.inside - self.counts.granted) as u64
    }

    fn owed(&self, now: u64) -> u64 {
        if now < self.vars.owed_until { self.vars.owed } else { 0 }
    }

    /// How many may be let in right now (section 4).
    fn free(&self, now: u64) -> u64 {
        let s = &self.settings;
        let epoch = !self.lone && now >= self.vars.born && now - self.vars.born < EPOCH_MS;
        let not_started = s.schedule.starts_at_ms.is_some_and(|start| now < start);
        if epoch || s.paused || not_started || self.ended(now) || s.method == Method::Reject {
            return 0;
        }
        let occupied = self.counts.inside as u64 + self.owed(now);
        let room = s.capacity.saturating_sub(occupied);
        if s.rate.is_some() { room.min(self.vars.tokens as u64) } else { room }
    }

    fn ended(&self, now: u64) -> bool {
        self.settings.schedule.ends_at_ms.is_some_and(|end| now >= end)
    }

    // The fields of a session change only through these, which keep counts and indexes true.

    fn set_expiry(&mut self, slot: u32, expiry: u64) {
        let session = self.table.at_mut(slot);
        let (old, was_granted) = (session.expiry, session.granted());
        session.expiry = expiry;
        let granted = session.granted();
        tally(&mut self.counts.inside, old != 0, expiry != 0);
        tally(&mut self.counts.granted, was_granted, granted);
        let table = &self.table;
        self.expiries.set(slot, old, expiry, self.counts.inside, |s| table.at(s).expiry);
        self.changed(slot);
    }

    fn set_due(&mut self, slot: u32, due: u64) {
        let session = self.table.at_mut(slot);
        let (old, was_granted) = (session.due, session.granted());
        session.due = due;
        let granted = session.granted();
        tally(&mut self.counts.seen, old != 0, due != 0);
        tally(&mut self.counts.granted, was_granted, granted);
        let table = &self.table;
        self.dues.set(slot, old, due, self.counts.seen, |s| table.at(s).due);
        self.changed(slot);
    }

    fn set_ticket(&mut self, slot: u32, ticket: u64) {
        let old = std::mem::replace(&mut self.table.at_mut(slot).ticket, ticket);
        let table = &self.table;
        if old != 0 {
            self.line.remove(old, slot, |s| table.sid(s));
        }
        if ticket != 0 {
            self.line.insert(ticket, slot, |s| table.sid(s));
        }
        self.changed(slot);
    }

    fn set_spent(&mut self, slot: u32, used: u64, left: u64) {
        let session = self.table.at_mut(slot);
        let old = session.spent();
        (session.used, session.left) = (used, left);
        let new = session.spent();
        tally(&mut self.counts.spent, old != 0, new != 0);
        let table = &self.table;
        self.spents.set(slot, old, new, self.counts.spent, |s| table.at(s).spent());
        self.changed(slot);
    }

    fn changed(&mut self, slot: u32) {
        if let Some(changes) = &mut self.changes {
            changes.touch(slot);
        }
    }

    /// Forgets a session that is in no set any more.
    fn tidy(&mut self, slot: u32) {
        if self.table.at(slot).is_empty() {
            if let Some(changes) = &mut self.changes {
                changes.remove(self.table.sid(slot));
            }
            self.table.release(slot);
        }
    }
}

fn tally(count: &mut usize, was: bool, is: bool) {
    match (was, is) {
        (false, true) => *count += 1,
        (true, false) => *count -= 1,
        _ => {}
    }
}

#[cfg(test)]
impl Room {
    /// The state as the specification's keys hold it.
    pub(crate) fn peek(&self, now: u64) -> crate::contract::Peek {
        let mut peek = crate::contract::Peek {
            owed: self.owed(now),
            free: self.free(now),
            resumed_at: self.vars.resumed_at,
            admitted: self.vars.admitted,
            abandoned: self.vars.abandoned,
            ..Default::default()
        };
        for (_, s) in self.table.iter() {
            for (field, map) in [
                (s.expiry, &mut peek.active),
                (s.ticket, &mut peek.queue),
                (s.due, &mut peek.seen),
                (s.used, &mut peek.used),
                (s.left, &mut peek.left),
            ] {
                if field != 0 {
                    map.insert(s.sid, field);
                }
            }
        }
        peek
    }

    /// Counts and indexes say what the records say.
    pub(crate) fn check_counts(&self) {
        let count =
            |pred: fn(&table::Session) -> bool| self.table.iter().filter(|(_, s)| pred(s)).count();
        let counts = Counts {
            inside: count(|s| s.expiry != 0),
            granted: count(table::Session::granted),
            seen: count(|s| s.due != 0),
            spent: count(|s| s.spent() != 0),
        };
        assert_eq!(counts, self.counts);
        assert_eq!(self.line.len(), count(|s| s.ticket != 0));
        assert_eq!(self.table.len(), count(|_| true));
    }
}
