//! The same on a real server.

use corvus_core::FakeClock;

use super::*;
use crate::shared::{
    Commands,
    tests::server::{Server, TestClient},
};

async fn gateway(server: &Server, clock: &FakeClock) -> (Arc<KeyStore>, SharedKeys<TestClient>) {
    let keys = Arc::new(KeyStore::open_shared(None).unwrap());
    let client = server.client().await.unwrap();
    let shared = SharedKeys::new(Arc::clone(&keys), client, Arc::new(clock.clone()));
    (keys, shared)
}

#[tokio::test]
async fn keys_are_made_taken_announced_and_put_back() {
    let Some(server) = Server::start(&[]).await else { return };
    let clock = FakeClock::new(0);
    let (first, first_shared) = gateway(&server, &clock).await;
    let (second, second_shared) = gateway(&server, &clock).await;
    let look = server.client().await.unwrap();
    let get = async || {
        let mut get = redis::cmd("GET");
        get.arg("corvus:keys");
        redis::from_redis_value::<Option<String>>(look.command(get).await.unwrap()).unwrap()
    };
    first_shared.refresh().await.unwrap();
    second_shared.refresh().await.unwrap();
    assert_eq!(get().await, None);
    clock.advance(Duration::from_secs(5));
    let (one, two) = tokio::join!(first_shared.refresh(), second_shared.refresh());
    assert!(one.is_ok() && two.is_ok());
    assert!(believes(&second, &token(&first)));
    assert_eq!(get().await, first.file().unwrap().to_text().ok());

    let (one, two) = tokio::join!(first_shared.rotate(), second_shared.rotate());
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one.begun, two.begun);
    assert_eq!(one.activates_at_ms, two.activates_at_ms);
    let seconds = look.time_s().await;
    assert!((seconds + 7..=seconds + 10).contains(&(one.activates_at_ms / 1_000)), "{one:?}");

    // The server's clock cannot be moved: the announcement is, to the past.
    let mut file = first.file().unwrap();
    file.generation += 1;
    file.next.as_mut().unwrap().activates_at_ms -= 20_000;
    let mut set = redis::cmd("SET");
    set.arg("corvus:keys").arg(file.to_text().unwrap());
    look.command(set).await.unwrap();
    let old = token(&first);
    second_shared.refresh().await.unwrap();
    assert_ne!(token(&second), old);
    assert!(believes(&second, &old) && believes(&first, &token(&second)));
    first_shared.refresh().await.unwrap();
    assert_eq!(first.file(), second.file());

    look.command(redis::cmd("FLUSHALL")).await.unwrap();
    first_shared.refresh().await.unwrap();
    assert_eq!(get().await, second.file().unwrap().to_text().ok());
}

#[tokio::test]
async fn a_server_that_is_away_and_a_value_of_another_kind_change_nothing() {
    let Some(server) = Server::start(&[]).await else { return };
    let clock = FakeClock::new(0);
    let (keys, shared) = gateway(&server, &clock).await;
    let look = server.client().await.unwrap();
    look.number(&["LPUSH", "corvus:keys", "x"]).await;
    let refused = shared.refresh().await;
    assert!(matches!(refused, Err(ShareError::Store(_))), "{refused:?}");
    assert_eq!(look.number(&["LLEN", "corvus:keys"]).await, 1);
    drop(server);
    clock.advance(Duration::from_mins(1));
    assert!(shared.refresh().await.is_err());
    assert!(keys.load().is_none());
}
