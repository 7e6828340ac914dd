//! Several gateways and one store in the process.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use corvus_core::{Clock, FakeClock, token::SigningKey};
use proptest::{prelude::*, test_runner::TestRunner};

use super::{
    memory::{Gateway, Memory},
    *,
};

fn memory() -> Arc<Memory> {
    Memory::new(FakeClock::new(1_800_000_000_000))
}

fn gateway(memory: &Arc<Memory>) -> Gateway {
    memory.gateway(KeyStore::open_shared(None).unwrap())
}

fn stored(memory: &Memory) -> KeyFile {
    KeyFile::parse(&memory.text()).unwrap()
}

impl Gateway {
    async fn refresh(&self) {
        self.shared.refresh().await.unwrap();
    }
}

/// Two gateways with the same keys.
async fn pair(memory: &Arc<Memory>) -> [Gateway; 2] {
    let pair = [gateway(memory), gateway(memory)];
    pair[0].refresh().await;
    memory.clock.advance(Duration::from_secs(5));
    for gateway in &pair {
        gateway.refresh().await;
    }
    assert!(believes(&pair[1].keys, &token(&pair[0].keys)));
    assert_eq!(pair[0].keys.draw_key(), pair[1].keys.draw_key());
    pair
}

#[tokio::test]
async fn nobody_has_keys_until_one_makes_them_for_all() {
    let memory = memory();
    let gateways = [gateway(&memory), gateway(&memory), gateway(&memory)];
    for _ in 0..5 {
        for gateway in &gateways {
            gateway.refresh().await;
            assert!(gateway.keys.load().is_none() && gateway.keys.draw_key().is_none());
            assert!(matches!(gateway.shared.rotate().await, Err(ShareError::NoKeys)));
        }
        memory.clock.advance(Duration::from_millis(999));
    }
    memory.clock.advance(Duration::from_millis(5));
    let [one, two, three] = &gateways;
    let (a, b, c) =
        tokio::join!(one.shared.refresh(), two.shared.refresh(), three.shared.refresh());
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    for gateway in &gateways {
        assert_eq!(gateway.keys.file(), Some(stored(&memory)));
    }
}

#[tokio::test]
async fn a_gateway_without_keys_takes_the_stores_and_keeps_a_copy() {
    let memory = memory();
    let [first, _] = pair(&memory).await;
    let dir = tempfile::tempdir().unwrap();
    let late = memory.gateway(KeyStore::open_shared(Some(dir.path())).unwrap());
    assert!(late.keys.load().is_none());
    late.refresh().await;
    assert!(believes(&first.keys, &token(&late.keys)));
    assert!(late.keys.save());
    let restarted = KeyStore::open_shared(Some(dir.path())).unwrap();
    assert_eq!(token(&restarted), token(&first.keys), "without a store");
    assert!(matches!(restarted.rotate(), Err(KeyError::Shared)));
}

#[tokio::test]
async fn a_store_that_lost_everything_gets_the_keys_back() {
    let memory = memory();
    let [first, second] = pair(&memory).await;
    let before = stored(&memory);
    memory.value.lock().unwrap().clear();
    // A newcomer does not put new keys before those that are in use.
    let newcomer = gateway(&memory);
    newcomer.refresh().await;
    assert_eq!(memory.text(), "");
    memory.clock.advance(Duration::from_secs(2));
    second.refresh().await;
    assert_eq!(stored(&memory), before);
    memory.clock.advance(Duration::from_secs(10));
    newcomer.refresh().await;
    first.refresh().await;
    assert!(believes(&first.keys, &token(&newcomer.keys)));
}

#[tokio::test]
async fn an_older_store_is_brought_up_to_date() {
    let memory = memory();
    let [first, second] = pair(&memory).await;
    let old = memory.text();
    let rotation = first.shared.rotate().await.unwrap();
    *memory.value.lock().unwrap() = old;
    second.refresh().await;
    assert_eq!(stored(&memory).generation, rotation.generation - 1);
    first.refresh().await;
    second.refresh().await;
    assert_eq!(second.keys.file(), first.keys.file());
    assert_eq!(stored(&memory).generation, rotation.generation);
}

