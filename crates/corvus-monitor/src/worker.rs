//! What one worker thread counts. Nothing here is written by two threads, so nothing waits.

#[cfg(test)]
mod tests;

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use corvus_core::{
    Event, Reason, Stage,
    event::{Outcome, Protocol},
};
use foldhash::fast::FixedState;

use crate::{
    access_log::LogHandle,
    counters::{Counter, Gauge, Histogram},
};

/// All outcomes, in the order of [`outcome_index`].
pub(crate) const OUTCOMES: [Outcome; 7] = [
    Outcome::Proxied,
    Outcome::Answered,
    Outcome::Queued,
    Outcome::Refused,
    Outcome::ClientGone,
    Outcome::UpstreamFailed,
    Outcome::Internal,
];

/// Classes of status codes, in the order of [`class_index`].
pub(crate) const CLASSES: [&str; 7] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx", "other"];

/// The label of requests for hosts we do not have. No id looks like it, and no client can choose it.
pub(crate) const UNKNOWN_SITE: &str = "-";

/// The label that takes what comes after [`MAX_LABELS`] different ones.
pub(crate) const OTHER: &str = "(other)";

/// Values a label may take in one worker. Sites, upstreams and rules come from the configuration,
/// which changes over a long life, and an upstream's name may resolve to ever new addresses.
const MAX_LABELS: usize = 4096;

type ByLabel<T> = HashMap<Box<str>, Arc<T>, FixedState>;

/// Counters of one worker thread. Make one for each thread with [`crate::Monitor::worker`]; it can
/// be moved to its thread, and not shared.
#[derive(Debug)]
pub struct WorkerMonitor {
    counters: Arc<WorkerCounters>,
    unknown_site: Arc<SiteCounters>,
    sites: RefCell<ByLabel<SiteCounters>>,
    upstreams: RefCell<ByLabel<UpstreamCounters>>,
    reasons: RefCell<HashMap<Stage, ByLabel<ReasonCounters>, FixedState>>,
    log: Option<LogHandle>,
}

/// The part of a [`WorkerMonitor`] that the control plane reads. Aligned so that no two workers
/// write to one cache line (128 bytes: processors fetch lines in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerCounters {
    pub(crate) sites: Published<SiteCounters>,
    pub(crate) upstreams: Published<UpstreamCounters>,
    pub(crate) reasons: Published<ReasonCounters>,
    /// `[HTTP/1 or HTTP/2][plain or TLS]`.
    pub(crate) connections: [[Gauge; 2]; 2],
    pub(crate) upgrades: Gauge,
}

#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct SiteCounters {
    pub(crate) site: Box<str>,
    pub(crate) requests: [[Counter; OUTCOMES.len()]; CLASSES.len()],
    pub(crate) duration: Histogram,
    pub(crate) received: Counter,
    pub(crate) sent: Counter,
}

#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct UpstreamCounters {
    pub(crate) upstream: Box<str>,
    pub(crate) requests: [Counter; OUTCOMES.len()],
    pub(crate) response: Histogram,
}

#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ReasonCounters {
    pub(crate) stage: Stage,
    pub(crate) rule: Box<str>,
    pub(crate) refused: Counter,
    pub(crate) failed: Counter,
}

/// A list that its worker appends to and the control plane reads, without a lock. An append copies
/// the list, which happens once for each label.
#[derive(Debug)]
pub(crate) struct Published<T>(ArcSwap<Vec<Arc<T>>>);

impl<T> Default for Published<T> {
    fn default() -> Self {
        Self(ArcSwap::default())
    }
}

impl<T> Published<T> {
    pub(crate) fn load(&self) -> Arc<Vec<Arc<T>>> {
        self.0.load_full()
    }

    fn push(&self, item: T) -> Arc<T> {
        let item = Arc::new(item);
        let mut list = Vec::clone(&self.0.load());
        list.push(Arc::clone(&item));
        self.0.store(Arc::new(list));
        item
    }
}

impl WorkerMonitor {
    pub(crate) fn new(log: Option<LogHandle>) -> Self {
        let counters = Arc::new(WorkerCounters::default());
        let unknown_site = counters.sites.push(SiteCounters::new(UNKNOWN_SITE));
        Self {
            counters,
            unknown_site,
            sites: RefCell::default(),
            upstreams: RefCell::default(),
            reasons: RefCell::default(),
            log,
        }
    }

    pub(crate) fn counters(&self) -> Arc<WorkerCounters> {
        Arc::clone(&self.counters)
    }

    /// Records a finished request: counters, and a line of the access log where it is on. Call it
    /// once for each request.
    pub fn record(&self, event: &Event<'_>) {
        self.count_site(event);
        if let Some(upstream) = event.upstream {
            self.count_upstream(upstream, event);
        }
        if let Some(reason) = event.reason {
            self.count_reason(reason, event.outcome);
        }
        if let Some(log) = &self.log {
            log.push(event);
        }
    }

