//! A Cluster's master dies in the middle of a run, before its replica has heard of the newest
//! admissions.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use corvus_testkit::{
    Origin, Visitor,
    store::{Kind, StoreCluster, StoreOptions},
};
use futures_util::future::join_all;
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep, timeout},
};

use super::sample::{Sample, key};
use crate::{
    gateway::TestGateway,
    queue::shop::{ADMISSION, HOST, PLACE, STATUS, document, field, ticket},
};

const CAPACITY: i64 = 10;
const CROWD: usize = 60;
/// They come at once. The others follow when the replica is cut off, and when the master is dead.
const FIRST: usize = 40;
const LATER: usize = 10;
/// Sessions that end before the replica is cut off, and between that and the kill.
const HEARD: usize = 3;
const LOST: usize = 5;
const STEP: Duration = Duration::from_millis(250);
/// The election takes two or three seconds, the gateway's breaker three more.
const TAKEOVER: Duration = Duration::from_secs(15);
const RUN: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_valkey_master_dies_in_the_middle() {
    run(Kind::Valkey).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_master_dies_in_the_middle() {
    run(Kind::Redis).await;
}

#[expect(clippy::print_stdout, reason = "how much was lost is worth reading")]
async fn run(kind: Kind) {
    let Some(cluster) = StoreCluster::start(&StoreOptions::new(kind)) else { return };
    let origin = Origin::start();
    let settings = format!(
        "capacity: {CAPACITY}, active_ttl_s: 6, grant_ttl_s: 5, refresh_s: 1, queue_ttl_s: 30, \
         polls_per_session_per_s: 50, on_store_failure: closed"
    );
    let gateway = TestGateway::builder(document(&origin.url(), &settings)).valkey(cluster.url());
    let sale = Arc::new(Sale {
        gateway: gateway.start(),
        arrivals: Semaphore::new(FIRST),
        leaving: AtomicUsize::new(0),
        inside: watch::Sender::new(0),
    });
    let visits: Vec<_> = (0..CROWD).map(|n| tokio::spawn(visit(n, Arc::clone(&sale)))).collect();
    let master = cluster.master_of(&key("active"));
    // Nodes 0 to 2 are masters, and 3 to 5 their replicas.
    let replica = master + 3;
    let before = Watch::start(&cluster, master, None);
    let reader = || {
        let mut client = cluster.node(replica).client().unwrap();
        client.call(&["READONLY"]).unwrap().ok().unwrap();
        client
    };

    sale.until_inside(CAPACITY as usize).await;
    sale.leaving.store(HEARD, Ordering::SeqCst);
    sale.until_inside(CAPACITY as usize + HEARD).await;
    let mut client = reader();
    let told = before.until("the first ends", RUN, |now| now.admitted == 13).await;
    while Sample::take(&mut client).unwrap().admitted < told.admitted {
        sleep(STEP).await;
    }
    // What the master sends from here on does not arrive.
    cluster.node(replica).pause();
    cluster.node(master).cli(&["CLIENT", "KILL", "TYPE", "replica"]);
    sale.arrivals.add_permits(LATER);
    sale.leaving.store(HEARD + LOST, Ordering::SeqCst);
    sale.until_inside(CAPACITY as usize + HEARD + LOST).await;
    let line = FIRST + LATER - CAPACITY as usize - HEARD - LOST;
    before.until("the line", RUN, |now| now.queue.len() == line).await;
    // Nothing is admitted between the count and the end.
    cluster.node(master).cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let last = Sample::take(&mut cluster.node(master).client().unwrap()).unwrap();
    before.end();
    cluster.kill(master);
    let killed = Instant::now();
    cluster.node(replica).resume();

    let found = Sample::take(&mut reader()).unwrap();
    let missing: HashSet<_> =
        last.sessions.iter().filter(|sid| !found.sessions.contains(sid)).cloned().collect();
    let lost = last.admitted - found.admitted;
    assert_eq!((lost as usize, missing.len()), (LOST, LOST), "{last:?}, {found:?}");
    let after = Watch::start(&cluster, replica, Some((found.clone(), missing.clone())));
    sale.arrivals.add_permits(LATER);
    let back = |now: &Sample| missing.iter().all(|sid| now.sessions.contains(sid));
    let now = after.until("those who were missing are inside", TAKEOVER, back).await;
    let took = killed.elapsed();
    assert_eq!(now.admitted, found.admitted, "nobody is let in while too many are inside");
    assert_eq!(cluster.master_of(&key("active")), replica);

    sale.leaving.store(CROWD, Ordering::SeqCst);
    let all = timeout(RUN, join_all(visits)).await.expect("everybody was inside in the end");
    for visit in all {
        visit.unwrap();
    }
    assert_eq!(*sale.inside.borrow(), CROWD);
    let over = after.end() - CAPACITY;
    println!(
        "{kind:?}: {lost} admissions were not replicated, and {} sessions missing at the replica; \
         they were back {took:?} after the kill; at most {over} too many were inside",
        missing.len()
    );
    assert!(over <= lost, "{over} too many inside, and only {lost} admissions were lost");
}

struct Sale {
    gateway: TestGateway,
    /// A permit lets one more visitor come.
    arrivals: Semaphore,
    /// So many of those who were let in first may leave.
    leaving: AtomicUsize,
    /// How many have been let in.
    inside: watch::Sender<usize>,
}

impl Sale {
    async fn until_inside(&self, count: usize) {
        let mut inside = self.inside.subscribe();
        let reached = timeout(RUN, inside.wait_for(|inside| *inside == count)).await;
        assert!(reached.is_ok(), "never {count} inside");
    }
}

/// Comes, waits for as long as it takes, looks around and leaves. The place never gets a later
/// ticket, and who is inside stays inside.
async fn visit(n: usize, sale: Arc<Sale>) {
    sale.arrivals.acquire().await.unwrap().forget();
    let mut visitor = sale.gateway.visitor(HOST).ip(&format!("10.0.0.{n}"));
    let mut first = None;
    while visitor.get("/", &[]).await.unwrap().status != 200 {
        loop {
            keeps_ticket(n, &visitor, &mut first);
            sleep(STEP).await;
            let told = visitor.get_json(STATUS, &[]).await.unwrap().json();
            match told["state"].as_str().unwrap() {
                "waiting" => {}
                "admitted" => break,
                // The store is away.
                "unavailable" if first.is_some() => {}
                // Who came just then has no place yet, and asks for the page again.
                "unavailable" | "gone" if first.is_none() => break,
                state => panic!("{n} is told {state}: {told}"),
            }
        }
    }
    assert!(visitor.cookie(ADMISSION).is_some(), "{n} was let in without an admission");
    let mut number = 0;
    sale.inside.send_modify(|inside| {
        number = *inside;
        *inside += 1;
    });
    while number >= sale.leaving.load(Ordering::SeqCst) {
        sleep(STEP).await;
        let page = visitor.get("/", &[]).await.unwrap();
        assert_eq!(page.status, 200, "{n} was thrown out: {}", page.body);
    }
    assert_eq!(visitor.get("/release", &[]).await.unwrap().status, 200);
}

fn keeps_ticket(n: usize, visitor: &Visitor, first: &mut Option<u64>) {
    if visitor.cookie(PLACE).is_some_and(|place| field(place, 6) != "0") {
        let now = ticket(visitor);
        assert_eq!(*first.get_or_insert(now), now, "{n} has another ticket");
    }
}

/// Looks at a node all the time: whoever goes from the line had the lowest ticket.
struct Watch {
    latest: Arc<Mutex<Sample>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<i64>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

impl Watch {
    /// `from`: what the line was, and sessions that need not wait in it: their admissions were
    /// lost, and their tokens bring them back.
    fn start(cluster: &StoreCluster, node: usize, from: Option<(Sample, HashSet<String>)>) -> Self {
        let mut client = cluster.node(node).client().unwrap();
        client.call(&["READONLY"]).unwrap().ok().unwrap();
        let (mut last, free) = from.unwrap_or_default();
        let latest = Arc::new(Mutex::new(last.clone()));
        let over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (latest, over) = (Arc::clone(&latest), Arc::clone(&over));
            move || {
                let mut highest = 0;
                while !over.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                    let sample = match Sample::take(&mut client) {
                        Ok(sample) => sample,
                        // A replica says so until it is the master.
                        Err(error) if error.to_string().starts_with("CLUSTERDOWN") => continue,
                        Err(error) => panic!("{error}"),
                    };
                    in_order(&last, &sample, &free);
                    highest = highest.max(sample.inside);
                    latest.lock().unwrap().clone_from(&sample);
                    last = sample;
                }
                highest
            }
        });
        Self { latest, over, thread: Some(thread) }
    }

    /// The first look that is as wanted.
    async fn until(
        &self,
        what: &str,
        patience: Duration,
        wanted: impl Fn(&Sample) -> bool,
    ) -> Sample {
        let begun = Instant::now();
        loop {
            let sample = self.latest.lock().unwrap().clone();
            if wanted(&sample) {
                return sample;
            }
            let ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!ended, "the watch over the line has ended");
            assert!(begun.elapsed() < patience, "never came: {what}: {sample:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The most that were inside.
    fn end(mut self) -> i64 {
        self.over.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// Of those who waited, none who still waits was ahead of one who was let in.
fn in_order(before: &Sample, after: &Sample, free: &HashSet<String>) {
    let waits: HashSet<&str> = after.queue.iter().map(|(sid, _)| &**sid).collect();
    let passed = before.queue.iter().filter(|(sid, _)| !waits.contains(&**sid));
    let highest = passed.filter(|(sid, _)| !free.contains(sid)).map(|(_, ticket)| *ticket).max();
    let ahead = |ticket: u64| highest.is_some_and(|highest| ticket < highest);
    let overtaken =
        before.queue.iter().find(|(sid, ticket)| waits.contains(&**sid) && ahead(*ticket));
    assert!(overtaken.is_none(), "{overtaken:?} was overtaken: {before:?}, then {after:?}");
}
