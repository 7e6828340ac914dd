//! One gateway and one store with which something is wrong: what newcomers get meanwhile, and that
//! nobody who was there before loses anything by it.

use std::{
    cell::Cell,
    io,
    net::{Ipv4Addr, SocketAddr},
    thread,
    time::Duration,
};

use corvus_testkit::{
    Accept, ChaosProxy, Origin, Page, Visitor, free_port,
    store::{Data, Kind, StoreOptions, StoreServer},
};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::sample::Sample;
use crate::{
    gateway::TestGateway,
    queue::shop::{ADMISSION, HOST, LEAVE, PLACE, STATUS, document, field, ticket},
};

const CAPACITY: usize = 2;
/// How many come in the moment in which the store fails.
const CROWD: usize = 40;
const SETTINGS: &str = "capacity: 2, active_ttl_s: 5, grant_ttl_s: 5, refresh_s: 1, \
                        queue_ttl_s: 30, polls_per_session_per_s: 50";
/// More than twice `active_ttl`, and than the five seconds that make a gap.
const LONG: Duration = Duration::from_secs(12);
const STEP: Duration = Duration::from_millis(300);
/// From the store's return to the gateway's: the breaker's three seconds and a call.
const RECOVERY: Duration = Duration::from_secs(5);
/// No request waits longer for the store.
const WAIT: Duration = Duration::from_secs(1);
/// Until the first one is inside: keys and slots of a new store are held back for five seconds.
const START: Duration = Duration::from_secs(20);
/// A slot that is free goes to the next one within this: a new state holds slots back for five
/// seconds, and a pass comes each second.
const PROMOTION: Duration = Duration::from_secs(10);

/// What is wrong.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The process is gone, and comes back with what it had, or with nothing.
    Down(Duration, Data),
    /// FLUSHALL.
    Flushed,
    /// It has no memory.
    Full,
    /// It became the replica of a master that is not there, and becomes a master again.
    ReadOnly,
    /// It became the replica of another master, whose state, an empty one, it has afterwards.
    Overwritten,
    /// Each piece takes two seconds, each way.
    Slow,
    /// The connections stay, and nothing comes through.
    HalfOpen,
}

/// What newcomers get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Through,
    TryAgain,
    Busy,
    Line,
}

impl Fault {
    fn expected(self, policy: &str) -> Expected {
        match (self, policy) {
            (Self::Flushed, _) => Expected::Line,
            (Self::Full, _) => Expected::Busy,
            (_, "open") => Expected::Through,
            _ => Expected::TryAgain,
        }
    }

    fn lasts(self) -> Duration {
        match self {
            Self::Down(time, _) => time,
            Self::Flushed => Duration::ZERO,
            _ => LONG,
        }
    }
}

#[test]
fn killed_for_a_second() {
    under_both_policies(Fault::Down(Duration::from_secs(1), Data::Kept));
}

#[test]
fn killed_for_a_minute() {
    under_both_policies(Fault::Down(Duration::from_mins(1), Data::Kept));
}

#[test]
fn killed_and_started_again_with_nothing() {
    under_both_policies(Fault::Down(LONG, Data::Wiped));
}

#[test]
fn flushed() {
    under_both_policies(Fault::Flushed);
}

#[test]
fn out_of_memory() {
    under_both_policies(Fault::Full);
}

#[test]
fn read_only() {
    under_both_policies(Fault::ReadOnly);
}

#[test]
fn made_the_replica_of_an_empty_master() {
    under_both_policies(Fault::Overwritten);
}

#[test]
fn slow_by_two_seconds() {
    under_both_policies(Fault::Slow);
}

#[test]
fn half_open() {
    under_both_policies(Fault::HalfOpen);
}

/// Both stories at once, each on a thread of its own: starting and asking a store blocks.
fn under_both_policies(fault: Fault) {
    thread::scope(|scope| {
        for policy in ["open", "closed"] {
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(story(fault, policy));
            });
        }
    });
}

