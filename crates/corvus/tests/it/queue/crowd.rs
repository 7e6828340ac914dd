//! Many visitors at once, dead ones, and a gateway that is killed.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use corvus_core::Id;
use corvus_testkit::{Accept, Origin, Visitor, data_dir};

use super::shop::{ADMISSION, HOST, LEAVE, PLACE, STATUS, Shop, document, field, status, ticket};
use crate::gateway::{GatewayProcess, TestGateway};

const CROWD: usize = 200;
const CAPACITY: usize = 10;

/// What the samples of [`heavy_200_clients_share_ten_places`] are judged by.
#[derive(Default)]
struct Tally {
    /// Sessions whose end has begun, ever.
    ended: AtomicUsize,
    over: AtomicBool,
}

/// Two hundred clients come at once for ten places. At every sample ten are inside, never more; the
/// others follow in the order of their tickets; in the end all have been in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_200_clients_share_ten_places() {
    let origin = Origin::start();
    let document =
        document(&origin.url(), &format!("capacity: {CAPACITY}, polls_per_session_per_s: 10"));
    let gateway = Arc::new(TestGateway::builder(document).workers(2).start());
    let queue = Id::new("drop").unwrap();
    let tally = Arc::new(Tally::default());

    // They all come before the first leaves, so that the order is known.
    let arrivals = (0..CROWD).map(|n| {
        let gateway = Arc::clone(&gateway);
        tokio::spawn(async move {
            let mut visitor = gateway.visitor(HOST).ip(&format!("10.0.{}.{}", n / 100, n % 100));
            let page = visitor.get("/", &[]).await.unwrap();
            (visitor, page.status)
        })
    });
    let mut inside = Vec::new();
    let mut line = Vec::new();
    for arrival in futures_util::future::join_all(arrivals).await {
        match arrival.unwrap() {
            (visitor, 200) => inside.push(visitor),
            (visitor, 429) => line.push(visitor),
            (_, status) => panic!("{status}"),
        }
    }
    assert_eq!((inside.len(), line.len()), (CAPACITY, CROWD - CAPACITY));
    let stats = gateway.app().queue_stats(&queue).unwrap();
    assert_eq!((stats.inside, stats.waiting), (10, 190));
    line.sort_by_key(ticket);
    assert!(line.windows(2).all(|pair| ticket(&pair[0]) < ticket(&pair[1])));

    let sampler = std::thread::spawn({
        let (gateway, tally) = (Arc::clone(&gateway), Arc::clone(&tally));
        move || {
            let mut samples = 0_u64;
            while !tally.over.load(Ordering::SeqCst) {
                let stats = gateway.app().queue_stats(&queue).unwrap();
                let inside = stats.inside as usize;
                let exact = inside == CAPACITY || (stats.waiting == 0 && inside < CAPACITY);
                assert!(exact, "{inside} inside while {} wait", stats.waiting);
                samples += 1;
                std::thread::yield_now();
            }
            samples
        }
    });

    let order = Arc::new(Mutex::new(Vec::new()));
    let visits = inside
        .into_iter()
        .map(|visitor| (visitor, None))
        .chain(line.into_iter().enumerate().map(|(n, visitor)| (visitor, Some(n))))
        .map(|(visitor, turn)| {
            tokio::spawn(visit(visitor, turn, Arc::clone(&tally), Arc::clone(&order)))
        });
    for visit in futures_util::future::join_all(visits).await {
        visit.unwrap();
    }
    tally.over.store(true, Ordering::SeqCst);
    let samples = sampler.join().unwrap();
    assert!(samples > 1_000, "only {samples} samples");
    let order = order.lock().unwrap();
    assert_eq!(order.len(), CROWD - CAPACITY, "all were inside");
    let stats = gateway.app().queue_stats(&Id::new("drop").unwrap()).unwrap();
    assert_eq!((stats.inside, stats.waiting, stats.admitted), (0, 0, CROWD as u64));
    assert_eq!(stats.abandoned, 0);
}

