//! The same on a real server.

use corvus_core::FakeClock;
use corvus_testkit::store::{Kind, StoreOptions, StoreServer};

use super::*;
use crate::valkey::Link;

fn gateway(server: &StoreServer, clock: &FakeClock) -> (Arc<KeyStore>, SharedKeys<Link>) {
    let keys = Arc::new(KeyStore::open_shared(None).unwrap());
    let link = Link::new(server.url().parse().unwrap()).unwrap();
    let shared = SharedKeys::new(Arc::clone(&keys), link, Arc::new(clock.clone()));
    (keys, shared)
}

#[tokio::test]
async fn keys_are_made_taken_announced_and_put_back() {
    let Some(server) = StoreServer::start(StoreOptions::new(Kind::Redis)) else { return };
    let clock = FakeClock::new(0);
    let (first, first_shared) = gateway(&server, &clock);
    let (second, second_shared) = gateway(&server, &clock);
    let get = || server.cli(&["GET", "corvus:keys"]).trim().to_owned();
    let text = |keys: &KeyStore| keys.file().unwrap().to_text().unwrap();
    first_shared.refresh().await.unwrap();
    second_shared.refresh().await.unwrap();
    assert_eq!(get(), "");
    clock.advance(Duration::from_secs(5));
    let (one, two) = tokio::join!(first_shared.refresh(), second_shared.refresh());
    assert!(one.is_ok() && two.is_ok());
    assert!(believes(&second, &token(&first)));
    assert_eq!(get(), text(&first));

    let (one, two) = tokio::join!(first_shared.rotate(), second_shared.rotate());
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one.begun, two.begun);
    assert_eq!(one.activates_at_ms, two.activates_at_ms);
    let time = server.cli(&["TIME"]);
    let seconds: u64 = time.lines().next().unwrap().parse().unwrap();
    assert!((seconds + 7..=seconds + 10).contains(&(one.activates_at_ms / 1_000)), "{one:?}");

    // The server's clock cannot be moved: the announcement is, to the past.
    let mut file = first.file().unwrap();
    file.generation += 1;
    file.next.as_mut().unwrap().activates_at_ms -= 20_000;
    server.cli(&["SET", "corvus:keys", &file.to_text().unwrap()]);
    let old = token(&first);
    second_shared.refresh().await.unwrap();
    assert_ne!(token(&second), old);
    assert!(believes(&second, &old) && believes(&first, &token(&second)));
    first_shared.refresh().await.unwrap();
    assert_eq!(first.file(), second.file());

    server.cli(&["FLUSHALL"]);
    first_shared.refresh().await.unwrap();
    assert_eq!(get(), text(&second));
}

#[tokio::test]
async fn a_server_that_is_away_and_a_value_of_another_kind_change_nothing() {
    let Some(server) = StoreServer::start(StoreOptions::new(Kind::Redis)) else { return };
    let clock = FakeClock::new(0);
    let (keys, shared) = gateway(&server, &clock);
    server.cli(&["LPUSH", "corvus:keys", "x"]);
    let refused = shared.refresh().await;
    assert!(matches!(refused, Err(ShareError::Store(_))), "{refused:?}");
    assert_eq!(server.cli(&["LLEN", "corvus:keys"]).trim(), "1");
    server.stop();
    clock.advance(Duration::from_mins(1));
    assert!(shared.refresh().await.is_err());
    assert!(keys.load().is_none());
}
