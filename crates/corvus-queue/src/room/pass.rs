//! The pass: what every call begins with, and each gateway does once a second (section 4).

use super::{GAP_MS, PASS_BOUND, RESUME_GRACE_MS, Room};
use crate::op::Caller;

impl Room {
    /// Steps 1 to 7. True: stopped at a bound with work left.
    pub(super) fn pass(&mut self, now: u64, caller: Caller) -> bool {
        let new = self.vars.born == 0;
        if new {
            self.vars.born = now;
            self.vars.last_pass = now;
            self.vars.n = 0;
            self.vars.tokens = 0.0;
            self.vars.at = now;
        }
        if now >= self.vars.owed_until {
            // What is no longer held must not be held again by a later, smaller loss.
            self.vars.owed = 0;
        }
        let last_pass = self.note_gap(now);
        self.note_loss(now, last_pass, caller);
        self.refill(now);
        self.pace.advance(now);
        self.purge(now);
        if self.line.len() == 0 {
            self.take_order();
        }
        let reaped_all = self.reap(now);
        let promoted_all = self.promote(now);
        !(reaped_all && promoted_all)
    }

    /// Nobody was in contact for a while, or the clock stepped: then nobody could keep a session or
    /// a place alive, and nobody loses one for it. Returns when the pass before was.
    fn note_gap(&mut self, now: u64) -> u64 {
        let last = self.vars.last_pass;
        if self.restored {
            // Whatever was admitted in the last moments before the end is not in the saved state.
            self.restored = false;
            self.vars.tokens = 0.0;
            self.vars.at = now;
            self.resume(now, last);
        } else if now > last.saturating_add(GAP_MS) || now < last.saturating_sub(GAP_MS) {
            self.resume(now, last);
        }
        self.vars.last_pass = now;
        self.vars.n += 1;
        last
    }

    fn resume(&mut self, now: u64, last_pass: u64) {
        let graced = self.vars.resumed_at + RESUME_GRACE_MS + self.settings.queue_ttl_ms;
        // Within the grace of the gap before, places are fresh that ran out before this gap: they
        // must stay so, or two outages in a row would cost places that neither does alone.
        self.vars.gap_from =
            if last_pass <= graced { self.vars.gap_from.min(last_pass) } else { last_pass };
        self.vars.resumed_at = now;
        self.extend_claimed(now, last_pass);
    }

    fn extend_claimed(&mut self, now: u64, last_pass: u64) {
        let until = now + self.settings.active_ttl_ms;
        let claimed: Vec<u32> = self
            .table
            .iter()
            .filter(|(_, s)| !s.granted() && s.expiry > last_pass && s.expiry < until)
            .map(|(slot, _)| slot)
            .collect();
        for slot in claimed {
            self.set_expiry(slot, until);
        }
    }

    /// A gateway remembers more than this state does: hold places for those who were lost.
    fn note_loss(&mut self, now: u64, last_pass: u64, caller: Caller) {
        // A gateway that is not known is new, or was forgotten among very many.
        let told = self.callers.note(caller.gateway, self.vars.n).unwrap_or(self.vars.n - 1);
        let Some(report) = caller.report else { return };
        let ours = report.born_ms == self.vars.born;
        let behind = ours && report.n > told;
        if ours && !behind {
            return;
        }
        self.vars.owed = self.vars.owed.max(report.claimed.saturating_sub(self.claimed()));
        self.vars.owed_until = now + self.settings.active_ttl_ms;
        if behind {
            self.vars.resumed_at = now;
            self.vars.tokens = 0.0;
            self.vars.at = now;
            self.vars.n = self.vars.n.max(report.n + 1);
            self.callers.note(caller.gateway, self.vars.n);
            self.extend_claimed(now, last_pass);
        }
    }

    fn refill(&mut self, now: u64) {
        if let Some(rate) = self.settings.rate {
            let passed = now.saturating_sub(self.vars.at) as f64;
            let burst = (rate.count / rate.per_s).max(1.0);
            let grown = self.vars.tokens + passed * rate.count / (rate.per_s * 1_000.0);
            self.vars.tokens = grown.min(burst);
            self.vars.at = now;
        }
    }

    /// Ends what has run out. A lapsed grant keeps its check-in time until it is reaped.
    fn purge(&mut self, now: u64) {
        loop {
            let table = &self.table;
            let Some(slot) = self.expiries.due(now, |s| table.at(s).expiry) else { break };
            self.set_expiry(slot, 0);
            self.tidy(slot);
        }
        let keep = self.settings.active_ttl_ms.max(self.settings.queue_ttl_ms + 90_000);
        let Some(oldest) = now.checked_sub(keep + 1) else { return };
        loop {
            let table = &self.table;
            let Some(slot) = self.spents.due(oldest, |s| table.at(s).spent()) else { break };
            let session = table.at(slot);
            let young = |t: u64| if t <= oldest { 0 } else { t };
            let (used, left) = (young(session.used), young(session.left));
            self.set_spent(slot, used, left);
            self.tidy(slot);
        }
    }

    /// Drops those who stopped checking in. True: all of them.
    fn reap(&mut self, now: u64) -> bool {
        let Some(latest) = self.latest_dead_due(now) else { return true };
        for _ in 0..PASS_BOUND {
            let table = &self.table;
            let Some(slot) = self.dues.due(latest, |s| table.at(s).due) else { return true };
            self.drop_dead(slot);
        }
        let table = &self.table;
        self.dues.due(latest, |s| table.at(s).due).is_none()
    }

    /// Whoever was due at this time or before is dead; `None`: nobody is.
    fn latest_dead_due(&self, now: u64) -> Option<u64> {
        let latest = now.checked_sub(self.settings.queue_ttl_ms + 1)?;
        (self.vars.resumed_at + RESUME_GRACE_MS <= latest).then_some(latest)
    }

    fn drop_dead(&mut self, slot: u32) {
        if self.table.at(slot).ticket != 0 {
            self.set_ticket(slot, 0);
            self.vars.abandoned += 1;
        }
        self.set_due(slot, 0);
        self.tidy(slot);
    }

    /// Gives free slots to the head of the line. True: as far as slots and line go.
    pub(super) fn promote(&mut self, now: u64) -> bool {
        let dead = self.latest_dead_due(now);
        for _ in 0..PASS_BOUND {
            if self.free(now) == 0 {
                return true;
            }
            let Some(slot) = self.line.first() else { return true };
            let due = self.table.at(slot).due;
            if dead.is_some_and(|latest| due <= latest) {
                self.drop_dead(slot);
                continue;
            }
            self.set_ticket(slot, 0);
            self.set_expiry(slot, now.max(due) + self.settings.grant_ttl_ms);
            self.count_admission();
        }
        self.free(now) == 0 || self.line.len() == 0
    }

    /// Takes one rate token and counts.
    pub(super) fn count_admission(&mut self) {
        if self.settings.rate.is_some() {
            self.vars.tokens -= 1.0;
        }
        self.vars.admitted += 1;
        self.pace.admit();
    }
}
