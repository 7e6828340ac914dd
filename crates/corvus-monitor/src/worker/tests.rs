use super::*;
use crate::fixture::event;

#[test]
fn labels_are_bounded() {
    let worker = WorkerMonitor::new(None);
    for n in 0..MAX_LABELS + 10 {
        let upstream = format!("10.0.0.1:{n}");
        worker.record(&Event { upstream: Some(&upstream), ..event() });
    }
    // One that was known before still counts under its own name.
    worker.record(&Event { upstream: Some("10.0.0.1:0"), ..event() });

    let upstreams = worker.counters.upstreams.load();
    assert_eq!(upstreams.len(), MAX_LABELS + 1);
    let count =
        |counters: &UpstreamCounters| counters.requests.iter().map(Counter::get).sum::<u64>();
    assert_eq!(count(&upstreams[0]), 2);
    assert_eq!(&*upstreams[MAX_LABELS].upstream, OTHER);
    assert_eq!(count(&upstreams[MAX_LABELS]), 10);
}

#[test]
fn outcomes_and_classes_match_their_names() {
    for (index, outcome) in OUTCOMES.into_iter().enumerate() {
        assert_eq!(outcome_index(outcome), index);
    }
    let class = |status| CLASSES[class_index(status)];
    assert_eq!(class(0), "none");
    assert_eq!(class(99), "other");
    assert_eq!(class(100), "1xx");
    assert_eq!(class(204), "2xx");
    assert_eq!(class(399), "3xx");
    assert_eq!(class(429), "4xx");
    assert_eq!(class(599), "5xx");
    assert_eq!(class(600), "other");
    assert_eq!(class(u16::MAX), "other");
}

#[test]
fn upgrades_are_not_in_the_durations() {
    let worker = WorkerMonitor::new(None);
    worker.record(&Event { status: 101, duration_us: 3_600_000_000, ..event() });
    worker.record(&Event { duration_us: 800, ..event() });
    let mut totals = crate::counters::HistogramTotals::default();
    totals.add(&worker.unknown_site.duration);
    assert_eq!(totals.sum_us, 800);
    assert_eq!(totals.buckets.iter().sum::<u64>(), 1);
}
