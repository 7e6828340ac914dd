//! Limits hold for those who come at once, and cost nobody who takes no place.

use std::sync::atomic::Ordering::SeqCst;

use futures_util::future::join_all;

use super::*;

impl Site {
    /// Visitors of one address with a proof of cookies each.
    fn crowd(&self, number: usize) -> Vec<Visitor> {
        let newcomer = |_| {
            let mut browser = Browser::default();
            assert_eq!(self.request(&mut browser), Decision::NeedsCookie);
            self.visitor(&browser)
        };
        (0..number).map(newcomer).collect()
    }

    fn stats(&self) -> Stats {
        self.service.stats(&self.queue.settings.id).unwrap()
    }

    /// All at once, with the store at another machine.
    async fn rush(&self, crowd: &[Visitor]) -> Vec<Decision> {
        self.faulty().remote.store(true, SeqCst);
        let all = crowd.iter().map(|visitor| self.service.enter(&self.queue, visitor));
        let decisions = join_all(all).await.into_iter().map(|outcome| outcome.decision).collect();
        self.faulty().remote.store(false, SeqCst);
        decisions
    }
}

fn waiting(decisions: &[Decision]) -> usize {
    decisions.iter().filter(|decision| matches!(decision, Decision::Waiting(_))).count()
}

#[tokio::test]
async fn a_thousand_at_once_take_no_more_places_than_their_address_may() {
    let site = Site::new(queue(contract::settings(0), |_| {}));
    let decisions = site.rush(&site.crowd(2_000)).await;
    let refused = Decision::TooManyJoins { retry_after_s: 60 };
    assert_eq!(decisions.iter().filter(|decision| **decision == refused).count(), 1_940);
    assert_eq!((waiting(&decisions), site.stats().waiting), (60, 60));

    let site = Site::new(queue(contract::settings(0), |gate| {
        gate.joins_per_ip_per_min = 1_000_000;
        gate.max_waiting_per_ip = Some(5);
    }));
    let crowd = site.crowd(2_000);
    let decisions = site.rush(&crowd).await;
    assert_eq!((waiting(&decisions), site.stats().waiting), (5, 5));
    // Once more: the five are known, though their proofs do not say so.
    let again = site.rush(&crowd).await;
    assert_eq!((waiting(&again), site.stats().waiting), (5, 5));
}

#[tokio::test]
async fn who_takes_no_place_uses_up_no_join() {
    let limited = |gate: &mut QueueGate| {
        gate.joins_per_ip_per_min = 3;
        gate.max_waiting_per_ip = Some(2);
    };
    let settings = QueueSettings { max_waiting: 1, ..contract::settings(0) };
    let site = Site::new(queue(settings, limited));
    let (mut first, decision) = site.arrive(None);
    assert_eq!(rank(decision), Some(1));
    // The line is full, the store away or without memory.
    for _ in 0..10 {
        assert!(matches!(site.arrive(None).1, Decision::Full { .. }));
    }
    site.faulty().full.store(true, SeqCst);
    for _ in 0..10 {
        assert!(matches!(site.arrive(None).1, Decision::Busy { .. }));
    }
    site.faulty().full.store(false, SeqCst);
    site.fail(Some(down()));
    for _ in 0..10 {
        assert!(matches!(site.arrive(None).1, Decision::StoreDown { .. }));
    }
    site.fail(None);
    site.wait(3_001);
    // In line already, with the place or, because the answer was lost, still with the proof.
    for _ in 0..10 {
        site.wait(1_000);
        assert_eq!(rank(site.request(&mut first)), Some(1));
    }
    let visitor = site.visitor(&first);
    now(site.service.leave(&site.queue, &visitor));
    let crowd = site.crowd(1);
    for _ in 0..10 {
        assert_eq!(waiting(&site.rush(&crowd).await), 1);
    }
    // That was the second join; there is one more.
    now(site.service.flush(&site.queue.settings.id)).unwrap();
    assert_eq!(rank(site.arrive(None).1), Some(1));
    now(site.service.flush(&site.queue.settings.id)).unwrap();
    assert_eq!(site.arrive(None).1, Decision::TooManyJoins { retry_after_s: 60 });
}

/// Those who reload their places do not stand in the way of a newcomer of the same address.
#[tokio::test]
async fn reloads_under_way_refuse_no_newcomer() {
    let site = Site::new(queue(contract::settings(0), |gate| gate.joins_per_ip_per_min = 4));
    let mut crowd: Vec<Visitor> = (0..3).map(|_| site.visitor(&site.arrive(None).0)).collect();
    crowd.extend(site.crowd(1));
    assert_eq!(waiting(&site.rush(&crowd).await), 4);
}

#[test]
fn proofs_of_cookies_leave_nothing_behind_in_the_store() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let crowd = site.crowd(100);
    let before = site.calls();
    for visitor in &crowd {
        let outcome = now(site.service.leave(&site.queue, visitor));
        assert_eq!((outcome.decision, outcome.place), (Decision::Left, CookieChange::Drop));
    }
    assert_eq!(site.calls(), before);
}

#[test]
fn one_session_cannot_leave_without_end() {
    let site = Site::new(queue(contract::settings(0), |_| {}));
    let (browser, _) = site.arrive(None);
    let visitor = site.visitor(&browser);
    let before = site.calls();
    for _ in 0..100 {
        let outcome = now(site.service.leave(&site.queue, &visitor));
        assert_eq!((outcome.decision, outcome.place), (Decision::Left, CookieChange::Drop));
    }
    assert!((1..=30).contains(&(site.calls() - before)), "{}", site.calls() - before);
    assert_eq!(site.stats().waiting, 0);
}

#[test]
fn one_who_waits_cannot_reload_without_end() {
    let site = Site::new(queue(contract::settings(0), |_| {}));
    let (mut one, _) = site.arrive(None);
    let (mut two, _) = site.arrive(None);
    let before = site.calls();
    let mut served = 0;
    for _ in 0..100 {
        match site.request(&mut one) {
            Decision::Waiting(_) => served += 1,
            other => assert_eq!(other, Decision::TooManyPolls { retry_after_s: 1 }),
        }
    }
    assert_eq!((served, site.calls() - before), (30, 30));
    assert_eq!(rank(site.request(&mut two)), Some(2));
    site.wait(2_000);
    assert_eq!(rank(site.request(&mut one)), Some(1));
}

/// Even with the lowest limit.
#[test]
fn the_reload_of_one_who_is_ready_passes() {
    let site = Site::new(queue(contract::settings(1), |gate| gate.polls_per_session_per_s = 1));
    let (inside, _) = site.arrive(None);
    let (mut next, decision) = site.arrive(None);
    assert_eq!(rank(decision), Some(1));
    site.wait(20_000);
    assert_eq!(rank(site.poll(&mut next)), Some(1));
    let visitor = site.visitor(&inside);
    now(site.service.leave(&site.queue, &visitor));
    site.wait(2_000);
    assert_eq!(site.poll(&mut next), Decision::Ready);
    assert!(passes(site.request(&mut next)));
}

/// A page has many parts, and all are requests with the place's cookie.
#[test]
fn an_open_queue_without_a_store_limits_no_reloads() {
    let open = queue(contract::settings(0), |gate| gate.on_store_failure = OnStoreFailure::Open);
    let site = Site::new(open);
    let (mut browser, _) = site.arrive(None);
    site.fail(Some(down()));
    now(site.service.tick());
    for _ in 0..50 {
        assert_eq!(site.request(&mut browser), Decision::Pass { session: None });
    }
}
