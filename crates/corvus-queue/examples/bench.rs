//! How fast the embedded engine is on one core, and how much memory a million waiting take.
//!
//! `cargo run --release -p corvus-queue --example bench [WAITING]` prints one JSON object a line:
//! `{"bench": "queue", "name": ..., "value": ..., "unit": ...}`. Calls go through `Engine::call`,
//! as the gateway makes them, one operation a call and ten.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::{hint::black_box, sync::Arc};

use corvus_config::snapshot::{
    Method, OnStoreFailure, Queue, QueueGate, QueuePage, QueueSettings, SameSite, Schedule,
};
use corvus_core::{
    Clock, Id, SystemClock,
    token::{Admission, Sid, SigningKey, SigningKeys},
};
use corvus_queue::{Engine, KeyStore, op::Op};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let waiting: usize = match std::env::args().nth(1) {
        Some(arg) => arg.parse()?,
        None => 1_000_000,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let bench = Bench::new()?;
    tokens(&bench);
    runtime.block_on(in_memory(&bench, waiting))?;
    runtime.block_on(saved(&bench, waiting))?;
    Ok(())
}

struct Bench {
    clock: Arc<dyn Clock>,
    id: Id,
}

impl Bench {
    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        Ok(Self { clock: Arc::new(SystemClock::new()), id: Id::new("bench")? })
    }

    fn queue(&self, capacity: u64) -> Arc<Queue> {
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

    /// Runs `ops` in calls of `batch`, and prints operations a second.
    async fn run(
        &self,
        engine: &Engine,
        name: &str,
        batch: usize,
        ops: &[Op],
    ) -> Result<(), Box<dyn std::error::Error>> {
        let start = self.clock.mono_us();
        for chunk in ops.chunks(batch) {
            black_box(engine.call(&self.id, chunk).await?.answers);
        }
        let passed = (self.clock.mono_us() - start).max(1) as f64 / 1e6;
        print(name, ops.len() as f64 / passed, "1/s");
        Ok(())
    }
}

async fn in_memory(bench: &Bench, waiting: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut sids = sids(waiting);
    let engine = Engine::embedded(None, Arc::clone(&bench.clock), &KeyStore::open(None)?)?;
    engine.configure(&[bench.queue(0)]);
    let joins: Vec<Op> = sids.iter().map(|sid| enter(*sid)).collect();
    let (first, second) = joins.split_at(waiting / 2);
    let before = rss_bytes()?;
    bench.run(&engine, "joins_single", 1, first).await?;
    bench.run(&engine, "joins_batch_10", 10, second).await?;
    let grown = rss_bytes()?.saturating_sub(before) as f64;
    print("waiting", waiting as f64, "visitors");
    print("waiting_memory", grown / f64::from(1 << 20), "MiB");
    shuffle(&mut sids);
    let polls: Vec<Op> =
        sids.iter().map(|sid| Op::Poll { sid: *sid, place: None, admission: None }).collect();
    bench.run(&engine, "polls_single", 1, &polls).await?;
    bench.run(&engine, "polls_batch_10", 10, &polls).await?;

    engine.configure(&[bench.queue(u64::MAX)]);
    let inside = waiting / 2;
    for _ in 0..=waiting / 1_000 {
        engine.call(&bench.id, &[]).await?;
    }
    let now_ms = bench.clock.wall_ms();
    let heartbeats: Vec<Op> = sids[..inside]
        .iter()
        .map(|sid| {
            let admission =
                Admission { sid: *sid, issued_ms: now_ms, expires_ms: now_ms + 300_000 };
            Op::Heartbeat { admission, place: None, join: true }
        })
        .collect();
    bench.run(&engine, "claims_single", 1, &heartbeats).await?;
    bench.run(&engine, "heartbeats_single", 1, &heartbeats).await?;
    bench.run(&engine, "heartbeats_batch_10", 10, &heartbeats).await?;
    Ok(())
}

/// The same with state under a folder, while the saver's thread writes.
async fn saved(bench: &Bench, waiting: usize) -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let sids = sids(waiting);
    let joins: Vec<Op> = sids.iter().map(|sid| enter(*sid)).collect();
    let polls: Vec<Op> =
        sids.iter().map(|sid| Op::Poll { sid: *sid, place: None, admission: None }).collect();
    let before = rss_bytes()?;
    {
        let keys = KeyStore::open(Some(dir.path()))?;
        let engine = Engine::embedded(Some(dir.path()), Arc::clone(&bench.clock), &keys)?;
        engine.configure(&[bench.queue(0)]);
        bench.run(&engine, "joins_saved_single", 1, &joins).await?;
        bench.run(&engine, "polls_saved_single", 1, &polls).await?;
        for _ in 0..64 {
            engine.save()?;
        }
        let grown = rss_bytes()?.saturating_sub(before) as f64;
        print("waiting_memory_saved", grown / f64::from(1 << 20), "MiB");
    }
    let start = bench.clock.mono_us();
    let keys = KeyStore::open(Some(dir.path()))?;
    let engine = Engine::embedded(Some(dir.path()), Arc::clone(&bench.clock), &keys)?;
    engine.configure(&[bench.queue(0)]);
    print("restart", (bench.clock.mono_us() - start) as f64 / 1e3, "ms");
    Ok(())
}

fn tokens(bench: &Bench) {
    const ROUNDS: u32 = 500_000;
    let keys = SigningKeys { next: None, current: SigningKey::new(&[7; 32]), previous: None };
    let admission = Admission {
        sid: Sid::from_bytes([9; 16]),
        issued_ms: 1_700_000_000_000,
        expires_ms: 1_700_000_300_000,
    };
    let text = keys.sign_admission("bench", &admission, None);
    let start = bench.clock.mono_us();
    for _ in 0..ROUNDS {
        black_box(keys.verify_admission("bench", black_box(&text), None).ok());
    }
    let verified = bench.clock.mono_us();
    for _ in 0..ROUNDS {
        black_box(keys.sign_admission("bench", black_box(&admission), None));
    }
    let signed = bench.clock.mono_us();
    let ns = |us: u64| us as f64 * 1e3 / f64::from(ROUNDS);
    print("token_verify", ns(verified - start), "ns");
    print("token_sign", ns(signed - verified), "ns");
}

fn enter(sid: Sid) -> Op {
    Op::Enter { sid, place: None, join: true }
}

/// Random-looking and the same each time (SplitMix64).
fn sids(n: usize) -> Vec<Sid> {
    let mut seed = 42;
    (0..n)
        .map(|_| {
            let (a, b) = (split_mix(&mut seed), split_mix(&mut seed));
            Sid::from_bytes((u128::from(a) << 64 | u128::from(b)).to_le_bytes())
        })
        .collect()
}

fn shuffle(sids: &mut [Sid]) {
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

/// Resident memory of this process (Linux).
fn rss_bytes() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1_024)
}

fn print(name: &str, value: f64, unit: &str) {
    println!(r#"{{"bench": "queue", "name": "{name}", "value": {value:.1}, "unit": "{unit}"}}"#);
}