#[expect(clippy::print_stdout, reason = "how long it took is worth reading")]
async fn story(fault: Fault, policy: &'static str) {
    let Some(mut site) = Site::start(fault, policy) else { return };
    let mut inside = Vec::new();
    for n in 0..CAPACITY {
        inside.push(site.admitted(n).await);
    }
    let mut line = Vec::new();
    for n in 0..4 {
        let mut visitor = site.visitor(10 + n);
        assert_eq!(site.get(&mut visitor, "/").await.status, 429);
        line.push(visitor);
    }
    let tickets: Vec<_> = line.iter().map(ticket).collect();

    let mut strangers = site.strangers().await;

    site.break_it();
    site.rush(&mut inside, &mut strangers).await;
    let mut late = Box::pin(site.outage(&mut inside, &mut line)).await;
    site.mend_it();
    if matches!(fault, Fault::Full) {
        // One of those inside left and the first in line came in, all without memory.
        assert_eq!((inside.len(), line.len()), (CAPACITY, 3), "{site:?}");
    }
    let tickets = &tickets[tickets.len() - line.len()..];
    site.recovery(&mut inside, &mut line[0]).await;

    // What a slow store did for them after they had given up is undone.
    site.leave(&mut strangers).await;

    // The newcomer, who came during the outage, is back before them.
    assert_eq!(site.get(&mut late, "/").await.status, 429, "{site:?}: a newcomer came in ahead");
    for visitor in line.iter_mut().rev() {
        let page = site.get(visitor, "/").await;
        assert_eq!(page.status, 429, "{site:?}: all slots are taken");
    }
    line.push(late);
    for (n, visitor) in line.iter_mut().enumerate() {
        let told = site.status(visitor).await;
        assert_eq!((&told["state"], &told["rank"]), (&"waiting".into(), &(n + 1).into()));
        let kept = tickets.get(n).is_none_or(|old| *old == ticket(visitor));
        assert!(kept, "{site:?}: visitor {n} has another ticket");
    }
    // Longer than a session lasts that nobody keeps.
    site.look_around(&mut inside, Duration::from_secs(6)).await;

    let mut staying = inside.remove(0);
    let mut leaving = inside.remove(0);
    for n in 0..line.len() {
        assert_eq!(site.get(&mut leaving, "/release").await.status, 200);
        site.next_is_let_in(&mut line, n, &mut staying).await;
        let visitor = site.visitor(0);
        leaving = std::mem::replace(&mut line[n], visitor);
    }
    assert_eq!(site.get(&mut staying, "/").await.status, 200);
    let slowest = site.slowest.get();
    assert!(slowest < WAIT, "{site:?}: the slowest request took {slowest:?}");
    println!("{site:?}: slowest request {slowest:?}, recovery {:?}", site.recovered.get());
}

struct Site {
    fault: Fault,
    policy: &'static str,
    store: StoreServer,
    master: Option<StoreServer>,
    proxy: ChaosProxy,
    gateway: TestGateway,
    slowest: Cell<Duration>,
    recovered: Cell<Duration>,
    _origin: Origin,
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}, {}", self.fault, self.policy)
    }
}

impl Site {
    fn start(fault: Fault, policy: &'static str) -> Option<Self> {
        let options = StoreOptions { appendonly: true, ..StoreOptions::new(Kind::Valkey) };
        let store = StoreServer::start(options)?;
        let master = matches!(fault, Fault::Overwritten)
            .then(|| StoreServer::start(StoreOptions::new(Kind::Valkey)).unwrap());
        let (proxy, origin) = (ChaosProxy::start(store.addr()), Origin::start());
        let settings = format!("{SETTINGS}, on_store_failure: {policy}");
        let gateway = TestGateway::builder(document(&origin.url(), &settings))
            .valkey(format!("redis://{}", proxy.addr()))
            .start();
        let (slowest, recovered) = (Cell::default(), Cell::default());
        Some(Self {
            fault,
            policy,
            store,
            master,
            proxy,
            gateway,
            slowest,
            recovered,
            _origin: origin,
        })
    }

    fn visitor(&self, n: usize) -> Visitor {
        self.gateway.visitor(HOST).ip(&format!("10.0.0.{n}"))
    }

    async fn timed(&self, request: impl Future<Output = io::Result<Page>>) -> Page {
        let begun = Instant::now();
        let page = request.await.unwrap();
        self.slowest.set(self.slowest.get().max(begun.elapsed()));
        page
    }

    async fn get(&self, visitor: &mut Visitor, path: &str) -> Page {
        self.timed(visitor.get(path, &[])).await
    }

    async fn status(&self, visitor: &mut Visitor) -> serde_json::Value {
        self.timed(visitor.get_json(STATUS, &[])).await.json()
    }

    async fn admitted(&self, n: usize) -> Visitor {
        let mut visitor = self.visitor(n);
        let begun = Instant::now();
        while self.get(&mut visitor, "/").await.status != 200 || visitor.cookie(ADMISSION).is_none()
        {
            assert!(begun.elapsed() < START, "{self:?}: not admitted");
            sleep(STEP).await;
        }
        visitor
    }

