//! What every [`SharedStore`] does: one suite, on the store in the process and on a real server.

use std::sync::Arc;

use corvus_core::{
    FakeClock,
    shared::{LocalShared, MAX_KEY, MAX_TTL, MAX_VALUE},
};
use corvus_testkit::store::{Kind, StoreCluster, StoreOptions, StoreServer};
use proptest::{prelude::*, test_runner::TestRunner};

use super::*;

const MINUTE: Duration = Duration::from_mins(1);
/// Values of a family in these tests.
const ROOM: usize = 300;

/// A store, and how its time passes.
struct World {
    store: Box<dyn SharedStore>,
    /// `None`: the server's time is the real one.
    clock: Option<FakeClock>,
}

impl World {
    fn local() -> Self {
        let clock = FakeClock::new(1_800_000_000_000);
        let store = Box::new(LocalShared::with_room_for(ROOM, Arc::new(clock.clone())));
        Self { store, clock: Some(clock) }
    }

    async fn wait(&self, time: Duration) {
        match &self.clock {
            Some(clock) => clock.advance(time),
            // The server's clock cannot be moved. Two more milliseconds: it counts whole ones.
            None => tokio::time::sleep(time + Duration::from_millis(2)).await,
        }
    }

    async fn get(&self, family: &str, key: &str) -> Option<Vec<u8>> {
        self.store.get(family, key).await.unwrap()
    }

    /// All pages, and how many there were.
    async fn list(&self, family: &str) -> (Vec<(String, Vec<u8>)>, usize) {
        let (mut all, mut pages, mut after) = (Vec::new(), 0, None);
        loop {
            let page = self.store.list(family, after.as_ref()).await.unwrap();
            let bytes: usize = page.entries.iter().map(|(_, value)| value.len()).sum();
            assert!(page.entries.len() <= PAGE_ENTRIES && bytes < PAGE_BYTES + MAX_VALUE);
            all.extend(page.entries);
            pages += 1;
            match page.next {
                Some(next) => after = Some(next),
                None => return (all, pages),
            }
        }
    }
}

/// Each story has families of its own.
async fn contract(world: &World) {
    values_are_found_again_whatever_their_bytes(world).await;
    of_two_who_take_one_gets_it(world).await;
    only_the_holder_gives_back_or_holds_longer(world).await;
    values_end_by_themselves(world).await;
    lists_are_in_order_and_in_pages(world).await;
    pages_are_bounded_in_bytes(world).await;
    a_list_goes_on_where_it_was(world).await;
    a_full_family_takes_no_more(world).await;
    what_has_ended_makes_room(world).await;
    what_is_not_allowed_is_refused(world).await;
}

async fn values_are_found_again_whatever_their_bytes(world: &World) {
    let store = &world.store;
    assert_eq!(world.get("plain", "a").await, None);
    let bytes: Vec<u8> = (0..=255).chain([0, 13, 10]).collect();
    let biggest = vec![0xff; MAX_VALUE];
    for (key, value) in [("a", &bytes), ("{b}:*?[c]", &Vec::new()), ("big", &biggest)] {
        store.put("plain", key, value, MINUTE).await.unwrap();
        assert_eq!(world.get("plain", key).await.as_ref(), Some(value));
    }
    store.put("plain", "a", b"second", MAX_TTL).await.unwrap();
    assert_eq!(world.get("plain", "a").await, Some(b"second".to_vec()));
    assert_eq!(world.get("other", "a").await, None, "families are apart");
    store.remove("plain", "a").await.unwrap();
    store.remove("plain", "a").await.unwrap();
    assert_eq!(world.get("plain", "a").await, None);
}

async fn of_two_who_take_one_gets_it(world: &World) {
    let take = |value: &'static [u8]| world.store.put_new("take", "lock", value, MINUTE);
    let (one, two) = tokio::join!(take(b"one"), take(b"two"));
    // A cluster's client may send the second first.
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one, two);
    let winner = if one { b"one" } else { b"two" };
    assert_eq!(world.get("take", "lock").await, Some(winner.to_vec()));
}

