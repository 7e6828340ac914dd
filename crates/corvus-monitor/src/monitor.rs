//! The control plane's side: sums what the workers have counted, and writes the metrics page.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    access_log::{AccessLog, AccessLogError, Writer},
    counters::HistogramTotals,
    exposition::Page,
    worker::{
        CLASSES, OUTCOMES, ReasonCounters, SiteCounters, UpstreamCounters, WorkerCounters,
        WorkerMonitor,
    },
};

/// All numbers of this process, and its access log.
#[derive(Debug)]
pub struct Monitor {
    /// Also those of workers that have ended: totals must not fall.
    workers: Mutex<Vec<Arc<WorkerCounters>>>,
    log: Option<Writer>,
}

impl Monitor {
    /// Opens the access log and starts the thread that writes it.
    pub fn new(access_log: &AccessLog) -> Result<Self, AccessLogError> {
        Ok(Self { workers: Mutex::default(), log: Writer::start(access_log)? })
    }

    /// A handle for one worker thread.
    pub fn worker(&self) -> WorkerMonitor {
        let worker = WorkerMonitor::new(self.log.as_ref().map(Writer::handle));
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).push(worker.counters());
        worker
    }

    /// Opens the log file again, after logrotate has moved it. Lines already handed over may still
    /// reach the old file. Returns at once.
    pub fn reopen_log(&self) {
        if let Some(log) = &self.log {
            log.reopen();
        }
    }

    /// Writes out what the workers have logged and stops writing; waits a few seconds at most, as
    /// standard output may be a pipe that nobody reads. For the end of the process; dropping the
    /// monitor does it too.
    pub fn close_log(&self) {
        if let Some(log) = &self.log {
            log.close();
        }
    }

    /// Appends all metrics in the Prometheus text format (`text/plain; version=0.0.4`).
    pub fn render(&self, out: &mut String) {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut page = Page::new(out);
        page.gauge("corvus_build_info", "The version that runs; always 1.");
        page.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        render_sites(&mut page, &workers);
        render_reasons(&mut page, &workers);
        render_upstreams(&mut page, &workers);
        render_connections(&mut page, &workers);
        if let Some(log) = &self.log {
            let (written, dropped) = log.lines();
            page.counter("corvus_access_log_lines_total", "Lines written to the access log.");
            page.sample(&[], written);
            page.counter(
                "corvus_access_log_dropped_lines_total",
                "Lines lost because the access log could not be written fast enough, or at all.",
            );
            page.sample(&[], dropped);
        }
    }
}

#[derive(Default)]
struct SiteTotals {
    requests: [[u64; OUTCOMES.len()]; CLASSES.len()],
    duration: HistogramTotals,
    received: u64,
    sent: u64,
}

impl SiteTotals {
    fn add(&mut self, counters: &SiteCounters) {
        for (totals, counters) in self.requests.iter_mut().zip(&counters.requests) {
            for (total, counter) in totals.iter_mut().zip(counters) {
                *total += counter.get();
            }
        }
        self.duration.add(&counters.duration);
        self.received += counters.received.get();
        self.sent += counters.sent.get();
    }
}

fn render_sites(page: &mut Page<'_>, workers: &[Arc<WorkerCounters>]) {
    let mut sites: BTreeMap<String, SiteTotals> = BTreeMap::new();
    for counters in workers.iter().flat_map(|worker| worker.sites.load().to_vec()) {
        sites.entry(counters.site.to_string()).or_default().add(&counters);
    }
    page.counter("corvus_requests_total", "Finished requests.");
    for (site, totals) in &sites {
        for (class, by_outcome) in CLASSES.iter().zip(totals.requests) {
            for (outcome, count) in OUTCOMES.iter().zip(by_outcome) {
                // Most of the 49 combinations never happen.
                if count > 0 {
                    let outcome = ("outcome", outcome.name());
                    page.sample(&[("site", site), ("class", class), outcome], count);
                }
            }
        }
    }
    page.histogram(
        "corvus_request_duration_seconds",
        "From the first byte of the request to the end of the response, without upgrades.",
    );
    for (site, totals) in &sites {
        page.observations(("site", site), &totals.duration);
    }
    page.counter("corvus_received_bytes_total", "Body bytes received from clients.");
    for (site, totals) in &sites {
        page.sample(&[("site", site)], totals.received);
    }
    page.counter("corvus_sent_bytes_total", "Body bytes sent to clients.");
    for (site, totals) in &sites {
        page.sample(&[("site", site)], totals.sent);
    }
}

