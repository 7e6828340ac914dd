mod cookies;
mod keys;
mod limits;
mod sessions;

use std::{
    pin::pin,
    sync::atomic::Ordering,
    task::{Context, Poll, Waker},
    time::Duration,
};

use corvus_config::snapshot::{OnStoreFailure, QueueGate, QueueSettings};
use corvus_core::FakeClock;
use proptest::prelude::*;

use super::*;
use crate::{contract, embedded::Embedded, faulty::Faulty};

/// The embedded engine never waits, so one poll is the whole future.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("an embedded engine had to be waited for"),
    }
}

fn queue(settings: QueueSettings, gate: impl FnOnce(&mut QueueGate)) -> Arc<Queue> {
    let mut queue_gate = contract::gate();
    gate(&mut queue_gate);
    Arc::new(Queue { settings, gate: queue_gate })
}

struct Site {
    clock: FakeClock,
    service: QueueService,
    queue: Arc<Queue>,
}

/// A browser: two cookies and an address.
#[derive(Clone, Default)]
struct Browser {
    admission: Option<String>,
    place: Option<String>,
    ip: Option<&'static str>,
}

impl Site {
    fn new(queue: Arc<Queue>) -> Self {
        Self::with_keys(queue, Arc::new(KeyStore::open(None).unwrap()))
    }

    fn with_keys(queue: Arc<Queue>, keys: Arc<KeyStore>) -> Self {
        let clock = FakeClock::new(1_800_000_000_000);
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let draw_key = keys.draw_key().unwrap_or([1; 16]);
        let inner = Embedded::open(None, Arc::clone(&shared), draw_key, true).unwrap();
        let service = QueueService::new(Engine::Faulty(Faulty::new(inner)), keys, shared);
        assert_eq!(service.configure(std::slice::from_ref(&queue)), []);
        now(service.tick());
        Self { clock, service, queue }
    }

    fn faulty(&self) -> &Faulty {
        match &self.service.engine {
            Engine::Faulty(faulty) => faulty,
            _ => panic!("not the engine of tests"),
        }
    }

    fn fail(&self, fault: Option<StoreError>) {
        *self.faulty().fault.lock().unwrap() = fault;
    }

    fn calls(&self) -> u64 {
        self.faulty().calls.load(Ordering::SeqCst)
    }

    fn wait(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    fn check(&self, browser: &Browser) -> Check {
        let cookies =
            Cookies { admission: browser.admission.as_deref(), place: browser.place.as_deref() };
        let ip = browser.ip.unwrap_or("192.0.2.1").parse().unwrap();
        self.service.check(&self.queue, cookies, ClientIp::new(ip))
    }

    fn visitor(&self, browser: &Browser) -> Visitor {
        match self.check(browser) {
            Check::Ask(visitor) => visitor,
            Check::Admitted(admission) => panic!("passes at once: {admission:?}"),
        }
    }

    fn request(&self, browser: &mut Browser) -> Decision {
        match self.check(browser) {
            Check::Admitted(session) => Decision::Pass { session: Some(session) },
            Check::Ask(visitor) => {
                let outcome = now(self.service.enter(&self.queue, &visitor));
                browser.take(outcome)
            }
        }
    }

    fn poll(&self, browser: &mut Browser) -> Decision {
        let cookies =
            Cookies { admission: browser.admission.as_deref(), place: browser.place.as_deref() };
        let ip = browser.ip.unwrap_or("192.0.2.1").parse().unwrap();
        match self.service.check(&self.queue, cookies, ClientIp::new(ip)) {
            Check::Admitted(_) => Decision::Ready,
            Check::Ask(visitor) => browser.take(now(self.service.poll(&self.queue, &visitor))),
        }
    }

    /// A browser that has shown that it keeps cookies, and what its first real request brought.
    fn arrive(&self, ip: Option<&'static str>) -> (Browser, Decision) {
        let mut browser = Browser { ip, ..Browser::default() };
        assert_eq!(self.request(&mut browser), Decision::NeedsCookie);
        let decision = self.request(&mut browser);
        (browser, decision)
    }
}

impl Browser {
    fn take(&mut self, outcome: Outcome) -> Decision {
        for (cookie, change) in
            [(&mut self.admission, outcome.admission), (&mut self.place, outcome.place)]
        {
            match change {
                CookieChange::Keep => {}
                CookieChange::Set(text) => *cookie = Some(text),
                CookieChange::Drop => *cookie = None,
            }
        }
        outcome.decision
    }
}

fn passes(decision: Decision) -> bool {
    matches!(decision, Decision::Pass { .. })
}

fn rank(decision: Decision) -> Option<u64> {
    match decision {
        Decision::Waiting(standing) => standing.rank,
        other => panic!("not waiting: {other:?}"),
    }
}

fn down() -> StoreError {
    StoreError::Unreachable("test".into())
}

#[test]
fn a_first_visit_costs_no_call_and_a_second_gets_in_or_waits() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let before = site.calls();
    let mut browser = Browser::default();
    for _ in 0..100 {
        assert_eq!(site.request(&mut Browser::default()), Decision::NeedsCookie);
    }
    assert_eq!(site.request(&mut browser), Decision::NeedsCookie);
    assert_eq!(site.calls(), before);
    assert!(passes(site.request(&mut browser)));
    assert_eq!(browser.place, None, "the place cookie has done its work");
    let (mut second, decision) = site.arrive(None);
    assert_eq!(rank(decision), Some(1));
    let visitor = site.visitor(&second);
    let outcome = now(site.service.leave(&site.queue, &visitor));
    assert_eq!(second.take(outcome), Decision::Left);
    assert_eq!((second.admission, second.place), (None, None));
    assert_eq!(site.service.stats(&site.queue.settings.id).unwrap().waiting, 0);
}

