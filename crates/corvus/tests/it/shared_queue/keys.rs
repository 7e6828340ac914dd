//! Gateways come, go and change their keys, and the store forgets everything, while people wait.

use std::{net::SocketAddr, time::Duration};

use corvus_testkit::{
    ChaosProxy, Origin, RawClient, RawResponse, Signal, Visitor,
    store::{Resp, StoreClient},
};
use serde_json::Value;

use super::{
    address, inside, key, keys_file, process, process_in, ready, sizes, valkey, waiting, within,
};
use crate::{
    gateway::TestGateway,
    queue::shop::{ADMISSION, HOST, LEAVE, PLACE, STATUS, document, field, status, ticket},
};

const CROWD: usize = 1_000;
const INSIDE: usize = 5;
/// Connections to each gateway that the crowd shares.
const LANES: usize = 4;

/// Somebody in the crowd: a cookie and an address.
struct Waiter {
    n: usize,
    /// The place, as it is now.
    place: String,
    /// The place as it was first given.
    first: String,
    admitted: bool,
}

impl Waiter {
    fn ticket(&self) -> u64 {
        field(&self.place, 6).parse().unwrap()
    }

    /// One request over a shared connection; the place cookie of the answer is kept.
    async fn ask(&mut self, client: &mut RawClient, target: &str) -> RawResponse {
        let (ip, cookie) = (address(self.n), format!("{PLACE}={}", self.place));
        let mut fields = vec![("Accept", "application/json"), ("X-Forwarded-For", &ip)];
        if !self.place.is_empty() {
            fields.push(("Cookie", &cookie));
        }
        let answer = client.get(HOST, target, &fields).await.unwrap();
        let set = answer.headers.all("set-cookie").find_map(|set| {
            set.strip_prefix(PLACE)?.strip_prefix('=')?.split(';').next().map(str::to_owned)
        });
        if let Some(place) = set.filter(|place| !place.is_empty()) {
            self.place = place;
        }
        answer
    }
}

/// All who wait, in the order of their tickets.
struct Crowd(Vec<Waiter>);

impl Crowd {
    /// They come to all of `gateways`.
    async fn come(gateways: &[SocketAddr]) -> Self {
        let mut all = Self(
            (0..CROWD)
                .map(|n| Waiter { n, place: String::new(), first: String::new(), admitted: false })
                .collect(),
        );
        all.each(gateways, 0, async |waiter, client| {
            // To programs, first a proof of cookies and then the place.
            for _ in 0..2 {
                assert_eq!(waiter.ask(client, "/").await.status, 429);
            }
            waiter.first.clone_from(&waiter.place);
        })
        .await;
        all.0.sort_by_key(Waiter::ticket);
        all
    }

    /// Everybody once, spread over `gateways`: who goes where changes with `round`.
    async fn each(
        &mut self,
        gateways: &[SocketAddr],
        round: usize,
        act: impl AsyncFn(&mut Waiter, &mut RawClient) + Copy,
    ) {
        let lanes = gateways.len() * LANES;
        let mut of_lane: Vec<Vec<&mut Waiter>> = (0..lanes).map(|_| Vec::new()).collect();
        for (index, waiter) in self.0.iter_mut().enumerate() {
            of_lane[(index + round) % lanes].push(waiter);
        }
        let lanes = of_lane.into_iter().enumerate().map(async |(lane, waiters)| {
            let mut client = RawClient::connect(gateways[lane % gateways.len()]).await.unwrap();
            for waiter in waiters {
                act(waiter, &mut client).await;
            }
        });
        futures_util::future::join_all(lanes).await;
    }

    /// Everybody asks how it stands at one of `gateways`, and stands where they always did.
    async fn stand(&mut self, gateways: &[SocketAddr], round: usize, what: &str) {
        self.poll(gateways, round, what, true).await;
    }

    /// The same. Unless all are in the line (`whole`), ranks may be better than in truth.
    async fn poll(&mut self, gateways: &[SocketAddr], round: usize, what: &str, whole: bool) {
        let mut ranks = vec![0; CROWD];
        for (ahead, waiter) in self.0.iter().enumerate() {
            ranks[waiter.n] = ahead as u64 + 1;
        }
        let ranks = &ranks;
        self.each(gateways, round, async |waiter, client| {
            let ticket = waiter.ticket();
            let told: Value = waiter.ask(client, STATUS).await.json();
            assert_eq!(told["state"], "waiting", "{what}: {told}");
            assert_eq!(waiter.ticket(), ticket, "{what}");
            let (rank, own) = (told["rank"].as_u64().unwrap(), ranks[waiter.n]);
            assert!(rank == own || (!whole && rank < own), "{what}: {rank} and not {own}");
        })
        .await;
    }
}

