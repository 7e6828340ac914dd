//! What happens while a gateway has no keys, or not all.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use super::*;
use crate::keys::tests::memory::{Gateway, Memory};

/// A gateway with the store of keys at another machine, whose time is the test's own.
fn sharing(gate: impl FnOnce(&mut QueueGate)) -> (Site, Gateway, Arc<Memory>) {
    let memory = Memory::new(FakeClock::new(1_700_000_000_000));
    let keys = Arc::new(KeyStore::open_shared(None).unwrap());
    let site = Site::with_keys(queue(contract::settings(1), gate), Arc::clone(&keys));
    let gateway = memory.gateway_at(keys, &site.clock);
    (site, gateway, memory)
}

async fn make_keys(clock: &FakeClock, gateway: &Gateway) {
    gateway.shared.refresh().await.unwrap();
    clock.advance(Duration::from_secs(5));
    gateway.shared.refresh().await.unwrap();
}

impl Site {
    async fn ask(&self, browser: &Browser) -> Outcome {
        self.service.enter(&self.queue, &self.visitor(browser)).await
    }
}

#[tokio::test(start_paused = true)]
async fn without_keys_it_is_as_if_the_store_were_down_until_they_come() {
    let (site, gateway, _) = sharing(|_| {});
    let had = Browser {
        admission: Some("v2.abcdefgh.a.drop.x.1.2.y".into()),
        place: Some("v2.abcdefgh.q.drop.x.1.2.3.y".into()),
        ip: None,
    };
    for browser in [Browser::default(), had.clone()] {
        let outcome = site.ask(&browser).await;
        assert!(matches!(outcome.decision, Decision::StoreDown { .. }), "{outcome:?}");
        assert_eq!((outcome.admission, outcome.place), (CookieChange::Keep, CookieChange::Keep));
        let outcome = site.service.poll(&site.queue, &site.visitor(&browser)).await;
        assert!(matches!(outcome.decision, Decision::StoreDown { .. }), "{outcome:?}");
        assert_eq!((outcome.admission, outcome.place), (CookieChange::Keep, CookieChange::Keep));
    }
    make_keys(&site.clock, &gateway).await;
    let (_, decision) = site.arrive(None);
    assert!(passes(decision));

    let (site, _, _) = sharing(|gate| gate.on_store_failure = OnStoreFailure::Open);
    let outcome = site.ask(&had).await;
    assert_eq!(outcome.decision, Decision::Pass { session: None });
    assert_eq!((outcome.admission, outcome.place), (CookieChange::Keep, CookieChange::Keep));
    assert!(
        !site
            .service
            .keep_alive(
                &site.queue,
                &mut Admission { sid: Sid::from_bytes([1; 16]), issued_ms: 1, expires_ms: 2 }
            )
            .await
    );
}

/// Another gateway signs with a key that was announced while this one was cut off.
#[tokio::test(start_paused = true)]
async fn a_visitor_from_a_gateway_with_newer_keys_keeps_the_place() {
    let (site, gateway, memory) = sharing(|_| {});
    make_keys(&site.clock, &gateway).await;
    let (_, inside) = site.arrive(None);
    assert!(passes(inside));
    let (mut waiting, decision) = site.arrive(None);
    assert_eq!(rank(decision), Some(1));
    let _later = site.arrive(None);

    let other = memory.gateway(KeyStore::open_shared(None).unwrap());
    gateway.cut.store(true, SeqCst);
    other.shared.refresh().await.unwrap();
    other.shared.rotate().await.unwrap();
    memory.clock.advance(Duration::from_secs(10));
    other.shared.refresh().await.unwrap();
    let id = site.queue.settings.id.as_str();
    let place = waiting.place.take().unwrap();
    let place = gateway.keys.load().as_ref().unwrap().verify_place(id, &place, None).unwrap();
    let signed = other.keys.load().as_ref().unwrap().sign_place(id, &place, None);
    waiting.place = Some(signed.clone());

    site.wait(1_000);
    let Gateway { shared, cut, .. } = gateway;
    let task = tokio::spawn(async move { shared.run().await });
    let outcome = site.ask(&waiting).await;
    assert!(matches!(outcome.decision, Decision::StoreDown { .. }), "{outcome:?}");
    assert_eq!(outcome.place, CookieChange::Keep, "the place is not taken away");
    assert_eq!(outcome.admission, CookieChange::Keep);

    cut.store(false, SeqCst);
    site.wait(1_000);
    let before = memory.calls.load(SeqCst);
    let outcome = site.ask(&waiting).await;
    assert_eq!(memory.calls.load(SeqCst), before + 1, "read at once");
    assert_eq!(rank(waiting.take(outcome)), Some(1));
    assert_ne!(waiting.place, Some(signed));

    // A key that nobody holds: a newcomer, and no reading for each of them.
    let forged = Browser { place: Some("v2.abcdefgh.q.drop.x.1.2.3.y".into()), ..<_>::default() };
    let before = memory.calls.load(SeqCst);
    for _ in 0..20 {
        assert_eq!(site.ask(&forged).await.decision, Decision::NeedsCookie);
    }
    assert_eq!(memory.calls.load(SeqCst), before);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn keys_that_come_between_judging_and_entering_cost_no_place() {
    let (site, gateway, memory) = sharing(|_| {});
    let other = memory.gateway(KeyStore::open_shared(None).unwrap());
    make_keys(&memory.clock, &other).await;
    let id = site.queue.settings.id.as_str();
    let sid = Sid::from_bytes([3; 16]);
    let place = Place {
        sid,
        issued_ms: site.clock.wall_ms(),
        ticket: Ticket::Number(5),
        due_ms: site.clock.wall_ms() + 3_000,
    };
    let text = other.keys.load().as_ref().unwrap().sign_place(id, &place, None);
    let visitor = site.visitor(&Browser { place: Some(text), ..<_>::default() });
    assert_eq!(visitor.sid(), None);
    gateway.shared.refresh().await.unwrap();
    let outcome = site.service.enter(&site.queue, &visitor).await;
    let Decision::Pass { session: Some(session) } = outcome.decision else {
        panic!("{outcome:?}");
    };
    assert_eq!(session.sid, sid);
}

/// Only the keys cannot be read: a made-up key must not get anybody past a queue that is well.
#[tokio::test(start_paused = true)]
async fn an_unknown_key_gets_nobody_past_a_queue_that_fails_open() {
    let (site, gateway, _) = sharing(|gate| gate.on_store_failure = OnStoreFailure::Open);
    make_keys(&site.clock, &gateway).await;
    let Gateway { shared, cut, .. } = gateway;
    cut.store(true, SeqCst);
    let task = tokio::spawn(async move { shared.run().await });
    site.wait(1_000);
    now(site.service.tick());
    let forged = Browser { admission: Some("v2.x.a.drop.y".into()), ..<_>::default() };
    let before = site.calls();
    for poll in [false, true] {
        let visitor = site.visitor(&forged);
        let outcome = if poll {
            site.service.poll(&site.queue, &visitor).await
        } else {
            site.service.enter(&site.queue, &visitor).await
        };
        assert!(matches!(outcome.decision, Decision::StoreDown { .. }), "{outcome:?}");
        assert_eq!((outcome.admission, outcome.place), (CookieChange::Keep, CookieChange::Keep));
    }
    assert_eq!(site.calls(), before);
    // With the queue's own store away it is an outage like any other.
    site.fail(Some(down()));
    now(site.service.tick());
    assert_eq!(site.ask(&forged).await.decision, Decision::Pass { session: None });
    task.abort();
}
