//! Numbers that one thread writes and another reads now and then.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A count that only ever grows, written by one thread alone.
///
/// Adding is a load and a store instead of a locked instruction: with a single writer no increment
/// can be lost, and a reader sees the old value or the new one. [`crate::WorkerMonitor`] is not
/// `Sync`, which is what keeps the writer single.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How many of something are open. Any thread may close what another opened.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    opened: AtomicU64,
    closed: AtomicU64,
}

impl Gauge {
    pub(crate) fn open(&self) {
        self.opened.fetch_add(1, Relaxed);
    }

    pub(crate) fn close(&self) {
        self.closed.fetch_add(1, Relaxed);
    }

    /// Opened since the start.
    pub(crate) fn total(&self) -> u64 {
        self.opened.load(Relaxed)
    }

    pub(crate) fn now(&self) -> u64 {
        // Read in this order, a close in between cannot make it negative.
        let closed = self.closed.load(Relaxed);
        self.opened.load(Relaxed).saturating_sub(closed)
    }
}

/// Upper bounds in microseconds and as Prometheus writes them, in seconds. From a cache hit beside
/// us to a page nobody waits for.
pub(crate) const BOUNDS: [(u64, &str); 16] = [
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (500_000, "0.5"),
    (1_000_000, "1"),
    (2_500_000, "2.5"),
    (5_000_000, "5"),
    (10_000_000, "10"),
    (30_000_000, "30"),
    (60_000_000, "60"),
];

/// Times in the buckets of [`BOUNDS`] and one above. Single writer, like [`Counter`].
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [Counter; BOUNDS.len() + 1],
    sum_us: Counter,
}

impl Histogram {
    pub(crate) fn observe(&self, us: u64) {
        let bucket = BOUNDS.partition_point(|(bound, _)| *bound < us);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.add(1);
        }
        self.sum_us.add(us);
    }
}

/// The sum of several [`Histogram`]s.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct HistogramTotals {
    pub(crate) buckets: [u64; BOUNDS.len() + 1],
    pub(crate) sum_us: u64,
}

impl HistogramTotals {
    pub(crate) fn add(&mut self, histogram: &Histogram) {
        for (total, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *total += bucket.get();
        }
        self.sum_us += histogram.sum_us.get();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::default();
        for us in [0, 500, 501, 60_000_000, 60_000_001, u64::MAX / 2] {
            histogram.observe(us);
        }
        let mut totals = HistogramTotals::default();
        totals.add(&histogram);
        assert_eq!((totals.buckets[0], totals.buckets[1]), (2, 1));
        assert_eq!((totals.buckets[15], totals.buckets[16]), (1, 2));
    }

    #[test]
    fn a_gauge_counts_what_is_open() {
        let gauge = Gauge::default();
        gauge.open();
        gauge.open();
        gauge.close();
        assert_eq!((gauge.now(), gauge.total()), (1, 2));
    }
}
