//! What this gateway knows of one queue between two calls.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use corvus_core::{Id, token::Sid};

use super::{
    breaker::Breaker,
    limits::{Beats, Limiter, Waiters},
};
use crate::op::Reply;

const UNKNOWN: i64 = i64::MIN;

pub(super) struct View {
    pub(super) id: Id,
    /// Store time minus our monotonic time, ms.
    offset: AtomicI64,
    /// The store's time at the first reply.
    since: AtomicU64,
    /// For this queue alone: in a Cluster the servers of others may be well.
    pub(super) breaker: Breaker,
    /// The store has no memory for newcomers, and the log says so.
    pub(super) turns_away: AtomicBool,
    pub(super) joins: Limiter<std::net::IpAddr>,
    pub(super) polls: Limiter<Sid>,
    pub(super) reloads: Limiter<Sid>,
    pub(super) beats: Beats,
    pub(super) waiters: Waiters,
}

impl View {
    pub(super) fn new(id: Id) -> Self {
        Self {
            id,
            offset: AtomicI64::new(UNKNOWN),
            since: AtomicU64::new(0),
            breaker: Breaker::default(),
            turns_away: AtomicBool::new(false),
            joins: Limiter::new(60_000),
            polls: Limiter::new(1_000),
            reloads: Limiter::new(1_000),
            beats: Beats::new(),
            waiters: Waiters::new(),
        }
    }

    /// The store's time, by our monotonic clock; `None` until the first reply.
    pub(super) fn store_now(&self, mono: u64) -> Option<u64> {
        match self.offset.load(Ordering::Relaxed) {
            UNKNOWN => None,
            offset => Some(mono.saturating_add_signed(offset)),
        }
    }

    /// Whether an admission is of a time in which this process knew the store. An older one has to
    /// be shown once: the store may have lost it with the process, and would give its slot away.
    pub(super) fn witnessed(&self, issued_ms: u64) -> bool {
        issued_ms >= self.since.load(Ordering::Relaxed)
    }

    pub(super) fn note(&self, reply: &Reply, mono: u64) {
        let offset = reply.now_ms.cast_signed().saturating_sub(mono.cast_signed());
        let first = self.offset.swap(offset, Ordering::Relaxed) == UNKNOWN;
        if first {
            self.since.store(reply.now_ms, Ordering::Relaxed);
        }
    }
}