/// Both ran alone: the store's hold. A gateway that rotated alone does not count as newer.
#[tokio::test]
async fn of_two_that_ran_alone_the_first_in_the_store_wins() {
    let memory = memory();
    let [first, second] = [0, 1].map(|_| {
        let dir = tempfile::tempdir().unwrap();
        let alone = KeyStore::open(Some(dir.path())).unwrap();
        for _ in 0..3 {
            alone.rotate().unwrap();
        }
        memory.gateway(KeyStore::open_shared(Some(dir.path())).unwrap())
    });
    let (kept, lost) = (token(&first.keys), token(&second.keys));
    first.refresh().await;
    assert!(!believes(&second.keys, &kept));
    second.refresh().await;
    for gateway in [&first, &second] {
        assert!(believes(&gateway.keys, &kept) && !believes(&gateway.keys, &lost));
    }
    first.shared.rotate().await.unwrap();
    let third = memory.gateway(KeyStore::open_shared(None).unwrap());
    third.refresh().await;
    assert_eq!(third.keys.draw_key(), first.keys.draw_key());
}

#[tokio::test]
async fn a_new_key_is_known_everywhere_before_it_signs() {
    let memory = memory();
    let [first, second] = pair(&memory).await;
    let old = token(&first.keys);
    let now = memory.clock.wall_ms();
    let rotation = first.shared.rotate().await.unwrap();
    assert_eq!(rotation, Rotation { generation: 2, activates_at_ms: now + 10_000, begun: true });
    assert_eq!(token(&first.keys), old, "not yet");
    for _ in 0..4 {
        memory.clock.advance(Duration::from_secs(2));
        second.refresh().await;
        assert_eq!(token(&second.keys), old, "not yet");
    }
    memory.clock.advance(Duration::from_secs(2));
    first.refresh().await;
    let new = token(&first.keys);
    assert_ne!(new, old);
    // The second has not asked since, and believes it all the same.
    assert!(believes(&second.keys, &new) && believes(&first.keys, &token(&second.keys)));
    second.refresh().await;
    assert_eq!(token(&second.keys), new);
    assert!(believes(&second.keys, &old) && believes(&first.keys, &old));
    let third = gateway(&memory);
    third.refresh().await;
    assert!(believes(&third.keys, &old), "the key before is shared as well");

    first.shared.rotate().await.unwrap();
    assert!(believes(&first.keys, &old), "announcing drops nothing");
    memory.clock.advance(Duration::from_secs(10));
    second.refresh().await;
    assert!(!believes(&second.keys, &old) && believes(&second.keys, &new));
}

#[tokio::test]
async fn of_two_operators_one_rotates_and_the_other_sees_it() {
    let memory = memory();
    let [first, second] = pair(&memory).await;
    let (one, two) = tokio::join!(first.shared.rotate(), second.shared.rotate());
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one.begun, two.begun);
    assert_eq!((one.generation, one.activates_at_ms), (two.generation, two.activates_at_ms));
    assert_eq!(first.keys.file(), second.keys.file());
    memory.clock.advance(Duration::from_secs(3));
    let third = first.shared.rotate().await.unwrap();
    assert_eq!(third, Rotation { begun: false, ..one }, "one is under way");
    let said = |begun| Rotation { begun, ..one }.to_string();
    assert!(said(true).contains("is announced"));
    assert!(said(false).contains("no new") && said(false).contains("already"));
}

#[tokio::test]
async fn the_stores_clock_set_back_does_not_stop_a_rotation() {
    let memory = memory();
    let [first, second] = pair(&memory).await;
    first.shared.rotate().await.unwrap();
    let next = stored(&memory).next.unwrap().key;
    let back = memory.clock.wall_ms() - 86_400_000;
    memory.clock.set_wall_ms(back);
    second.refresh().await;
    let again = second.shared.rotate().await.unwrap();
    assert_eq!(again.activates_at_ms, back + 10_000);
    first.refresh().await;
    memory.clock.advance(Duration::from_secs(10));
    first.refresh().await;
    assert_eq!(stored(&memory).current, next, "the announced key, which gateways know");
}

