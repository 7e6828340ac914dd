//! What visitors cost the store.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use corvus_testkit::{
    Message, Origin, RawClient, WebSocket,
    store::{Monitor, Told},
};
use tokio::time::{Instant, sleep};

use super::{inside, ready, valkey};
use crate::{
    gateway::TestGateway,
    queue::shop::{ADMISSION, HOST, document, field},
};

const REFRESH: Duration = Duration::from_secs(2);
const CONNECTIONS: usize = 20;
/// Of a call: the script, the number of keys, six keys, and eighteen arguments before the first
/// operation.
const BEFORE_OPERATIONS: usize = 2 + 6 + 18;

/// The operations in a call, by the letters they begin with; `None`: another command, or another
/// script.
fn operations(told: &Told) -> Option<&[String]> {
    let ours = matches!(&*told.name, "EVALSHA" | "EVAL")
        && told.arguments.get(2).is_some_and(|key| key.starts_with("corvus:wr:"));
    ours.then(|| &told.arguments[BEFORE_OPERATIONS..])
}

/// L9: however many requests a visitor inside makes, the store hears of it once in each `refresh`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_requests_of_one_session_cost_one_call_each_refresh() {
    let Some(store) = valkey() else { return };
    let origin = Origin::start();
    let settings = format!("capacity: 5, refresh_s: {}", REFRESH.as_secs());
    let gateway = TestGateway::builder(document(&origin.url(), &settings))
        .workers(2)
        .valkey(store.url())
        .start();
    ready(&mut store.client().unwrap(), "drop", &[gateway.data()]).await;
    let visitor = inside(gateway.http, 1).await;
    let first = visitor.cookie(ADMISSION).unwrap().to_owned();
    let sid = field(&first, 4).to_owned();
    let cookie = format!("{ADMISSION}={first}");
    let mut monitor = Monitor::start(&store).unwrap();

    // An open stream of the same session tells the store no more either.
    let mut stream =
        WebSocket::connect(gateway.http, HOST, "/ws", &[("Cookie", &cookie)]).await.unwrap();
    let begun = Instant::now();
    let end = begun + 3 * REFRESH + REFRESH / 2;
    let (jar, served) = (Arc::new(Mutex::new(first.clone())), Arc::new(AtomicUsize::new(0)));
    let clients = (0..CONNECTIONS).map(|n| {
        let (jar, served, first) = (Arc::clone(&jar), Arc::clone(&served), first.clone());
        let door = gateway.http;
        tokio::spawn(async move {
            let mut client = RawClient::connect(door).await.unwrap();
            while Instant::now() < end {
                // Half of them are in a browser that takes each new cookie, half keep the first.
                let shared = n % 2 == 0;
                let value = if shared { jar.lock().unwrap().clone() } else { first.clone() };
                let cookie = format!("{ADMISSION}={value}");
                let page = client.get(HOST, "/", &[("Cookie", &cookie)]).await.unwrap();
                assert_eq!(page.status, 200, "{}", page.text());
                served.fetch_add(1, Ordering::Relaxed);
                let set = page.headers.all("set-cookie").find_map(|set| {
                    set.strip_prefix(ADMISSION)?.strip_prefix('=')?.split(';').next()
                });
                if let Some(new) = set.filter(|_| shared) {
                    new.clone_into(&mut jar.lock().unwrap());
                }
                sleep(Duration::from_millis(50)).await;
            }
        })
    });
    for client in futures_util::future::join_all(clients).await {
        client.unwrap();
    }
    stream.send(Message::Text("open".into())).await.unwrap();
    assert_eq!(stream.receive().await.unwrap(), Some(Message::Text("open".into())));
    let served = served.load(Ordering::Relaxed);
    assert!(served >= 3 * 500, "only {served} requests");

    let told = monitor.told();
    let mut beats = Vec::new();
    let mut passes = 0;
    for call in told.iter().filter_map(|told| Some((told.at, operations(told)?))) {
        let (at, operations) = call;
        passes += usize::from(operations.iter().any(|operation| operation.starts_with('S')));
        for operation in operations.iter().filter(|operation| !operation.starts_with('S')) {
            assert_eq!(operation.get(..23), Some(&*format!("h{sid}")), "nothing but heartbeats");
            beats.push(at);
        }
    }
    assert!((3..=4).contains(&beats.len()), "{} heartbeats for {served} requests", beats.len());
    // By the gateway's clock they are a whole `refresh` apart.
    let slack = Duration::from_millis(100);
    assert!(beats.windows(2).all(|pair| pair[1] + slack >= pair[0] + REFRESH), "{beats:?}");
    assert!(passes <= begun.elapsed().as_secs() as usize + 2, "{passes} passes");
}

/// L9: whoever has no cookie of ours costs the store nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_without_cookies_cost_no_call() {
    let Some(store) = valkey() else { return };
    let origin = Origin::start();
    let gateway = TestGateway::builder(document(&origin.url(), "capacity: 1"))
        .workers(2)
        .valkey(store.url())
        .start();
    ready(&mut store.client().unwrap(), "drop", &[gateway.data()]).await;
    let _full = inside(gateway.http, 1).await;
    let mut monitor = Monitor::start(&store).unwrap();
    let begun = Instant::now();
    let mut client = gateway.client().await;
    for n in 0..300 {
        let (accept, expected) =
            [("text/html", 302), ("application/json", 429), ("*/*", 429)][n % 3];
        let page = client.get(HOST, "/", &[("Accept", accept)]).await.unwrap();
        assert_eq!(page.status, expected);
        let poll = client.get(HOST, crate::queue::shop::STATUS, &[]).await.unwrap();
        assert_eq!(poll.json()["state"], "gone");
    }
    let told = monitor.told();
    let calls: Vec<_> = told.iter().filter_map(operations).collect();
    assert!(calls.iter().flat_map(|call| call.iter()).all(|operation| operation.starts_with('S')));
    let most = begun.elapsed().as_secs() as usize + 2;
    assert!(calls.len() <= most, "{} calls", calls.len());
}
