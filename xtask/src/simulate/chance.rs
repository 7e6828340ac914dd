//! Chance that is the same in each run: a hash of the seed, the visitor and what is drawn. So no
//! visitor's draws depend on the order of events, and none has to be remembered.

#[derive(Clone, Copy)]
pub(super) enum Draw {
    Sid,
    SidEnd,
    Gateway,
    NextGateway,
    Arrival,
    ArrivalTime,
    RoundTrip,
    Hidden,
    Closes,
    ClosesAfter,
    GoesAway,
    GoesAwayAfter,
    AwayFor,
    Lateness,
    Session,
    NextPage,
    Leaves,
    Retry,
}

#[derive(Clone, Copy)]
pub(super) struct Chance {
    seed: u64,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed: mix(seed) }
    }

    /// `moment` tells draws of one kind for one visitor apart; the time, or 0.
    pub(super) fn bits(self, visitor: u32, draw: Draw, moment: u32) -> u64 {
        let key = u64::from(visitor) << 32 | u64::from(moment);
        mix(mix(self.seed.wrapping_add(draw as u64)) ^ key)
    }

    /// From 0 up to, and without, 1.
    pub(super) fn share(self, visitor: u32, draw: Draw, moment: u32) -> f64 {
        (self.bits(visitor, draw, moment) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From `low` up to `high`.
    pub(super) fn between(self, visitor: u32, draw: Draw, moment: u32, low: u32, high: u32) -> u32 {
        low + (self.share(visitor, draw, moment) * f64::from(high - low)) as u32
    }

    /// Memoryless with this mean, rounded down.
    pub(super) fn exponential(self, visitor: u32, draw: Draw, moment: u32, mean: f64) -> u32 {
        (-mean * (1.0 - self.share(visitor, draw, moment)).ln()) as u32
    }
}

/// SplitMix64's finisher.
fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
