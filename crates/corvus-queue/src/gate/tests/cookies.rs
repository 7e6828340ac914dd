//! Cookies of an earlier process, and several of one name.

use super::*;

/// A gateway that starts again may have lost those inside with its state, and their young
/// admissions would keep them from saying so until `refresh`: each is asked once.
#[test]
fn admissions_of_an_earlier_process_are_shown_to_the_store_once() {
    let queue = queue(contract::settings(5), |_| {});
    let site = Site::new(Arc::clone(&queue));
    let (mut browser, decision) = site.arrive(None);
    assert!(passes(decision));
    site.wait(1_000);
    assert!(passes(site.request(&mut browser)));

    let Site { clock, service, .. } = site;
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let inner = Embedded::open(None, Arc::clone(&shared), [0; 16], false).unwrap();
    let engine = Engine::Faulty(Faulty::new(inner));
    let service = QueueService::new(engine, service.keys, shared);
    service.configure(std::slice::from_ref(&queue));
    now(service.tick());
    let site = Site { clock, service, queue };
    assert_eq!(site.service.stats(&site.queue.settings.id).unwrap().inside, 0);
    let before = site.calls();
    assert!(passes(site.request(&mut browser)));
    assert_eq!(site.service.stats(&site.queue.settings.id).unwrap().inside, 1);
    for _ in 0..5 {
        site.wait(1_000);
        assert!(passes(site.request(&mut browser)));
    }
    assert_eq!(site.calls(), before + 1);
}

#[test]
fn of_several_cookies_the_good_one_is_believed() {
    let site = Site::new(queue(contract::settings(5), |_| {}));
    let ip = ClientIp::new("192.0.2.1".parse().unwrap());
    let mut early = Browser::default();
    assert_eq!(site.request(&mut early), Decision::NeedsCookie);
    let proof = early.place.clone().unwrap();
    assert!(passes(site.request(&mut early)));
    let old = early.admission.clone().unwrap();
    site.wait(site.queue.settings.refresh_ms);
    assert!(passes(site.request(&mut early)));
    let new = early.admission.unwrap();
    let admission = |list: &[&'static str]| {
        let list: Vec<&str> = list
            .iter()
            .map(|c| {
                if *c == "old" {
                    &old
                } else if *c == "new" {
                    &new
                } else {
                    *c
                }
            })
            .collect();
        site.service.choose_admission(&site.queue, list.into_iter(), ip).map(str::to_owned)
    };
    for list in [["old", "new", "x"], ["new", "old", ""], ["x", "", "new"]] {
        assert_eq!(admission(&list).as_ref(), Some(&new), "{list:?}");
    }
    assert_eq!(admission(&["x", "y"]).as_deref(), Some("x"));
    assert_eq!(admission(&[]), None);

    let place =
        Place { sid: Sid::from_bytes([7; 16]), issued_ms: 1, ticket: Ticket::Number(5), due_ms: 9 };
    let visitor = site.visitor(&Browser::default());
    let CookieChange::Set(place) = site.service.sign_place(&site.queue, &visitor, &place) else {
        panic!("a gateway with keys signs");
    };
    for list in [[&*place, &*proof], [&*proof, &*place]] {
        let chosen = site.service.choose_place(&site.queue, list.into_iter(), ip);
        assert_eq!(chosen, Some(&*place), "a place beats a newer proof of cookies");
    }
}
