//! The operations, after the pass (section 5).

use corvus_config::snapshot::Method;
use corvus_core::token::{Admission, Place, Sid, Ticket};

use super::{Order, RESUME_GRACE_MS, Room, eta_ms, poll_ms};
use crate::op::{Answer, Op, WAIT_BUCKETS_S, Waiting};

impl Room {
    pub(super) fn apply(&mut self, now: u64, op: &Op, more: &mut bool) -> Answer {
        match *op {
            Op::Enter { sid, place, join } => self.enter(now, sid, place, join, more),
            Op::Poll { sid, place, admission } => self.poll(now, sid, place, admission, more),
            Op::Heartbeat { admission, place, join } => {
                self.heartbeat(now, admission, place, join, more)
            }
            Op::Release { sid, admission } => {
                let answer = self.release(now, sid, admission);
                // The slot goes to the next in line in the same call: whoever looks never sees it
                // free while people wait.
                *more |= !self.promote(now);
                answer
            }
            Op::Flush => self.flush(now),
            Op::ReleaseAll => self.release_all(now),
            Op::Stats => Answer::Stats(self.stats(now)),
        }
    }

    fn enter(
        &mut self,
        now: u64,
        sid: Sid,
        place: Option<Place>,
        join: bool,
        more: &mut bool,
    ) -> Answer {
        let known = self.table.find(&sid);
        if let Some(slot) = known
            && self.table.at(slot).expiry != 0
        {
            return self.claim(now, slot);
        }
        if self.settings.method == Method::Passthrough {
            let slot = self.table.find_or_insert(&sid);
            self.note_wait(now, slot);
            return self.let_in(now, slot, false);
        }
        if let Some(closed) = self.closed(now) {
            return closed;
        }
        if let Some(slot) = known
            && self.table.at(slot).ticket != 0
        {
            return self.check_in(now, slot, false);
        }
        if let Some(ticket) = self.returning(now, &sid, place) {
            let slot = self.put_in_line(now, &sid, ticket, Some(ticket));
            *more |= !self.promote(now);
            return if self.table.at(slot).expiry != 0 {
                self.claim(now, slot)
            } else {
                self.check_in(now, slot, false)
            };
        }
        if !join {
            return Answer::Gone;
        }
        if self.line.len() == 0 && self.free(now) >= 1 {
            let slot = self.table.find_or_insert(&sid);
            return self.let_in(now, slot, true);
        }
        if self.line.len() as u64 >= self.settings.max_waiting {
            return Answer::Full;
        }
        let ticket = self.new_ticket(now, &sid);
        let slot = self.put_in_line(now, &sid, ticket, None);
        self.check_in(now, slot, true)
    }

    fn poll(
        &mut self,
        now: u64,
        sid: Sid,
        place: Option<Place>,
        admission: Option<Admission>,
        more: &mut bool,
    ) -> Answer {
        if let Some(admission) = admission
            && !self.refuses(now, &admission)
        {
            return self.keep(now, &admission);
        }
        let known = self.table.find(&sid);
        if known.is_some_and(|slot| self.table.at(slot).expiry != 0) {
            return Answer::Ready;
        }
        if self.settings.method == Method::Passthrough {
            // The next request passes anyway; nobody has to wait for a slot.
            return Answer::Ready;
        }
        if let Some(closed) = self.closed(now) {
            return closed;
        }
        if let Some(slot) = known
            && self.table.at(slot).ticket != 0
        {
            return self.check_in(now, slot, false);
        }
        let Some(ticket) = self.returning(now, &sid, place) else { return Answer::Gone };
        let slot = self.put_in_line(now, &sid, ticket, Some(ticket));
        *more |= !self.promote(now);
        if self.table.at(slot).expiry != 0 {
            Answer::Ready
        } else {
            self.check_in(now, slot, false)
        }
    }

    fn heartbeat(
        &mut self,
        now: u64,
        admission: Admission,
        place: Option<Place>,
        join: bool,
        more: &mut bool,
    ) -> Answer {
        if !self.refuses(now, &admission) {
            return self.keep(now, &admission);
        }
        if join { self.enter(now, admission.sid, place, true, more) } else { Answer::Gone }
    }

