//! Tickets that are drawn by lot: places before the start, and the `random` method.

use std::hash::Hasher;

use corvus_config::snapshot::Schedule;
use corvus_core::{Id, token::Sid};
use siphasher::sip::SipHasher24;

/// The window of a draw without `opens_at`.
const DEFAULT_WINDOW_MS: u64 = 3_600_000;

#[derive(Clone, Debug)]
pub(crate) struct Draw {
    /// Secret: who could compute the hash could shop for a sid with a good lot.
    key: [u8; 16],
    /// (opens, starts) of the schedule, the latest that had a start: lots of a draw that was held
    /// can still be recomputed after the schedule is gone. Ms.
    window: Option<(u64, u64)>,
}

impl Draw {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { key, window: None }
    }

    /// The same with another key.
    pub(crate) fn keyed(&self, key: [u8; 16]) -> Self {
        Self { key, ..self.clone() }
    }

    pub(crate) fn follow(&mut self, schedule: &Schedule) {
        if let Some(start) = schedule.starts_at_ms {
            let opens = schedule.opens_at_ms.filter(|opens| *opens < start);
            self.window =
                Some((opens.unwrap_or_else(|| start.saturating_sub(DEFAULT_WINDOW_MS)), start));
        }
    }

    pub(super) fn window(&self) -> (u64, u64) {
        self.window.unwrap_or_default()
    }

    /// Takes back a saved window, unless the settings have one.
    pub(super) fn restore(&mut self, opens: u64, starts: u64) {
        if self.window.is_none() && starts != 0 {
            self.window = Some((opens, starts));
        }
    }

    /// The lot of `sid`: below the start in microseconds, so ahead of everybody who comes after.
    pub(crate) fn lottery(&self, queue: &Id, sid: &Sid) -> Option<u64> {
        let (opens, starts) = self.window?;
        let (opens_us, starts_us) = (opens.saturating_mul(1_000), starts.saturating_mul(1_000));
        let lot = self.hash(queue, starts, sid) % (starts_us - opens_us).max(1);
        Some((opens_us + lot).max(1))
    }

    /// The ticket of `sid` under the `random` method: always the same, so rejoining cannot reroll.
    pub(crate) fn random(&self, queue: &Id, sid: &Sid) -> u64 {
        // 0 is no ticket.
        (self.hash(queue, 0, sid) % (1 << 52)).max(1)
    }

    fn hash(&self, queue: &Id, starts: u64, sid: &Sid) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(queue.as_str().as_bytes());
        // Ids hold no NUL, so no id runs into what follows.
        hasher.write(&[0]);
        hasher.write(&starts.to_le_bytes());
        hasher.write(sid.as_bytes());
        hasher.finish()
    }
}
