//! The whole engine, from the thread of a caller.

use corvus_testkit::{
    ChaosProxy,
    store::{StoreOptions, StoreServer},
};
use tokio::time::Instant;

use super::*;
use crate::{
    contract::{gate, settings, sid},
    op::Answer,
};

fn queue(capacity: u64) -> Arc<Queue> {
    Arc::new(Queue { settings: settings(capacity), gate: gate() })
}

fn start(store: &StoreServer) -> Valkey {
    let keys = Arc::new(KeyStore::open_shared(None).unwrap());
    let clock = Arc::new(corvus_core::SystemClock::new());
    Valkey::start(store.url().parse().unwrap(), None, keys, clock).unwrap()
}

#[tokio::test]
async fn two_gateways_share_a_queue_and_its_level() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let gateway = || start(&store);
    let (one, two) = (gateway(), gateway());
    let id = settings(1).id;
    let unknown = one.call(&id, &[]).await;
    assert_eq!(unknown, Err(StoreError::UnknownQueue("drop".into())));
    one.configure(&[queue(1)]);
    two.configure(&[queue(1)]);
    assert_eq!(one.level(&id), None);

    let enter = |i| [Op::Enter { sid: sid(i), place: None, join: true }];
    let a = one.call(&id, &enter(0)).await.unwrap();
    let b = two.call(&id, &enter(1)).await.unwrap();
    assert_eq!((a.waiting, b.waiting), (1, 2));
    assert!(matches!(b.answers[..], [Answer::Waiting(w)] if w.rank == Some(2)));

    // A change on one is above what both have seen, and the other learns of it.
    one.configure(&[queue(9)]);
    one.call(&id, &[]).await.unwrap();
    two.call(&id, &[]).await.unwrap();
    let level = two.level(&id).unwrap();
    assert_eq!((level.version, level.capacity), (2, 9));
    two.configure(&[queue(4)]);
    two.call(&id, &[]).await.unwrap();
    one.call(&id, &[]).await.unwrap();
    let level = one.level(&id).unwrap();
    assert_eq!((level.version, level.capacity), (3, 4));
}

#[tokio::test]
async fn what_must_outlive_the_process_is_written_at_its_end() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let keys = Arc::new(KeyStore::open_shared(Some(dir.path())).unwrap());
        let clock = Arc::new(corvus_core::SystemClock::new());
        Valkey::start(store.url().parse().unwrap(), Some(dir.path()), keys, clock).unwrap()
    };
    let engine = start();
    for capacity in 1..50 {
        engine.configure(&[queue(capacity)]);
    }
    assert!(engine.save());
    drop(engine);
    // The same configuration as at the end: no new version.
    let engine = start();
    engine.configure(&[queue(49)]);
    engine.call(&settings(1).id, &[]).await.unwrap();
    let level = engine.level(&settings(1).id).unwrap();
    assert_eq!((level.version, level.capacity), (49, 49));
}

#[tokio::test]
async fn a_slow_store_has_its_time_to_rotate_keys() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let proxy = ChaosProxy::start(store.addr());
    let dir = tempfile::tempdir().unwrap();
    KeyStore::open(Some(dir.path())).unwrap();
    let keys = Arc::new(KeyStore::open_shared(Some(dir.path())).unwrap());
    let address = format!("redis://{}", proxy.addr()).parse().unwrap();
    let engine = Valkey::start(address, None, keys, Arc::new(corvus_core::SystemClock::new()));
    let engine = engine.unwrap();
    let begun = Instant::now();
    while store.cli(&["EXISTS", "corvus:keys"]) != "1" {
        assert!(begun.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A round takes twice that, and two are needed: more than a request may take.
    proxy.slow(Duration::from_millis(170));
    let begun = Instant::now();
    let rotation = engine.rotate_keys().await.unwrap();
    assert!(rotation.begun && begun.elapsed() > thread::PATIENCE, "{:?}", begun.elapsed());
    assert!(!engine.rotate_keys().await.unwrap().begun, "one is under way");
}

#[tokio::test]
async fn others_use_the_same_connection() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let engine = start(&store);
    let set = redis::cmd("SET").arg("k").arg("v").clone();
    assert_eq!(engine.store().command(set).await, Ok(Value::Okay));
    let get = Arc::new(Script::new("#!lua\nreturn redis.call('GET', KEYS[1]) .. ARGV[1]".into()));
    let answer = engine.store().run(&get, vec!["k".into()], vec![b"!".to_vec()]).await;
    assert_eq!(answer, Ok(Value::BulkString(b"v!".to_vec())));
}
