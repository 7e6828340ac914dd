//! The data plane between real clients and real origins.

mod bodies;
mod headers;
mod hosts;
mod http2;
mod large;
mod messages;
mod streaming;
mod target;
mod upgrade;
mod upstreams;
