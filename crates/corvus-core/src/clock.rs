//! The one way to ask for the time. Tests inject [`FakeClock`].

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Wall and monotonic time.
pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch. May step.
    fn wall_ms(&self) -> u64;
    /// Microseconds since some fixed moment of this process. Never steps back.
    fn mono_us(&self) -> u64;
    /// The same in milliseconds.
    fn mono_ms(&self) -> u64 {
        self.mono_us() / 1_000
    }
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    fn wall_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
    }

    fn mono_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }
}

/// A clock that moves only when told to. Clones share the time.
#[derive(Clone, Debug)]
pub struct FakeClock {
    wall: Arc<AtomicU64>,
    /// Microseconds.
    mono: Arc<AtomicU64>,
}

impl FakeClock {
    pub fn new(wall_ms: u64) -> Self {
        Self { wall: Arc::new(AtomicU64::new(wall_ms)), mono: Arc::default() }
    }

    pub fn advance(&self, by: Duration) {
        self.wall.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
        self.mono.fetch_add(by.as_micros() as u64, Ordering::SeqCst);
    }

    /// Steps the wall clock only, as an administrator or NTP does.
    pub fn set_wall_ms(&self, wall_ms: u64) {
        self.wall.store(wall_ms, Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn wall_ms(&self) -> u64 {
        self.wall.load(Ordering::SeqCst)
    }

    fn mono_us(&self) -> u64 {
        self.mono.load(Ordering::SeqCst)
    }
}
