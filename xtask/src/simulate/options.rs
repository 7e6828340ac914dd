//! The command line of the simulation.

use std::ops::Range;

use anyhow::Result;
use clap::{Parser, ValueEnum, error::ErrorKind};
use corvus_config::snapshot::{Method, QueueSettings, Rate, Schedule};
use corvus_core::Id;
use serde::Serialize;

use super::costs::Costs;

/// Simulates an access queue with many gateways and visitors on one virtual clock, to size an
/// installation before a sale. Seconds count from the opening.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(name = "xtask simulate", bin_name = "cargo run --release -p xtask -- simulate")]
pub(crate) struct Options {
    /// Visitors who come
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..=20_000_000))]
    pub(crate) visitors: u32,
    /// Gateways in front of one store
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) gateways: u32,
    /// Visitors inside at once
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) capacity: u64,
    /// Admissions a second; without it as fast as places become free
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Mean length of a visit, seconds; lengths are exponential
    #[arg(long, value_name = "S", default_value_t = 180, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) session_s: u32,
    /// Share of the visitors who come evenly within so many seconds of the opening; the others come
    /// ever more thinly until the horizon
    #[arg(long, value_name = "SHARE@S", default_value = "0.8@60", value_parser = burst)]
    pub(crate) open_burst: Burst,
    /// How tickets are drawn
    #[arg(long, value_enum, default_value_t = Order::Fifo)]
    pub(crate) method: Order,
    /// Length of the run, seconds from the opening
    #[arg(long, value_name = "S", default_value_t = 900, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) horizon: u32,
    /// The same seed and options give the same run
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Prints JSON instead of tables
    #[arg(long)]
    #[serde(skip)]
    pub(crate) json: bool,

    /// Share of the visitors who close the page while they wait
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = share, help_heading = "What visitors do")]
    pub(crate) closing: f64,
    /// Share who go away while they wait, for 2 to 10 minutes, and come back
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, value_parser = share, help_heading = "What visitors do")]
    pub(crate) late: f64,
    /// Share who hide the tab: their browser runs its timers once a minute
    #[arg(long, value_name = "SHARE", default_value_t = 0.3, value_parser = share, help_heading = "What visitors do")]
    pub(crate) hidden: f64,
    /// Share whose visit ends with a word to the gateway (the leave button, or the origin's
    /// release); the others go silent
    #[arg(long, value_name = "SHARE", default_value_t = 0.3, value_parser = share, help_heading = "What visitors do")]
    pub(crate) leaving: f64,
    /// Mean time between two pages of a visit, seconds
    #[arg(long, value_name = "S", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=3_600), help_heading = "What visitors do")]
    pub(crate) page_every_s: u32,
    /// Requests for each page of the site
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000), help_heading = "What visitors do")]
    pub(crate) page_requests: u32,

    /// As in the configuration
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u32).range(5..=86_400), help_heading = "The queue")]
    pub(crate) active_ttl_s: u32,
    /// As in the configuration
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u32).range(5..=3_600), help_heading = "The queue")]
    pub(crate) grant_ttl_s: u32,
    /// As in the configuration
    #[arg(long, value_name = "S", default_value_t = 120, value_parser = clap::value_parser!(u32).range(30..=86_400), help_heading = "The queue")]
    pub(crate) queue_ttl_s: u32,
    /// As in the configuration
    #[arg(long, value_name = "S", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=3_600), help_heading = "The queue")]
    pub(crate) refresh_s: u32,
    /// As in the configuration; without it nobody is turned away
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000), help_heading = "The queue")]
    pub(crate) max_waiting: Option<u64>,
    /// As in the configuration
    #[arg(long, value_enum, default_value_t = OnFailure::Open, help_heading = "The queue")]
    pub(crate) on_store_failure: OnFailure,
    /// A gateway gathers operations for so long, and while a call is under way; 0: sent at once
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=100), help_heading = "The queue")]
    pub(crate) window_ms: u32,

    /// The store loses everything
    #[arg(long, value_name = "S", help_heading = "Faults")]
    pub(crate) wipe_at: Option<u32>,
    /// The store does not answer
    #[arg(long, value_name = "FROM-TO", value_parser = span, help_heading = "Faults")]
    pub(crate) store_down: Option<Range<u32>>,
    /// One gateway ends without a word; its visitors go to the others
    #[arg(long, value_name = "S", help_heading = "Faults")]
    pub(crate) kill_gateway_at: Option<u32>,

    #[command(flatten)]
    pub(crate) costs: Costs,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Burst {
    pub(crate) share: f64,
    pub(crate) s: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    Fifo,
    Random,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnFailure {
    Open,
    Closed,
}

impl Options {
    /// Reads arguments, without the program's name. What clap cannot see is checked here.
    pub(crate) fn parse_from_args(args: impl Iterator<Item = String>) -> Result<Self, clap::Error> {
        let options = Self::try_parse_from(std::iter::once("simulate".to_owned()).chain(args))?;
        match options.contradiction() {
            None => Ok(options),
            Some(problem) => Err(clap::Error::raw(ErrorKind::ValueValidation, problem + "\n")),
        }
    }

    fn contradiction(&self) -> Option<String> {
        let horizon = self.horizon;
        if self.active_ttl_s <= self.refresh_s {
            return Some(format!(
                "--active-ttl-s {} must be more than --refresh-s {}: a session ends before it is \
                 asked for",
                self.active_ttl_s, self.refresh_s
            ));
        }
        if self.open_burst.s > horizon {
            return Some(format!(
                "--open-burst lasts {} s, longer than --horizon {horizon}",
                self.open_burst.s
            ));
        }
        if self.open_burst.s == horizon && self.open_burst.share < 1.0 {
            return Some(
                "--open-burst fills the horizon and leaves no time for the others".to_owned(),
            );
        }
        let fault_s = [
            ("--wipe-at", self.wipe_at),
            ("--store-down", self.store_down.as_ref().map(|span| span.start)),
            ("--kill-gateway-at", self.kill_gateway_at),
        ];
        for (name, at_s) in fault_s {
            if let Some(at_s) = at_s.filter(|at_s| *at_s >= horizon) {
                return Some(format!("{name} {at_s} is not before --horizon {horizon}"));
            }
        }
        if self.kill_gateway_at.is_some() && self.gateways < 2 {
            return Some("--kill-gateway-at needs at least two --gateways".to_owned());
        }
        None
    }

    pub(super) fn has_faults(&self) -> bool {
        self.wipe_at.is_some() || self.store_down.is_some() || self.kill_gateway_at.is_some()
    }

    pub(super) fn is_fifo(&self) -> bool {
        self.method == Order::Fifo
    }

    pub(super) fn settings(&self) -> Result<QueueSettings> {
        let ms = |s: u32| u64::from(s) * 1_000;
        Ok(QueueSettings {
            id: Id::new("simulated")?,
            capacity: self.capacity,
            rate: self.rate.map(|count| Rate { count, per_s: 1.0 }),
            active_ttl_ms: ms(self.active_ttl_s),
            grant_ttl_ms: ms(self.grant_ttl_s),
            queue_ttl_ms: ms(self.queue_ttl_s),
            refresh_ms: ms(self.refresh_s),
            max_waiting: self.max_waiting.unwrap_or(u64::MAX),
            method: match self.method {
                Order::Fifo => Method::Fifo,
                Order::Random => Method::Random,
            },
            paused: false,
            schedule: Schedule::default(),
        })
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to 1, such as 0.3".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.001..=10_000_000.0).contains(&rate) => Ok(rate),
        _ => Err("admissions a second are a number from 0.001 to 10000000".to_owned()),
    }
}

fn burst(text: &str) -> Result<Burst, String> {
    let parsed = text.split_once('@').and_then(|(part, seconds)| {
        let s = seconds.parse::<u32>().ok().filter(|s| (1..=86_400).contains(s))?;
        Some(Burst { share: share(part).ok()?, s })
    });
    parsed.ok_or_else(|| "write SHARE@SECONDS, such as 0.8@60: 80 % within a minute".to_owned())
}

fn span(text: &str) -> Result<Range<u32>, String> {
    let parsed = text.split_once('-').and_then(|(from, to)| {
        Some(from.parse::<u32>().ok()?..to.parse::<u32>().ok().filter(|to| *to <= 86_400)?)
    });
    parsed
        .filter(|span| span.start < span.end)
        .ok_or_else(|| "write FROM-TO in seconds, such as 120-180".to_owned())
}