fn render_reasons(page: &mut Page<'_>, workers: &[Arc<WorkerCounters>]) {
    let mut reasons: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for counters in workers.iter().flat_map(|worker| worker.reasons.load().to_vec()) {
        let ReasonCounters { stage, rule, refused, failed } = &*counters;
        let totals = reasons.entry((*stage, rule.to_string())).or_default();
        totals.0 += refused.get();
        totals.1 += failed.get();
    }
    page.counter("corvus_refusals_total", "Requests refused, by the stage and rule that did it.");
    for ((stage, rule), (refused, _)) in reasons.iter().filter(|(_, totals)| totals.0 > 0) {
        page.sample(&[("stage", stage.name()), ("rule", rule)], refused);
    }
    page.counter(
        "corvus_failures_total",
        "Requests that an upstream or the gateway itself failed, by stage and cause.",
    );
    for ((stage, rule), (_, failed)) in reasons.iter().filter(|(_, totals)| totals.1 > 0) {
        page.sample(&[("stage", stage.name()), ("rule", rule)], failed);
    }
}

#[derive(Default)]
struct UpstreamTotals {
    requests: [u64; OUTCOMES.len()],
    response: HistogramTotals,
}

impl UpstreamTotals {
    fn add(&mut self, counters: &UpstreamCounters) {
        for (total, counter) in self.requests.iter_mut().zip(&counters.requests) {
            *total += counter.get();
        }
        self.response.add(&counters.response);
    }
}

fn render_upstreams(page: &mut Page<'_>, workers: &[Arc<WorkerCounters>]) {
    let mut upstreams: BTreeMap<String, UpstreamTotals> = BTreeMap::new();
    for counters in workers.iter().flat_map(|worker| worker.upstreams.load().to_vec()) {
        upstreams.entry(counters.upstream.to_string()).or_default().add(&counters);
    }
    page.counter(
        "corvus_upstream_requests_total",
        "Requests that reached for an upstream, by the one that answered or was tried last.",
    );
    for (upstream, totals) in &upstreams {
        for (outcome, count) in OUTCOMES.iter().zip(totals.requests) {
            if count > 0 {
                let labels = [("upstream", upstream.as_str()), ("outcome", outcome.name())];
                page.sample(&labels, count);
            }
        }
    }
    page.histogram(
        "corvus_upstream_response_seconds",
        "From sending to the upstream until the head of its response.",
    );
    for (upstream, totals) in &upstreams {
        page.observations(("upstream", upstream), &totals.response);
    }
}

fn render_connections(page: &mut Page<'_>, workers: &[Arc<WorkerCounters>]) {
    let kinds = || {
        ["http1", "http2"].into_iter().enumerate().flat_map(|(version, protocol)| {
            [(version, protocol, 0, "false"), (version, protocol, 1, "true")]
        })
    };
    page.counter("corvus_connections_total", "Connections accepted from clients.");
    for (version, protocol, index, tls) in kinds() {
        let total: u64 = workers.iter().map(|w| w.connections[version][index].total()).sum();
        page.sample(&[("protocol", protocol), ("tls", tls)], total);
    }
    page.gauge("corvus_connections_open", "Connections of clients now open.");
    for (version, protocol, index, tls) in kinds() {
        let open: u64 = workers.iter().map(|w| w.connections[version][index].now()).sum();
        page.sample(&[("protocol", protocol), ("tls", tls)], open);
    }
    page.counter("corvus_upgrades_total", "Connections upgraded to another protocol.");
    page.sample(&[], workers.iter().map(|worker| worker.upgrades.total()).sum::<u64>());
    page.gauge("corvus_upgrades_open", "Upgraded connections now open.");
    page.sample(&[], workers.iter().map(|worker| worker.upgrades.now()).sum::<u64>());
}
