//! What a run found, as tables for people and as JSON for programs.

use std::fmt;

use serde::Serialize;

use super::{
    OPENING_MS,
    options::Options,
    sizing::{self, Sizing},
    tally::Second,
    text::{bits_per_s, bytes, grouped, short},
    visitor::Next,
    world::World,
};

/// Lines of the chart, and characters of its longest bar.
const CHART_LINES: usize = 20;
const CHART_WIDTH: usize = 40;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) options: Options,
    pub(crate) load: Vec<Load>,
    /// Of calls that carried operations.
    pub(crate) ops_per_call_mean: Option<f64>,
    pub(crate) ops_per_call_p95: Option<u64>,
    /// From an operation at the gateway to its answer.
    pub(crate) answer_ms_mean: Option<f64>,
    pub(crate) answer_ms_p99: Option<u64>,
    pub(crate) visitors: Visitors,
    pub(crate) laws: Laws,
    pub(crate) timeline: Vec<Point>,
    pub(crate) sizing: Sizing,
}

/// Something counted each second, from the opening on.
#[derive(Debug, Serialize)]
pub(crate) struct Load {
    pub(crate) what: &'static str,
    pub(crate) peak: f64,
    pub(crate) mean: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Visitors {
    pub(crate) arrived: u64,
    pub(crate) joined: u64,
    pub(crate) admitted_directly: u64,
    pub(crate) admitted_after_waiting: u64,
    pub(crate) wait_s_median: Option<u64>,
    pub(crate) wait_s_p95: Option<u64>,
    pub(crate) closed_while_waiting: u64,
    /// As the store counts them: did not check in.
    pub(crate) abandoned: u64,
    pub(crate) place_lapsed: u64,
    pub(crate) finished: u64,
    pub(crate) waiting_at_end: u64,
    pub(crate) turned_away_full: u64,
    pub(crate) told_busy: u64,
    pub(crate) let_through: u64,
    pub(crate) failed_calls: u64,
    /// While somebody waited, places kept for visitors whose turn it was included.
    pub(crate) admitted_per_s: f64,
    pub(crate) admitted_per_s_peak: u64,
}

/// Breaches seen. Without faults all of them are 0.
#[derive(Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Laws {
    /// Calls after which the store had more inside than may be (L1).
    pub(crate) over_capacity: u64,
    /// Valid admissions in browsers above the capacity, at most at once (L1 and L8).
    pub(crate) admissions_over_capacity: u64,
    /// Visitors in line who were overtaken (L2).
    pub(crate) out_of_order: u64,
    /// Places lost by visitors who checked in in time (L3).
    pub(crate) places_lost: u64,
    /// Sessions that ended before their time.
    pub(crate) thrown_out: u64,
    /// Calls that let in more than the rate allows (L6).
    pub(crate) over_rate: u64,
}

impl Laws {
    pub(crate) const KEPT: Self = Self {
        over_capacity: 0,
        admissions_over_capacity: 0,
        out_of_order: 0,
        places_lost: 0,
        thrown_out: 0,
        over_rate: 0,
    };
}

#[derive(Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) s: usize,
    pub(crate) waiting: u64,
    pub(crate) inside: u64,
    /// Mean since the point before.
    pub(crate) admitted_per_s: f64,
    pub(crate) polls_per_s: f64,
}

