//! What a run counts: sums for each second, distributions, and breaches of the laws.

use super::gateway::CALL_MAX;

/// Sums over one second, and how things stood at its end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Second {
    pub(super) arrivals: u64,
    pub(super) joins: u64,
    pub(super) polls: u64,
    pub(super) heartbeats: u64,
    pub(super) ops: u64,
    pub(super) calls: u64,
    pub(super) admitted: u64,
    pub(super) store_us: f64,
    pub(super) requests: u64,
    pub(super) handshakes: u64,
    /// Waiting pages sent, and check-ins and redirects.
    pub(super) pages: u64,
    pub(super) small: u64,
    /// Requests, calls and connections of the busiest gateway.
    pub(super) busiest_requests: u64,
    pub(super) busiest_calls: u64,
    pub(super) busiest_connections: u64,
    pub(super) connections: u64,
    pub(super) waiting: u64,
    pub(super) inside: u64,
}

/// Counts of small whole numbers; the last bucket takes what is above.
pub(super) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u64,
}

impl Histogram {
    pub(super) fn new(max: usize) -> Self {
        Self { buckets: vec![0; max + 1], count: 0, sum: 0 }
    }

    pub(super) fn note(&mut self, value: u64) {
        let last = self.buckets.len() - 1;
        self.buckets[(value as usize).min(last)] += 1;
        self.count += 1;
        self.sum += value;
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The smallest value that at least this share of all reach or stay below.
    pub(super) fn quantile(&self, share: f64) -> Option<u64> {
        let wanted = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.buckets.iter().position(|n| {
            seen += n;
            seen >= wanted
        });
        found.map(|value| value as u64)
    }
}

pub(super) struct Tally {
    pub(super) seconds: Vec<Second>,
    /// Seconds from asking to be let in until inside, of those who waited.
    pub(super) waits_s: Histogram,
    /// Operations of each call that had one.
    pub(super) batches: Histogram,
    /// From a visitor's operation until its answer, ms.
    pub(super) answers_ms: Histogram,
    pub(super) direct: u64,
    pub(super) closed: u64,
    pub(super) reaped: u64,
    pub(super) finished: u64,
    /// Came back too late for their place, and took a new one.
    pub(super) lapsed: u64,
    pub(super) full: u64,
    pub(super) busy: u64,
    pub(super) failed_calls: u64,
    pub(super) through: u64,
    /// Valid admissions in browsers, at most at once.
    pub(super) holders_max: u64,
    pub(super) out_of_order: u64,
    pub(super) places_lost: u64,
    pub(super) thrown_out: u64,
}

impl Tally {
    pub(super) fn new(length_s: u32) -> Self {
        Self {
            seconds: vec![Second::default(); length_s as usize],
            waits_s: Histogram::new(length_s as usize),
            batches: Histogram::new(CALL_MAX),
            answers_ms: Histogram::new(2_000),
            direct: 0,
            closed: 0,
            reaped: 0,
            finished: 0,
            lapsed: 0,
            full: 0,
            busy: 0,
            failed_calls: 0,
            through: 0,
            holders_max: 0,
            out_of_order: 0,
            places_lost: 0,
            thrown_out: 0,
        }
    }

    /// The second of `now_ms`; what is past the end counts for the last.
    pub(super) fn at(&mut self, now_ms: u32) -> &mut Second {
        let last = self.seconds.len() - 1;
        &mut self.seconds[((now_ms / 1_000) as usize).min(last)]
    }
}

/// Valid admissions in browsers, by the second in which they end: the truth that a store which
/// forgot does not know.
pub(super) struct Holders {
    ends: Vec<u32>,
    now_s: usize,
    pub(super) count: u64,
}

impl Holders {
    pub(super) fn new(length_s: u32) -> Self {
        Self { ends: vec![0; length_s as usize], now_s: 0, count: 0 }
    }

    /// An admission goes from one end to another, ms; 0: none. Rounded down to a second, so that
    /// one that has just ended is never counted.
    pub(super) fn moved(&mut self, from_ms: u32, to_ms: u32) {
        let (from, to) = ((from_ms / 1_000) as usize, (to_ms / 1_000) as usize);
        if from > self.now_s {
            self.ends[from] -= 1;
            self.count -= 1;
        }
        if to > self.now_s {
            self.ends[to] += 1;
            self.count += 1;
        }
    }

    pub(super) fn advance(&mut self, now_ms: u32) {
        while self.now_s < (now_ms / 1_000) as usize {
            self.now_s += 1;
            self.count -= u64::from(self.ends[self.now_s]);
        }
    }
}
