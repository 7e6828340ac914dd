//! Two gateways, one of which loses the store for longer than sessions last there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use corvus_testkit::{
    ChaosProxy, Origin, Visitor,
    store::{Kind, StoreClient, StoreOptions, StoreServer},
};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::{admitted, sample::Sample};
use crate::{
    gateway::TestGateway,
    queue::shop::{ADMISSION, HOST, STATUS, document, ticket},
};

const CAPACITY: i64 = 4;
const SETTINGS: &str = "capacity: 4, active_ttl_s: 5, grant_ttl_s: 5, refresh_s: 1, \
                        queue_ttl_s: 30, polls_per_session_per_s: 50, on_store_failure: closed";
/// More than twice `active_ttl`.
const OUTAGE: Duration = Duration::from_secs(12);
const STEP: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(20);

/// The store counts the sessions of the gateway that is cut off for `active_ttl` and gives their
/// slots away. When it is back they go on, whatever the capacity, and the next one is let in only
/// when fewer than the capacity are inside.
#[tokio::test]
async fn sessions_of_a_gateway_that_was_cut_off_come_back() {
    let Some(store) = StoreServer::start(StoreOptions::new(Kind::Valkey)) else { return };
    let (origin, proxy) = (Origin::start(), ChaosProxy::start(store.addr()));
    let start =
        |url: String| TestGateway::builder(document(&origin.url(), SETTINGS)).valkey(url).start();
    let (near, far) = (start(store.url()), start(format!("redis://{}", proxy.addr())));

    let mut at_near = vec![admitted(visitor(&near, 1)).await, admitted(visitor(&near, 2)).await];
    let mut at_far = vec![admitted(visitor(&far, 3)).await, admitted(visitor(&far, 4)).await];
    let mut line = Vec::new();
    for n in 5..10 {
        let mut visitor = visitor(&near, n);
        assert_eq!(visitor.get("/", &[]).await.unwrap().status, 429);
        line.push(visitor);
    }
    let tickets: Vec<_> = line.iter().map(ticket).collect();
    let mut client = store.client().unwrap();
    let counter = Counter::start(store.client().unwrap());
    assert_eq!(sample(&mut client).inside, CAPACITY);

    proxy.cut();
    let begun = Instant::now();
    while begun.elapsed() < OUTAGE {
        all_pass(&mut at_near).await;
        all_pass(&mut at_far).await;
        // The last one is asked first: whoever is let in, those ahead were let in before.
        let mut let_in = 0;
        for n in (0..line.len()).rev() {
            match (&*state(&mut line[n]).await, let_in) {
                ("admitted", 0) => let_in = n + 1,
                ("admitted", _) | ("waiting", 0) => {}
                (state, _) => panic!("{n} is {state} and somebody behind is inside"),
            }
        }
        for mut visitor in line.drain(..let_in) {
            assert_eq!(visitor.get("/", &[]).await.unwrap().status, 200);
            at_near.push(visitor);
        }
        sleep(STEP).await;
    }
    let before = sample(&mut client);
    assert_eq!((before.inside, at_near.len(), line.len()), (CAPACITY, 4, 3), "{before:?}");

    proxy.resume();
    let begun = Instant::now();
    while sample(&mut client).inside != 6 {
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", sample(&mut client));
        all_pass(&mut at_near).await;
        all_pass(&mut at_far).await;
        sleep(STEP).await;
    }
    println!("the sessions were back {:?} after the store", begun.elapsed());
    // Each goes on, also at the other gateway, and longer than a session that is not kept.
    for (n, there) in at_far.iter_mut().enumerate() {
        let mut moved = visitor(&near, n + 3);
        moved.set_cookie(ADMISSION, there.cookie(ADMISSION).unwrap());
        *there = moved;
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        all_pass(&mut at_near).await;
        all_pass(&mut at_far).await;
        for visitor in &mut line {
            assert_eq!(state(visitor).await, "waiting");
        }
        sleep(STEP).await;
    }
    let kept: Vec<_> = line.iter().map(ticket).collect();
    assert_eq!(kept, tickets[tickets.len() - line.len()..]);

    // Six are inside: the third that leaves makes room.
    let mut inside: Vec<_> = at_near.into_iter().chain(at_far).collect();
    for left in [5, 4] {
        leave(&mut inside).await;
        let now = sample(&mut client);
        assert_eq!((now.inside, now.admitted, now.queue.len()), (left, before.admitted, 3));
        for visitor in &mut line {
            assert_eq!(state(visitor).await, "waiting");
        }
    }
    while !line.is_empty() {
        leave(&mut inside).await;
        let begun = Instant::now();
        while state(&mut line[0]).await != "admitted" {
            all_pass(&mut inside).await;
            assert!(begun.elapsed() < PATIENCE, "{:?}", sample(&mut client));
            sleep(STEP).await;
        }
        let mut visitor = line.remove(0);
        assert_eq!(visitor.get("/", &[]).await.unwrap().status, 200);
        inside.push(visitor);
        assert_eq!(sample(&mut client).inside, CAPACITY);
    }
    let admissions = counter.end();
    assert_eq!(admissions, 5, "each seen by the counter");
}

fn visitor(gateway: &TestGateway, n: usize) -> Visitor {
    gateway.visitor(HOST).ip(&format!("10.0.0.{n}"))
}

async fn all_pass(inside: &mut [Visitor]) {
    for page in join_all(inside.iter_mut().map(|visitor| visitor.get("/", &[]))).await {
        let page = page.unwrap();
        assert_eq!(page.status, 200, "somebody inside was thrown out: {}", page.body);
    }
}

async fn state(visitor: &mut Visitor) -> String {
    let told = visitor.get_json(STATUS, &[]).await.unwrap().json();
    told["state"].as_str().unwrap().to_owned()
}

async fn leave(inside: &mut Vec<Visitor>) {
    assert_eq!(inside.remove(0).get("/release", &[]).await.unwrap().status, 200);
}

fn sample(client: &mut StoreClient) -> Sample {
    Sample::take(client).unwrap()
}

/// Looks at the store all the time: whenever there was an admission, no more than the capacity are
/// inside or owed afterwards. Those who come back do so while the slots are taken, so that no look
/// has both in it.
struct Counter {
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<i64>,
}

impl Counter {
    fn start(mut client: StoreClient) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let first = sample(&mut client);
            let mut last = first.clone();
            while !ended.load(Ordering::SeqCst) {
                let now = sample(&mut client);
                let admitted = now.admitted > last.admitted;
                let room = now.inside + now.owed <= CAPACITY;
                assert!(!admitted || room, "{last:?}, then {now:?}");
                last = now;
                thread::sleep(Duration::from_millis(1));
            }
            last.admitted - first.admitted
        });
        Self { over, thread }
    }

    /// The admissions that it saw.
    fn end(self) -> i64 {
        self.over.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}
