//! Each decision as a page and as JSON: also those that only a failing store brings, which no
//! embedded engine makes.

use std::{rc::Rc, sync::Arc};

use arc_swap::ArcSwap;
use corvus_config::{Format, Snapshot};
use corvus_core::{Clock, FakeClock, PeerAddr, event::Protocol};
use corvus_monitor::{AccessLog, Monitor};
use corvus_queue::{Engine, KeyStore, QueueService};
use corvus_tls::{CertificateMap, CertificateStore, SniResolver, server_config};

use super::*;
use crate::{
    http::{body::ResponseBody, exchange::ConnInfo},
    http1::parse::RequestHead,
    worker::{Shared, Site, Worker},
};

const DOCUMENT: &str = "
version: 1
proxy_hosts:
  - {id: shop, domains: [shop.test], upstreams: [{url: 'http://127.0.0.1:9'}], access_queue: drop}
access_queues:
  - {id: drop, capacity: 1, status: 202}
";
const NOW_MS: u64 = 1_800_000_000_000;

fn worker() -> Rc<Worker> {
    let clock = FakeClock::new(NOW_MS);
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let (_, snapshot) = corvus_config::load(DOCUMENT, Format::Yaml, &|_| None).unwrap();
    let keys = KeyStore::open(None).unwrap();
    let engine = Engine::embedded(None, Arc::clone(&shared), &keys).unwrap();
    let queues = Arc::new(QueueService::new(engine, keys, Arc::clone(&shared)));
    let nothing = CertificateMap::new(Arc::new(Snapshot::default()), &CertificateStore::default());
    let tls = server_config(Arc::new(SniResolver::new(nothing, &clock).unwrap())).unwrap();
    let monitor = Arc::new(Monitor::new(&AccessLog::Off).unwrap());
    let snapshot = Arc::new(ArcSwap::from_pointee(snapshot));
    Rc::new(Worker::new(&Arc::new(Shared::new(shared, snapshot, queues, monitor, tls)), 1))
}

fn exchange(worker: &Rc<Worker>, method: &str, accept: &str) -> (Exchange, Rc<Site>) {
    let conn = ConnInfo {
        peer: PeerAddr("192.0.2.1:1".parse().unwrap()),
        peer_text: "192.0.2.1".to_owned(),
        tls: false,
        local_port: 80,
        https_port: None,
        shown: std::cell::RefCell::default(),
    };
    let mut head = RequestHead::default();
    let text = format!("{method} /a?b=1 HTTP/1.1\r\nHost: shop.test\r\nAccept: {accept}\r\n\r\n");
    head.parse(text.as_bytes(), 10).unwrap();
    let mut x = Exchange::new(worker, &Rc::new(conn), head, Protocol::Http11);
    x.authority = b"shop.test".to_vec();
    let site = Rc::clone(x.active.find("shop.test").unwrap());
    x.site = Some(Rc::clone(&site));
    (x, site)
}

fn header(response: &Response, name: Name) -> &str {
    response.head.headers.get_str(name).unwrap_or_default()
}

fn body_of(response: &Response) -> String {
    match &response.body {
        ResponseBody::Full(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        body => panic!("{body:?}"),
    }
}

fn standing() -> Standing {
    Standing { rank: Some(7), waiting: 9, eta_s: Some(60), poll_s: 3, starts_at_ms: None }
}

fn not_open() -> Decision {
    Decision::NotOpen { opens_at_ms: NOW_MS + 90_000, retry_after_s: 90 }
}

#[test]
fn every_decision_has_its_page() {
    let worker = worker();
    for (decision, status, words, seconds) in [
        (Decision::Waiting(standing()), 202, "You are in line", "3"),
        (Decision::Full { retry_after_s: 30 }, 429, "The line is full", "30"),
        (Decision::Busy { retry_after_s: 30 }, 429, "It is very busy right now", "30"),
        (Decision::StoreDown { retry_after_s: 30 }, 429, "Please try again in a moment", "30"),
        (Decision::TooManyJoins { retry_after_s: 60 }, 429, "Too many attempts", "60"),
        (Decision::TooManyWaiting { retry_after_s: 30 }, 429, "Too many attempts", "30"),
        (Decision::TooManyPolls { retry_after_s: 1 }, 429, "Too many attempts", "1"),
        (not_open(), 429, "Not open yet", "90"),
        (Decision::Closed, 429, "This line has closed", ""),
    ] {
        let (x, site) = exchange(&worker, "GET", "text/html");
        let response = response(&x, site.queue.as_ref().unwrap(), &decision);
        let body = body_of(&response);
        assert_eq!(response.head.status, status, "{decision:?}");
        assert!(body.contains(words), "{decision:?}: {body}");
        assert_eq!(header(&response, Name::RetryAfter), seconds, "{decision:?}");
        let refresh = if seconds == "3" { "10" } else { seconds };
        assert_eq!(header(&response, Name::Refresh), refresh, "{decision:?}");
        assert_eq!(header(&response, Name::CacheControl), "private, no-store", "{decision:?}");
        assert_eq!(header(&response, Name::Location), "", "{decision:?}");
        assert_eq!(header(&response, Name::XRobotsTag), "noindex", "{decision:?}");
    }
}

#[test]
fn every_decision_has_its_json() {
    let worker = worker();
    for (decision, state, seconds) in [
        (Decision::Waiting(standing()), "waiting", "3"),
        (Decision::NeedsCookie, "needs_cookie", "3"),
        (Decision::Full { retry_after_s: 30 }, "full", "30"),
        (Decision::Busy { retry_after_s: 30 }, "busy", "30"),
        (Decision::StoreDown { retry_after_s: 30 }, "unavailable", "30"),
        (Decision::TooManyJoins { retry_after_s: 60 }, "busy", "60"),
        (Decision::TooManyWaiting { retry_after_s: 30 }, "busy", "30"),
        (Decision::TooManyPolls { retry_after_s: 1 }, "busy", "1"),
        (not_open(), "not_open", "90"),
        (Decision::Closed, "closed", ""),
        (Decision::Gone, "gone", ""),
    ] {
        for method in ["GET", "POST"] {
            let (x, site) = exchange(&worker, method, "*/*");
            let response = response(&x, site.queue.as_ref().unwrap(), &decision);
            assert_eq!(response.head.status, 429, "{decision:?}");
            let body: serde_json::Value = serde_json::from_str(&body_of(&response)).unwrap();
            assert_eq!(body["state"], state, "{decision:?}");
            assert_eq!(header(&response, Name::RetryAfter), seconds, "{decision:?}");
            assert_eq!(header(&response, Name::Refresh), "", "{decision:?}");
        }
    }
}

/// A page that answered a POST is not redirected, and the marker ends the trying.
#[test]
fn only_a_first_page_navigation_is_redirected() {
    let worker = worker();
    let decide = |method: &str, accept: &str, marked: bool| {
        let (mut x, site) = exchange(&worker, method, accept);
        x.marked = marked;
        let response = response(&x, site.queue.as_ref().unwrap(), &Decision::NeedsCookie);
        (response.head.status, header(&response, Name::Location).to_owned())
    };
    let sent_back = "http://shop.test/a?b=1&__corvus_c=1".to_owned();
    assert_eq!(decide("GET", "text/html", false), (302, sent_back));
    assert_eq!(decide("GET", "text/html", true), (429, String::new()));
    assert_eq!(decide("POST", "text/html", false), (429, String::new()), "not done, so not 202");
    assert_eq!(decide("GET", "*/*", false), (429, String::new()));
}
