//! Which call of the state each gateway saw last.
//!
//! Calls are counted. A gateway that was answered with a count which this state never gave it spoke
//! with a younger copy that is lost. The count alone would not show it once another gateway called:
//! it catches up.

/// Gateways remembered. Of more, the ones that called longest ago are forgotten.
const CALLERS_MAX: usize = 256;

#[derive(Clone, Debug, Default)]
pub(super) struct Callers {
    /// (gateway, count of its latest call).
    latest: Vec<(u64, u64)>,
}

impl Callers {
    /// Notes call `n` of `gateway`; returns its call before that, if it is known.
    pub(super) fn note(&mut self, gateway: u64, n: u64) -> Option<u64> {
        if let Some((_, latest)) = self.latest.iter_mut().find(|(id, _)| *id == gateway) {
            return Some(std::mem::replace(latest, n));
        }
        if self.latest.len() >= CALLERS_MAX
            && let Some((oldest, _)) = self.latest.iter().enumerate().min_by_key(|(_, (_, n))| *n)
        {
            self.latest.swap_remove(oldest);
        }
        self.latest.push((gateway, n));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ones_that_called_longest_ago_are_forgotten() {
        let mut callers = Callers::default();
        for n in 1..=CALLERS_MAX as u64 {
            assert_eq!(callers.note(n, n), None);
        }
        assert_eq!(callers.note(1, 1_000), Some(1));
        assert_eq!(callers.note(9_999, 1_001), None);
        assert_eq!(callers.note(1, 1_002), Some(1_000));
        assert_eq!(callers.note(2, 1_003), None, "forgotten");
        assert_eq!(callers.latest.len(), CALLERS_MAX);
    }
}
