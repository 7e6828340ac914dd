//! The reference model: the specification word by word, slow and without cleverness. Sorted maps
//! for sorted sets, a scan for every question.

use std::collections::BTreeMap;

use corvus_config::snapshot::{Method, QueueSettings};
use corvus_core::token::{Admission, Place, Sid, Ticket};

use super::{Peek, Store};
use crate::{
    op::{Answer, Caller, Op, Reply, Stats, Waiting},
    room::{Draw, Pace, eta_ms, poll_ms},
};

#[derive(Clone)]
pub(crate) struct Model {
    s: QueueSettings,
    random: bool,
    draw: Draw,
    draw_key: [u8; 16],
    active: BTreeMap<Sid, u64>,
    queue: BTreeMap<Sid, u64>,
    seen: BTreeMap<Sid, u64>,
    used: BTreeMap<Sid, u64>,
    left: BTreeMap<Sid, u64>,
    seq: u64,
    tokens: f64,
    at: u64,
    born: Option<u64>,
    n: u64,
    /// Gateway -> `n` of its latest call.
    callers: BTreeMap<u64, u64>,
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
    pace: Pace,
}

impl Model {
    pub(crate) fn new(settings: QueueSettings, draw_key: [u8; 16]) -> Self {
        let mut draw = Draw::new(draw_key);
        draw.follow(&settings.schedule);
        Self {
            random: settings.method == Method::Random,
            s: settings,
            draw,
            draw_key,
            active: BTreeMap::new(),
            queue: BTreeMap::new(),
            seen: BTreeMap::new(),
            used: BTreeMap::new(),
            left: BTreeMap::new(),
            seq: 0,
            tokens: 0.0,
            at: 0,
            born: None,
            n: 0,
            callers: BTreeMap::new(),
            last_pass: 0,
            gap_from: 0,
            resumed_at: 0,
            owed: 0,
            owed_until: 0,
            flushed_at: 0,
            released_at: 0,
            admitted: 0,
            abandoned: 0,
            cfg: 1,
            pace: Pace::default(),
        }
    }

    fn is_granted(&self, sid: &Sid) -> bool {
        self.active.contains_key(sid) && self.seen.contains_key(sid)
    }

    fn claimed(&self) -> u64 {
        self.active.keys().filter(|sid| !self.is_granted(sid)).count() as u64
    }

    fn is_dead(&self, now: u64, due: u64) -> bool {
        now > due.max(self.resumed_at + 30_000) + self.s.queue_ttl_ms
    }

    fn occupied(&self, now: u64) -> u64 {
        self.active.len() as u64 + if now < self.owed_until { self.owed } else { 0 }
    }

    fn free(&self, now: u64) -> u64 {
        let schedule = &self.s.schedule;
        let born = self.born.unwrap_or(now);
        if (now >= born && now - born < 5_000)
            || self.s.paused
            || schedule.starts_at_ms.is_some_and(|t| now < t)
            || schedule.ends_at_ms.is_some_and(|t| now >= t)
            || self.s.method == Method::Reject
        {
            return 0;
        }
        let room = self.s.capacity.saturating_sub(self.occupied(now));
        if self.s.rate.is_some() { room.min(self.tokens.floor() as u64) } else { room }
    }

    fn lowest(&self) -> Option<Sid> {
        self.queue.iter().min_by_key(|(sid, ticket)| (**ticket, **sid)).map(|(sid, _)| *sid)
    }

