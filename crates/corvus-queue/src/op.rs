//! What is asked of a store, and what it answers: the words both engines speak.

use corvus_core::token::{Admission, Place, Sid, Ticket};

/// One thing to do for one visitor, or for the whole queue. Tokens in here are already verified
/// (signature, queue, network); whether they are still good is for the store to say.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Op {
    /// A request without a young admission. `join: false` takes no new place (the gateway's limits
    /// forbid it): a visitor who would be new is answered [`Answer::Gone`].
    Enter {
        sid: Sid,
        place: Option<Place>,
        join: bool,
    },
    /// The waiting page asks how it stands.
    Poll {
        sid: Sid,
        place: Option<Place>,
        admission: Option<Admission>,
    },
    /// A request with an admission older than `refresh`, or an open stream. `join: false` extends or
    /// puts back, and never joins; with `true` a visitor whose admission is refused enters anew.
    Heartbeat {
        admission: Admission,
        place: Option<Place>,
        join: bool,
    },
    /// The visitor leaves, or the origin ends the session.
    Release {
        sid: Sid,
        admission: Option<Admission>,
    },
    /// Sends everybody who waits away.
    Flush,
    /// Ends every session inside.
    ReleaseAll,
    Stats,
}

/// Who calls, and what it was told last.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Caller {
    /// The calling process: a number of its own, drawn at start.
    pub gateway: u64,
    /// Of its latest reply for this queue; `None`: it had none yet.
    pub report: Option<Report>,
}

impl Caller {
    /// A gateway that was told nothing yet.
    pub const fn new(gateway: u64) -> Self {
        Self { gateway, report: None }
    }
}

/// What a gateway remembers of its latest reply, sent with its next call: how a store that lost
/// its state, or an older copy of it that took over, learns what it lost.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// [`Reply::claimed`] and [`Reply::owed`] together.
    pub claimed: u64,
    pub born_ms: u64,
    pub n: u64,
}

/// The answer to one [`Op`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// Inside, and claimed. Sets the admission cookie and drops the place cookie. `issued_ms` is the
    /// store's time, or just after what would refuse the token: a leaving in the same millisecond,
    /// or before the clock was set back. `joined`: without having waited, so it counts as a join
    /// of this address.
    Admitted {
        issued_ms: u64,
        expires_ms: u64,
        joined: bool,
    },
    /// To a poll: the slot is there. The next real request claims it; no cookie changes, because
    /// an admission would let the visitor pass without ever claiming.
    Ready,
    Waiting(Waiting),
    /// As many wait as may.
    Full,
    /// After `ends_at`, or the method is `reject`.
    Closed,
    /// Before `opens_at`.
    NotOpen {
        opens_at_ms: u64,
    },
    /// The store knows no such visitor, and its tokens do not help. Nothing was stored.
    Gone,
    /// Release, flush and release all.
    Done,
    Stats(Stats),
}

/// How a visitor stands who waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waiting {
    /// 1 is next; `None` until a draw is held.
    pub rank: Option<u64>,
    pub eta_ms: Option<u64>,
    /// Check in again after this long.
    pub poll_ms: u64,
    /// For the place cookie, with the two below; as in [`Answer::Admitted`].
    pub issued_ms: u64,
    pub ticket: Ticket,
    pub due_ms: u64,
    /// A new place was taken just now.
    pub joined: bool,
}

/// Everything a call brings back.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The store's time, Unix ms.
    pub now_ms: u64,
    pub born_ms: u64,
    pub n: u64,
    pub inside: u64,
    pub claimed: u64,
    /// Places held for visitors whom the store lost.
    pub owed: u64,
    pub waiting: u64,
    /// Version of capacity, rate and pause.
    pub cfg: u64,
    /// The pass stopped at a bound: call again at once.
    pub more: bool,
    /// One for each operation, in order.
    pub answers: Vec<Answer>,
}

impl Reply {
    /// What to send with the next call. Who is owed a place counts as claimed: if the state is lost
    /// once more before they return, their places must be held again.
    pub const fn report(&self) -> Report {
        Report { claimed: self.claimed + self.owed, born_ms: self.born_ms, n: self.n }
    }
}

/// Upper bounds of the wait-time histogram's buckets, seconds; a last bucket takes the rest.
pub const WAIT_BUCKETS_S: [u64; 11] = [5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200];

/// Numbers of one queue, for the console and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    pub inside: u64,
    pub claimed: u64,
    pub waiting: u64,
    pub capacity: u64,
    pub paused: bool,
    /// Places held for visitors whom the store lost.
    pub owed: u64,
    /// Total since the state began.
    pub admitted: u64,
    pub abandoned: u64,
    /// Admissions a second over about the last minute; `None`: there were none.
    pub per_s: Option<f64>,
    /// From the first ticket to the claim, of all who waited: how many, and the sum in ms.
    pub waits: u64,
    pub wait_sum_ms: u64,
    /// Counts for each of [`WAIT_BUCKETS_S`], then the rest; not cumulative.
    pub wait_buckets: [u64; WAIT_BUCKETS_S.len() + 1],
}

/// Why a call has no reply.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// A transport failure, or no answer in time.
    #[error("the queue store cannot be reached: {0}")]
    Unreachable(String),
    /// The store has no memory left for newcomers. It is not down: never fail open on this.
    #[error("the queue store is full")]
    Full,
    /// The same, said by the store of one visitor: it is neither inside nor in line.
    #[error("the queue store is full, and has no such visitor")]
    TurnedAway,
    #[error("no queue `{0}` is configured")]
    UnknownQueue(String),
}