#[test]
fn the_proof_of_cookies_is_good_for_five_minutes() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let mut browser = Browser::default();
    site.request(&mut browser);
    site.wait(300_001);
    assert_eq!(site.request(&mut browser), Decision::NeedsCookie);
    site.wait(300_000);
    assert!(passes(site.request(&mut browser)));
}

proptest! {
    #![proptest_config(contract::laws::config())]
    /// Whatever an admitted browser does, in parallel and through streams: at most one call each
    /// `refresh`.
    #[test]
    fn l9_cheap(pauses in prop::collection::vec(0u64..6_000, 1..200)) {
        let site = Site::new(queue(contract::settings(5), |_| {}));
        let (mut browser, decision) = site.arrive(None);
        let Decision::Pass { session: Some(mut stream) } = decision else { panic!() };
        let refresh = site.queue.settings.refresh_ms;
        let mut calls = Vec::new();
        let mut note = |before: u64| {
            calls.extend((before..site.calls()).map(|_| site.clock.mono_ms()));
        };
        for pause in pauses {
            site.wait(pause);
            let before = site.calls();
            // Ten tabs with the same cookies: only one of the answers is kept.
            let mut tabs = vec![browser.clone(); 10];
            for tab in &mut tabs {
                prop_assert!(passes(site.request(tab)));
            }
            browser = tabs.swap_remove(0);
            prop_assert!(now(site.service.keep_alive(&site.queue, &mut stream)));
            note(before);
        }
        for pair in calls.windows(2) {
            prop_assert!(pair[1] - pair[0] >= refresh, "{:?}", pair);
        }
    }
}

#[test]
fn a_heartbeat_extends_and_a_silent_session_ends() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let (mut browser, _) = site.arrive(None);
    for _ in 0..10 {
        for _ in 0..16 {
            site.wait(1_000);
            now(site.service.tick());
        }
        assert!(passes(site.request(&mut browser)));
    }
    let (mut next, decision) = site.arrive(None);
    assert_eq!(rank(decision), Some(1));
    for _ in 0..62 {
        site.wait(1_000);
        now(site.service.tick());
    }
    assert_eq!(site.poll(&mut next), Decision::Ready);
    assert!(passes(site.request(&mut next)));
    assert_eq!(rank(site.request(&mut browser)), Some(1), "as a newcomer");
    assert_eq!(browser.admission, None);
}

#[test]
fn a_released_session_notices_within_refresh() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let (mut browser, decision) = site.arrive(None);
    let Decision::Pass { session: Some(session) } = decision else { panic!() };
    site.wait(20_000);
    assert!(passes(site.request(&mut browser)));
    site.wait(1);
    now(site.service.release(&site.queue.settings.id, &session)).unwrap();
    assert!(passes(site.request(&mut browser)), "still young");
    let (mut other, decision) = site.arrive(None);
    assert!(passes(decision), "its slot is free");
    site.wait(16_000);
    assert!(passes(site.request(&mut other)));
    assert_eq!(rank(site.request(&mut browser)), Some(1));
}

