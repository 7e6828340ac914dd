//! One gateway: operations of a room gather here and go to the store as one call.

use corvus_queue::op::{Op, Reply, Report};

use super::visitor::Kind;

/// Operations in one call at most.
pub(super) const CALL_MAX: usize = 512;
/// Operations that wait in a gateway at most; beyond them visitors are told that it is busy.
pub(super) const PENDING_MAX: usize = 16_384;
/// How long nobody tries after a failure (specification, section 6).
const BREAKER_MS: u32 = 3_000;

/// An operation on its way, beside its [`Op`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) visitor: u32,
    pub(super) kind: Kind,
    pub(super) at_ms: u32,
}

#[derive(Default)]
pub(super) struct Gateway {
    pub(super) pending: Vec<Sent>,
    pub(super) ops: Vec<Op>,
    pub(super) call: Option<Call>,
    /// A moment to send is set.
    pub(super) scheduled: bool,
    /// Send as soon as no call is under way.
    pub(super) due: bool,
    pub(super) report: Option<Report>,
    /// Until when calls are held back, ms; 0: they are not.
    open_until: u32,
    /// Of this second.
    pub(super) requests: u64,
    pub(super) calls: u64,
    /// Connections of visitors.
    pub(super) connections: u64,
}

/// The call under way.
pub(super) struct Call {
    pub(super) sent: Vec<Sent>,
    pub(super) reply: Option<Reply>,
    pub(super) let_in: u64,
}

impl Gateway {
    /// May the store be asked? After a failure one caller may, as a probe, each three seconds.
    pub(super) fn allows(&mut self, now_ms: u32) -> bool {
        if self.open_until == 0 {
            return true;
        }
        let probes = now_ms >= self.open_until;
        if probes {
            self.open_until = now_ms + BREAKER_MS;
        }
        probes
    }

    pub(super) fn failed(&mut self, now_ms: u32) {
        self.open_until = now_ms + BREAKER_MS;
    }

    pub(super) fn answered(&mut self) {
        self.open_until = 0;
    }

    /// What the next call takes with it.
    pub(super) fn next_batch(&mut self) -> (Vec<Sent>, Vec<Op>) {
        let n = self.pending.len().min(CALL_MAX);
        (self.pending.drain(..n).collect(), self.ops.drain(..n).collect())
    }
}
