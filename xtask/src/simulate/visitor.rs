//! One visitor: what its browser remembers, and what it would send.

use corvus_core::token::{Admission, Place, Sid, Ticket};
use corvus_queue::op::Op;

use super::{
    chance::{Chance, Draw},
    store::START_MS,
};

/// 40 bytes: there are millions. Times in ms of the run; 0: none.
#[derive(Clone, Copy)]
pub(super) struct Visitor {
    /// Of the place cookie.
    pub(super) ticket: u64,
    pub(super) place_issued: u32,
    pub(super) due: u32,
    /// Of the admission cookie.
    pub(super) issued: u32,
    pub(super) expires: u32,
    /// First asked to be let in.
    pub(super) came: u32,
    /// The visit ends.
    pub(super) until: u32,
    pub(super) next: Next,
    /// Was away once.
    pub(super) was_away: bool,
    /// Came back to the line later than a grant lasts: it may have been let in and missed it, so it
    /// returns ahead of some who are inside.
    pub(super) returned: bool,
    /// Let through without a place while the store was away.
    pub(super) through: bool,
}

/// What its browser does when its time comes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Next {
    /// First request, without a cookie.
    Come,
    Enter,
    Poll,
    /// A page of the site, from inside.
    Page,
    Nothing,
}

/// What an operation in a gateway's hands was for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Enter,
    Poll,
    Beat,
    Leave,
}

impl Visitor {
    pub(super) const NEW: Self = Self {
        ticket: 0,
        place_issued: 0,
        due: 0,
        issued: 0,
        expires: 0,
        came: 0,
        until: 0,
        next: Next::Come,
        was_away: false,
        returned: false,
        through: false,
    };

    pub(super) fn op(&self, kind: Kind, sid: Sid) -> Op {
        let admission = Admission {
            sid,
            issued_ms: START_MS + u64::from(self.issued),
            expires_ms: START_MS + u64::from(self.expires),
        };
        let place = (self.ticket != 0).then(|| Place {
            sid,
            issued_ms: START_MS + u64::from(self.place_issued),
            ticket: Ticket::Number(self.ticket),
            due_ms: START_MS + u64::from(self.due),
        });
        match kind {
            Kind::Enter => Op::Enter { sid, place, join: true },
            Kind::Poll => Op::Poll { sid, place, admission: None },
            Kind::Beat => Op::Heartbeat { admission, place, join: true },
            Kind::Leave => Op::Release { sid, admission: Some(admission) },
        }
    }

    /// Has come and not yet gone. Away counts as connected: it is few, and they come back.
    pub(super) fn is_connected(&self) -> bool {
        !matches!(self.next, Next::Come | Next::Nothing)
    }

    pub(super) fn forget_place(&mut self) {
        (self.ticket, self.place_issued, self.due, self.returned) = (0, 0, 0, false);
    }
}

pub(super) fn sid(chance: Chance, visitor: u32) -> Sid {
    let high = u128::from(chance.bits(visitor, Draw::Sid, 0));
    let low = u128::from(chance.bits(visitor, Draw::SidEnd, 0));
    Sid::from_bytes((high << 64 | low).to_le_bytes())
}

/// The number of a ticket; this simulation draws no lots before a start.
pub(super) fn number(ticket: Ticket) -> u64 {
    match ticket {
        Ticket::Number(number) => number,
        Ticket::Unplaced | Ticket::Lottery => 0,
    }
}

/// A time of the room as one of the run.
pub(super) fn run_ms(room_ms: u64) -> u32 {
    room_ms.saturating_sub(START_MS) as u32
}
