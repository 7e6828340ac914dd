//! Limits that live in the gateway's memory: they must not cost the store anything.

use std::{
    collections::hash_map::Entry,
    hash::{BuildHasher, Hash},
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use corvus_core::token::{Admission, Sid};
use foldhash::{HashMap, fast::RandomState};

/// Locks, so that workers seldom meet.
const SHARDS: usize = 16;
/// Keys one shard remembers at most. Beyond it the oldest half is forgotten: under a flood from
/// a quarter of a million addresses the limits get lenient, never the gateway big.
const SHARD_KEYS: usize = 16_384;

/// A map in shards.
struct Sharded<S> {
    shards: [Mutex<S>; SHARDS],
    hasher: RandomState,
}

impl<S: Default> Sharded<S> {
    fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::default() }
    }

    fn lock(&self, key: &impl Hash) -> MutexGuard<'_, S> {
        let hash = self.hasher.hash_one(key);
        // Maps inside use another seed, so that taking low bits here does not skew them.
        self.shards[hash as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts hits of each key over a sliding window: the last window's count fades out as the present
/// one grows, so there is no edge at which twice the limit passes.
pub(super) struct Limiter<K> {
    window_ms: u64,
    shards: Sharded<Windows<K>>,
}

struct Windows<K> {
    start: u64,
    now: HashMap<K, u32>,
    before: HashMap<K, u32>,
}

impl<K> Default for Windows<K> {
    fn default() -> Self {
        Self { start: 0, now: HashMap::default(), before: HashMap::default() }
    }
}

impl<K: Copy + Eq + Hash> Limiter<K> {
    pub(super) fn new(window_ms: u64) -> Self {
        Self { window_ms, shards: Sharded::new() }
    }

    /// A hit, unless the limit is reached.
    pub(super) fn try_hit(&self, key: K, limit: u32, mono: u64) -> bool {
        let mut windows = self.shards.lock(&key);
        windows.turn(self.window_ms, mono);
        let free = windows.estimate(&key, self.window_ms, mono) + 1.0 <= f64::from(limit);
        if free {
            windows.hit(key);
        }
        free
    }

    /// A hit at `at` was none after all.
    pub(super) fn take_back(&self, key: K, at: u64) {
        let mut windows = self.shards.lock(&key);
        let Windows { start, now, before } = &mut *windows;
        if at.saturating_add(self.window_ms) < *start {
            return;
        }
        // A shard that was full has put its present counts with the last ones.
        let counts = if at >= *start && now.contains_key(&key) { now } else { before };
        if let Entry::Occupied(mut count) = counts.entry(key) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl<K: Eq + Hash> Windows<K> {
    fn turn(&mut self, window_ms: u64, mono: u64) {
        let passed = mono.saturating_sub(self.start);
        if passed >= window_ms {
            self.before = std::mem::take(&mut self.now);
            if passed >= 2 * window_ms {
                self.before.clear();
            }
            self.start = mono - passed % window_ms;
        }
    }

    fn hit(&mut self, key: K) {
        if self.now.len() >= SHARD_KEYS {
            self.before = std::mem::take(&mut self.now);
        }
        *self.now.entry(key).or_insert(0) += 1;
    }

    fn estimate(&self, key: &K, window_ms: u64, mono: u64) -> f64 {
        let gone = mono.saturating_sub(self.start) as f64 / window_ms as f64;
        let count = |map: &HashMap<K, u32>| map.get(key).map_or(0.0, |n| f64::from(*n));
        count(&self.now) + count(&self.before) * (1.0 - gone).max(0.0)
    }
}

/// When each session last told the store that it is alive, and what came of it.
pub(super) struct Beats {
    shards: Sharded<HashMap<Sid, Beat>>,
}

#[derive(Clone, Copy)]
struct Beat {
    at: u64,
    admission: Admission,
}

impl Beats {
    pub(super) fn new() -> Self {
        Self { shards: Sharded::new() }
    }

    /// `Err`: another request or stream of this session called within `refresh_ms`, and this is
    /// the admission it holds. `Ok`: call now, and say with [`Pending::confirm`] if all is well.
    pub(super) fn begin(
        &self,
        admission: &Admission,
        refresh_ms: u64,
        mono: u64,
    ) -> Result<Pending<'_>, Admission> {
        let mut beats = self.shards.lock(&admission.sid);
        match beats.get(&admission.sid) {
            Some(beat) if mono.saturating_sub(beat.at) < refresh_ms => Err(beat.admission),
            _ => {
                if beats.len() >= SHARD_KEYS {
                    beats.retain(|_, beat| mono.saturating_sub(beat.at) < refresh_ms);
                    if beats.len() >= SHARD_KEYS {
                        // More live sessions than we remember: those forgotten call again sooner.
                        beats.clear();
                    }
                }
                beats.insert(admission.sid, Beat { at: mono, admission: *admission });
                Ok(Pending { beats: self, sid: admission.sid, confirmed: false })
            }
        }
    }

    /// The store's answer was this admission.
    pub(super) fn note(&self, admission: &Admission) {
        if let Some(beat) = self.shards.lock(&admission.sid).get_mut(&admission.sid) {
            beat.admission = *admission;
        }
    }

    /// The session ended, or the call failed: the next request must call.
    pub(super) fn forget(&self, sid: &Sid) {
        self.shards.lock(sid).remove(sid);
    }
}

/// A session that is being asked for. Unless the store confirms it, the next request must call:
/// also when nobody waits for the answer any more, because a client or a stream went away.
pub(super) struct Pending<'a> {
    beats: &'a Beats,
    sid: Sid,
    confirmed: bool,
}

impl Pending<'_> {
    /// The session goes on.
    pub(super) fn confirm(mut self) {
        self.confirmed = true;
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.confirmed {
            self.beats.forget(&self.sid);
        }
    }
}

