//! How fast the engine is on one Valkey or Redis, and how much memory a million waiting take there.
//!
//! `cargo run --release -p corvus-queue --example bench_store URL [WAITING]` on an empty store prints
//! one JSON object a line, as the example `bench` does. Calls go through `Engine::call` with one
//! operation each, as the gateway makes them: by one visitor after the other, which are calls of one
//! operation, and by a thousand at once, whose operations gather. Beside the rate stands what one
//! operation took of the store's processor, which is what limits it.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

#[path = "shared/mod.rs"]
mod shared;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use corvus_core::token::{Admission, Sid};
use corvus_queue::{Engine, KeyStore, op::Op, valkey::Valkey};
use futures_util::future::try_join_all;
use redis::{Value, cmd, from_redis_value};

use self::shared::{Bench, Failure, print, shuffle, sids};

/// Visitors at once.
const CROWD: usize = 1_000;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let url = args.next().ok_or("usage: bench_store URL [WAITING]")?;
    let waiting: usize = args.next().map_or(Ok(1_000_000), |arg| arg.parse())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(&url, waiting))
}

async fn run(url: &str, waiting: usize) -> Result<(), Failure> {
    let bench = Bench::new()?;
    let keys = Arc::new(KeyStore::open_shared(None)?);
    let engine = Engine::valkey(url.parse()?, None, Arc::clone(&bench.clock), keys)?;
    let Engine::Valkey(store) = &engine else { return Err("not this engine".into()) };
    if number(store, "DBSIZE").await? > 0 {
        return Err("the store holds something already; give an empty one".into());
    }
    engine.configure(&[bench.queue(0)]);
    engine.call(&bench.id, &[]).await?;

    let mut sids = sids(waiting);
    let joins: Vec<Op> =
        sids.iter().map(|sid| Op::Enter { sid: *sid, place: None, join: true }).collect();
    let few = (waiting / 20).min(50_000);
    let before = info(store, "used_memory").await?;
    let (first, rest) = joins.split_at(few);
    measure(&bench, &engine, "store_joins_one_by_one", first, 1).await?;
    measure(&bench, &engine, "store_joins", rest, CROWD).await?;
    let grown = info(store, "used_memory").await? - before;
    print("store_waiting", waiting as f64, "visitors");
    print("store_waiting_memory", grown / f64::from(1 << 20), "MiB");

    shuffle(&mut sids);
    let polls: Vec<Op> =
        sids.iter().map(|sid| Op::Poll { sid: *sid, place: None, admission: None }).collect();
    measure(&bench, &engine, "store_polls_one_by_one", &polls[..few], 1).await?;
    measure(&bench, &engine, "store_polls", &polls[few..], CROWD).await?;

    // Everybody is let in, so that there are sessions to keep alive.
    engine.configure(&[bench.queue(u64::from(u32::MAX))]);
    let inside = waiting / 2;
    for _ in 0..=waiting / 1_000 + 6_000 {
        let reply = engine.call(&bench.id, &[]).await?;
        if reply.inside >= inside as u64 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let now_ms = engine.call(&bench.id, &[]).await?.now_ms;
    let beat = |sid: &Sid| {
        let admission = Admission { sid: *sid, issued_ms: now_ms, expires_ms: now_ms + 300_000 };
        Op::Heartbeat { admission, place: None, join: true }
    };
    let beats: Vec<Op> = sids[..inside].iter().map(beat).collect();
    measure(&bench, &engine, "store_claims", &beats, CROWD).await?;
    measure(&bench, &engine, "store_heartbeats_one_by_one", &beats[..few], 1).await?;
    measure(&bench, &engine, "store_heartbeats", &beats, CROWD).await
}

/// Each of `ops` in a call of its own, `crowd` of them at once.
async fn measure(
    bench: &Bench,
    engine: &Engine,
    name: &str,
    ops: &[Op],
    crowd: usize,
) -> Result<(), Failure> {
    let Engine::Valkey(store) = engine else { return Err("not this engine".into()) };
    let next = AtomicUsize::new(0);
    let visitor = || async {
        while let Some(op) = ops.get(next.fetch_add(1, Ordering::Relaxed)) {
            engine.call(&bench.id, std::slice::from_ref(op)).await?;
        }
        Ok::<_, Failure>(())
    };
    let (start, cpu) = (bench.clock.mono_us(), cpu_us(store).await?);
    let evaluations = calls(store).await?;
    try_join_all((0..crowd).map(|_| visitor())).await?;
    let n = ops.len() as f64;
    let passed = (bench.clock.mono_us() - start).max(1) as f64 / 1e6;
    print(name, n / passed, "1/s");
    print(&format!("{name}_store_cpu"), (cpu_us(store).await? - cpu) / n, "us");
    print(
        &format!("{name}_per_call"),
        n / (calls(store).await? - evaluations).max(1.0),
        "operations",
    );
    Ok(())
}

async fn number(store: &Valkey, command: &str) -> Result<i64, Failure> {
    Ok(from_redis_value(store.store().command(cmd(command)).await?)?)
}

/// A field of INFO.
async fn info(store: &Valkey, field: &str) -> Result<f64, Failure> {
    let mut command = cmd("INFO");
    command.arg("everything");
    let text: String = match store.store().command(command).await? {
        Value::VerbatimString { text, .. } => text,
        other => from_redis_value(other)?,
    };
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    Ok(line.ok_or("INFO lacks a field")?.trim().parse()?)
}

/// Microseconds of processor that the store took so far.
async fn cpu_us(store: &Valkey) -> Result<f64, Failure> {
    Ok((info(store, "used_cpu_user").await? + info(store, "used_cpu_sys").await?) * 1e6)
}

/// Calls of a script so far.
async fn calls(store: &Valkey) -> Result<f64, Failure> {
    let mut command = cmd("INFO");
    command.arg("commandstats");
    let text: String = match store.store().command(command).await? {
        Value::VerbatimString { text, .. } => text,
        other => from_redis_value(other)?,
    };
    let line = text.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let count = line.and_then(|line| line.split(',').next()).unwrap_or("0");
    Ok(count.parse()?)
}