#[test]
fn different_sids_the_admissions_wins() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let (inside, _) = site.arrive(None);
    let (waiting, _) = site.arrive(None);
    site.wait(16_000);
    let both = Browser { admission: inside.admission.clone(), ..waiting };
    let visitor = site.visitor(&both);
    assert_eq!(visitor.sid(), site.visitor(&inside).sid());
    assert_eq!(visitor.place, None);
}

#[test]
fn forged_cookies_count_as_none() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let (inside, _) = site.arrive(None);
    let forged = inside.admission.map(|text| text.replacen(".a.drop.", ".a.drop.A", 1));
    let mut browser = Browser { admission: forged, place: Some("v2".into()), ip: None };
    assert_eq!(site.request(&mut browser), Decision::NeedsCookie);
}

#[test]
fn tokens_are_bound_to_the_network_when_asked() {
    let site = Site::new(queue(contract::settings(1), |gate| gate.bind_network = true));
    let (mut browser, decision) = site.arrive(Some("192.0.2.1"));
    assert!(passes(decision));
    browser.ip = Some("192.0.2.200");
    assert!(passes(site.request(&mut browser)), "the same /24");
    browser.ip = Some("198.51.100.1");
    assert_eq!(site.request(&mut browser), Decision::NeedsCookie);
}

#[test]
fn a_rotated_key_is_believed_once_more() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let (mut browser, _) = site.arrive(None);
    now(site.service.rotate_keys()).unwrap();
    site.wait(16_000);
    assert!(passes(site.request(&mut browser)), "and signed anew");
    now(site.service.rotate_keys()).unwrap();
    assert!(matches!(site.check(&browser), Check::Admitted(_)));
}

/// What a connection remembers spares a signature, never a judgement.
#[test]
fn a_remembered_admission_is_judged_anew() {
    let site = Site::new(queue(contract::settings(1), |gate| gate.bind_network = true));
    let (browser, _) = site.arrive(Some("192.0.2.1"));
    let text = browser.admission.unwrap();
    let mut shown = None;
    let mut passes = |text: &str, ip: &str| {
        let cookies = Cookies { admission: Some(text), place: None };
        let ip = ClientIp::new(ip.parse().unwrap());
        let check = site.service.check_again(&site.queue, cookies, ip, &mut shown);
        matches!(check, Check::Admitted(_))
    };
    assert!(passes(&text, "192.0.2.1") && passes(&text, "192.0.2.2"));
    assert!(!passes(&text, "198.51.100.1"), "another network");
    assert!(!passes(&text.replacen(".a.drop.", ".a.drop.A", 1), "192.0.2.1"), "another text");
    assert!(passes(&text, "192.0.2.1"));
    now(site.service.rotate_keys()).unwrap();
    assert!(passes(&text, "192.0.2.1"), "signed by the previous key");
    now(site.service.rotate_keys()).unwrap();
    assert!(!passes(&text, "192.0.2.1"), "signed by a key that is gone");
}

#[test]
fn a_remembered_admission_grows_old() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let (browser, _) = site.arrive(None);
    let visitor = |shown: &mut Option<Shown>| {
        let cookies = Cookies { admission: browser.admission.as_deref(), place: None };
        let ip = ClientIp::new([192, 0, 2, 1].into());
        matches!(site.service.check_again(&site.queue, cookies, ip, shown), Check::Admitted(_))
    };
    let mut shown = None;
    assert!(visitor(&mut shown));
    site.wait(16_000);
    assert!(!visitor(&mut shown));
}

#[test]
fn joins_are_limited_for_each_address_and_ipv6_by_64() {
    let limited = queue(contract::settings(0), |gate| gate.joins_per_ip_per_min = 3);
    let site = Site::new(limited);
    let addresses = ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8::4"];
    let mut first = None;
    for (i, ip) in addresses.into_iter().enumerate() {
        let (browser, decision) = site.arrive(Some(ip));
        match decision {
            Decision::Waiting(_) if i < 3 => first = first.or(Some(browser)),
            Decision::TooManyJoins { retry_after_s: 60 } if i == 3 => {}
            other => panic!("{i}: {other:?}"),
        }
    }
    // Who has a place is not a join.
    assert_eq!(rank(site.request(&mut first.unwrap())), Some(1));
    assert!(matches!(site.arrive(Some("2001:db8:0:1::1")).1, Decision::Waiting(_)));
    let before = site.calls();
    site.arrive(Some("2001:db8::5"));
    assert_eq!(site.calls(), before, "refused without the store");
    site.wait(120_000);
    assert!(matches!(site.arrive(Some("2001:db8::6")).1, Decision::Waiting(_)));
}

