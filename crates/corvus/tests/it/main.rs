//! The one integration binary: the whole gateway between real peers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy allows them in tests, and not in the functions that tests share"
)]

mod browser;
mod command;
mod framing;
mod gateway;
mod proxy;
mod queue;
mod reload;
mod shared_queue;
mod tls;
