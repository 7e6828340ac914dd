//! Every kind of store address, with the real thing behind it.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use corvus_testkit::{
    Accept, Origin, PATIENCE, Visitor,
    store::{Kind, Resp, StoreCluster, StoreOptions, StoreSentinel, StoreServer, slot},
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{inside, key, process, ready, sizes, visitor, waiting, within};
use crate::{
    gateway::{TestGateway, host},
    queue::shop::{ADMISSION, HOST, LEAVE, PLACE, STATUS, document, field, status, ticket},
};

/// A place is taken, waited for and given on, over two gateways.
async fn serves(doors: [SocketAddr; 2]) {
    let mut first = inside(doors[0], 1).await;
    let mut second = waiting(doors[1], 2).await;
    let mut third = waiting(doors[0], 3).await;
    assert_eq!(status(&mut third).await["rank"], 2);
    second.go_to(doors[0]);
    assert_eq!(status(&mut second).await["rank"], 1);
    first.go_to(doors[1]);
    first.request("POST", LEAVE, Accept::Json, &[], b"").await.unwrap();
    assert_eq!(second.get("/", &[]).await.unwrap().status, 200);
    assert_eq!(third.get("/", &[]).await.unwrap().status, 429);
}

async fn one_server(store: &StoreServer, url: &str) {
    let origin = Origin::start();
    let start = || TestGateway::builder(document(&origin.url(), "capacity: 1")).valkey(url).start();
    let gateways = [start(), start()];
    ready(&mut store.client().unwrap(), "drop", &gateways.each_ref().map(TestGateway::data)).await;
    serves(gateways.each_ref().map(|gateway| gateway.http)).await;
    assert_eq!(sizes(&mut store.client().unwrap(), "drop"), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_has_to_be_escaped() {
    let password = Some("p@ss:w/rd%".to_owned());
    let options = StoreOptions { password, ..StoreOptions::new(Kind::Valkey) };
    let Some(store) = StoreServer::start(options) else { return };
    one_server(&store, &format!("redis://:p%40ss%3Aw%2Frd%25@{}", store.addr())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_an_authority_of_its_own() {
    let password = Some("s3cret".to_owned());
    let options = StoreOptions { tls: true, password, ..StoreOptions::new(Kind::Redis) };
    let Some(store) = StoreServer::start(options) else { return };
    let ca = store.ca_file().unwrap().display();
    one_server(&store, &format!("{}?ca={ca}", store.url())).await;
}

/// Two queues whose keys are on different masters of a Cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_two_queues() {
    let Some(cluster) = StoreCluster::start(&StoreOptions::new(Kind::Valkey)) else { return };
    let master = |queue: &str| cluster.master_of(&key(queue, "active"));
    let other = (0..100).map(|n| format!("q{n}")).find(|id| master(id) != master("drop")).unwrap();
    assert_ne!(slot(key(&other, "rate").as_bytes()), slot(key("drop", "rate").as_bytes()));
    let origin = Origin::start();
    let hosts = [("drop", HOST), (&*other, "other.test")].map(|(queue, domain)| {
        host(&format!("site-{queue}"), domain, &origin.url(), &format!("access_queue: {queue}"))
    });
    let document = format!(
        "version: 1\nsettings: {{trusted_proxies: [\"127.0.0.0/8\"]}}\nproxy_hosts:\n{}{}\
         access_queues:\n  - {{id: drop, capacity: 1}}\n  - {{id: {other}, capacity: 2}}\n",
        hosts[0], hosts[1]
    );
    let start = || TestGateway::builder(document.clone()).valkey(cluster.url()).start();
    let gateways = [start(), start()];
    let data: Vec<PathBuf> = gateways.iter().map(TestGateway::data).collect();
    for queue in ["drop", &other] {
        ready(&mut cluster.client(&key(queue, "rate")).unwrap(), queue, &data).await;
    }
    serves(gateways.each_ref().map(|gateway| gateway.http)).await;
    // The other queue has its own capacity, cookies and line.
    let place = format!("corvus_q_{other}");
    for n in 0..4 {
        let mut visitor = visitor(gateways[n % 2].http, "other.test", n);
        let page = visitor.get("/", &[]).await.unwrap();
        assert_eq!(page.status, if n < 2 { 200 } else { 429 }, "{n}");
        assert_eq!(visitor.cookie(&place).is_some(), n >= 2);
    }
    for (queue, expected) in [("drop", (1, 1)), (&*other, (2, 2))] {
        // A node that does not own the slot would say MOVED.
        let mut client = cluster.node(master(queue)).client().unwrap();
        assert_eq!(sizes(&mut client, queue), expected, "{queue}");
    }
}

/// Until `visitor` is told that it waits; how it stands.
async fn until_waiting(visitor: &mut Visitor, limit: Duration) -> Value {
    let told = tokio::time::timeout(limit, async {
        loop {
            let told = status(visitor).await;
            if told["state"] == "waiting" {
                return told;
            }
            assert_eq!(told["state"], "unavailable", "{told}");
            sleep(Duration::from_millis(400)).await;
        }
    });
    told.await.unwrap_or_else(|_| panic!("nothing for {limit:?} but that the store is away"))
}

/// The master is killed: the gateways find the next one by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_a_killed_master() {
    let Some(set) = StoreSentinel::start(&StoreOptions::new(Kind::Valkey)) else { return };
    let origin = Origin::start();
    let settings =
        "capacity: 2, refresh_s: 2, polls_per_session_per_s: 20, on_store_failure: closed";
    let start =
        || TestGateway::builder(document(&origin.url(), settings)).valkey(set.url()).start();
    let gateways = [start(), start()];
    let data = gateways.each_ref().map(TestGateway::data);
    let doors = gateways.each_ref().map(|gateway| gateway.http);
    let mut master = set.master().client().unwrap();
    ready(&mut master, "drop", &data).await;
    let mut sessions = [inside(doors[0], 1).await, inside(doors[1], 2).await];
    let mut line = Vec::new();
    for n in 0..6 {
        line.push(waiting(doors[n % 2], 10 + n).await);
    }
    let tickets: Vec<u64> = line.iter().map(ticket).collect();
    let sids = sessions.each_ref().map(|v| field(v.cookie(ADMISSION).unwrap(), 4).to_owned());
    assert_eq!(master.call(&["WAIT", "2", "5000"]).unwrap(), Resp::Int(2));

    let old = set.kill_master();
    let failover = tokio::task::spawn_blocking(move || {
        let new = set.wait_for_failover(old).addr();
        (set, new, Instant::now())
    });
    while !failover.is_finished() {
        for visitor in &mut sessions {
            assert_eq!(visitor.get("/", &[]).await.unwrap().status, 200, "inside all the time");
        }
        for visitor in &mut line {
            let told = status(visitor).await;
            assert!(
                ["waiting", "unavailable"].contains(&told["state"].as_str().unwrap()),
                "{told}"
            );
        }
        sleep(Duration::from_millis(500)).await;
    }
    let (set, new, since) = failover.await.unwrap();
    // The breaker's three seconds, and what a connection may take.
    for (n, door) in doors.into_iter().enumerate() {
        line[n].go_to(door);
        until_waiting(&mut line[n], Duration::from_secs(6)).await;
    }
    assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
    assert_eq!(set.master().addr(), new);
    for visitor in line.iter_mut().rev() {
        until_waiting(visitor, PATIENCE).await;
    }
    for (n, visitor) in line.iter_mut().enumerate() {
        visitor.go_to(doors[(n + 1) % 2]);
        let told = until_waiting(visitor, PATIENCE).await;
        assert_eq!((told["rank"].as_u64(), ticket(visitor)), (Some(n as u64 + 1), tickets[n]));
    }
    // Past a refresh: the new master is asked, and knows them.
    sleep(Duration::from_millis(2_500)).await;
    for (visitor, sid) in sessions.iter_mut().zip(&sids) {
        assert_eq!(visitor.get("/", &[]).await.unwrap().status, 200);
        assert_eq!(field(visitor.cookie(ADMISSION).unwrap(), 4), sid);
    }
    let mut master = set.master().client().unwrap();
    assert_eq!(sizes(&mut master, "drop"), (2, 6));
    for sid in &sids {
        let score = master.call(&["ZSCORE", &key("drop", "active"), sid]).unwrap();
        assert_ne!(score, Resp::Nil, "inside at the new master");
    }
    let mut newcomer = waiting(doors[0], 99).await;
    assert_eq!(status(&mut newcomer).await["rank"], 7);
}

/// A password that the server does not know: said in the log without the password, the policy holds,
/// and once the server knows it everything works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password() {
    let password = Some("right-one".to_owned());
    let options = StoreOptions { password, ..StoreOptions::new(Kind::Valkey) };
    let Some(store) = StoreServer::start(options) else { return };
    let mut client = store.client().unwrap();
    let origin = Origin::start();
    let document = document(&origin.url(), "capacity: 1, on_store_failure: closed");
    let gateway = process(&document, &format!("redis://:wrong-one@{}", store.addr()));
    gateway.child.wait_for_line("the queue store cannot be reached", PATIENCE).unwrap();
    gateway.child.wait_for_line("WRONGPASS", PATIENCE).unwrap();
    let mut stranger = visitor(gateway.http, HOST, 1);
    for _ in 0..3 {
        let page = stranger.get("/", &[]).await.unwrap();
        assert_eq!((page.status, page.headers.get("set-cookie")), (429, None));
        let told = stranger.get_json(STATUS, &[]).await.unwrap().json();
        assert_eq!(told["state"], "unavailable");
        sleep(Duration::from_millis(1_500)).await;
    }
    let log = gateway.log();
    assert!(!log.contains("wrong-one") && !log.contains("right-one"), "{log}");
    let said = log.lines().filter(|line| line.contains("WRONGPASS")).count();
    assert!(said <= 4, "{said} lines of it:\n{log}");

    client.call(&["CONFIG", "SET", "requirepass", "wrong-one"]).unwrap().ok().unwrap();
    ready(&mut client, "drop", &[gateway.data()]).await;
    let patience = Duration::from_secs(6);
    let page = tokio::time::timeout(patience, async {
        loop {
            let page = stranger.get("/", &[]).await.unwrap();
            if page.status == 200 {
                return page;
            }
            sleep(Duration::from_millis(400)).await;
        }
    });
    page.await.unwrap();
    assert!(stranger.cookie(ADMISSION).is_some() && stranger.cookie(PLACE).is_none());
    within(PATIENCE, "one inside", || (sizes(&mut client, "drop") == (1, 0)).then_some(())).await;
}
