//! How fast the line moves, and what waiting visitors are told about it.

/// Time constant of the average, ms.
const WINDOW_MS: f64 = 60_000.0;
const POLL_MIN_MS: u64 = 3_000;
const POLL_MAX_MS: u64 = 30_000;
/// Ranks up to this one poll as often as may be.
const NEAR_RANK: u64 = 50;
/// Ranks from this one on poll as seldom as may be.
const FAR_RANK: u64 = 5_000;

/// Admissions over about the last minute: an exponentially decaying count over an equally decaying
/// span of time, so that the first minute is not underestimated.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pace {
    pub(super) count: f64,
    pub(super) span_ms: f64,
    pub(super) at: u64,
}

impl Pace {
    pub(crate) fn advance(&mut self, now: u64) {
        let passed = now.saturating_sub(self.at);
        if passed > 0 && self.at != 0 {
            let keep = (-(passed as f64) / WINDOW_MS).exp();
            self.count *= keep;
            self.span_ms = self.span_ms * keep + WINDOW_MS * (1.0 - keep);
        }
        self.at = now;
    }

    pub(crate) fn admit(&mut self) {
        self.count += 1.0;
    }

    /// Admissions a second; `None` when the last ones are minutes ago, or there were none.
    pub(crate) fn per_s(&self) -> Option<f64> {
        // A single admission has faded to a hundredth after about 4.6 minutes.
        (self.count >= 0.01).then(|| self.count * 1_000.0 / self.span_ms.max(1_000.0))
    }
}

/// The expected wait of `rank`, ms.
pub fn eta_ms(rank: u64, per_s: Option<f64>) -> Option<u64> {
    per_s.map(|per_s| (rank as f64 * 1_000.0 / per_s) as u64)
}

/// When `rank` should check in again, ms: 3 s near the front, growing to 30 s at rank 5,000, never
/// more than half the expected wait, at least 3 s.
pub fn poll_ms(rank: u64, eta_ms: Option<u64>) -> u64 {
    let beyond = rank.clamp(NEAR_RANK, FAR_RANK) - NEAR_RANK;
    let by_rank = POLL_MIN_MS + beyond * (POLL_MAX_MS - POLL_MIN_MS) / (FAR_RANK - NEAR_RANK);
    let half = eta_ms.map_or(u64::MAX, |eta| eta / 2);
    by_rank.min(half).max(POLL_MIN_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_grow_with_rank_and_shrink_with_the_estimate() {
        assert_eq!(poll_ms(1, None), 3_000);
        assert_eq!(poll_ms(50, None), 3_000);
        assert_eq!(poll_ms(2_525, None), 16_500);
        assert_eq!(poll_ms(5_000, None), 30_000);
        assert_eq!(poll_ms(u64::MAX, None), 30_000);
        assert_eq!(poll_ms(5_000, Some(20_000)), 10_000);
        assert_eq!(poll_ms(5_000, Some(10)), 3_000);
    }

    #[test]
    fn the_pace_is_right_from_the_first_seconds_and_unknown_without_admissions() {
        let mut pace = Pace::default();
        assert_eq!(pace.per_s(), None);
        for second in 1..=10u64 {
            pace.advance(second * 1_000);
            for _ in 0..20 {
                pace.admit();
            }
        }
        let per_s = pace.per_s().unwrap();
        assert!((18.0..24.0).contains(&per_s), "{per_s}");
        assert_eq!(eta_ms(200, Some(20.0)), Some(10_000));
        pace.advance(3_600_000);
        assert_eq!(pace.per_s(), None);
    }
}
