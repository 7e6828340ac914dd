//! What the benches of both engines share.

use std::sync::Arc;

use corvus_config::snapshot::{
    Method, OnStoreFailure, Queue, QueueGate, QueuePage, QueueSettings, SameSite, Schedule,
};
use corvus_core::{Clock, Id, SystemClock, token::Sid};

pub(crate) type Failure = Box<dyn std::error::Error>;

pub(crate) struct Bench {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) id: Id,
}

impl Bench {
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self { clock: Arc::new(SystemClock::new()), id: Id::new("bench")? })
    }

    pub(crate) fn queue(&self, capacity: u64) -> Arc<Queue> {
        let settings = QueueSettings {
            id: self.id.clone(),
            capacity,
            rate: None,
            active_ttl_ms: 300_000,
            grant_ttl_ms: 30_000,
            queue_ttl_ms: 120_000,
            refresh_ms: 15_000,
            max_waiting: u64::MAX,
            method: Method::Fifo,
            paused: false,
            schedule: Schedule::default(),
        };
        let gate = QueueGate {
            joins_per_ip_per_min: 60,
            polls_per_session_per_s: 3,
            max_waiting_per_ip: None,
            on_store_failure: OnStoreFailure::Open,
            bind_network: false,
            paths: vec!["/".into()],
            bypass: None,
            cookie_same_site: SameSite::Lax,
            cookie_domain: None,
            status: 429,
            page: QueuePage::default(),
        };
        Arc::new(Queue { settings, gate })
    }
}

/// Random-looking and the same each time (SplitMix64).
pub(crate) fn sids(n: usize) -> Vec<Sid> {
    let mut seed = 42;
    (0..n)
        .map(|_| {
            let (a, b) = (split_mix(&mut seed), split_mix(&mut seed));
            Sid::from_bytes((u128::from(a) << 64 | u128::from(b)).to_le_bytes())
        })
        .collect()
}

pub(crate) fn shuffle(sids: &mut [Sid]) {
    let mut seed = 7;
    for i in (1..sids.len()).rev() {
        sids.swap(i, (split_mix(&mut seed) % (i as u64 + 1)) as usize);
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One figure.
pub(crate) fn print(name: &str, value: f64, unit: &str) {
    println!(r#"{{"bench": "queue", "name": "{name}", "value": {value:.1}, "unit": "{unit}"}}"#);
}
