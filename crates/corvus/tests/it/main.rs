//! The one integration binary: the whole gateway between real peers.

mod command;
mod framing;
mod gateway;
mod proxy;
mod reload;
mod tls;
