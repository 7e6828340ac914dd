//! L3: what the gateway tells about its traffic: metrics and the access log.
//!
//! Each worker thread owns a [`WorkerMonitor`] and records every request in it once. A record adds
//! to the worker's own counters and, where the log is on, one line to the worker's own buffer. The
//! control plane sums the counters when somebody asks ([`Monitor::render`]), and a thread of its own
//! writes the lines out. Metric names and log fields are an interface: docs/logging.md lists them.

mod access_log;
mod counters;
mod exposition;
#[cfg(test)]
mod fixture;
mod monitor;
mod queues;
mod worker;

pub use access_log::{AccessLog, AccessLogError};
pub use monitor::Monitor;
pub use queues::{QueueNumbers, render_queues};
pub use worker::{OpenGuard, WorkerMonitor};
