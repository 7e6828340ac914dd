//! The one integration binary: the whole gateway between real peers.

mod browser;
mod command;
mod framing;
mod gateway;
mod proxy;
mod queue;
mod reload;
mod tls;