/// What [`Waiters::note`] did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Noted {
    New,
    /// It was counted before, or there is no memory to count it.
    Known,
    /// It is not counted.
    TooMany,
}

/// Who waits from which address, for `max_waiting_per_ip`.
pub(super) struct Waiters {
    shards: Sharded<HashMap<IpAddr, Vec<(Sid, u64)>>>,
}

impl Waiters {
    pub(super) fn new() -> Self {
        Self { shards: Sharded::new() }
    }

    /// Counts `sid` among those who wait from `ip`, at least until it is given up at `until`
    /// (monotonic ms), unless `max` others do.
    pub(super) fn note(&self, ip: IpAddr, sid: Sid, max: u32, until: u64, mono: u64) -> Noted {
        let mut map = self.shards.lock(&ip);
        if map.len() >= SHARD_KEYS && !map.contains_key(&ip) {
            map.retain(|_, waiters| waiters.iter().any(|(_, until)| *until > mono));
            if map.len() >= SHARD_KEYS {
                return Noted::Known;
            }
        }
        let waiters = map.entry(ip).or_default();
        waiters.retain(|(_, until)| *until > mono);
        if let Some((_, old)) = waiters.iter_mut().find(|(other, _)| *other == sid) {
            *old = until.max(*old);
            return Noted::Known;
        }
        if waiters.len() >= max as usize {
            return Noted::TooMany;
        }
        waiters.push((sid, until));
        Noted::New
    }

    pub(super) fn forget(&self, ip: &IpAddr, sid: &Sid) {
        let mut map = self.shards.lock(ip);
        if let Some(waiters) = map.get_mut(ip) {
            waiters.retain(|(other, _)| other != sid);
            if waiters.is_empty() {
                map.remove(ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_no_edge() {
        let limiter = Limiter::new(60_000);
        let taken = |from: u64, to: u64| {
            (from..to).step_by(100).filter(|now| limiter.try_hit(1u8, 60, *now)).count()
        };
        assert_eq!(taken(50_000, 60_000), 60);
        // A fixed window would let 60 more through here at once.
        assert!(taken(60_000, 70_000) <= 11);
        assert!(taken(120_000, 180_000) >= 40);
    }

    #[test]
    fn a_hit_is_taken_back_from_its_own_window() {
        let limiter = Limiter::new(1_000);
        assert!(limiter.try_hit(1u8, 1, 1_500));
        assert!(!limiter.try_hit(1u8, 1, 1_500));
        limiter.take_back(1, 1_500);
        assert!(limiter.try_hit(1u8, 1, 1_500));
        // The window turned in between.
        assert!(limiter.try_hit(1u8, 5, 2_000));
        limiter.take_back(1, 1_500);
        assert!(limiter.try_hit(1u8, 2, 2_000), "one of the present window is left");
        assert!(!limiter.try_hit(1u8, 2, 2_000));
        // Too late, or never hit: nothing is lost.
        limiter.take_back(1, 10);
        limiter.take_back(2, 2_000);
        assert!(!limiter.try_hit(1u8, 2, 2_000));
        let held = |shard: &Mutex<Windows<u8>>| {
            let windows = shard.lock().unwrap();
            windows.now.len() + windows.before.len()
        };
        assert_eq!(limiter.shards.shards.iter().map(held).sum::<usize>(), 1);
    }

    #[test]
    fn waiters_are_counted_up_to_the_limit_until_they_are_given_up() {
        let waiters = Waiters::new();
        let ip = IpAddr::from([192, 0, 2, 1]);
        let note =
            |id: u8, until, mono| waiters.note(ip, Sid::from_bytes([id; 16]), 2, until, mono);
        assert_eq!(note(1, 100, 0), Noted::New);
        assert_eq!(note(2, 200, 0), Noted::New);
        assert_eq!(note(3, 200, 99), Noted::TooMany);
        assert_eq!(note(2, 150, 99), Noted::Known);
        assert_eq!(note(3, 200, 100), Noted::New, "the first was given up");
        assert_eq!(note(1, 300, 160), Noted::TooMany, "a shorter time does not cut the longer one");
    }

    #[test]
    fn memory_is_bounded() {
        let limiter = Limiter::new(60_000);
        for key in 0..1_000_000u32 {
            assert!(limiter.try_hit(key, 1, 1));
        }
        let keys: usize = limiter
            .shards
            .shards
            .iter()
            .map(|shard| shard.lock().map(|w| w.now.len() + w.before.len()).unwrap())
            .sum();
        assert!(keys <= 2 * SHARDS * SHARD_KEYS, "{keys}");
    }
}
