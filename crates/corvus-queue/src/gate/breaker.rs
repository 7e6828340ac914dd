//! The circuit breaker in front of the store: one failure spares all workers the next timeouts.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// How long nobody tries after a failure.
const OPEN_MS: u64 = 3_000;

#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// Monotonic ms until which it is open; 0: closed.
    open_until: AtomicU64,
}

impl Breaker {
    /// May this caller try? After the pause one caller may, as a probe; if it never comes back the
    /// next one may after another pause.
    pub(super) fn allows(&self, mono: u64) -> bool {
        match self.open_until.load(SeqCst) {
            0 => true,
            until if mono < until => false,
            until => {
                self.open_until.compare_exchange(until, mono + OPEN_MS, SeqCst, SeqCst).is_ok()
            }
        }
    }

    pub(super) fn trip(&self, mono: u64) {
        self.open_until.store(mono + OPEN_MS, SeqCst);
    }

    pub(super) fn close(&self) {
        if self.open_until.load(SeqCst) != 0 {
            self.open_until.store(0, SeqCst);
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open_until.load(SeqCst) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_probes_once_and_closes() {
        let breaker = Breaker::default();
        assert!(breaker.allows(0));
        breaker.trip(10);
        assert!(breaker.is_open());
        assert!(!breaker.allows(3_009));
        assert!(breaker.allows(3_010), "one probe");
        assert!(!breaker.allows(3_010), "only one");
        assert!(breaker.allows(6_010), "the probe never came back");
        breaker.close();
        assert!(breaker.allows(6_010) && !breaker.is_open());
    }
}
