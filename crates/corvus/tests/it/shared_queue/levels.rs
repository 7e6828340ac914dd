//! Two gateways whose files say different things of one queue.

use std::time::Duration;

use corvus_testkit::{Accept, Origin, PATIENCE, Signal, store::StoreClient};

use super::{key, process, process_in, ready, sizes, valkey, visitor, within};
use crate::{
    gateway::GatewayProcess,
    queue::shop::{HOST, LEAVE, document},
};

const WARNING: &str = "the store has another capacity, rate or pause";

async fn holds(store: &mut StoreClient, capacity: u64, version: u64) {
    let what = format!("capacity {capacity}, version {version}");
    let mut ask = |name: &str| store.call(&["HGET", &key("drop", "rate"), name]).unwrap().text();
    within(PATIENCE, &what, || {
        (ask("cfg") == version.to_string() && ask("capacity") == capacity.to_string()).then_some(())
    })
    .await;
}

fn warnings(gateway: &GatewayProcess) -> usize {
    gateway.child.lines().iter().filter(|line| line.contains(WARNING)).count()
}

async fn warned(gateway: &GatewayProcess, times: usize) {
    within(PATIENCE, "a warning", || (warnings(gateway) == times).then_some(())).await;
}

/// So many get in at both gateways together, and no more. They leave again.
async fn lets_in(store: &mut StoreClient, gateways: [&GatewayProcess; 2], capacity: usize) {
    let mut all = Vec::new();
    for n in 0..capacity + 2 {
        let mut visitor = visitor(gateways[n % 2].http, HOST, n);
        let page = visitor.get("/", &[]).await.unwrap();
        assert_eq!(page.status, if n < capacity { 200 } else { 429 }, "number {n} of {capacity}");
        all.push(visitor);
    }
    assert_eq!(sizes(store, "drop"), (capacity, 2));
    for visitor in all.iter_mut().rev() {
        visitor.request("POST", LEAVE, Accept::Json, &[], b"").await.unwrap();
    }
    assert_eq!(sizes(store, "drop"), (0, 0));
}

fn edit(gateway: &GatewayProcess, document: &str) {
    gateway.write_document(document);
    gateway.child.signal(Signal::HUP).unwrap();
}

/// The newest change holds at both, the other's operator is told, and a restart changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_change_holds_and_a_restart_takes_nothing_back() {
    let Some(store) = valkey() else { return };
    let origin = Origin::start();
    let text = |capacity: u64| document(&origin.url(), &format!("capacity: {capacity}"));
    let url = store.url();
    let mut client = store.client().unwrap();
    let a = process(&text(2), &url);
    holds(&mut client, 2, 1).await;
    let b = process(&text(3), &url);
    warned(&b, 1).await;
    ready(&mut client, "drop", &[a.data(), b.data()]).await;
    lets_in(&mut client, [&a, &b], 2).await;

    edit(&b, &text(4));
    holds(&mut client, 4, 2).await;
    warned(&a, 1).await;
    lets_in(&mut client, [&a, &b], 4).await;
    assert_eq!((warnings(&a), warnings(&b)), (1, 1), "told once");

    // By the other one, with its own file as it was; by itself; and after a kill.
    let dir = a.dir();
    a.terminate();
    let a = process_in(&dir, &text(2), &url);
    let dir = b.dir();
    b.terminate();
    let b = process_in(&dir, &text(4), &url);
    let dir = a.dir();
    a.child.kill().unwrap();
    let a = process_in(&dir, &text(2), &url);
    // Passes of both.
    tokio::time::sleep(Duration::from_secs(3)).await;
    holds(&mut client, 4, 2).await;
    lets_in(&mut client, [&a, &b], 4).await;

    // An edit while it is down is the newest change.
    let dir = a.dir();
    a.terminate();
    let a = process_in(&dir, &text(1), &url);
    holds(&mut client, 1, 3).await;
    warned(&b, 1).await;
    lets_in(&mut client, [&a, &b], 1).await;

    // And a store that loses everything has it again.
    client.call(&["FLUSHALL"]).unwrap().ok().unwrap();
    holds(&mut client, 1, 3).await;
}