#[test]
fn a_dead_place_beyond_the_join_limit_does_not_slip_in() {
    let limited = queue(contract::settings(0), |gate| gate.joins_per_ip_per_min = 2);
    let site = Site::new(limited);
    let (mut browser, _) = site.arrive(None);
    for _ in 0..200 {
        site.wait(1_000);
        now(site.service.tick());
    }
    site.arrive(None);
    site.arrive(None);
    assert_eq!(site.request(&mut browser), Decision::TooManyJoins { retry_after_s: 60 });
}

#[test]
fn waiters_are_limited_for_each_address() {
    let limited = queue(contract::settings(0), |gate| gate.max_waiting_per_ip = Some(2));
    let site = Site::new(limited);
    let (mut first, _) = site.arrive(None);
    site.arrive(None);
    assert!(matches!(site.arrive(None).1, Decision::TooManyWaiting { .. }));
    assert!(matches!(site.arrive(Some("192.0.2.2")).1, Decision::Waiting(_)));
    assert_eq!(rank(site.request(&mut first)), Some(1), "who waits goes on waiting");
    let visitor = site.visitor(&first);
    now(site.service.leave(&site.queue, &visitor));
    assert!(matches!(site.arrive(None).1, Decision::Waiting(_)));
}

#[test]
fn polls_are_limited_for_each_session() {
    let site = Site::new(queue(contract::settings(0), |_| {}));
    let (mut one, _) = site.arrive(None);
    let (mut two, _) = site.arrive(None);
    for _ in 0..3 {
        assert_eq!(rank(site.poll(&mut one)), Some(1));
    }
    assert_eq!(site.poll(&mut one), Decision::TooManyPolls { retry_after_s: 1 });
    assert_eq!(rank(site.poll(&mut two)), Some(2));
    site.wait(2_000);
    assert_eq!(rank(site.poll(&mut one)), Some(1));
    assert_eq!(site.poll(&mut Browser::default()), Decision::Gone, "no cookie, no call");
}

#[test]
fn an_outage_keeps_those_inside_and_fails_as_the_queue_says() {
    for policy in [OnStoreFailure::Open, OnStoreFailure::Closed] {
        let site = Site::new(queue(contract::settings(1), |g| g.on_store_failure = policy));
        let (mut inside, _) = site.arrive(None);
        let (mut waiting, decision) = site.arrive(None);
        assert_eq!(rank(decision), Some(1));
        let place_before = waiting.place.clone();
        site.fail(Some(down()));
        let mut cookies_only = Browser::default();
        site.request(&mut cookies_only);
        // Longer than a session, and than a place is fresh.
        for second in 1..=200u64 {
            site.wait(1_000);
            now(site.service.tick());
            if second % 10 == 0 {
                assert!(passes(site.request(&mut inside)), "after {second} s");
                let (here, poll) = (site.request(&mut waiting), site.poll(&mut waiting));
                match policy {
                    OnStoreFailure::Open => {
                        assert_eq!(here, Decision::Pass { session: None });
                        assert_eq!(poll, Decision::Ready);
                    }
                    OnStoreFailure::Closed => {
                        assert!(matches!(here, Decision::StoreDown { .. }), "{here:?}");
                        assert!(matches!(poll, Decision::StoreDown { .. }), "{poll:?}");
                    }
                }
                assert_eq!(waiting.admission, None, "nobody is let in by an outage for good");
            }
        }
        assert_ne!(waiting.place, place_before, "its due time moved on");
        assert!(!site.service.store_is_up(&site.queue.settings.id));
        site.fail(None);
        site.wait(3_001);
        now(site.service.tick());
        assert!(site.service.store_is_up(&site.queue.settings.id));
        assert!(passes(site.request(&mut inside)));
        assert_eq!(rank(site.request(&mut waiting)), Some(1), "the place is still there");
        let stats = site.service.stats(&site.queue.settings.id).unwrap();
        assert_eq!((stats.inside, stats.waiting), (1, 1));
    }
}