pub(super) fn of(world: &World<'_>) -> Report {
    let (options, tally) = (world.options, &world.tally);
    let seconds = tally.seconds.get(OPENING_MS as usize / 1_000..).unwrap_or_default();
    let sum = |of: fn(&Second) -> u64| seconds.iter().map(of).sum::<u64>();
    let load = |what, of: fn(&Second) -> u64| Load {
        what,
        peak: seconds.iter().map(of).max().unwrap_or(0) as f64,
        mean: sum(of) as f64 / seconds.len() as f64,
    };
    let queued: Vec<&Second> = seconds.iter().filter(|s| s.waiting > 0).collect();
    let admitted_per_s = if queued.is_empty() {
        sum(|s| s.admitted) as f64 / seconds.len() as f64
    } else {
        queued.iter().map(|s| s.admitted).sum::<u64>() as f64 / queued.len() as f64
    };
    let at_end = seconds.last().copied().unwrap_or_default();
    let visitors = Visitors {
        arrived: sum(|s| s.arrivals),
        joined: sum(|s| s.joins),
        admitted_directly: tally.direct,
        admitted_after_waiting: tally.waits_s.count(),
        wait_s_median: tally.waits_s.quantile(0.5),
        wait_s_p95: tally.waits_s.quantile(0.95),
        closed_while_waiting: tally.closed,
        abandoned: tally.reaped,
        place_lapsed: tally.lapsed,
        finished: tally.finished,
        waiting_at_end: at_end.waiting,
        turned_away_full: tally.full,
        told_busy: tally.busy,
        let_through: tally.through,
        failed_calls: tally.failed_calls,
        admitted_per_s,
        admitted_per_s_peak: seconds.iter().map(|s| s.admitted).max().unwrap_or(0),
    };
    debug_assert!(world.visitors.iter().all(|v| v.next != Next::Come || v.came == 0));
    Report {
        options: options.clone(),
        load: vec![
            load("arrivals/s", |s| s.arrivals),
            load("joins/s", |s| s.joins),
            load("polls/s", |s| s.polls),
            load("heartbeats/s", |s| s.heartbeats),
            load("requests/s", |s| s.requests),
            load("requests/s, busiest gateway", |s| s.busiest_requests),
            load("waiting", |s| s.waiting),
            load("inside", |s| s.inside),
            load("connections", |s| s.connections),
            load("connections, busiest gateway", |s| s.busiest_connections),
            load("operations/s at the store", |s| s.ops),
            load("calls/s at the store", |s| s.calls),
            load("calls/s, busiest gateway", |s| s.busiest_calls),
        ],
        ops_per_call_mean: tally.batches.mean(),
        ops_per_call_p95: tally.batches.quantile(0.95),
        answer_ms_mean: tally.answers_ms.mean(),
        answer_ms_p99: tally.answers_ms.quantile(0.99),
        sizing: sizing::of(world, visitors.waiting_at_end, admitted_per_s),
        visitors,
        laws: Laws {
            over_capacity: world.store.laws.over_capacity,
            admissions_over_capacity: tally.holders_max.saturating_sub(options.capacity),
            out_of_order: tally.out_of_order,
            places_lost: tally.places_lost,
            thrown_out: tally.thrown_out,
            over_rate: world.store.laws.over_rate,
        },
        timeline: timeline(seconds),
    }
}

fn timeline(seconds: &[Second]) -> Vec<Point> {
    let step = seconds.len().div_ceil(CHART_LINES).max(1);
    let points = seconds.chunks(step).enumerate().filter_map(|(i, chunk)| {
        let last = chunk.last()?;
        let mean =
            |of: fn(&Second) -> u64| chunk.iter().map(of).sum::<u64>() as f64 / chunk.len() as f64;
        Some(Point {
            s: i * step + chunk.len(),
            waiting: last.waiting,
            inside: last.inside,
            admitted_per_s: mean(|s| s.admitted),
            polls_per_s: mean(|s| s.polls),
        })
    });
    points.collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let o = &self.options;
        let rate = o.rate.map_or_else(|| "unlimited".to_owned(), |rate| format!("{rate}/s"));
        writeln!(
            f,
            "{} visitors, {} gateways, capacity {}, rate {rate}, {}, visits of {} s, burst {}@{}, \
             {} s, seed {}",
            grouped(o.visitors.into()),
            o.gateways,
            grouped(o.capacity),
            if o.is_fifo() { "fifo" } else { "random" },
            o.session_s,
            o.open_burst.share,
            o.open_burst.s,
            o.horizon,
            o.seed,
        )?;
        writeln!(f, "\n{:<40}{:>14}{:>14}", "Load", "peak", "mean")?;
        for load in &self.load {
            writeln!(f, "  {:<38}{:>14}{:>14}", load.what, short(load.peak), short(load.mean))?;
        }
        self.write_answers(f)?;
        self.write_visitors(f)?;
        self.write_laws(f)?;
        self.write_chart(f)?;
        self.write_sizing(f)
    }
}

