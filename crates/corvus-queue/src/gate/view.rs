//! What this gateway knows of one queue between two calls.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use corvus_core::{Id, token::Sid};

use super::limits::{Beats, Limiter, Waiters};
use crate::op::{Reply, Report};

const UNKNOWN: i64 = i64::MIN;

pub(super) struct View {
    pub(super) id: Id,
    /// Store time minus our monotonic time, ms.
    offset: AtomicI64,
    /// The store's time at the first reply.
    since: AtomicU64,
    latest: Mutex<Option<Report>>,
    pub(super) joins: Limiter<std::net::IpAddr>,
    pub(super) polls: Limiter<Sid>,
    pub(super) beats: Beats,
    pub(super) waiters: Waiters,
}

impl View {
    pub(super) fn new(id: Id) -> Self {
        Self {
            id,
            offset: AtomicI64::new(UNKNOWN),
            since: AtomicU64::new(0),
            latest: Mutex::new(None),
            joins: Limiter::new(60_000),
            polls: Limiter::new(1_000),
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

    pub(super) fn report(&self) -> Option<Report> {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, reply: &Reply, mono: u64) {
        let offset = reply.now_ms.cast_signed().saturating_sub(mono.cast_signed());
        let first = self.offset.swap(offset, Ordering::Relaxed) == UNKNOWN;
        if first {
            self.since.store(reply.now_ms, Ordering::Relaxed);
        }
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        // Replies of several workers may come in another order than they were made.
        if latest.is_none_or(|old| old.born_ms != reply.born_ms || old.n < reply.n) {
            *latest = Some(reply.report());
        }
    }
}