    /// Counts a downstream connection until the guard is dropped. The protocol is the one that ALPN
    /// or the preface has settled.
    #[must_use]
    pub fn connection(&self, protocol: Protocol, tls: bool) -> OpenGuard {
        let version = match protocol {
            Protocol::Http10 | Protocol::Http11 => 0,
            Protocol::Http2 => 1,
        };
        OpenGuard::new(&self.counters, Open::Connection { version, tls })
    }

    /// Counts an upgraded connection (WebSocket) until the guard is dropped.
    #[must_use]
    pub fn upgrade(&self) -> OpenGuard {
        OpenGuard::new(&self.counters, Open::Upgrade)
    }

    fn count_site(&self, event: &Event<'_>) {
        match event.site {
            None => self.unknown_site.count(event),
            Some(site) => {
                let mut map = self.sites.borrow_mut();
                let count = |counters: &SiteCounters| counters.count(event);
                with_label(&mut map, &self.counters.sites, site.as_str(), SiteCounters::new, count);
            }
        }
    }

    fn count_upstream(&self, upstream: &str, event: &Event<'_>) {
        let mut map = self.upstreams.borrow_mut();
        let count = |counters: &UpstreamCounters| counters.count(event);
        with_label(&mut map, &self.counters.upstreams, upstream, UpstreamCounters::new, count);
    }

    fn count_reason(&self, reason: &Reason, outcome: Outcome) {
        let mut stages = self.reasons.borrow_mut();
        let map = stages.entry(reason.stage).or_default();
        let make = |rule: &str| ReasonCounters::new(reason.stage, rule);
        let count = |counters: &ReasonCounters| counters.count(outcome);
        with_label(map, &self.counters.reasons, &reason.rule, make, count);
    }
}

/// Hands the counters of `label` to `count`, made and published first when it is new.
fn with_label<T>(
    map: &mut ByLabel<T>,
    published: &Published<T>,
    label: &str,
    make: impl FnOnce(&str) -> T,
    count: impl FnOnce(&T),
) {
    if let Some(counters) = map.get(label) {
        return count(counters);
    }
    let label = if map.len() < MAX_LABELS { label } else { OTHER };
    count(map.entry(label.into()).or_insert_with(|| published.push(make(label))));
}

impl SiteCounters {
    fn new(site: &str) -> Self {
        Self {
            site: site.into(),
            requests: Default::default(),
            duration: Histogram::default(),
            received: Counter::default(),
            sent: Counter::default(),
        }
    }

    fn count(&self, event: &Event<'_>) {
        let by_outcome = self.requests.get(class_index(event.status));
        if let Some(counter) = by_outcome.and_then(|row| row.get(outcome_index(event.outcome))) {
            counter.add(1);
        }
        // An upgrade lasts as long as people look at the page; it would drown the requests.
        if event.status != 101 {
            self.duration.observe(event.duration_us);
        }
        self.received.add(event.received);
        self.sent.add(event.sent);
    }
}

impl UpstreamCounters {
    fn new(upstream: &str) -> Self {
        Self {
            upstream: upstream.into(),
            requests: Default::default(),
            response: Histogram::default(),
        }
    }

    fn count(&self, event: &Event<'_>) {
        if let Some(counter) = self.requests.get(outcome_index(event.outcome)) {
            counter.add(1);
        }
        if let Some(us) = event.upstream_us {
            self.response.observe(us);
        }
    }
}

impl ReasonCounters {
    fn new(stage: Stage, rule: &str) -> Self {
        let (refused, failed) = (Counter::default(), Counter::default());
        Self { stage, rule: rule.into(), refused, failed }
    }

    fn count(&self, outcome: Outcome) {
        match outcome {
            Outcome::Refused => self.refused.add(1),
            Outcome::UpstreamFailed | Outcome::Internal => self.failed.add(1),
            Outcome::Proxied | Outcome::Answered | Outcome::Queued | Outcome::ClientGone => {}
        }
    }
}

const fn outcome_index(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Proxied => 0,
        Outcome::Answered => 1,
        Outcome::Queued => 2,
        Outcome::Refused => 3,
        Outcome::ClientGone => 4,
        Outcome::UpstreamFailed => 5,
        Outcome::Internal => 6,
    }
}

const fn class_index(status: u16) -> usize {
    match status {
        0 => 0,
        100..=599 => (status / 100) as usize,
        _ => CLASSES.len() - 1,
    }
}

/// Counts something as open until it is dropped.
#[derive(Debug)]
pub struct OpenGuard {
    counters: Arc<WorkerCounters>,
    open: Open,
}

#[derive(Clone, Copy, Debug)]
enum Open {
    Connection { version: usize, tls: bool },
    Upgrade,
}

impl OpenGuard {
    fn new(counters: &Arc<WorkerCounters>, open: Open) -> Self {
        let guard = Self { counters: Arc::clone(counters), open };
        guard.gauge().open();
        guard
    }

    fn gauge(&self) -> &Gauge {
        match self.open {
            Open::Connection { version, tls } => {
                &self.counters.connections[version][usize::from(tls)]
            }
            Open::Upgrade => &self.counters.upgrades,
        }
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.gauge().close();
    }
}
