//! Sessions when the store is full, when nobody waits for an answer, and when a queue goes.

use std::sync::atomic::Ordering::SeqCst;

use super::*;

/// The store is full, but it did say that the session has ended.
#[test]
fn a_full_store_keeps_no_released_session_alive() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let (mut released, decision) = site.arrive(None);
    let Decision::Pass { session: Some(session) } = decision else { panic!() };
    site.wait(1_000);
    now(site.service.release(&site.queue.settings.id, &session)).unwrap();
    let (mut inside, decision) = site.arrive(None);
    assert!(passes(decision));
    site.faulty().full.store(true, SeqCst);
    for _ in 0..5 {
        site.wait(16_000);
        assert!(passes(site.request(&mut inside)));
        let shown = released.clone();
        let decision = site.request(&mut released);
        assert!(!passes(decision), "{decision:?}");
        assert_eq!((&released.admission, &released.place), (&shown.admission, &shown.place));
    }
    assert!(site.service.store_is_up(&site.queue.settings.id));
    site.faulty().full.store(false, SeqCst);
    assert_eq!(rank(site.request(&mut released)), Some(1));
}

/// A client that goes away in the middle of a heartbeat, or a stream that ends, must not keep the
/// session's other requests from asking.
#[test]
fn a_heartbeat_that_nobody_waits_for_counts_as_none() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let (mut browser, decision) = site.arrive(None);
    let Decision::Pass { session: Some(mut stream) } = decision else { panic!() };
    for kind in ["stream", "request", "poll"] {
        site.wait(16_000);
        let asked = site.visitor(&browser);
        let mut cx = Context::from_waker(Waker::noop());
        site.faulty().remote.store(true, SeqCst);
        let service = &site.service;
        let half_way = match kind {
            "stream" => {
                pin!(service.keep_alive(&site.queue, &mut stream)).poll(&mut cx).is_pending()
            }
            "request" => pin!(service.enter(&site.queue, &asked)).poll(&mut cx).is_pending(),
            _ => pin!(service.poll(&site.queue, &asked)).poll(&mut cx).is_pending(),
        };
        assert!(half_way, "{kind}: the store answered at once");
        site.faulty().remote.store(false, SeqCst);
        let before = site.calls();
        assert!(passes(site.request(&mut browser)), "{kind}");
        assert_eq!(site.calls(), before + 1, "{kind}: the store was not asked");
    }
}

#[test]
fn a_queue_that_left_the_configuration_is_asked_no_more() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let (mut browser, _) = site.arrive(None);
    let id = Id::new("other").unwrap();
    let other = queue(QueueSettings { id, ..contract::settings(1) }, |_| {});
    site.service.configure(&[Arc::clone(&site.queue), Arc::clone(&other)]);
    let ticks = || {
        let before = site.calls();
        site.wait(1_000);
        now(site.service.tick());
        site.calls() - before
    };
    assert_eq!(ticks(), 2);
    site.fail(Some(down()));
    now(site.service.tick());
    assert!(!site.service.store_is_up(&site.queue.settings.id));
    site.service.configure(std::slice::from_ref(&other));
    site.fail(None);
    site.wait(3_001);
    assert_eq!(ticks(), 1);
    let gone = &site.queue.settings.id;
    assert!(!site.service.store_is_up(gone), "of the queue that is gone nobody asks");
    // A request that began before goes on.
    site.wait(16_000);
    assert!(passes(site.request(&mut browser)));
    site.service.configure(&[Arc::clone(&site.queue), other]);
    assert_eq!(ticks(), 2);
}