async fn only_the_holder_gives_back_or_holds_longer(world: &World) {
    let store = &world.store;
    assert_eq!(store.remove_if("hold", "lock", b"mine").await, Ok(false));
    assert_eq!(store.extend_if("hold", "lock", b"mine", MINUTE).await, Ok(false));
    store.put("hold", "lock", b"mine", Duration::from_secs(1)).await.unwrap();
    for other in [&b"theirs"[..], b"", b"min", b"mine "] {
        assert_eq!(store.remove_if("hold", "lock", other).await, Ok(false));
        assert_eq!(store.extend_if("hold", "lock", other, MINUTE).await, Ok(false));
    }
    assert_eq!(store.extend_if("hold", "lock", b"mine", MINUTE).await, Ok(true));
    world.wait(Duration::from_millis(1_100)).await;
    assert_eq!(world.get("hold", "lock").await, Some(b"mine".to_vec()));
    assert_eq!(store.extend_if("hold", "lock", b"mine", Duration::from_millis(1)).await, Ok(true));
    world.wait(Duration::from_millis(1)).await;
    assert_eq!(store.remove_if("hold", "lock", b"mine").await, Ok(false), "it ended earlier");
    store.put("hold", "lock", b"", MINUTE).await.unwrap();
    assert_eq!(store.remove_if("hold", "lock", b"").await, Ok(true), "an empty one is one");
    assert_eq!(world.list("hold").await.0, []);
}

async fn values_end_by_themselves(world: &World) {
    let store = &world.store;
    let short = Duration::from_millis(20);
    store.put("ends", "short", b"1", short).await.unwrap();
    store.put("ends", "long", b"2", MINUTE).await.unwrap();
    store.put("ends", "longer", b"3", short).await.unwrap();
    store.put("ends", "longer", b"3", MINUTE).await.unwrap();
    store.put("ends", "shorter", b"4", MINUTE).await.unwrap();
    store.put("ends", "shorter", b"4", short).await.unwrap();
    world.wait(short).await;
    assert_eq!(world.get("ends", "short").await, None);
    assert_eq!(store.extend_if("ends", "short", b"1", MINUTE).await, Ok(false));
    let (all, _) = world.list("ends").await;
    assert_eq!(all, [("long".into(), b"2".to_vec()), ("longer".into(), b"3".to_vec())]);
    assert_eq!(store.put_new("ends", "short", b"5", MINUTE).await, Ok(true), "the lock is free");
}

async fn lists_are_in_order_and_in_pages(world: &World) {
    assert_eq!(world.list("none").await, (Vec::new(), 1));
    let mut keys: Vec<String> = (0..250).map(|i| format!("{:x}", i * 7_919)).collect();
    for key in &keys {
        world.store.put("list", key, key.as_bytes(), MINUTE).await.unwrap();
    }
    keys.sort();
    let (all, pages) = world.list("list").await;
    assert_eq!(pages, 3);
    let wanted = keys.into_iter().map(|key| (key.clone(), key.into_bytes()));
    assert_eq!(all, wanted.collect::<Vec<_>>());
}

async fn pages_are_bounded_in_bytes(world: &World) {
    let half = vec![7; MAX_VALUE / 2];
    for key in ["a", "b", "c", "d", "e"] {
        world.store.put("heavy", key, &half, MINUTE).await.unwrap();
    }
    let (all, pages) = world.list("heavy").await;
    assert_eq!((all.len(), pages), (5, 3));
}

async fn a_list_goes_on_where_it_was(world: &World) {
    for i in 0..150 {
        world.store.put("moving", &format!("k{i:03}"), b"", MINUTE).await.unwrap();
    }
    let first = world.store.list("moving", None).await.unwrap();
    // The key the cursor names goes, one comes before it, one is written over, one comes after it.
    world.store.remove("moving", "k099").await.unwrap();
    world.store.put("moving", "k0990", b"", MINUTE).await.unwrap();
    world.store.put("moving", "a", b"", MINUTE).await.unwrap();
    world.store.put("moving", "k120", b"new", Duration::from_secs(9)).await.unwrap();
    let second = world.store.list("moving", first.next.as_ref()).await.unwrap();
    assert_eq!(second.next, None);
    let keys: Vec<&str> = second.entries.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys.len(), 51);
    assert_eq!(keys[..2], ["k0990", "k100"]);
    assert_eq!(second.entries[21], ("k120".into(), b"new".to_vec()));
}

