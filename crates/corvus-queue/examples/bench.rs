//! How fast the embedded engine is on one core, and how much memory a million waiting take.
//!
//! `cargo run --release -p corvus-queue --example bench [WAITING]` prints one JSON object a line:
//! `{"bench": "queue", "name": ..., "value": ..., "unit": ...}`. Calls go through `Engine::call`,
//! as the gateway makes them, one operation a call and ten.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

#[path = "shared/mod.rs"]
mod shared;

use std::{hint::black_box, sync::Arc};

use corvus_core::token::{Admission, Sid, SigningKey, SigningKeys};
use corvus_queue::{Engine, KeyStore, op::Op};

use self::shared::{Bench, Failure, print, shuffle, sids};

fn main() -> Result<(), Failure> {
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

/// Runs `ops` in calls of `batch`, and prints operations a second.
async fn run(
    bench: &Bench,
    engine: &Engine,
    name: &str,
    batch: usize,
    ops: &[Op],
) -> Result<(), Failure> {
    let start = bench.clock.mono_us();
    for chunk in ops.chunks(batch) {
        black_box(engine.call(&bench.id, chunk).await?.answers);
    }
    let passed = (bench.clock.mono_us() - start).max(1) as f64 / 1e6;
    print(name, ops.len() as f64 / passed, "1/s");
    Ok(())
}

async fn in_memory(bench: &Bench, waiting: usize) -> Result<(), Failure> {
    let mut sids = sids(waiting);
    let engine = Engine::embedded(None, Arc::clone(&bench.clock), &KeyStore::open(None)?)?;
    engine.configure(&[bench.queue(0)]);
    let joins: Vec<Op> = sids.iter().map(|sid| enter(*sid)).collect();
    let (first, second) = joins.split_at(waiting / 2);
    let before = rss_bytes()?;
    run(bench, &engine, "joins_single", 1, first).await?;
    run(bench, &engine, "joins_batch_10", 10, second).await?;
    let grown = rss_bytes()?.saturating_sub(before) as f64;
    print("waiting", waiting as f64, "visitors");
    print("waiting_memory", grown / f64::from(1 << 20), "MiB");
    shuffle(&mut sids);
    let polls: Vec<Op> =
        sids.iter().map(|sid| Op::Poll { sid: *sid, place: None, admission: None }).collect();
    run(bench, &engine, "polls_single", 1, &polls).await?;
    run(bench, &engine, "polls_batch_10", 10, &polls).await?;

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
    run(bench, &engine, "claims_single", 1, &heartbeats).await?;
    run(bench, &engine, "heartbeats_single", 1, &heartbeats).await?;
    run(bench, &engine, "heartbeats_batch_10", 10, &heartbeats).await?;
    Ok(())
}

/// The same with state under a folder, while the saver's thread writes.
async fn saved(bench: &Bench, waiting: usize) -> Result<(), Failure> {
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
        run(bench, &engine, "joins_saved_single", 1, &joins).await?;
        run(bench, &engine, "polls_saved_single", 1, &polls).await?;
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

/// Resident memory of this process (Linux).
fn rss_bytes() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1_024)
}