impl Report {
    fn write_answers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), short);
        let rows = [
            ("operations in a call", "p95", self.ops_per_call_p95, self.ops_per_call_mean),
            ("answer of the store, ms", "p99", self.answer_ms_p99, self.answer_ms_mean),
        ];
        for (what, quantile, high, mean) in rows {
            let high = known(high.map(|n| n as f64));
            writeln!(f, "  {what:<38}{:>14}{:>14}", format!("{quantile} {high}"), known(mean))?;
        }
        Ok(())
    }

    fn write_visitors(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v = &self.visitors;
        writeln!(f, "\nVisitors")?;
        for (what, n) in [
            ("arrived", v.arrived),
            ("new places and direct admissions", v.joined),
            ("let in without waiting", v.admitted_directly),
            ("let in after waiting", v.admitted_after_waiting),
            ("closed the page while waiting", v.closed_while_waiting),
            ("given up by the store (no check-in)", v.abandoned),
            ("came back too late for their place", v.place_lapsed),
            ("finished their visit", v.finished),
            ("waiting at the end", v.waiting_at_end),
        ] {
            writeln!(f, "  {what:<38}{:>14}", grouped(n))?;
        }
        // Only where there were any.
        for (what, n) in [
            ("told that the line is full", v.turned_away_full),
            ("told that the gateway is busy", v.told_busy),
            ("let through without a place", v.let_through),
            ("calls that the store did not answer", v.failed_calls),
        ] {
            if n > 0 {
                writeln!(f, "  {what:<38}{:>14}", grouped(n))?;
            }
        }
        let seconds =
            |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| format!("{} s", grouped(n)));
        writeln!(
            f,
            "  {:<38}{:>14}{:>14}",
            "wait: median, 95 of 100 below",
            seconds(v.wait_s_median),
            seconds(v.wait_s_p95)
        )?;
        let rate = self.options.rate.map_or_else(|| "unlimited".to_owned(), short);
        writeln!(
            f,
            "  {:<38}{:>14}{:>14}",
            "let in a second: while some wait, rate",
            short(v.admitted_per_s),
            rate
        )
    }

    fn write_laws(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let l = &self.laws;
        let judged = match (*l == Laws::KEPT, self.options.has_faults()) {
            (true, _) => "all kept",
            (false, true) => "with faults; docs/guide/sizing.md says what they allow",
            (false, false) => "BROKEN WITHOUT A FAULT: this is a bug in Corvus",
        };
        writeln!(f, "\nLaws: {judged}")?;
        for (what, n) in [
            ("calls with too many inside", l.over_capacity),
            ("admissions held above the capacity", l.admissions_over_capacity),
            ("overtaken in line", l.out_of_order),
            ("places lost in spite of checking in", l.places_lost),
            ("sessions ended before their time", l.thrown_out),
            ("calls that let in more than the rate", l.over_rate),
        ] {
            writeln!(f, "  {what:<38}{:>14}", grouped(n))?;
        }
        Ok(())
    }

    fn write_chart(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.timeline.iter().map(|p| p.waiting).max().unwrap_or(0).max(1);
        writeln!(
            f,
            "\n{:>7} {:>11} {:>9} {:>8} {:>9}  waiting",
            "second", "waiting", "inside", "in/s", "polls/s"
        )?;
        for p in &self.timeline {
            let bar = (p.waiting as f64 / most as f64 * CHART_WIDTH as f64).ceil() as usize;
            let line = format!(
                "{:>7} {:>11} {:>9} {:>8} {:>9}  {}",
                p.s,
                grouped(p.waiting),
                grouped(p.inside),
                short(p.admitted_per_s),
                short(p.polls_per_s),
                "#".repeat(bar)
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }

    fn write_sizing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.sizing;
        let cores = |n: f64| format!("{n:.2}");
        writeln!(f, "\n{:<40}{:>14}{:>14}", "Size", "peak", "mean")?;
        for (what, peak, mean) in [
            ("cores of the store", cores(s.store_cores_peak), cores(s.store_cores_mean)),
            ("memory of the store", bytes(s.store_bytes), String::new()),
            ("cores of all gateways", cores(s.gateway_cores_peak), cores(s.gateway_cores_mean)),
            ("memory of all gateways", bytes(s.gateway_bytes), String::new()),
            (
                "network to visitors, without the site",
                bits_per_s(s.visitor_bits_per_s),
                String::new(),
            ),
            ("network to the store", bits_per_s(s.store_bits_per_s), String::new()),
        ] {
            writeln!(f, "{}", format!("  {what:<38}{peak:>14}{mean:>14}").trim_end())?;
        }
        writeln!(f)?;
        for words in &s.recommendation {
            writeln!(f, "{words}")?;
        }
        Ok(())
    }
}