#[test]
fn the_breaker_spares_the_store_and_probes_once_in_three_seconds() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let (mut waiting, _) = site.arrive(None);
    site.wait(20_000);
    site.fail(Some(down()));
    let before = site.calls();
    for _ in 0..100 {
        site.request(&mut waiting);
    }
    assert_eq!(site.calls() - before, 1);
    site.wait(3_000);
    for _ in 0..100 {
        site.request(&mut waiting);
    }
    assert_eq!(site.calls() - before, 2);
}

#[test]
fn a_reissued_admission_is_still_refused_after_release_all() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let (mut browser, _) = site.arrive(None);
    site.wait(20_000);
    site.fail(Some(down()));
    assert!(passes(site.request(&mut browser)));
    site.fail(None);
    // Another gateway, which is in contact.
    let id = &site.queue.settings.id;
    site.faulty().call(id, &[Op::ReleaseAll]).unwrap();
    site.wait(3_001);
    let (mut next, decision) = site.arrive(None);
    assert!(passes(decision));
    site.wait(16_000);
    assert!(passes(site.request(&mut next)));
    assert_eq!(rank(site.request(&mut browser)), Some(1));
}

/// A full store is not one that is down: failing open would let everybody in.
#[test]
fn a_full_store_is_busy_even_when_the_policy_is_open() {
    let open = queue(contract::settings(1), |g| g.on_store_failure = OnStoreFailure::Open);
    let site = Site::new(open);
    let (mut inside, _) = site.arrive(None);
    site.wait(16_000);
    site.fail(Some(StoreError::Full));
    assert!(matches!(site.arrive(None).1, Decision::Busy { .. }));
    assert!(passes(site.request(&mut inside)));
    assert!(site.service.store_is_up(&site.queue.settings.id));
}

#[test]
fn a_store_that_is_down_from_the_start_throws_nobody_out() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let (mut inside, _) = site.arrive(None);
    // Another gateway with the same keys that never reached the store.
    site.service.views.store(Arc::default());
    site.service.configure(std::slice::from_ref(&site.queue));
    site.fail(Some(down()));
    assert!(passes(site.request(&mut inside)));
    let decision = site.request(&mut Browser::default());
    assert!(matches!(decision, Decision::StoreDown { .. }), "{decision:?}");
}

#[test]
fn a_stream_ends_when_its_session_left() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let (browser, decision) = site.arrive(None);
    let Decision::Pass { session: Some(mut stream) } = decision else { panic!() };
    site.wait(16_000);
    assert!(now(site.service.keep_alive(&site.queue, &mut stream)));
    site.wait(1_000);
    // "Leave" in another tab.
    let visitor = site.visitor(&browser);
    now(site.service.leave(&site.queue, &visitor));
    site.wait(16_000);
    assert!(!now(site.service.keep_alive(&site.queue, &mut stream)));
}

#[test]
fn commands_reach_the_queue() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let id = site.queue.settings.id.clone();
    let (inside, _) = site.arrive(None);
    let (mut waiting, _) = site.arrive(None);
    site.wait(1_000);
    now(site.service.flush(&id)).unwrap();
    assert_eq!(site.poll(&mut waiting), Decision::Gone);
    assert_eq!(site.service.stats(&id).unwrap().waiting, 0);
    now(site.service.release_all(&id)).unwrap();
    assert_eq!(site.service.stats(&id).unwrap().inside, 0);
    site.wait(16_000);
    let sid = site.visitor(&inside).sid().unwrap();
    now(site.service.release_sid(&id, sid)).unwrap();
    let unknown = Id::new("nowhere").unwrap();
    let error = StoreError::UnknownQueue("nowhere".into());
    assert_eq!(now(site.service.flush(&unknown)), Err(error));
}

#[test]
fn waits_are_measured_from_the_first_ticket_to_the_claim() {
    let site = Site::new(queue(contract::settings(1), |_| {}));
    let (inside, _) = site.arrive(None);
    let (mut waiting, _) = site.arrive(None);
    site.wait(20_000);
    now(site.service.tick());
    let visitor = site.visitor(&inside);
    now(site.service.leave(&site.queue, &visitor));
    now(site.service.tick());
    site.wait(2_000);
    assert!(passes(site.request(&mut waiting)));
    let stats = site.service.stats(&site.queue.settings.id).unwrap();
    assert_eq!((stats.waits, stats.wait_sum_ms, stats.admitted), (1, 22_000, 2));
    assert_eq!(stats.wait_buckets[2], 1, "between 15 and 30 s");
}
