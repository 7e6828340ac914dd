//! Access queues (waiting rooms): let in as many visitors as a site can bear, and the rest in the
//! order they came.
//!
//! - [`gate`]: what the gateway does with a request; the HTTP stage talks to this;
//! - [`engine`]: the store behind it, one of several engines;
//! - [`embedded`]: the engine in this process, saved under DATA;
//! - [`room`]: one queue as a pure state machine;
//! - [`op`]: what is asked of a store and what it answers;
//! - [`keys`]: signing keys, their rotation, and how gateways share them;
//! - [`shared`]: what other parts share between gateways.

pub mod embedded;
pub mod engine;
pub mod gate;
pub mod keys;
pub mod op;
pub mod room;
pub mod shared;
pub mod valkey;

#[cfg(test)]
mod contract;
#[cfg(test)]
mod faulty;

pub use engine::{Engine, OpenError};
pub use gate::{Check, CookieChange, Cookies, Decision, Outcome, QueueService, Shown, Visitor};
pub use keys::{KeyStore, SharedKeys};
pub use shared::ValkeyShared;