    /// The heartbeat of an admission that is not refused.
    fn keep(&mut self, now: u64, admission: &Admission) -> Answer {
        let slot = self.table.find_or_insert(&admission.sid);
        if self.table.at(slot).expiry != 0 {
            return self.claim(now, slot);
        }
        // Put back, whatever the capacity: it was inside and its token still runs. In ordinary
        // times its slot cannot have gone to anybody; otherwise `owed` kept it.
        self.vars.owed = self.vars.owed.saturating_sub(1);
        let left = self.table.at(slot).left;
        self.set_ticket_if_any(slot);
        self.set_due(slot, 0);
        self.set_expiry(slot, now + self.settings.active_ttl_ms);
        self.set_spent(slot, now, left);
        self.admitted(slot, now, false)
    }

    fn release(&mut self, now: u64, sid: Sid, admission: Option<Admission>) -> Answer {
        let slot = self.table.find_or_insert(&sid);
        let session = *self.table.at(slot);
        if session.expiry == 0 && admission.is_some_and(|a| !self.refuses(now, &a)) {
            self.vars.owed = self.vars.owed.saturating_sub(1);
        }
        self.set_ticket_if_any(slot);
        self.set_due(slot, 0);
        self.set_expiry(slot, 0);
        // Not before the admission that leaves, even if the clock was set back since: it must not
        // put the session back.
        let left = admission.map_or(now, |a| now.max(a.issued_ms));
        self.set_spent(slot, session.used, left);
        Answer::Done
    }

    fn flush(&mut self, now: u64) -> Answer {
        let gone: Vec<u32> = self
            .table
            .iter()
            .filter(|(_, s)| s.expiry == 0 && (s.ticket != 0 || s.due != 0))
            .map(|(slot, _)| slot)
            .collect();
        self.line.clear();
        for slot in gone {
            self.table.at_mut(slot).ticket = 0;
            self.set_due(slot, 0);
            self.tidy(slot);
        }
        self.vars.flushed_at = now;
        self.take_order();
        Answer::Done
    }

    fn release_all(&mut self, now: u64) -> Answer {
        let inside: Vec<u32> =
            self.table.iter().filter(|(_, s)| s.expiry != 0).map(|(slot, _)| slot).collect();
        for slot in inside {
            self.set_due(slot, 0);
            self.set_expiry(slot, 0);
            self.tidy(slot);
        }
        self.vars.owed = 0;
        self.vars.released_at = now;
        Answer::Done
    }

    /// A visitor who is in `active` makes a request: the slot is theirs for `active_ttl`.
    fn claim(&mut self, now: u64, slot: u32) -> Answer {
        let until = now + self.settings.active_ttl_ms;
        let session = *self.table.at(slot);
        if session.granted() {
            self.note_wait(now, slot);
            self.set_due(slot, 0);
            self.set_spent(slot, now, 0);
            self.set_expiry(slot, until);
        } else {
            // Never lowered: a token with that expiry is out.
            self.set_expiry(slot, until.max(session.expiry));
        }
        self.admitted(slot, now, false)
    }

    /// Straight inside, without waiting. `limited`: it takes a rate token.
    fn let_in(&mut self, now: u64, slot: u32, limited: bool) -> Answer {
        self.set_ticket_if_any(slot);
        self.set_due(slot, 0);
        self.set_spent(slot, now, 0);
        self.set_expiry(slot, now + self.settings.active_ttl_ms);
        if limited {
            self.count_admission();
        } else {
            self.vars.admitted += 1;
        }
        self.admitted(slot, now, true)
    }

    fn admitted(&self, slot: u32, now: u64, joined: bool) -> Answer {
        let session = self.table.at(slot);
        let issued_ms = just_after(session.left.max(self.vars.released_at), now);
        Answer::Admitted { issued_ms, expires_ms: session.expiry, joined }
    }

    fn put_in_line(&mut self, now: u64, sid: &Sid, ticket: u64, returned: Option<u64>) -> u32 {
        let slot = self.table.find_or_insert(sid);
        self.set_ticket(slot, ticket);
        let due = now + self.pace_of(now, slot).1;
        self.set_due(slot, due);
        let joined = match returned {
            // A first-come ticket is the time it was taken, in microseconds.
            Some(ticket) if self.order == Order::Fifo => (ticket / 1_000).min(now),
            _ => now,
        };
        self.table.at_mut(slot).joined = joined;
        slot
    }