    fn pass(&mut self, now: u64, caller: Caller) -> bool {
        if self.born.is_none() {
            self.born = Some(now);
            (self.tokens, self.at, self.n, self.last_pass) = (0.0, now, 0, now);
        }
        if now >= self.owed_until {
            self.owed = 0;
        }
        let before = self.last_pass;
        if now > before + 5_000 || now + 5_000 < before {
            let in_grace = before <= self.resumed_at + 30_000 + self.s.queue_ttl_ms;
            self.gap_from = if in_grace { self.gap_from.min(before) } else { before };
            self.resumed_at = now;
            self.extend(now, before);
        }
        self.last_pass = now;
        self.n += 1;
        let told = self.callers.insert(caller.gateway, self.n).unwrap_or(self.n - 1);
        if let Some(report) = caller.report {
            let ours = Some(report.born_ms) == self.born;
            if !ours || report.n > told {
                self.owed = self.owed.max(report.claimed.saturating_sub(self.claimed()));
                self.owed_until = now + self.s.active_ttl_ms;
            }
            if ours && report.n > told {
                self.extend(now, before);
                (self.resumed_at, self.tokens, self.at) = (now, 0.0, now);
                self.n = self.n.max(report.n + 1);
                self.callers.insert(caller.gateway, self.n);
            }
        }
        if let Some(rate) = self.s.rate {
            let burst = (rate.count / rate.per_s).max(1.0);
            let passed = now.saturating_sub(self.at) as f64;
            self.tokens = (self.tokens + passed * rate.count / (rate.per_s * 1_000.0)).min(burst);
            self.at = now;
        }
        self.pace.advance(now);
        self.active.retain(|_, expiry| *expiry > now);
        let keep = self.s.active_ttl_ms.max(self.s.queue_ttl_ms + 90_000);
        self.used.retain(|_, at| *at + keep >= now);
        self.left.retain(|_, at| *at + keep >= now);
        if self.queue.is_empty() {
            self.take_order();
        }
        let mut dead: Vec<(u64, Sid)> = self.seen.iter().map(|(sid, due)| (*due, *sid)).collect();
        dead.retain(|(due, _)| self.is_dead(now, *due));
        dead.sort_unstable();
        let mut more = dead.len() > 1_000;
        for (_, sid) in dead.into_iter().take(1_000) {
            self.seen.remove(&sid);
            self.abandoned += u64::from(self.queue.remove(&sid).is_some());
        }
        more |= self.promote(now);
        more
    }

    fn extend(&mut self, now: u64, last_pass: u64) {
        let seen = &self.seen;
        for (sid, expiry) in &mut self.active {
            if !seen.contains_key(sid) && *expiry > last_pass {
                *expiry = (*expiry).max(now + self.s.active_ttl_ms);
            }
        }
    }

    fn promote(&mut self, now: u64) -> bool {
        for _ in 0..1_000 {
            let Some(sid) = self.lowest().filter(|_| self.free(now) >= 1) else { return false };
            self.queue.remove(&sid);
            let due = self.seen[&sid];
            if self.is_dead(now, due) {
                self.seen.remove(&sid);
                self.abandoned += 1;
                continue;
            }
            self.active.insert(sid, now.max(due) + self.s.grant_ttl_ms);
            self.admit();
        }
        self.free(now) >= 1 && !self.queue.is_empty()
    }

    fn admit(&mut self) {
        if self.s.rate.is_some() {
            self.tokens -= 1.0;
        }
        self.admitted += 1;
        self.pace.admit();
    }

    fn take_order(&mut self) {
        match self.s.method {
            Method::Fifo => self.random = false,
            Method::Random => self.random = true,
            Method::Passthrough | Method::Reject => {}
        }
    }

    fn inside(&self, now: u64, sid: Sid, joined: bool) -> Answer {
        let left = self.left.get(&sid).copied().unwrap_or(0);
        let issued_ms = now.max(left + 1).max(self.released_at + 1);
        Answer::Admitted { issued_ms, expires_ms: self.active[&sid], joined }
    }

    fn claim(&mut self, now: u64, sid: Sid) -> Answer {
        let until = now + self.s.active_ttl_ms;
        let expiry = if self.is_granted(&sid) {
            self.seen.remove(&sid);
            self.used.insert(sid, now);
            self.left.remove(&sid);
            until
        } else {
            until.max(self.active[&sid])
        };
        self.active.insert(sid, expiry);
        self.inside(now, sid, false)
    }

    fn straight_in(&mut self, now: u64, sid: Sid) -> Answer {
        self.queue.remove(&sid);
        self.seen.remove(&sid);
        self.used.insert(sid, now);
        self.left.remove(&sid);
        self.active.insert(sid, now + self.s.active_ttl_ms);
        self.inside(now, sid, true)
    }

    fn closed(&self, now: u64) -> Option<Answer> {
        let schedule = &self.s.schedule;
        if self.s.method == Method::Reject || schedule.ends_at_ms.is_some_and(|t| now >= t) {
            return Some(Answer::Closed);
        }
        let opens_at_ms = schedule.opens_at_ms.filter(|t| now < *t)?;
        Some(Answer::NotOpen { opens_at_ms })
    }

