//! What a queue engine needs to know of a queue. Times in milliseconds.

use corvus_core::Id;
use serde::{Deserialize, Serialize};

/// The rules of one queue, as both engines read them.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSettings {
    pub id: Id,
    /// Visitors inside at once.
    pub capacity: u64,
    pub rate: Option<Rate>,
    pub active_ttl_ms: u64,
    pub grant_ttl_ms: u64,
    pub queue_ttl_ms: u64,
    pub refresh_ms: u64,
    pub max_waiting: u64,
    pub method: Method,
    pub paused: bool,
    pub schedule: Schedule,
}

/// Admissions: `count` in `per_s` seconds.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Rate {
    pub count: f64,
    pub per_s: f64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Method {
    Fifo,
    Random,
    /// Everybody is let in and counted.
    Passthrough,
    /// Nobody is let in.
    Reject,
}

/// Unix milliseconds; `None`: no such bound.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Schedule {
    pub opens_at_ms: Option<u64>,
    pub starts_at_ms: Option<u64>,
    pub ends_at_ms: Option<u64>,
}
