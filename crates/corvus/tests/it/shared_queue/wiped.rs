//! A store that has lost everything, while those inside read and ask for nothing.

use std::time::Duration;

use corvus_testkit::{
    Origin, Visitor,
    store::{Kind, StoreOptions, StoreServer},
};
use tokio::time::{Instant, sleep};

use super::{admitted, sample::Sample};
use crate::{
    gateway::TestGateway,
    queue::shop::{HOST, document, status, ticket},
};

const STEP: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(20);

/// A new state holds its slots back for five seconds, and then those that the gateway has seen taken,
/// until their sessions would have run out: nobody gets in on top, and who does not come back loses
/// the slot in the end, to the first in line.
#[tokio::test]
async fn slots_of_those_who_read_are_held() {
    for kind in Kind::ALL {
        let Some(store) = StoreServer::start(StoreOptions::new(kind)) else { continue };
        let origin = Origin::start();
        let settings = "capacity: 2, active_ttl_s: 12, refresh_s: 1, grant_ttl_s: 5, \
                        queue_ttl_s: 30, polls_per_session_per_s: 50";
        let document = document(&origin.url(), settings);
        let gateway = TestGateway::builder(document).valkey(store.url()).start();
        let mut inside: Vec<Visitor> = Vec::new();
        for n in 0..2 {
            inside.push(admitted(gateway.visitor(HOST).ip(&format!("10.0.0.{n}"))).await);
        }
        let mut line = Vec::new();
        for n in 2..5 {
            let mut visitor = gateway.visitor(HOST).ip(&format!("10.0.0.{n}"));
            assert_eq!(visitor.get("/", &[]).await.unwrap().status, 429);
            line.push(visitor);
        }
        let tickets: Vec<_> = line.iter().map(ticket).collect();
        // The gateway's latest reply has both.
        sleep(Duration::from_millis(1_200)).await;
        assert_eq!(store.cli(&["FLUSHALL"]), "OK");

        let mut client = store.client().unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(8) {
            for visitor in line.iter_mut().rev() {
                let told = status(visitor).await;
                let sample = Sample::take(&mut client).unwrap();
                assert_eq!(told["state"], "waiting", "{kind:?}: {sample:?}");
            }
            sleep(STEP).await;
        }
        let sample = Sample::take(&mut client).unwrap();
        assert_eq!((sample.inside, sample.owed, sample.queue.len()), (0, 2, 3), "{kind:?}");
        assert_eq!(line.iter().map(ticket).collect::<Vec<_>>(), tickets, "{kind:?}");
        // One of them turns the page. The other one does not come again.
        assert_eq!(inside[0].get("/", &[]).await.unwrap().status, 200, "{kind:?}");
        let sample = Sample::take(&mut client).unwrap();
        assert_eq!((sample.inside, sample.owed), (1, 1), "{kind:?}");
        while status(&mut line[0]).await["state"] != "admitted" {
            assert_eq!(inside[0].get("/", &[]).await.unwrap().status, 200, "{kind:?}");
            assert!(begun.elapsed() < PATIENCE, "{kind:?}: {:?}", Sample::take(&mut client));
            sleep(STEP).await;
        }
        assert!(begun.elapsed() > Duration::from_secs(11), "{kind:?}: {:?}", begun.elapsed());
        assert_eq!(status(&mut line[1]).await["state"], "waiting", "{kind:?}");
    }
}
