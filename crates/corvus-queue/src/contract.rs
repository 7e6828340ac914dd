//! The contract of a queue store: the nine laws as property tests, and the stories that broke
//! earlier drafts. Written against [`Store`], so that every engine runs the same cases; here they
//! run on [`Pair`], the room and the reference model side by side, which must agree on every answer
//! and on the whole state after every call.
//!
//! Each law runs 256 random traces. `CORVUS_LAW_CASES=20000 cargo test --release -p corvus-queue
//! contract::laws` makes a long run.

pub(crate) mod laws;
mod model;
mod stories;
mod tape;
mod world;

use std::collections::BTreeMap;

use corvus_config::snapshot::{
    Method, OnStoreFailure, QueueGate, QueuePage, QueueSettings, Rate, SameSite, Schedule,
};
use corvus_core::{Id, token::Sid};

use self::model::Model;
use crate::{
    op::{Caller, Op, Reply},
    room::Room,
};

/// A queue store under test. Times are the store's own.
pub(crate) trait Store: Sized {
    /// A new one, empty.
    fn open(settings: &QueueSettings) -> Self;
    fn call(&mut self, now: u64, caller: Caller, ops: &[Op]) -> Reply;
    fn configure(&mut self, now: u64, settings: QueueSettings);
    /// Loses everything but the settings.
    fn wipe(&mut self);
    /// A replica as it is now.
    fn copy(&self) -> Self;
    fn peek(&mut self, now: u64) -> Peek;
}

/// The whole state of a store, as the specification's keys hold it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Peek {
    pub(crate) active: BTreeMap<Sid, u64>,
    pub(crate) queue: BTreeMap<Sid, u64>,
    pub(crate) seen: BTreeMap<Sid, u64>,
    pub(crate) used: BTreeMap<Sid, u64>,
    pub(crate) left: BTreeMap<Sid, u64>,
    pub(crate) owed: u64,
    pub(crate) free: u64,
    pub(crate) resumed_at: u64,
    pub(crate) admitted: u64,
    pub(crate) abandoned: u64,
}

const DRAW_KEY: [u8; 16] = *b"a key for draws.";

/// Room and model side by side.
pub(crate) struct Pair {
    room: Room,
    model: Model,
}

impl Store for Pair {
    fn open(settings: &QueueSettings) -> Self {
        let mut room = Room::new(settings.clone(), DRAW_KEY, false);
        room.track_changes();
        Self { room, model: Model::new(settings.clone(), DRAW_KEY) }
    }

    fn call(&mut self, now: u64, caller: Caller, ops: &[Op]) -> Reply {
        let reply = self.room.call(now, caller, ops);
        assert_eq!(reply, self.model.call(now, caller, ops), "room, model; {ops:?} at {now}");
        if worth_a_look(&reply) {
            assert_eq!(self.room.peek(now), self.model.peek(now), "room, model; {ops:?} at {now}");
            self.room.check_counts();
        }
        reply
    }

    fn configure(&mut self, now: u64, settings: QueueSettings) {
        self.model.configure(now, settings.clone());
        self.room.configure(settings, now);
    }

    fn wipe(&mut self) {
        self.model.wipe();
        self.room = Room::new(self.room.settings().clone(), DRAW_KEY, false);
        self.room.track_changes();
    }

    fn copy(&self) -> Self {
        Self { room: self.room.clone(), model: self.model.copy() }
    }

    fn peek(&mut self, now: u64) -> Peek {
        self.model.peek(now)
    }
}

/// Whether to compare whole states: always, but of thousands of visitors now and then.
fn worth_a_look(reply: &Reply) -> bool {
    let visitors = reply.waiting + reply.inside;
    visitors <= 100 || visitors.is_multiple_of(250)
}

/// What the gateway needs to know of a queue, as a Document has it that says nothing; but closed
/// without a store.
pub(crate) fn gate() -> QueueGate {
    QueueGate {
        joins_per_ip_per_min: 60,
        polls_per_session_per_s: 3,
        max_waiting_per_ip: None,
        on_store_failure: OnStoreFailure::Closed,
        bind_network: false,
        paths: vec!["/".into()],
        bypass: None,
        cookie_same_site: SameSite::Lax,
        cookie_domain: None,
        status: 429,
        page: QueuePage::default(),
    }
}

/// Times as in the specification's defaults, with a small capacity.
pub(crate) fn settings(capacity: u64) -> QueueSettings {
    QueueSettings {
        id: Id::new("drop").unwrap(),
        capacity,
        rate: None,
        active_ttl_ms: 60_000,
        grant_ttl_ms: 30_000,
        queue_ttl_ms: 120_000,
        refresh_ms: 15_000,
        max_waiting: 100_000,
        method: Method::Fifo,
        paused: false,
        schedule: Schedule::default(),
    }
}

pub(crate) fn with_rate(capacity: u64, count: f64, per_s: f64) -> QueueSettings {
    QueueSettings { rate: Some(Rate { count, per_s }), ..settings(capacity) }
}

pub(crate) fn sid(i: usize) -> Sid {
    // Spread over the whole width, as random ones are.
    Sid::from_bytes(
        ((i as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)).to_be_bytes(),
    )
}

/// Runs a trace while saving every few steps, now and then everything, as the journal does; then
/// loads what was saved and compares.
fn saved_alongside(world: &mut world::World<Pair>, steps: &[world::Step], every: usize) {
    let mut loader = crate::room::Loader::default();
    let mut frame = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        let wiped = matches!(step, world::Step::Wipe | world::Step::Failover);
        world.step(step);
        if wiped {
            // Another store: its own journal begins with everything.
            loader = crate::room::Loader::default();
            frame.clear();
            while world.store.room.save_changes(usize::MAX, &mut frame) {}
            frame.clear();
            world.store.room.save_range(0..3, &mut frame);
            loader.apply(&frame).unwrap();
            frame.clear();
            world.store.room.save_range(3..u32::MAX, &mut frame);
            loader.apply(&frame).unwrap();
        } else if i % every == 0 {
            frame.clear();
            world.store.room.save_changes(3, &mut frame);
            loader.apply(&frame).unwrap();
        }
    }
    let mut more = true;
    while more {
        frame.clear();
        more = world.store.room.save_changes(3, &mut frame);
        loader.apply(&frame).unwrap();
    }
    assert!(loader.apply(&frame[..frame.len() - 1]).is_err(), "half a frame is none");
    let now = world.now();
    let loaded = loader.finish(world.store.room.settings().clone(), DRAW_KEY).unwrap();
    loaded.check_counts();
    let free = world.store.peek(now).free;
    // The loaded room is alone, so it does not hold back for the epoch.
    assert_eq!(Peek { free, ..loaded.peek(now) }, world.store.peek(now));
}