/// Waits for the turn, looks around, and ends the session: every other one by the origin.
/// `turn`: how many of those who wait are ahead.
async fn visit(
    mut visitor: Visitor,
    turn: Option<usize>,
    tally: Arc<Tally>,
    order: Arc<Mutex<Vec<usize>>>,
) {
    if let Some(turn) = turn {
        let mut best = u64::MAX;
        loop {
            let told = visitor.get_json(STATUS, &[]).await.unwrap().json();
            if told["state"] == "admitted" {
                break;
            }
            let rank = told["rank"].as_u64().unwrap_or_else(|| panic!("{told}"));
            assert!(rank <= best, "the rank rose from {best} to {rank}");
            best = rank;
            // Faster than the page asks, so that the test is short.
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        // Whoever ended a session made room for one more: nobody is let in before that.
        let ended = tally.ended.load(Ordering::SeqCst);
        assert!(turn < ended, "turn {turn} after {ended} sessions ended");
        assert_eq!(visitor.get("/", &[]).await.unwrap().status, 200);
        order.lock().unwrap().push(turn);
    }
    tally.ended.fetch_add(1, Ordering::SeqCst);
    if turn.is_some_and(|turn| turn % 2 == 0) {
        let page = visitor.get("/release", &[]).await.unwrap();
        assert_eq!(page.status, 200);
    } else {
        visitor.request("POST", LEAVE, Accept::Json, &[], b"").await.unwrap();
    }
}

/// One slot, and thirty who wait: each that ends a session lets in exactly the next ticket.
#[tokio::test]
async fn slots_go_to_the_next_ticket() {
    let shop = Shop::start("capacity: 1");
    let mut inside = shop.inside().await;
    let mut line = Vec::new();
    for _ in 0..30 {
        line.push(shop.waiting().await);
    }
    for n in 0..line.len() {
        inside.get("/release", &[]).await.unwrap();
        // The last one asks first, and gets nothing by it.
        let last = line.len() - 1;
        if n < last {
            assert_eq!(line[last].get("/", &[]).await.unwrap().status, 429);
        }
        assert_eq!(line[n].get("/", &[]).await.unwrap().status, 200, "{n}");
        std::mem::swap(&mut inside, &mut line[n]);
        assert_eq!(shop.numbers(), (1, (last - n) as u64));
    }
}

/// A thousand who closed their tabs stand ahead of one who did not.
#[tokio::test]
async fn a_thousand_dead_ahead_of_one_live() {
    // Before the start all are told to ask again at the same moment, so all die at the same.
    let queue = "capacity: 1, queue_ttl_s: 30, joins_per_ip_per_min: 100000, \
                 schedule: {starts_at: \"2027-01-15T08:00:06Z\"}, paused: true";
    let shop = Shop::start(queue);
    let mut crowd = shop.gateway.client().await;
    for _ in 0..1_000 {
        let first = crowd.get(HOST, "/", &[("Accept", "*/*")]).await.unwrap();
        let cookie = first.headers.get("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        crowd.get(HOST, "/", &[("Cookie", &cookie)]).await.unwrap();
    }
    assert_eq!(shop.numbers(), (0, 1_000));
    shop.pass_time(Duration::from_secs(7)).await;
    let mut live = shop.waiting().await;
    assert_eq!(status(&mut live).await["rank"], 1_001);
    // Due after 3 s, and 30 s late at most: at 33 s none is dead yet.
    for _ in 0..6 {
        shop.pass_time(Duration::from_secs(4)).await;
        assert_eq!(status(&mut live).await["rank"], 1_001);
    }
    shop.pass_time(Duration::from_secs(2)).await;
    assert_eq!(shop.numbers(), (0, 1_001));
    // Now they are, and the slot is free: the one pass of the live visitor's call is enough.
    shop.change(&queue.replace("paused: true", "paused: false"));
    shop.clock.advance(Duration::from_secs(1));
    assert_eq!(live.get("/", &[]).await.unwrap().status, 200);
    let stats = shop.stats();
    assert_eq!((stats.inside, stats.waiting, stats.abandoned), (1, 0, 1_000));
}

/// The same visitor at another gateway address.
pub(super) fn moved(visitor: &Visitor, gateway: &GatewayProcess) -> Visitor {
    let mut moved = Visitor::new(gateway.http, HOST);
    for name in [ADMISSION, PLACE] {
        if let Some(value) = visitor.cookie(name) {
            moved.set_cookie(name, value);
        }
    }
    moved
}

/// `kill -9` in the middle of it: places and sessions are there again, in the old order, for those
/// who come back with their cookies; nobody gets in on top.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_keeps_places_and_sessions() {
    let origin = Origin::start();
    let document = document(&origin.url(), "capacity: 2");
    let dir = Arc::new(data_dir());
    // Killed at once (nothing of it saved yet), and killed after it was saved.
    for saved in [false, true] {
        let gateway = GatewayProcess::start_in(&dir, &document, &["--workers", "1"]);
        let mut inside = Vec::new();
        let mut line = Vec::new();
        for n in 0..7 {
            let mut visitor = Visitor::new(gateway.http, HOST);
            let page = visitor.get("/", &[]).await.unwrap();
            assert_eq!(page.status, if n < 2 { 200 } else { 429 }, "{n}");
            if n < 2 { inside.push(visitor) } else { line.push(visitor) }
        }
        if saved {
            // The process saves on its own clock, each half second.
            tokio::time::sleep(Duration::from_millis(1_200)).await;
        }
        gateway.child.kill().unwrap();
        let gateway = GatewayProcess::start_in(&dir, &document, &["--workers", "1"]);
        let mut newcomer = Visitor::new(gateway.http, HOST);
        let mut inside: Vec<_> = inside.iter().map(|v| moved(v, &gateway)).collect();
        let old: Vec<_> = line.iter().map(ticket).collect();
        let mut line: Vec<_> = line.iter().map(|v| moved(v, &gateway)).collect();
        if saved {
            assert_eq!(newcomer.get("/", &[]).await.unwrap().status, 429, "both places are taken");
        }
        for visitor in &mut inside {
            assert_eq!(visitor.get("/", &[]).await.unwrap().status, 200, "saved: {saved}");
        }
        // Back in any order.
        for visitor in line.iter_mut().rev() {
            assert_eq!(visitor.get("/", &[]).await.unwrap().status, 429, "saved: {saved}");
        }
        for (n, visitor) in line.iter_mut().enumerate() {
            assert_eq!(ticket(visitor), old[n]);
            assert_eq!(status(visitor).await["rank"], n + 1, "saved: {saved}");
        }
        assert_eq!(newcomer.get("/", &[]).await.unwrap().status, 429);
        assert_eq!(field(newcomer.cookie(PLACE).unwrap(), 3), "drop");
        assert_eq!(status(&mut newcomer).await["rank"], 6, "behind all who were there before");
        if !saved {
            // Free slots are held back for five seconds after a loss; those inside, whose young
            // cookies need no call, must have been counted by then.
            tokio::time::sleep(Duration::from_millis(5_500)).await;
            assert_eq!(status(&mut line[0]).await["state"], "waiting", "nobody on top");
        }
        inside[0].get("/release", &[]).await.unwrap();
        assert_eq!(status(&mut line[1]).await["state"], "waiting");
        assert_eq!(status(&mut line[0]).await["state"], "admitted");
        // Empty again for the second round.
        for visitor in inside.iter_mut().chain(&mut line).chain([&mut newcomer]) {
            visitor.request("POST", LEAVE, Accept::Json, &[], b"").await.unwrap();
        }
        gateway.child.kill().unwrap();
        std::fs::remove_dir_all(dir.path().join("data")).unwrap();
    }
}
