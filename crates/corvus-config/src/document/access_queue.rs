//! `access_queues`: waiting rooms.

use crate::decode::{Decimal, choice, range, section};

section! {
    /// A waiting room: lets in as many visitors as the site can take, in order.
    pub struct AccessQueue {
        /// `[a-z0-9][a-z0-9_-]{0,62}`
        id: String,
        /// Visitors inside at once.
        capacity: u64 => range(1.0, 100_000_000.0),
        /// Admissions; null: as fast as places become free.
        rate: Option<AdmissionRate> = None,
        /// Seconds without a request after which a visitor's place is free again. More than
        /// `refresh_s`.
        active_ttl_s: u64 = 300 => range(5.0, 86_400.0),
        /// Seconds for which a place is held for a visitor whose turn has come.
        grant_ttl_s: u64 = 30 => range(5.0, 3_600.0),
        /// Seconds that a check-in may be late before the place in the line is given up.
        queue_ttl_s: u64 = 120 => range(30.0, 86_400.0),
        /// Seconds for which an admission is believed without asking the store.
        refresh_s: u64 = 15 => range(1.0, 3_600.0),
        /// Longest line; beyond it visitors are asked to come back later.
        max_waiting: u64 = 100_000 => range(1.0, 100_000_000.0),
        /// Waiting at once for one client address (IPv6 by /64); null: no limit.
        max_waiting_per_ip: Option<u32> = None => range(1.0, 100_000_000.0),
        /// New places a minute for one client address (IPv6 by /64).
        joins_per_ip_per_min: u32 = 60 => range(1.0, 1_000_000.0),
        /// Check-ins a second for one visitor.
        polls_per_session_per_s: u32 = 3 => range(1.0, 1_000.0),
        /// Who passes while the store is out of reach. Those inside always do.
        on_store_failure: StoreFailure = StoreFailure::Open,
        /// Whether an admission holds only in the network (/24, /48) it was given to.
        bind_network: bool = false,
        /// How the line moves.
        method: QueueMethod = QueueMethod::Fifo,
        /// Whether nobody is let in for now.
        paused: bool = false,
        /// When it opens, starts and ends.
        schedule: QueueSchedule = QueueSchedule::default(),
        /// Path prefixes that are queued, on the hosts that name this queue; compared in any
        /// spelling and without case.
        paths: Vec<String> = vec!["/".to_owned()],
        /// An expression: requests for which it holds pass by the queue.
        bypass: Option<String> = None,
        /// Whether a visitor proves to be a browser before joining. Not available in this version.
        challenge_at_join: bool = false,
        /// The cookies that hold a visitor's place.
        cookie: QueueCookie = QueueCookie::default(),
        /// Status of the waiting page: 429, 200 or 202.
        status: u16 = 429,
        /// The waiting page.
        page: WaitingPage = WaitingPage::default(),
    }
}

section! {
    /// Admissions: `count` in `per_s` seconds.
    pub struct AdmissionRate {
        /// Visitors; a fraction is allowed.
        count: Decimal => range(0.001, 10_000_000.0),
        /// In so many seconds; a fraction is allowed.
        per_s: Decimal = Decimal(1.0) => range(0.001, 86_400.0),
    }
}

choice! {
    /// Who passes while the store is out of reach.
    pub enum StoreFailure {
        /// Everybody.
        Open = "open",
        /// Only those inside; newcomers get a try-again page.
        Closed = "closed",
    }
}

choice! {
    /// How the line moves.
    pub enum QueueMethod {
        /// First come, first served.
        Fifo = "fifo",
        /// By lot.
        Random = "random",
        /// Everybody is let in and counted.
        Passthrough = "passthrough",
        /// Nobody is let in.
        Reject = "reject",
    }
}

section! {
    /// Times as RFC 3339 timestamps, such as `2026-12-24T12:00:00+01:00`; null: no such bound.
    pub struct QueueSchedule {
        /// From when visitors may join.
        opens_at: Option<String> = None,
        /// From when they are let in; those who joined before are drawn by lot.
        starts_at: Option<String> = None,
        /// From when nobody is let in any more.
        ends_at: Option<String> = None,
    }
}

section! {
    /// The cookies that hold a visitor's place.
    pub struct QueueCookie {
        /// The SameSite attribute.
        same_site: SameSitePolicy = SameSitePolicy::Lax,
        /// The Domain attribute, to share a place between hosts; it must cover all hosts that
        /// name this queue. Null: the one host.
        domain: Option<String> = None,
    }
}

choice! {
    /// The SameSite attribute of a cookie.
    pub enum SameSitePolicy {
        /// Sent when somebody follows a link.
        Lax = "lax",
        /// Sent within the site only.
        Strict = "strict",
        /// Sent always; needs HTTPS.
        None = "none",
    }
}

section! {
    /// The waiting page.
    pub struct WaitingPage {
        /// Its title; null: in the visitor's language.
        title: Option<String> = None,
        /// A message from the operator.
        message: Option<String> = None,
        /// A whole HTML page with placeholders, instead of ours.
        template: Option<String> = None,
    }
}
