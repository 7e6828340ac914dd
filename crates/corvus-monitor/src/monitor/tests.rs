use std::{collections::BTreeSet, thread};

use corvus_core::{
    Event, Id, Reason, Stage,
    event::{Outcome, Protocol},
};

use super::*;
use crate::fixture::event;

fn render(monitor: &Monitor) -> String {
    let mut out = String::new();
    monitor.render(&mut out);
    out
}

fn assert_has(page: &str, line: &str) {
    assert!(page.lines().any(|found| found == line), "missing: {line}\n{page}");
}

#[test]
fn workers_are_summed() {
    let monitor = Monitor::new(&AccessLog::Off).unwrap();
    let site = Id::new("shop").unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            let worker = monitor.worker();
            let site = &site;
            scope.spawn(move || {
                for _ in 0..1000 {
                    worker.record(&Event {
                        site: Some(site),
                        outcome: Outcome::Proxied,
                        upstream: Some("http://127.0.0.1:9000"),
                        upstream_us: Some(900),
                        received: 10,
                        ..event()
                    });
                }
            });
        }
    });
    let page = render(&monitor);
    for line in [
        "corvus_requests_total{site=\"shop\",class=\"2xx\",outcome=\"proxied\"} 3000",
        "corvus_request_duration_seconds_bucket{site=\"shop\",le=\"0.001\"} 0",
        "corvus_request_duration_seconds_bucket{site=\"shop\",le=\"0.0025\"} 3000",
        "corvus_request_duration_seconds_sum{site=\"shop\"} 4.500000",
        "corvus_received_bytes_total{site=\"shop\"} 30000",
        "corvus_sent_bytes_total{site=\"shop\"} 3000000",
        "corvus_upstream_requests_total{upstream=\"http://127.0.0.1:9000\",outcome=\"proxied\"} 3000",
        "corvus_upstream_response_seconds_count{upstream=\"http://127.0.0.1:9000\"} 3000",
        "corvus_upstream_response_seconds_sum{upstream=\"http://127.0.0.1:9000\"} 2.700000",
    ] {
        assert_has(&page, line);
    }
}

#[test]
fn refusals_and_failures_are_told_apart() {
    let monitor = Monitor::new(&AccessLog::Off).unwrap();
    let worker = monitor.worker();
    let banned = Reason::new(Stage::Ban, "banned");
    let timeout = Reason::new(Stage::Upstream, "connect_timeout");
    for (reason, outcome, status) in [
        (&banned, Outcome::Refused, 403),
        (&banned, Outcome::Refused, 403),
        (&timeout, Outcome::UpstreamFailed, 504),
        (&timeout, Outcome::ClientGone, 0),
    ] {
        worker.record(&Event { reason: Some(reason), outcome, status, ..event() });
    }
    let page = render(&monitor);
    assert_has(&page, "corvus_refusals_total{stage=\"ban\",rule=\"banned\"} 2");
    assert_has(&page, "corvus_failures_total{stage=\"upstream\",rule=\"connect_timeout\"} 1");
    assert_has(&page, "corvus_requests_total{site=\"-\",class=\"none\",outcome=\"client_gone\"} 1");
    assert!(!page.contains("corvus_refusals_total{stage=\"upstream\""), "{page}");
}

#[test]
fn nothing_a_client_says_becomes_a_label() {
    let monitor = Monitor::new(&AccessLog::Off).unwrap();
    let worker = monitor.worker();
    for n in 0..100 {
        let host = format!("evil{n}.example");
        let reason = Reason::new(Stage::Exploit, "traversal").input("evil").fragment("evil");
        worker.record(&Event {
            host: host.as_bytes(),
            target: b"/evil",
            user_agent: b"evil",
            outcome: Outcome::Refused,
            status: 403,
            reason: Some(&reason),
            ..event()
        });
    }
    let page = render(&monitor);
    assert!(!page.contains("evil"), "{page}");
    assert_has(&page, "corvus_requests_total{site=\"-\",class=\"4xx\",outcome=\"refused\"} 100");
}

#[test]
fn connections_are_open_until_their_guard_is_dropped() {
    let monitor = Monitor::new(&AccessLog::Off).unwrap();
    let worker = monitor.worker();
    let first = worker.connection(Protocol::Http2, true);
    let second = worker.connection(Protocol::Http2, true);
    let plain = worker.connection(Protocol::Http11, false);
    let upgrade = worker.upgrade();
    drop(first);
    let page = render(&monitor);
    assert_has(&page, "corvus_connections_open{protocol=\"http2\",tls=\"true\"} 1");
    assert_has(&page, "corvus_connections_total{protocol=\"http2\",tls=\"true\"} 2");
    assert_has(&page, "corvus_connections_open{protocol=\"http1\",tls=\"false\"} 1");
    assert_has(&page, "corvus_upgrades_open 1");
    drop((second, plain, upgrade));
    let page = render(&monitor);
    assert_has(&page, "corvus_connections_open{protocol=\"http2\",tls=\"true\"} 0");
    assert_has(&page, "corvus_upgrades_open 0");
    assert_has(&page, "corvus_upgrades_total 1");
}

#[test]
fn totals_survive_their_worker() {
    let monitor = Monitor::new(&AccessLog::Off).unwrap();
    let worker = monitor.worker();
    worker.record(&event());
    drop(worker);
    let line = "corvus_requests_total{site=\"-\",class=\"2xx\",outcome=\"answered\"} 1";
    assert_has(&render(&monitor), line);
}

/// Metric names are an interface: the page and docs/logging.md list the same ones.
#[test]
fn every_metric_is_documented() {
    let folder = tempfile::tempdir().unwrap();
    let log = AccessLog::File(folder.path().join("access.log"));
    let monitor = Monitor::new(&log).unwrap();
    monitor.worker().record(&event());
    let mut page = render(&monitor);
    crate::render_queues(&[crate::QueueNumbers { queue: "q", ..Default::default() }], &mut page);
    let on_page: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();

    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/logging.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let documented: BTreeSet<&str> = docs
        .lines()
        .filter_map(|line| line.strip_prefix("| `corvus_")?.split('`').next())
        .collect();
    let on_page: BTreeSet<&str> =
        on_page.iter().map(|name| name.strip_prefix("corvus_").unwrap()).collect();
    assert_eq!(on_page, documented);
}

#[test]
fn the_log_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let monitor = Monitor::new(&AccessLog::File(path.clone())).unwrap();
    let worker = monitor.worker();
    for _ in 0..500 {
        worker.record(&event());
    }
    monitor.close_log();
    assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 500);
    assert_has(&render(&monitor), "corvus_access_log_lines_total 500");
    assert_has(&render(&monitor), "corvus_access_log_dropped_lines_total 0");
}