/// The id of the key that signs at `gateway`: a proof of cookies for somebody new shows it.
async fn signing_key(gateway: SocketAddr) -> String {
    let mut client = RawClient::connect(gateway).await.unwrap();
    let mut waiter =
        Waiter { n: 60_000, place: String::new(), first: String::new(), admitted: false };
    waiter.ask(&mut client, "/").await;
    field(&waiter.place, 1).to_owned()
}

/// A thousand wait at two gateways. Keys are rotated, a third gateway comes with an empty folder, one
/// is restarted, one is killed, and the store loses everything: nobody loses a place by a single
/// rank, wherever they ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_a_thousand_keep_their_places_through_all_of_it() {
    let Some(store) = valkey() else { return };
    let origin = Origin::start();
    let url = store.url();
    let settings = format!("capacity: {INSIDE}, refresh_s: 2, polls_per_session_per_s: 20");
    let text = document(&origin.url(), &settings);
    let mut client = store.client().unwrap();
    let (mut a, mut b) = (process(&text, &url), process(&text, &url));
    ready(&mut client, "drop", &[a.data(), b.data()]).await;
    let mut sessions = Vec::new();
    for n in 0..INSIDE {
        sessions.push(inside([a.http, b.http][n % 2], 50_000 + n).await);
    }
    let mut crowd = Crowd::come(&[a.http, b.http]).await;
    assert_eq!(sizes(&mut client, "drop"), (INSIDE, CROWD));
    crowd.stand(&[a.http, b.http], 1, "before").await;

    // A new key: announced at one gateway, believed at both before it signs.
    let old = signing_key(a.http).await;
    assert_eq!(signing_key(b.http).await, old);
    let announced = tokio::time::Instant::now();
    a.child.signal(Signal::USR2).unwrap();
    let mut round = 2;
    // 10 s, and at most a turn of two until each gateway has seen that they are over.
    while announced.elapsed() < Duration::from_secs(15) {
        crowd.stand(&[a.http, b.http], round, "while the new key is announced").await;
        round += 1;
        if announced.elapsed() < Duration::from_secs(9) {
            assert_eq!(signing_key(a.http).await, old, "not before its time");
        }
    }
    let new = signing_key(a.http).await;
    assert_ne!(new, old, "{}", a.log());
    assert_eq!(signing_key(b.http).await, new, "{}", b.log());
    for waiter in &mut crowd.0 {
        assert_eq!(field(&waiter.first, 1), old);
        waiter.place.clone_from(&waiter.first);
    }
    crowd.stand(&[a.http, b.http], 1, "with the cookies of the old key").await;
    assert!(crowd.0.iter().all(|waiter| field(&waiter.place, 1) == new), "signed anew");

    // A third one, asked at once.
    let c = process(&text, &url);
    crowd.stand(&[c.http], 0, "at a third gateway").await;
    assert_eq!(signing_key(c.http).await, new);

    // One is restarted while the others are asked.
    let (dir, rest) = (b.dir(), [a.http, c.http]);
    let restart = tokio::task::spawn_blocking({
        let (text, url) = (text.clone(), url.clone());
        move || {
            b.terminate();
            process_in(&dir, &text, &url)
        }
    });
    while !restart.is_finished() {
        crowd.stand(&rest, round, "while one is restarted").await;
        round += 1;
    }
    b = restart.await.unwrap();
    crowd.stand(&[a.http, b.http, c.http], 1, "after a restart").await;

    // And one is killed.
    let (dir, rest) = (a.dir(), [b.http, c.http]);
    a.child.kill().unwrap();
    crowd.stand(&rest, 0, "while one is dead").await;
    a = process_in(&dir, &text, &url);
    let all = [a.http, b.http, c.http];
    crowd.stand(&all, 2, "after a kill").await;

    // Those inside are inside everywhere, by what the store says.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    for (n, visitor) in sessions.iter_mut().enumerate() {
        visitor.go_to(all[n % 3]);
        assert_eq!(visitor.get("/", &[]).await.unwrap().status, 200);
    }
    assert_eq!(sizes(&mut client, "drop"), (INSIDE, CROWD));

    wipe(&mut client, &all, &mut crowd, &mut sessions).await;

    // The line moves on where it stood.
    let (first, second) = (crowd.0[0].n, crowd.0[1].n);
    sessions[0].request("POST", LEAVE, corvus_testkit::Accept::Json, &[], b"").await.unwrap();
    crowd
        .each(&all, 0, async |waiter, client| {
            let told = waiter.ask(client, STATUS).await.json();
            waiter.admitted = told["state"] == "admitted";
            if waiter.n == second {
                assert_eq!(told["rank"], 1);
            }
        })
        .await;
    let admitted = crowd.0.iter().filter(|waiter| waiter.admitted).map(|waiter| waiter.n);
    assert_eq!(admitted.collect::<Vec<_>>(), [first]);
}

