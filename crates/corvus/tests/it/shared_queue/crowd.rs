//! Two gateways, one store, and a crowd that is spread over both and walks between them.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use corvus_testkit::{
    Accept, Origin, Visitor,
    store::{Resp, StoreClient},
};
use tokio::task::JoinSet;

use super::{key, process, ready, sizes, valkey, visitor};
use crate::{
    gateway::GatewayProcess,
    queue::shop::{ADMISSION, HOST, LEAVE, PLACE, STATUS, document, field, ticket},
};

const CROWD: usize = 200;
const CAPACITY: usize = 10;

/// What the samples are judged by.
#[derive(Default)]
struct Tally {
    /// Sessions whose end has begun, ever.
    ended: AtomicUsize,
    /// The sids of all who wait, by ticket, once all have come.
    line: OnceLock<Vec<String>>,
    over: AtomicBool,
}

/// Two hundred clients come at once to two gateways, and each third one changes the gateway while
/// waiting and again while inside. In the store there are ten inside at each instant at which
/// anybody waits, and those who wait are always the last so many of the order in which they came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_200_clients_at_two_gateways_share_ten_places() {
    let Some(store) = valkey() else { return };
    let origin = Origin::start();
    let document =
        document(&origin.url(), &format!("capacity: {CAPACITY}, polls_per_session_per_s: 10"));
    let gateways = [process(&document, &store.url()), process(&document, &store.url())];
    let mut client = store.client().unwrap();
    ready(&mut client, "drop", &gateways.each_ref().map(GatewayProcess::data)).await;
    let doors = gateways.each_ref().map(|gateway| gateway.http);
    let tally = Arc::new(Tally::default());
    let sampler = std::thread::spawn({
        let (store, tally) = (store.client().unwrap(), Arc::clone(&tally));
        move || sample(store, &tally)
    });

    // They all come before the first leaves, so that the order is known.
    let arrivals = (0..CROWD).map(|n| {
        tokio::spawn(async move {
            let mut visitor = visitor(doors[n % 2], HOST, n);
            let page = visitor.get("/", &[]).await.unwrap();
            (n, visitor, page.status)
        })
    });
    let mut inside = Vec::new();
    let mut line = Vec::new();
    for arrival in futures_util::future::join_all(arrivals).await {
        match arrival.unwrap() {
            (n, visitor, 200) => inside.push((n, visitor)),
            (n, visitor, 429) => line.push((n, visitor)),
            (_, _, status) => panic!("{status}"),
        }
    }
    assert_eq!((inside.len(), line.len()), (CAPACITY, CROWD - CAPACITY));
    assert_eq!(sizes(&mut client, "drop"), (10, 190));
    line.sort_by_key(|(_, visitor)| ticket(visitor));
    assert!(line.windows(2).all(|pair| ticket(&pair[0].1) < ticket(&pair[1].1)));
    let sids = line.iter().map(|(_, visitor)| field(visitor.cookie(PLACE).unwrap(), 4).to_owned());
    tally.line.set(sids.collect()).unwrap();

    let order = Arc::new(Mutex::new(Vec::new()));
    let visits = inside
        .into_iter()
        .map(|(n, visitor)| (n, visitor, None))
        .chain(line.into_iter().enumerate().map(|(turn, (n, visitor))| (n, visitor, Some(turn))));
    let mut under_way = JoinSet::new();
    for (n, visitor, turn) in visits {
        let other = (n % 3 == 0).then(|| (doors[n % 2], doors[(n + 1) % 2]));
        under_way.spawn(visit(visitor, turn, other, Arc::clone(&tally), Arc::clone(&order)));
    }
    // The first that fails ends the test: the others would wait for ever.
    let all = async {
        while let Some(visit) = under_way.join_next().await {
            visit.unwrap();
            assert!(!sampler.is_finished(), "a sample was wrong");
        }
    };
    tokio::time::timeout(Duration::from_mins(2), all).await.expect("all get in");
    tally.over.store(true, Ordering::SeqCst);
    let samples = sampler.join().unwrap();
    assert!(samples > 1_000, "only {samples} samples");
    assert_eq!(order.lock().unwrap().len(), CROWD - CAPACITY, "all were inside");
    assert_eq!(sizes(&mut client, "drop"), (0, 0));
    let mut number = |name: &str| client.call(&["HGET", &key("drop", "rate"), name]).unwrap();
    assert_eq!(number("admitted").text(), CROWD.to_string());
    assert!(matches!(&*number("abandoned").text(), "" | "0"));
}