#[tokio::test]
async fn a_gateways_own_clock_counts_for_nothing() {
    let memory = memory();
    let [first, _] = pair(&memory).await;
    first.shared.rotate().await.unwrap();
    let old = token(&first.keys);
    first.cut.store(true, SeqCst);
    memory.clock.advance(Duration::from_mins(1));
    assert!(matches!(first.shared.refresh().await, Err(ShareError::Store(_))));
    assert_eq!(token(&first.keys), old);
}

#[tokio::test]
async fn what_is_not_ours_in_the_store_is_left_alone() {
    let memory = memory();
    let [first, _] = pair(&memory).await;
    let file = first.keys.file();
    let newer = memory.text().replacen("\"version\": 2", "\"version\": 3", 1);
    for text in ["x", "{}", &newer] {
        text.clone_into(&mut memory.value.lock().unwrap());
        for gateway in [&first, &gateway(&memory)] {
            assert!(matches!(gateway.shared.refresh().await, Err(ShareError::Malformed)));
            assert!(matches!(gateway.shared.rotate().await, Err(ShareError::Malformed)));
        }
        assert_eq!(memory.text(), text);
    }
    assert_eq!(first.keys.file(), file, "and what we have stays in force");
}

#[tokio::test]
async fn keys_that_could_not_be_saved_are_saved_later() {
    let memory = memory();
    pair(&memory).await;
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("queue");
    let late = memory.gateway(KeyStore::open_shared(Some(&folder)).unwrap());
    // Not by permissions: tests may run as root.
    fs::remove_dir(&folder).unwrap();
    late.refresh().await;
    assert!(late.keys.load().is_some(), "the store has them, so they are good");
    assert!(!late.keys.save());
    fs::create_dir(&folder).unwrap();
    late.refresh().await;
    assert!(late.keys.save());
    assert_eq!(KeyStore::open_shared(Some(&folder)).unwrap().file(), late.keys.file());
}

