//! A store, gateways and visitors with their cookies, moved step by step through a trace.
//!
//! The gateways here do what section 6 says and no more; the real one has tests of its own.

use corvus_config::snapshot::QueueSettings;
use corvus_core::token::{Admission, Place, Sid, Ticket};
use proptest::prelude::*;

use super::{Peek, Store, sid};
use crate::op::{Answer, Caller, Op, Reply, Report};

/// The store's clock shows this when a trace begins.
pub(crate) const START: u64 = 1_800_000_000_000;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A real request of a visitor through a gateway.
    Enter(usize, usize),
    Poll(usize, usize),
    /// A visitor's open stream.
    Stream(usize, usize),
    Leave(usize, usize),
    /// Time passes, second by second: every gateway in contact makes its passes.
    Wait(u64),
    /// The store's clock is set forward or back.
    Clock(i64),
    Wipe,
    /// A replica is made; `Failover` makes it the store.
    Replicate,
    Failover,
    /// A gateway loses contact, or finds it again.
    Cut(usize),
    Mend(usize),
    Capacity(u64),
    Pause(bool),
    Flush,
    ReleaseAll,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Visitor {
    pub(crate) admission: Option<Admission>,
    pub(crate) place: Option<Place>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Gateway {
    pub(crate) cut: bool,
    pub(crate) report: Option<Report>,
    /// Store time minus true time.
    offset: i64,
}

/// What one call did, for the laws.
pub(crate) struct Call {
    pub(crate) now: u64,
    pub(crate) op: Option<Op>,
    pub(crate) before: Peek,
    pub(crate) after: Peek,
    pub(crate) reply: Reply,
}

impl Call {
    pub(crate) fn answer(&self) -> Option<&Answer> {
        self.reply.answers.first()
    }

    /// Let in by this call: promoted, or a newcomer. Who is put back is not.
    pub(crate) fn admissions(&self) -> u64 {
        self.after.admitted - self.before.admitted
    }

    /// Whether the operation put a session back, whatever the capacity.
    pub(crate) fn put_back(&self) -> bool {
        let Some(Op::Heartbeat { admission, .. } | Op::Poll { admission: Some(admission), .. }) =
            &self.op
        else {
            return false;
        };
        matches!(self.answer(), Some(Answer::Admitted { joined: false, .. }))
            && self.before.active.get(&admission.sid).is_none_or(|expiry| *expiry <= self.now)
    }
}

pub(crate) struct World<S> {
    pub(crate) store: S,
    pub(crate) settings: QueueSettings,
    pub(crate) visitors: Vec<Visitor>,
    pub(crate) gateways: Vec<Gateway>,
    /// True time, ms.
    pub(crate) time: u64,
    /// Store time minus true time.
    skew: i64,
    replica: Option<S>,
    pub(crate) calls: Vec<Call>,
}

impl<S: Store> World<S> {
    pub(crate) fn new(store: S, settings: QueueSettings, visitors: usize, gateways: usize) -> Self {
        Self {
            store,
            settings,
            visitors: vec![Visitor::default(); visitors],
            gateways: vec![Gateway::default(); gateways],
            time: 1_000_000,
            skew: START.cast_signed() - 1_000_000,
            replica: None,
            calls: Vec::new(),
        }
    }

    /// The store's time.
    pub(crate) fn now(&self) -> u64 {
        self.time.saturating_add_signed(self.skew)
    }

    /// The store's time, as gateway `g` reckons it.
    fn reckoned(&self, g: usize) -> u64 {
        self.time.saturating_add_signed(self.gateways[g].offset)
    }

    pub(crate) fn caller(&self, g: usize) -> Caller {
        Caller { gateway: g as u64, report: self.gateways[g].report }
    }

    pub(crate) fn call(&mut self, g: usize, op: Option<Op>) -> Reply {
        let now = self.now();
        let before = self.store.peek(now);
        let reply = self.store.call(now, self.caller(g), op.as_slice());
        let after = self.store.peek(now);
        let gateway = &mut self.gateways[g];
        gateway.report = Some(reply.report());
        gateway.offset = now.cast_signed() - self.time.cast_signed();
        self.calls.push(Call { now, op, before, after, reply: reply.clone() });
        reply
    }

    /// A second goes by.
    fn second(&mut self, ms: u64) {
        self.time += ms;
        for g in 0..self.gateways.len() {
            if !self.gateways[g].cut {
                self.call(g, None);
            }
        }
    }

    pub(crate) fn wait(&mut self, mut ms: u64) {
        while ms > 0 {
            let part = ms.min(1_000);
            self.second(part);
            ms -= part;
        }
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match *step {
            Step::Enter(v, g) => {
                self.enter(v, g);
            }
            Step::Poll(v, g) => {
                self.poll(v, g);
            }
            Step::Stream(v, g) => self.stream(v, g),
            Step::Leave(v, g) => self.leave(v, g),
            Step::Wait(ms) => self.wait(ms),
            Step::Clock(by) => self.skew += by,
            Step::Wipe => {
                self.store.wipe();
                // `born` names a state; two wipes in one millisecond would share the name.
                self.time += 1;
            }
            Step::Replicate => self.replica = Some(self.store.copy()),
            Step::Failover => {
                if let Some(replica) = self.replica.take() {
                    self.store = replica;
                    let (now, settings) = (self.now(), self.settings.clone());
                    self.store.configure(now, settings);
                }
            }
            Step::Cut(g) => self.gateways[g].cut = true,
            Step::Mend(g) => self.gateways[g].cut = false,
            Step::Capacity(capacity) => {
                let settings = QueueSettings { capacity, ..self.settings.clone() };
                self.configure(settings);
            }
            Step::Pause(paused) => {
                let settings = QueueSettings { paused, ..self.settings.clone() };
                self.configure(settings);
            }
            Step::Flush => {
                self.call(0, Some(Op::Flush));
            }
            Step::ReleaseAll => {
                self.call(0, Some(Op::ReleaseAll));
            }
        }
    }

    pub(crate) fn configure(&mut self, settings: QueueSettings) {
        self.settings = settings.clone();
        let now = self.now();
        self.store.configure(now, settings);
    }

    /// A real request; `None`: it passed without a call, or the gateway is cut off.
    pub(crate) fn enter(&mut self, v: usize, g: usize) -> Option<Answer> {
        if self.gateways[g].cut {
            self.reissue(v, g);
            return None;
        }
        let place = self.visitors[v].place;
        let op = match self.valid_admission(v, g) {
            Some(admission) => {
                let age = self.reckoned(g).cast_signed() - admission.issued_ms.cast_signed();
                if (-5_000..self.settings.refresh_ms.cast_signed()).contains(&age) {
                    return None;
                }
                Op::Heartbeat { admission, place, join: true }
            }
            None => Op::Enter { sid: sid(v), place, join: true },
        };
        let reply = self.call(g, Some(op));
        self.take_tokens(v, &reply);
        Some(reply.answers[0])
    }

    pub(crate) fn poll(&mut self, v: usize, g: usize) -> Option<Answer> {
        if self.gateways[g].cut {
            self.reissue(v, g);
            return None;
        }
        let admission = self.valid_admission(v, g);
        let op = Op::Poll { sid: sid(v), place: self.visitors[v].place, admission };
        let reply = self.call(g, Some(op));
        self.take_tokens(v, &reply);
        Some(reply.answers[0])
    }

    pub(crate) fn stream(&mut self, v: usize, g: usize) {
        let Some(admission) = self.valid_admission(v, g) else { return };
        if self.gateways[g].cut {
            return self.reissue(v, g);
        }
        let reply = self.call(g, Some(Op::Heartbeat { admission, place: None, join: false }));
        if let Answer::Admitted { .. } = reply.answers[0] {
            self.take_tokens(v, &reply);
        }
    }

    pub(crate) fn leave(&mut self, v: usize, g: usize) {
        if !self.gateways[g].cut {
            let admission = self.valid_admission(v, g);
            self.call(g, Some(Op::Release { sid: sid(v), admission }));
            self.visitors[v] = Visitor::default();
        }
    }

    pub(crate) fn valid_admission(&self, v: usize, g: usize) -> Option<Admission> {
        let now = if self.gateways[g].report.is_some() { self.reckoned(g) } else { self.now() };
        self.visitors[v].admission.filter(|admission| admission.expires_ms > now)
    }

    fn take_tokens(&mut self, v: usize, reply: &Reply) {
        let visitor = &mut self.visitors[v];
        match reply.answers[0] {
            Answer::Admitted { issued_ms, expires_ms, .. } => {
                visitor.admission = Some(Admission { sid: sid(v), issued_ms, expires_ms });
                visitor.place = None;
            }
            Answer::Waiting(waiting) => {
                visitor.admission = None;
                visitor.place = Some(Place {
                    sid: sid(v),
                    issued_ms: waiting.issued_ms,
                    ticket: waiting.ticket,
                    due_ms: waiting.due_ms,
                });
            }
            _ => {}
        }
    }

    /// What a gateway without contact does for those who have tokens.
    fn reissue(&mut self, v: usize, g: usize) {
        let now = self.reckoned(g);
        if let Some(admission) = self.valid_admission(v, g) {
            let expires_ms = now + self.settings.active_ttl_ms;
            self.visitors[v].admission = Some(Admission { expires_ms, ..admission });
        } else if let Some(place) = self.visitors[v].place
            && now <= place.due_ms + self.settings.queue_ttl_ms
        {
            let due_ms = place.due_ms.max(now + 30_000);
            self.visitors[v].place = Some(Place { due_ms, ..place });
        }
    }

    pub(crate) fn ticket(&self, v: usize) -> Option<u64> {
        match self.visitors[v].place?.ticket {
            Ticket::Number(ticket) => Some(ticket),
            _ => None,
        }
    }

    pub(crate) fn is_inside(&mut self, v: usize) -> bool {
        let now = self.now();
        self.store.peek(now).active.contains_key(&sid(v))
    }

    pub(crate) fn is_waiting(&mut self, v: usize) -> bool {
        let now = self.now();
        self.store.peek(now).queue.contains_key(&sid(v))
    }
}

/// Waiters of `peek` who are live at `now`.
pub(crate) fn live(peek: &Peek, settings: &QueueSettings, now: u64) -> Vec<(u64, Sid)> {
    let is_live = |sid: &Sid| {
        let due = peek.seen.get(sid).copied().unwrap_or(0);
        now <= due.max(peek.resumed_at + 30_000) + settings.queue_ttl_ms
    };
    peek.queue.iter().filter(|(sid, _)| is_live(sid)).map(|(sid, t)| (*t, *sid)).collect()
}

pub(crate) const VISITORS: usize = 8;
pub(crate) const GATEWAYS: usize = 2;

/// Nothing goes wrong but what visitors do.
pub(crate) fn calm() -> impl Strategy<Value = Step> {
    let (v, g) = (0..VISITORS, 0..GATEWAYS);
    prop_oneof![
        6 => (v.clone(), g.clone()).prop_map(|(v, g)| Step::Enter(v, g)),
        4 => (v.clone(), g.clone()).prop_map(|(v, g)| Step::Poll(v, g)),
        1 => (v.clone(), g.clone()).prop_map(|(v, g)| Step::Stream(v, g)),
        1 => (v, g).prop_map(|(v, g)| Step::Leave(v, g)),
        4 => (1u64..8_000).prop_map(Step::Wait),
        1 => prop::sample::select(vec![10_000, 29_999, 30_001, 60_000, 61_000, 160_000])
            .prop_map(Step::Wait),
    ]
}

/// Everything that can go wrong does.
pub(crate) fn wild() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => calm(),
        1 => prop_oneof![-40_000i64..40_000, -3_000i64..3_000].prop_map(Step::Clock),
        1 => Just(Step::Wipe),
        2 => Just(Step::Replicate),
        1 => Just(Step::Failover),
        1 => (0..GATEWAYS).prop_map(Step::Cut),
        2 => (0..GATEWAYS).prop_map(Step::Mend),
        1 => (0u64..5).prop_map(Step::Capacity),
        1 => any::<bool>().prop_map(Step::Pause),
        1 => prop_oneof![Just(Step::Flush), Just(Step::ReleaseAll)],
    ]
}