async fn a_full_family_takes_no_more(world: &World) {
    let store = &world.store;
    for i in 0..ROOM {
        store.put("full", &i.to_string(), b"1", MINUTE).await.unwrap();
    }
    assert_eq!(store.put("full", "more", b"1", MINUTE).await, Err(SharedError::Full));
    assert_eq!(store.put_new("full", "more", b"1", MINUTE).await, Err(SharedError::Full));
    assert_eq!(store.put_new("full", "7", b"2", MINUTE).await, Ok(false), "taken, not full");
    store.put("full", "7", b"2", MINUTE).await.unwrap();
    assert_eq!(store.extend_if("full", "7", b"2", MINUTE).await, Ok(true));
    store.remove("full", "7").await.unwrap();
    assert_eq!(store.put_new("full", "more", b"1", MINUTE).await, Ok(true));
}

async fn what_has_ended_makes_room(world: &World) {
    let store = &world.store;
    for i in 0..ROOM {
        store.put("reaped", &i.to_string(), b"1", Duration::from_millis(1)).await.unwrap();
    }
    world.wait(Duration::from_millis(1)).await;
    for i in 0..ROOM {
        store.put("reaped", &format!("n{i}"), b"1", MINUTE).await.unwrap();
    }
    assert_eq!(store.put("reaped", "more", b"1", MINUTE).await, Err(SharedError::Full));
    assert_eq!(world.list("reaped").await.0.len(), ROOM);
}

async fn what_is_not_allowed_is_refused(world: &World) {
    let store = &world.store;
    let long = "x".repeat(MAX_KEY + 1);
    for key in ["", "a b", "ü", "a\n", &long] {
        let refused = |error: SharedError| matches!(error, SharedError::BadKey(_));
        assert!(store.get("f", key).await.is_err_and(refused), "{key}");
        assert!(store.put("f", key, b"", MINUTE).await.is_err_and(refused));
        assert!(store.put_new("f", key, b"", MINUTE).await.is_err_and(refused));
        assert!(store.remove("f", key).await.is_err_and(refused));
        assert!(store.remove_if("f", key, b"").await.is_err_and(refused));
        assert!(store.extend_if("f", key, b"", MINUTE).await.is_err_and(refused));
    }
    for family in ["", "F", "a{b}", "a:b", &"x".repeat(33)] {
        let refused = |error: SharedError| matches!(error, SharedError::BadFamily(_));
        assert!(store.get(family, "k").await.is_err_and(refused), "{family}");
        assert!(store.list(family, None).await.is_err_and(refused));
    }
    let big = vec![0; MAX_VALUE + 1];
    assert_eq!(store.put("f", "k", &big, MINUTE).await, Err(SharedError::TooBig(big.len())));
    for ttl in [Duration::ZERO, Duration::from_micros(999), MAX_TTL + Duration::from_secs(1)] {
        assert_eq!(store.put("f", "k", b"", ttl).await, Err(SharedError::BadTtl(ttl)));
        assert_eq!(store.extend_if("f", "k", b"", ttl).await, Err(SharedError::BadTtl(ttl)));
    }
    assert_eq!(world.list("f").await.0, []);
}

#[tokio::test]
async fn the_store_in_the_process_keeps_the_contract() {
    contract(&World::local()).await;
}

fn link(url: &str) -> Link {
    Link::new(url.parse().unwrap()).unwrap()
}

fn start(kind: Kind) -> Option<(StoreServer, Link)> {
    let server = StoreServer::start(StoreOptions::new(kind))?;
    let link = link(&server.url());
    Some((server, link))
}

#[tokio::test]
async fn servers_keep_the_contract() {
    for kind in Kind::ALL {
        let Some((_server, link)) = start(kind) else { return };
        let store = Box::new(ValkeyShared::with_room_for(ROOM, link));
        contract(&World { store, clock: None }).await;
    }
}

#[tokio::test]
async fn a_cluster_keeps_the_contract() {
    let Some(cluster) = StoreCluster::start(&StoreOptions::new(Kind::Redis)) else { return };
    let store = Box::new(ValkeyShared::with_room_for(ROOM, link(&cluster.url())));
    contract(&World { store, clock: None }).await;
}