    fn good_place(&self, now: u64, sid: Sid, place: Option<Place>) -> Option<u64> {
        let place = place.filter(|place| place.sid == sid)?;
        let end = place.due_ms + self.s.queue_ttl_ms;
        let fresh = now <= end
            || (now <= self.resumed_at + 30_000 + self.s.queue_ttl_ms && end >= self.gap_from);
        let spent = |map: &BTreeMap<Sid, u64>| map.get(&sid).copied().unwrap_or(0);
        let refused = place.issued_ms <= spent(&self.used)
            || place.issued_ms <= spent(&self.left)
            || place.issued_ms <= self.flushed_at;
        if !fresh || refused {
            return None;
        }
        match place.ticket {
            Ticket::Unplaced => None,
            Ticket::Number(n) => Some(n),
            Ticket::Lottery => self.draw.lottery(&self.s.id, &sid),
        }
    }

    fn refused(&self, now: u64, a: &Admission) -> bool {
        a.issued_ms <= self.left.get(&a.sid).copied().unwrap_or(0)
            || a.issued_ms <= self.released_at
            || a.expires_ms <= now
    }

    fn rank_poll_eta(&self, now: u64, sid: Sid) -> (u64, u64, Option<u64>) {
        let me = (self.queue[&sid], sid);
        let ahead = self.queue.iter().filter(|(sid, ticket)| (**ticket, **sid) < me).count();
        let rank = ahead as u64 + 1;
        if let Some(start) = self.s.schedule.starts_at_ms.filter(|t| now < *t) {
            return (rank, poll_ms(u64::MAX, Some(start - now)), Some(start - now));
        }
        let eta = eta_ms(rank, self.pace.per_s());
        (rank, poll_ms(rank, eta), eta)
    }

    fn wait(&mut self, now: u64, sid: Sid, joined: bool) -> Answer {
        let (rank, poll_ms, eta_ms) = self.rank_poll_eta(now, sid);
        self.seen.insert(sid, now + poll_ms);
        let drawn = self.s.schedule.starts_at_ms.is_none_or(|t| now >= t);
        let spent = |map: &BTreeMap<Sid, u64>| map.get(&sid).map_or(0, |at| at + 1);
        Answer::Waiting(Waiting {
            issued_ms: now.max(spent(&self.used)).max(spent(&self.left)).max(self.flushed_at + 1),
            rank: drawn.then_some(rank),
            eta_ms,
            poll_ms,
            ticket: if drawn { Ticket::Number(self.queue[&sid]) } else { Ticket::Lottery },
            due_ms: now + poll_ms,
            joined,
        })
    }

    /// Into the line with `ticket`, and once more through the promotion.
    fn back_in_line(&mut self, now: u64, sid: Sid, ticket: u64, more: &mut bool) -> bool {
        self.queue.insert(sid, ticket);
        self.wait(now, sid, false);
        *more |= self.promote(now);
        self.active.contains_key(&sid)
    }

    fn ticket(&mut self, now: u64, sid: Sid) -> u64 {
        if self.random {
            return self.draw.random(&self.s.id, &sid);
        }
        if self.s.schedule.starts_at_ms.is_some_and(|t| now < t) {
            return self.draw.lottery(&self.s.id, &sid).unwrap();
        }
        let highest = self.queue.values().max().copied().unwrap_or(0);
        self.seq = (self.seq + 1).max(now * 1_000).max(highest + 1);
        self.seq
    }

    fn enter(
        &mut self,
        now: u64,
        sid: Sid,
        place: Option<Place>,
        join: bool,
        more: &mut bool,
    ) -> Answer {
        if self.active.contains_key(&sid) {
            return self.claim(now, sid);
        }
        if self.s.method == Method::Passthrough {
            self.admitted += 1;
            return self.straight_in(now, sid);
        }
        if let Some(closed) = self.closed(now) {
            return closed;
        }
        if self.queue.contains_key(&sid) {
            return self.wait(now, sid, false);
        }
        if let Some(ticket) = self.good_place(now, sid, place) {
            let granted = self.back_in_line(now, sid, ticket, more);
            return if granted { self.claim(now, sid) } else { self.wait(now, sid, false) };
        }
        if !join {
            return Answer::Gone;
        }
        if self.queue.is_empty() && self.free(now) >= 1 {
            self.admit();
            return self.straight_in(now, sid);
        }
        if self.queue.len() as u64 >= self.s.max_waiting {
            return Answer::Full;
        }
        let ticket = self.ticket(now, sid);
        self.queue.insert(sid, ticket);
        self.wait(now, sid, true)
    }