    /// A visitor in the line is told how it stands, and when to come again.
    fn check_in(&mut self, now: u64, slot: u32, joined: bool) -> Answer {
        let (rank, poll_ms, eta_ms) = self.pace_of(now, slot);
        let due_ms = now + poll_ms;
        self.set_due(slot, due_ms);
        let drawn = self.settings.schedule.starts_at_ms.is_none_or(|start| now >= start);
        let session = self.table.at(slot);
        let number = session.ticket;
        Answer::Waiting(Waiting {
            rank: drawn.then_some(rank),
            issued_ms: just_after(session.used.max(session.left).max(self.vars.flushed_at), now),
            eta_ms,
            poll_ms,
            ticket: if drawn { Ticket::Number(number) } else { Ticket::Lottery },
            due_ms,
            joined,
        })
    }

    /// Rank, poll interval and expected wait of a slot in the line.
    fn pace_of(&self, now: u64, slot: u32) -> (u64, u64, Option<u64>) {
        let table = &self.table;
        let rank = self.line.rank(table.at(slot).ticket, slot, |s| table.sid(s)).unwrap_or(1);
        if let Some(start) = self.settings.schedule.starts_at_ms.filter(|start| now < *start) {
            // How often one is told to ask must not tell the draw either.
            return (rank, poll_ms(u64::MAX, Some(start - now)), Some(start - now));
        }
        let eta = eta_ms(rank, self.pace.per_s());
        (rank, poll_ms(rank, eta), eta)
    }

    fn closed(&self, now: u64) -> Option<Answer> {
        if self.settings.method == Method::Reject || self.ended(now) {
            return Some(Answer::Closed);
        }
        let opens = self.settings.schedule.opens_at_ms?;
        (now < opens).then_some(Answer::NotOpen { opens_at_ms: opens })
    }

    fn new_ticket(&mut self, now: u64, sid: &Sid) -> u64 {
        let id = &self.settings.id;
        if self.order == Order::Random {
            return self.draw.random(id, sid);
        }
        if self.settings.schedule.starts_at_ms.is_some_and(|start| now < start)
            && let Some(lot) = self.draw.lottery(id, sid)
        {
            return lot;
        }
        let behind = self.line.last_ticket().map_or(0, |last| last.saturating_add(1));
        self.vars.seq = self.vars.seq.saturating_add(1).max(now * 1_000).max(behind);
        self.vars.seq
    }

    /// The ticket of a place that is fresh and not refused (section 3).
    fn returning(&self, now: u64, sid: &Sid, place: Option<Place>) -> Option<u64> {
        let place = place.filter(|place| place.sid == *sid)?;
        let lapses = place.due_ms.saturating_add(self.settings.queue_ttl_ms);
        let resumed = self.vars.resumed_at + RESUME_GRACE_MS + self.settings.queue_ttl_ms;
        let fresh = now <= lapses || (now <= resumed && lapses >= self.vars.gap_from);
        let (used, left) =
            self.table.find(sid).map_or((0, 0), |s| (self.table.at(s).used, self.table.at(s).left));
        let refused = place.issued_ms <= used.max(left).max(self.vars.flushed_at);
        if !fresh || refused {
            return None;
        }
        match place.ticket {
            Ticket::Unplaced => None,
            Ticket::Number(number) => Some(number.max(1)),
            Ticket::Lottery => self.draw.lottery(&self.settings.id, sid),
        }
    }

    fn refuses(&self, now: u64, admission: &Admission) -> bool {
        let left = self.table.find(&admission.sid).map_or(0, |slot| self.table.at(slot).left);
        admission.issued_ms <= left.max(self.vars.released_at) || admission.expires_ms <= now
    }

    fn set_ticket_if_any(&mut self, slot: u32) {
        if self.table.at(slot).ticket != 0 {
            self.set_ticket(slot, 0);
        }
    }

    fn note_wait(&mut self, now: u64, slot: u32) {
        let session = self.table.at(slot);
        if session.ticket == 0 && session.due == 0 {
            return;
        }
        let waited = now.saturating_sub(session.joined);
        self.totals.waits += 1;
        self.totals.wait_sum_ms = self.totals.wait_sum_ms.saturating_add(waited);
        let bucket = WAIT_BUCKETS_S.partition_point(|bound| bound * 1_000 < waited);
        self.totals.wait_buckets[bucket] += 1;
    }
}

/// Now, unless that is not after `refused`: then just after it.
fn just_after(refused: u64, now: u64) -> u64 {
    now.max(refused.saturating_add(1))
}