    fn break_it(&mut self) {
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        match self.fault {
            Fault::Down(..) => self.store.stop(),
            Fault::Flushed => self.cli(&["FLUSHALL"]),
            Fault::Full => self.cli(&["CONFIG", "SET", "maxmemory", "1"]),
            Fault::ReadOnly => self.follow(nobody),
            Fault::Overwritten => self.follow(self.master.as_ref().unwrap().addr()),
            Fault::Slow => self.proxy.slow(Duration::from_secs(2)),
            Fault::HalfOpen => self.proxy.half_open(),
        }
    }

    fn mend_it(&mut self) {
        match self.fault {
            Fault::Down(_, data) => self.store.restart(data),
            Fault::Flushed => {}
            Fault::Full => self.cli(&["CONFIG", "SET", "maxmemory", "0"]),
            Fault::ReadOnly | Fault::Overwritten => self.cli(&["REPLICAOF", "NO", "ONE"]),
            Fault::Slow | Fault::HalfOpen => self.proxy.resume(),
        }
    }

    fn cli(&self, command: &[&str]) {
        assert_eq!(self.store.cli(command), "OK", "{command:?}");
    }

    fn follow(&self, master: SocketAddr) {
        self.cli(&["REPLICAOF", &master.ip().to_string(), &master.port().to_string()]);
    }