/// One step of random use: what, which key, which value.
type Step = (u8, u8, u8);

async fn step(store: &dyn SharedStore, family: &str, step: Step) -> String {
    let (what, key, value) = step;
    let (key, value) = (format!("k{key}"), [value]);
    match what {
        0 => format!("{:?}", store.put(family, &key, &value, MINUTE).await),
        1 => format!("{:?}", store.put_new(family, &key, &value, MINUTE).await),
        2 => format!("{:?}", store.remove(family, &key).await),
        3 => format!("{:?}", store.remove_if(family, &key, &value).await),
        4 => format!("{:?}", store.extend_if(family, &key, &value, MINUTE).await),
        5 => format!("{:?}", store.list(family, None).await),
        _ => format!("{:?}", store.get(family, &key).await),
    }
}

/// Whatever is done, both answer the same.
#[test]
fn the_twins_answer_alike() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let Some((_server, link)) = start(Kind::Redis) else { return };
    let far = ValkeyShared::with_room_for(5, link);
    let steps = prop::collection::vec((0u8..7, 0u8..8, 0u8..3), 1..60);
    let case = std::cell::Cell::new(0);
    TestRunner::new(ProptestConfig::with_cases(64))
        .run(&steps, |steps| {
            let near = LocalShared::with_room_for(5, Arc::new(FakeClock::new(0)));
            case.set(case.get() + 1);
            let family = format!("case-{}", case.get());
            runtime.block_on(async {
                for one in steps {
                    let answers = (step(&near, &family, one).await, step(&far, &family, one).await);
                    prop_assert_eq!(&answers.0, &answers.1, "{:?}", one);
                }
                Ok(())
            })
        })
        .unwrap();
}

/// Names of what has ended do not pile up, also when nobody lists them, and go with the last value.
#[tokio::test]
async fn nothing_stays_behind_on_a_server() {
    let Some((server, link)) = start(Kind::Redis) else { return };
    let store = ValkeyShared::new(link);
    let number = |command: &[&str]| server.cli(command).trim().parse::<i64>().unwrap();
    for round in 0..5 {
        for i in 0..100 {
            let ttl = Duration::from_millis(30);
            store.put("bans", &format!("{round}-{i}"), b"1", ttl).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    store.put("bans", "last", b"1", Duration::from_millis(50)).await.unwrap();
    let names = number(&["ZCARD", "corvus:shared:{bans}:names"]);
    assert!(names <= 101, "{names}");
    assert_eq!(number(&["ZCARD", "corvus:shared:{bans}:ends"]), names);
    tokio::time::sleep(Duration::from_millis(60)).await;
    let all = ["names", "ends", "v:last"].map(|rest| format!("corvus:shared:{{bans}}:{rest}"));
    assert_eq!(number(&["EXISTS", &all[0], &all[1], &all[2]]), 0);
}

#[tokio::test]
async fn a_server_without_memory_is_full_and_one_that_is_away_is_away() {
    for kind in Kind::ALL {
        let Some((server, link)) = start(kind) else { return };
        let store = ValkeyShared::new(link);
        store.put("locks", "mine", b"1", MINUTE).await.unwrap();
        server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_eq!(store.put_new("locks", "other", b"1", MINUTE).await, Err(SharedError::Full));
        assert_eq!(store.get("locks", "mine").await, Ok(Some(b"1".to_vec())));
        assert_eq!(
            store.remove_if("locks", "mine", b"1").await,
            Ok(true),
            "giving back needs none"
        );
        server.stop();
        let gone = store.get("locks", "mine").await;
        assert!(matches!(gone, Err(SharedError::Unreachable(_))), "{gone:?}");
    }
}

#[test]
fn errors_are_told_apart() {
    let strange = page(Value::Array(vec![Value::Int(1)]));
    assert_eq!(strange, None);
    assert_eq!(page(Value::Okay), None);
    let odd = [&b""[..], b"key"].map(|b| Value::BulkString(b.to_vec()));
    assert_eq!(page(Value::Array(odd.to_vec())), None, "a name without a value");
}
