//! Access queues that several gateways share: real gateways, real stores, real clients.
//!
//! The engine itself, its script and its connection are tested in `corvus_queue` (`contract`,
//! `valkey`, `keys`); here is what visitors and operators of several gateways meet.

mod addresses;
mod cheap;
mod crowd;
mod cut_off;
mod failover;
mod keys;
mod levels;
mod outages;
mod sample;
mod wiped;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use corvus_testkit::{
    TempDir, Visitor,
    store::{Kind, Resp, StoreClient, StoreOptions, StoreServer},
};

use tokio::time::{Instant, sleep};

use crate::{
    gateway::GatewayProcess,
    queue::shop::{ADMISSION, HOST, PLACE, field},
};

/// After a start on an empty store: somebody makes the keys (5 s and a turn), and free slots are held
/// back for 5 s.
const READY: Duration = Duration::from_secs(30);

fn valkey() -> Option<StoreServer> {
    StoreServer::start(StoreOptions::new(Kind::Valkey))
}

fn process(document: &str, store: &str) -> GatewayProcess {
    GatewayProcess::start(document, &arguments(store))
}

/// In the folder of one that has ended.
fn process_in(dir: &Arc<TempDir>, document: &str, store: &str) -> GatewayProcess {
    GatewayProcess::start_in(dir, document, &arguments(store))
}

fn arguments(store: &str) -> [&str; 6] {
    ["--workers", "1", "--grace", "1", "--valkey", store]
}

/// The name of one of a queue's keys in the store.
fn key(queue: &str, name: &str) -> String {
    format!("corvus:wr:{{{queue}}}:{name}")
}

/// Waits for `look`, longer than [`crate::gateway::eventually`] does.
async fn within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(limit, found)
        .await
        .unwrap_or_else(|_| panic!("not within {limit:?}: {what}"))
}

/// Waits until the gateways with these data folders have keys, and the store of `queue` lets people
/// in.
async fn ready(store: &mut StoreClient, queue: &str, data: &[PathBuf]) {
    let rate = key(queue, "rate");
    let has_keys = |data: &PathBuf| keys_file(data).is_file();
    within(READY, "gateways with keys and a queue that is open", || {
        let script = "local t, b = redis.call('TIME'), redis.call('HGET', KEYS[1], 'born') \
                      return b and t[1] * 1000 + t[2] / 1000 - b > 5050 and 1 or 0";
        let open = store.call(&["EVAL", script, "1", &rate]).unwrap() == Resp::Int(1);
        (open && data.iter().all(has_keys)).then_some(())
    })
    .await;
}

fn keys_file(data: &Path) -> PathBuf {
    data.join("queue/keys")
}

/// How many are inside and how many wait, at one instant.
fn sizes(store: &mut StoreClient, queue: &str) -> (usize, usize) {
    let script = "return {redis.call('ZCARD', KEYS[1]), redis.call('ZCARD', KEYS[2])}";
    let (active, line) = (key(queue, "active"), key(queue, "queue"));
    let found = store.call(&["EVAL", script, "2", &active, &line]).unwrap().text();
    let (inside, waiting) = found.split_once('\n').unwrap_or_else(|| panic!("{found}"));
    (inside.parse().unwrap(), waiting.parse().unwrap())
}

/// A visitor with a number, and so an address of its own.
fn visitor(gateway: std::net::SocketAddr, host: &str, n: usize) -> Visitor {
    Visitor::new(gateway, host).ip(&address(n))
}

fn address(n: usize) -> String {
    format!("10.{}.{}.{}", n >> 16 & 255, n >> 8 & 255, n & 255)
}

/// Somebody new at `gateway`, who has to be let in.
async fn inside(gateway: std::net::SocketAddr, n: usize) -> Visitor {
    let mut visitor = visitor(gateway, HOST, n);
    let page = visitor.get("/", &[]).await.unwrap();
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(visitor.cookie(ADMISSION).is_some(), "inside by the queue");
    visitor
}

/// Somebody new at `gateway`, who has to wait.
async fn waiting(gateway: std::net::SocketAddr, n: usize) -> Visitor {
    let mut visitor = visitor(gateway, HOST, n);
    let page = visitor.get("/", &[]).await.unwrap();
    assert_eq!(page.status, 429, "{}", page.body);
    assert!(visitor.cookie(PLACE).is_some_and(|place| field(place, 6) != "0"), "a place");
    visitor
}

/// Until somebody is inside for sure. Keys and slots of a new store are held back for five seconds
/// each.
const START: Duration = Duration::from_secs(20);

/// Opens the page again and again until it has an admission.
async fn admitted(mut visitor: Visitor) -> Visitor {
    let begun = Instant::now();
    while visitor.get("/", &[]).await.unwrap().status != 200 || visitor.cookie(ADMISSION).is_none()
    {
        assert!(begun.elapsed() < START, "not admitted");
        sleep(Duration::from_millis(250)).await;
    }
    visitor
}