/// The store loses everything with the gateways up.
async fn wipe(
    client: &mut StoreClient,
    gateways: &[SocketAddr],
    crowd: &mut Crowd,
    sessions: &mut [Visitor],
) {
    let keys = client.call(&["GET", "corvus:keys"]).unwrap();
    client.call(&["FLUSHALL"]).unwrap().ok().unwrap();
    crowd.poll(gateways, 1, "after a wipe", false).await;
    crowd.stand(gateways, 2, "after everybody is back").await;
    let put_back = || (client.call(&["GET", "corvus:keys"]).unwrap() == keys).then_some(());
    within(Duration::from_secs(10), "the same keys in the store", put_back).await;
    // Longer than free slots are held back: the places of those inside are kept for them.
    tokio::time::sleep(Duration::from_secs(6)).await;
    crowd.stand(gateways, 3, "and when slots are given again").await;
    for (n, visitor) in sessions.iter_mut().enumerate() {
        visitor.go_to(gateways[(n + 1) % 3]);
        let sid = field(visitor.cookie(ADMISSION).unwrap(), 4).to_owned();
        assert_eq!(visitor.get("/", &[]).await.unwrap().status, 200);
        assert_eq!(field(visitor.cookie(ADMISSION).unwrap(), 4), sid);
    }
    assert_eq!(sizes(client, "drop"), (INSIDE, CROWD));
    let mut newcomer = waiting(gateways[0], 51_000).await;
    assert_eq!(status(&mut newcomer).await["rank"], CROWD + 1);
    newcomer.request("POST", LEAVE, corvus_testkit::Accept::Json, &[], b"").await.unwrap();
}

/// A gateway without keys signs nothing and believes nothing: what its queue's policy says happens,
/// and no cookie is touched. When the store is there it works, without a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_without_keys_signs_nothing() {
    let Some(store) = valkey() else { return };
    let origin = Origin::start();
    let text =
        |policy: &str| document(&origin.url(), &format!("capacity: 1, on_store_failure: {policy}"));
    let other = TestGateway::builder(text("closed")).valkey(store.url()).start();
    let mut client = store.client().unwrap();
    ready(&mut client, "drop", &[other.data()]).await;
    let mut session = inside(other.http, 1).await;
    let mut place = waiting(other.http, 2).await;
    let (admission, kept) = (session.cookie(ADMISSION).unwrap().to_owned(), ticket(&place));

    let chaos = ChaosProxy::start(store.addr());
    chaos.cut();
    let cut_off = |policy: &str| {
        let url = format!("redis://{}", chaos.addr());
        TestGateway::builder(text(policy)).valkey(url).start()
    };
    let (closed, open) = (cut_off("closed"), cut_off("open"));
    for gateway in [&closed, &open] {
        assert!(!keys_file(&gateway.data()).exists());
    }
    // Somebody new, somebody who waits and somebody inside, each as a browser and as a program; more
    // than once, so that the breaker is met open and closed.
    for _ in 0..3 {
        let cookies = [
            String::new(),
            format!("{PLACE}={}", place.cookie(PLACE).unwrap()),
            format!("{ADMISSION}={admission}"),
        ];
        for cookie in &cookies {
            for accept in ["text/html", "application/json"] {
                let mut fields = vec![("Accept", accept)];
                if !cookie.is_empty() {
                    fields.push(("Cookie", cookie));
                }
                let refused = closed.get(HOST, "/", &fields).await;
                assert_eq!(refused.status, 429, "{cookie}");
                assert!(refused.headers.get("retry-after").is_some());
                assert_eq!(refused.headers.get("set-cookie"), None);
                let passed = open.get(HOST, "/", &fields).await;
                assert_eq!(passed.status, 200, "{cookie}");
                assert_eq!(passed.headers.get("set-cookie"), None);
            }
        }
        let fields = [("Accept", "application/json")];
        assert_eq!(closed.get(HOST, "/", &fields).await.json()["state"], "unavailable");
        place.go_to(closed.http);
        assert_eq!(status(&mut place).await["state"], "unavailable");
        assert_eq!(ticket(&place), kept);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }

    chaos.resume();
    // Keys are read each two seconds, and the breaker is open for three.
    let limit = Duration::from_secs(8);
    for gateway in [&closed, &open] {
        place.go_to(gateway.http);
        let told = tokio::time::timeout(limit, async {
            loop {
                let told = status(&mut place).await;
                if told["state"] == "waiting" {
                    return told;
                }
                assert_ne!(told["state"], "gone", "a key that it did not hold yet");
                tokio::time::sleep(Duration::from_millis(400)).await;
            }
        });
        assert_eq!(told.await.unwrap()["rank"], 1);
        assert_eq!(ticket(&place), kept);
        assert!(keys_file(&gateway.data()).is_file());
        session.go_to(gateway.http);
        assert_eq!(session.get("/", &[]).await.unwrap().status, 200);
        waiting(gateway.http, 9).await;
    }
    assert_eq!(client.call(&["ZCARD", &key("drop", "active")]).unwrap(), Resp::Int(1));
}