    fn keep(&mut self, now: u64, sid: Sid) -> Answer {
        if self.active.contains_key(&sid) {
            return self.claim(now, sid);
        }
        self.queue.remove(&sid);
        self.seen.remove(&sid);
        self.used.insert(sid, now);
        self.owed = self.owed.saturating_sub(1);
        self.active.insert(sid, now + self.s.active_ttl_ms);
        self.inside(now, sid, false)
    }

    fn apply(&mut self, now: u64, op: &Op, more: &mut bool) -> Answer {
        match *op {
            Op::Enter { sid, place, join } => self.enter(now, sid, place, join, more),
            Op::Poll { sid, place, admission } => {
                if admission.is_some_and(|a| !self.refused(now, &a)) {
                    return self.keep(now, sid);
                }
                if self.active.contains_key(&sid) || self.s.method == Method::Passthrough {
                    return Answer::Ready;
                }
                if let Some(closed) = self.closed(now) {
                    return closed;
                }
                if self.queue.contains_key(&sid) {
                    return self.wait(now, sid, false);
                }
                match self.good_place(now, sid, place) {
                    Some(ticket) if self.back_in_line(now, sid, ticket, more) => Answer::Ready,
                    Some(_) => self.wait(now, sid, false),
                    None => Answer::Gone,
                }
            }
            Op::Heartbeat { admission, place, join } => {
                if !self.refused(now, &admission) {
                    self.keep(now, admission.sid)
                } else if join {
                    self.enter(now, admission.sid, place, true, more)
                } else {
                    Answer::Gone
                }
            }
            Op::Release { sid, admission } => {
                if !self.active.contains_key(&sid)
                    && admission.is_some_and(|a| !self.refused(now, &a))
                {
                    self.owed = self.owed.saturating_sub(1);
                }
                self.active.remove(&sid);
                self.queue.remove(&sid);
                self.seen.remove(&sid);
                self.left.insert(sid, admission.map_or(now, |a| now.max(a.issued_ms)));
                *more |= self.promote(now);
                Answer::Done
            }
            Op::Flush => {
                self.queue.clear();
                let active = &self.active;
                self.seen.retain(|sid, _| active.contains_key(sid));
                self.flushed_at = now;
                self.take_order();
                Answer::Done
            }
            Op::ReleaseAll => {
                let active = std::mem::take(&mut self.active);
                self.seen.retain(|sid, _| !active.contains_key(sid));
                self.owed = 0;
                self.released_at = now;
                Answer::Done
            }
            Op::Stats => Answer::Stats(Stats::default()),
        }
    }
}

impl Store for Model {
    fn open(settings: &QueueSettings) -> Self {
        Self::new(settings.clone(), super::DRAW_KEY)
    }

    fn call(&mut self, now: u64, caller: Caller, ops: &[Op]) -> Reply {
        let mut more = self.pass(now, caller);
        let answers = ops.iter().map(|op| self.apply(now, op, &mut more)).collect();
        Reply {
            now_ms: now,
            born_ms: self.born.unwrap(),
            n: self.n,
            inside: self.active.len() as u64,
            claimed: self.claimed(),
            owed: if now < self.owed_until { self.owed } else { 0 },
            waiting: self.queue.len() as u64,
            cfg: self.cfg,
            more,
            answers,
        }
    }

    fn configure(&mut self, now: u64, mut settings: QueueSettings) {
        let start = settings.schedule.starts_at_ms;
        if !self.queue.is_empty()
            && self.s.schedule.starts_at_ms.is_some_and(|t| now < t)
            && start.is_none_or(|t| t < now)
        {
            settings.schedule.starts_at_ms = Some(now);
        }
        let s = &self.s;
        if (s.capacity, s.rate, s.paused) != (settings.capacity, settings.rate, settings.paused) {
            self.cfg += 1;
        }
        self.draw.follow(&settings.schedule);
        self.s = settings;
        if self.queue.is_empty() {
            self.take_order();
        }
    }

    fn wipe(&mut self) {
        *self = Self::new(self.s.clone(), self.draw_key);
    }

    fn copy(&self) -> Self {
        self.clone()
    }

    fn peek(&mut self, now: u64) -> Peek {
        Peek {
            active: self.active.clone(),
            queue: self.queue.clone(),
            seen: self.seen.clone(),
            used: self.used.clone(),
            left: self.left.clone(),
            owed: if now < self.owed_until { self.owed } else { 0 },
            free: self.free(now),
            resumed_at: self.resumed_at,
            admitted: self.admitted,
            abandoned: self.abandoned,
        }
    }
}