#[tokio::test(start_paused = true)]
async fn the_store_is_asked_every_two_seconds_and_at_once_for_an_unknown_key() {
    let memory = memory();
    let [first, second] = pair(&memory).await;
    let calls = || memory.calls.load(SeqCst);
    let before = calls();
    let keys = Arc::clone(&first.keys);
    let task = tokio::spawn(async move { first.shared.run().await });
    tokio::time::sleep(Duration::from_millis(6_100)).await;
    assert_eq!(calls() - before, 4);

    // The gateways' clock is another than the runtime's here, and stands still.
    let before = calls();
    for _ in 0..50 {
        assert!(keys.are_all(memory.clock.mono_ms()).await);
    }
    assert_eq!(calls(), before, "it was read in this second");
    memory.clock.advance(Duration::from_secs(1));
    second.shared.rotate().await.unwrap();
    let before = calls();
    let asking = (0..50).map(|_| {
        let (keys, mono) = (Arc::clone(&keys), memory.clock.mono_ms());
        tokio::spawn(async move { keys.are_all(mono).await })
    });
    for asked in asking.collect::<Vec<_>>() {
        assert!(asked.await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(calls() - before, 1);
    assert_eq!(keys.file(), Some(stored(&memory)));
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn without_a_store_nobody_can_say_that_a_key_is_not_there() {
    let memory = memory();
    let [first, _] = pair(&memory).await;
    let keys = Arc::clone(&first.keys);
    memory.clock.advance(Duration::from_secs(1));
    assert!(!keys.are_all(memory.clock.mono_ms()).await, "nobody reads");
    first.cut.store(true, SeqCst);
    let task = tokio::spawn(async move { first.shared.run().await });
    assert!(!keys.are_all(memory.clock.mono_ms()).await);
    task.abort();
    assert!(KeyStore::open(None).unwrap().are_all(0).await, "alone, we have all there are");
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Refresh(usize),
    Rotate(usize),
    Cut(usize),
    Restart(usize),
    Wipe,
    /// Milliseconds.
    Pass(u16),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0usize..3).prop_map(Event::Refresh),
        2 => (0usize..3).prop_map(Event::Rotate),
        1 => (0usize..3).prop_map(Event::Cut),
        1 => (0usize..3).prop_map(Event::Restart),
        1 => Just(Event::Wipe),
        6 => (0u16..3_000).prop_map(Event::Pass),
    ]
}

/// Whatever happens to store and gateways, those that reach the store believe each other.
#[test]
fn gateways_in_contact_believe_each_other() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let check = |events: Vec<Event>| {
        let memory = memory();
        let dirs = [0; 3].map(|_| tempfile::tempdir().unwrap());
        let open = |i: usize| memory.gateway(KeyStore::open_shared(Some(dirs[i].path())).unwrap());
        let mut gateways = [open(0), open(1), open(2)];
        let mut read_at = [0; 3];
        let mut wiped_at = None::<u64>;
        runtime.block_on(async {
            memory.clock.advance(Duration::from_secs(10));
            gateways[0].refresh().await;
            memory.clock.advance(Duration::from_secs(5));
            for (gateway, read_at) in gateways.iter().zip(&mut read_at) {
                gateway.refresh().await;
                *read_at = memory.clock.mono_ms();
            }
            for event in events {
                match event {
                    Event::Refresh(i) => {
                        gateways[i].cut.store(false, SeqCst);
                        gateways[i].refresh().await;
                        read_at[i] = memory.clock.mono_ms();
                    }
                    Event::Rotate(i) if !gateways[i].cut.load(SeqCst) => {
                        gateways[i].shared.rotate().await.unwrap();
                    }
                    Event::Rotate(i) => {
                        prop_assert!(gateways[i].shared.rotate().await.is_err());
                    }
                    Event::Cut(i) => gateways[i].cut.store(true, SeqCst),
                    Event::Restart(i) => {
                        assert!(gateways[i].keys.save());
                        gateways[i] = open(i);
                        gateways[i].refresh().await;
                        read_at[i] = memory.clock.mono_ms();
                    }
                    Event::Wipe => {
                        memory.value.lock().unwrap().clear();
                        wiped_at = Some(memory.clock.mono_ms());
                    }
                    Event::Pass(ms) => {
                        memory.clock.advance(Duration::from_millis(ms.into()));
                        // Gateways that are not cut off keep to their two seconds.
                        let now = memory.clock.mono_ms();
                        for (gateway, read_at) in gateways.iter().zip(&mut read_at) {
                            if now - *read_at >= 2_000 && !gateway.cut.load(SeqCst) {
                                gateway.refresh().await;
                                *read_at = now;
                            }
                        }
                    }
                }
                let now = memory.clock.mono_ms();
                // After a wipe it takes a turn of each until all know what the store lost.
                let settled = wiped_at.is_none_or(|at| now - at > 6_000);
                let in_contact = gateways.iter().filter(|one| !one.cut.load(SeqCst));
                let in_contact: Vec<&Gateway> = in_contact.collect();
                for one in &in_contact {
                    prop_assert_eq!(one.keys.draw_key(), in_contact[0].keys.draw_key());
                    for other in in_contact.iter().filter(|_| settled) {
                        prop_assert!(believes(&other.keys, &token(&one.keys)));
                    }
                }
            }
            Ok(())
        })
    };
    let events = prop::collection::vec(event(), 1..80);
    TestRunner::new(ProptestConfig::with_cases(200)).run(&events, check).unwrap();
}

#[test]
fn kids_tell_keys_apart() {
    let file = KeyFile::fresh().unwrap().announcing([3; 32], 1);
    let keys = file.signing_keys();
    assert_eq!(keys.next.unwrap().id(), SigningKey::new(&[3; 32]).id());
}