    /// Who is inside stays inside.
    async fn look_around(&self, inside: &mut [Visitor], time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.all_pass(inside).await;
            sleep(STEP).await;
        }
    }

    async fn all_pass(&self, inside: &mut [Visitor]) {
        for page in join_all(inside.iter_mut().map(|visitor| self.get(visitor, "/"))).await {
            assert_eq!(page.status, 200, "{self:?}: somebody inside was thrown out");
        }
    }

    /// Those who have shown that they keep cookies, and whose next request asks the store.
    async fn strangers(&self) -> Vec<Visitor> {
        let mut all = Vec::new();
        for n in 0..CROWD {
            let mut visitor = self.gateway.visitor(HOST).ip(&format!("10.0.1.{n}"));
            let first = self.timed(visitor.get_json("/", &[])).await;
            assert_eq!(first.json()["state"], "needs_cookie", "{self:?}");
            all.push(visitor);
        }
        all
    }

    /// All at once, so that each of them finds out that the store does not answer.
    async fn rush(&self, inside: &mut [Visitor], strangers: &mut [Visitor]) {
        let requests = strangers.iter_mut().map(|v| self.timed(v.get_json("/", &[])));
        let ((), pages) = tokio::join!(self.all_pass(inside), join_all(requests));
        let through = self.fault.expected(self.policy) == Expected::Through;
        for page in pages {
            assert_eq!(page.status, if through { 200 } else { 429 }, "{self:?}: {}", page.body);
        }
    }

    async fn leave(&self, visitors: &mut [Visitor]) {
        for visitor in visitors {
            // They do not know of a place that they got while nobody heard the store.
            self.timed(visitor.request("GET", "/", Accept::Json, &[], b"")).await;
            self.timed(visitor.request("POST", LEAVE, Accept::Json, &[], b"")).await;
        }
    }

    /// Everybody goes on as before, all at once and again and again; the second in line sleeps. At
    /// the beginning, in the middle and at the end somebody new comes, of whom the first is returned.
    async fn outage(&self, inside: &mut Vec<Visitor>, line: &mut Vec<Visitor>) -> Visitor {
        let begun = Instant::now();
        let mut late = Vec::new();
        loop {
            let over = begun.elapsed() >= self.fault.lasts();
            if late.is_empty() || over || begun.elapsed() > self.fault.lasts() / 2 && late.len() < 2
            {
                late.push(self.newcomer(100 + 2 * late.len()).await);
            }
            if over {
                return late.swap_remove(0);
            }
            let [first, _, third, fourth] = &mut line[..] else {
                self.all_pass(inside).await;
                sleep(STEP).await;
                continue;
            };
            let ((), a, b, c) = tokio::join!(
                self.all_pass(inside),
                self.status(first),
                self.timed(third.get_json(STATUS, &[])),
                self.get(fourth, "/"),
            );
            let (state, status) = match self.fault.expected(self.policy) {
                Expected::Through => ("admitted", 200),
                Expected::TryAgain => ("unavailable", 429),
                Expected::Busy | Expected::Line => ("waiting", 429),
            };
            for told in [a, b.json()] {
                assert_eq!(told["state"], state, "{self:?}: {told}");
            }
            assert_eq!(c.status, status, "{self:?}: {}", c.body);
            if matches!(self.fault, Fault::Full) {
                self.change_places(inside, line).await;
            }
            sleep(STEP).await;
        }
    }

    /// Somebody inside ends the session, and the first in line comes in.
    async fn change_places(&self, inside: &mut Vec<Visitor>, line: &mut Vec<Visitor>) {
        assert_eq!(self.get(&mut inside.remove(0), "/release").await.status, 200);
        let mut first = line.remove(0);
        assert_eq!(self.get(&mut first, "/").await.status, 200, "{self:?}: the slot is free");
        inside.push(first);
    }

    /// Two newcomers, one who opens a page and one who asks for JSON; the first is returned.
    async fn newcomer(&self, n: usize) -> Visitor {
        let (mut browser, mut program) = (self.visitor(n), self.visitor(n + 1));
        let page = self.get(&mut browser, "/").await;
        // Nobody joins who does not show that cookies come back.
        let first = self.timed(program.get_json("/", &[])).await;
        assert_eq!(first.json()["state"], "needs_cookie", "{self:?}");
        let answer = self.timed(program.get_json("/", &[])).await;
        let expected = self.fault.expected(self.policy);
        if expected == Expected::Through {
            assert_eq!((page.status, answer.status), (200, 200), "{self:?}");
        } else {
            assert_eq!((page.status, answer.status), (429, 429), "{self:?}: {}", page.body);
            for headers in [&page.headers, &answer.headers] {
                let seconds = headers.get("retry-after").and_then(|text| text.parse::<u64>().ok());
                assert!(seconds.is_some_and(|s| s > 0), "{self:?}: {headers:?}");
            }
            let (title, state) = match expected {
                Expected::Busy => ("It is very busy right now", "busy"),
                Expected::TryAgain => ("Please try again in a moment", "unavailable"),
                Expected::Line | Expected::Through => ("", "waiting"),
            };
            assert!(page.body.contains(title), "{self:?}: {}", page.body);
            assert_eq!(answer.json()["state"], state, "{self:?}");
        }
        for visitor in [&browser, &program] {
            assert_eq!(visitor.cookie(ADMISSION), None, "{self:?}");
            let placed = visitor.cookie(PLACE).is_some_and(|place| field(place, 6) != "0");
            assert_eq!(placed, expected == Expected::Line, "{self:?}");
        }
        // The program goes away again.
        if expected == Expected::Line {
            self.leave(std::slice::from_mut(&mut program)).await;
        }
        browser
    }

    /// The gateway finds out by itself that the store is back.
    async fn recovery(&self, inside: &mut [Visitor], waiting: &mut Visitor) {
        let begun = Instant::now();
        loop {
            self.all_pass(inside).await;
            let told = self.status(waiting).await;
            if told["state"] == "waiting" {
                break;
            }
            assert!(begun.elapsed() < RECOVERY, "{self:?}: {told} {RECOVERY:?} after the return");
            sleep(Duration::from_millis(100)).await;
        }
        self.recovered.set(begun.elapsed());
    }

    /// The slot that was left goes to number `n` of `line`, and to nobody behind.
    async fn next_is_let_in(&self, line: &mut [Visitor], n: usize, staying: &mut Visitor) {
        let begun = Instant::now();
        loop {
            assert_eq!(self.get(staying, "/").await.status, 200, "{self:?}: thrown out");
            let (next, behind) = line[n..].split_first_mut().unwrap();
            // Those behind ask first, and get nothing by it.
            for (m, visitor) in behind.iter_mut().enumerate() {
                let told = self.status(visitor).await;
                assert_eq!(told["state"], "waiting", "{self:?}: {} behind {n}", m + 1);
            }
            let sample = Sample::take(&mut self.store.client().unwrap()).unwrap();
            assert!(usize::try_from(sample.inside).unwrap() <= CAPACITY, "{self:?}: {sample:?}");
            if self.status(next).await["state"] == "admitted" {
                break;
            }
            assert!(begun.elapsed() < PROMOTION, "{self:?}: {n} is not let in: {sample:?}");
            sleep(STEP).await;
        }
        assert_eq!(self.get(&mut line[n], "/").await.status, 200);
        assert!(line[n].cookie(ADMISSION).is_some(), "{self:?}");
        assert_eq!(line[n].cookie(PLACE), None, "{self:?}");
    }
}