/// Looks at the store until it is over; how often.
fn sample(mut store: StoreClient, tally: &Tally) -> u64 {
    let script = "return {redis.call('ZCARD', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1)}";
    let (active, queue) = (key("drop", "active"), key("drop", "queue"));
    let mut samples = 0;
    while !tally.over.load(Ordering::SeqCst) {
        // Taken first: a line that is complete when it is looked at stays so.
        let line = tally.line.get();
        let found = store.call(&["EVAL", script, "2", &active, &queue]).unwrap();
        let Resp::Array(found) = found else { panic!("{found:?}") };
        let [Resp::Int(inside), Resp::Array(waiting)] = &found[..] else { panic!("{found:?}") };
        let (inside, count) = (*inside as usize, waiting.len());
        let exact = inside == CAPACITY || (count == 0 && inside < CAPACITY);
        assert!(exact, "{inside} inside while {count} wait");
        if let Some(line) = line {
            let rest = &line[line.len() - count..];
            assert!(waiting.iter().map(Resp::text).eq(rest.iter().cloned()), "not in order");
        }
        samples += 1;
        std::thread::yield_now();
    }
    samples
}

/// Waits for the turn, looks around, and ends the session: every other one by the origin.
/// `turn`: how many of those who wait are ahead; `other`: from which gateway to which to go.
async fn visit(
    mut visitor: Visitor,
    turn: Option<usize>,
    other: Option<(SocketAddr, SocketAddr)>,
    tally: Arc<Tally>,
    order: Arc<Mutex<Vec<usize>>>,
) {
    if let Some(turn) = turn {
        let mut best = u64::MAX;
        let kept = ticket(&visitor);
        for ask in 0.. {
            if let Some((here, there)) = other {
                visitor.go_to(if ask % 2 == 0 { there } else { here });
            }
            let told = visitor.get_json(STATUS, &[]).await.unwrap().json();
            if told["state"] == "admitted" {
                break;
            }
            let rank = told["rank"].as_u64().unwrap_or_else(|| panic!("{told}"));
            assert!(rank <= best, "the rank rose from {best} to {rank}");
            assert_eq!(ticket(&visitor), kept);
            best = rank;
            // Faster than the page asks, so that the test is short.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        // Whoever ended a session made room for one more: nobody is let in before that.
        let ended = tally.ended.load(Ordering::SeqCst);
        assert!(turn < ended, "turn {turn} after {ended} sessions ended");
        assert_eq!(visitor.get("/", &[]).await.unwrap().status, 200);
        order.lock().unwrap().push(turn);
    }
    if let Some((here, there)) = other {
        // Known at once at the other one too, and no second session.
        let sid = field(visitor.cookie(ADMISSION).unwrap(), 4).to_owned();
        for door in [here, there] {
            visitor.go_to(door);
            assert_eq!(visitor.get("/", &[]).await.unwrap().status, 200);
            assert_eq!(visitor.get_json(STATUS, &[]).await.unwrap().json()["state"], "admitted");
            assert_eq!(field(visitor.cookie(ADMISSION).unwrap(), 4), sid);
        }
    }
    tally.ended.fetch_add(1, Ordering::SeqCst);
    if turn.is_some_and(|turn| turn % 2 == 0) {
        let page = visitor.get("/release", &[]).await.unwrap();
        assert_eq!(page.status, 200);
    } else {
        visitor.request("POST", LEAVE, Accept::Json, &[], b"").await.unwrap();
    }
}
