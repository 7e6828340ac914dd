//! Real peers for the integration tests: origins, clients, a proxy that breaks connections on
//! command, ports, data directories and child processes. Everything listens on 127.0.0.1 and a port
//! of the kernel's choice, and stops when its value is dropped.
//!
//! Servers run on a thread and a runtime of their own, so a test may block, use either tokio
//! flavour, or none at all, without starving the peer it talks to. Clients run on the test's
//! runtime, and every wait of theirs has a deadline, so a hung gateway fails a test instead of
//! stopping the run.
//!
//! HTTP/1 is read and written by code of this crate and not by hyper: a test of a gateway needs the
//! bytes as they were (header spelling and order, the raw target, 1xx responses, broken framing),
//! and a second reading of the RFC that does not share the gateway's faults.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a set-up that fails ends the test it belongs to, with the reason in the message"
)]

mod chaos;
mod child;
mod echo;
mod grpc;
mod h2_client;
mod headers;
mod origin;
mod pattern;
mod port;
mod raw_client;
mod raw_origin;
mod server;
pub mod store;
#[cfg(test)]
mod tests;
mod tls;
mod visitor;
mod websocket;
mod wire;

pub use chaos::{ChaosProxy, Mode};
pub use child::{Child, ExitWait, Signal};
pub use echo::{TcpEcho, UdpEcho};
pub use grpc::{Bidi, GrpcClient, GrpcReply};
pub use h2_client::{H2Client, H2Response};
pub use headers::Headers;
pub use origin::{Counts, Origin, OriginBuilder, Seen};
pub use pattern::{first_mismatch, pattern};
pub use port::{data_dir, free_port};
pub use raw_client::{RawClient, RawResponse, ResponseHead};
pub use raw_origin::{RawOrigin, Step};
pub use tempfile::TempDir;
pub use tls::{
    Authority, Certificate, client_config, client_config_as, client_config_trusting, server_config,
};
pub use visitor::{Accept, Page, Visitor};
pub use websocket::{Message, WebSocket};

/// How long a client of this crate waits for one step before it gives the test an error.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// Runs `future` for at most [`PATIENCE`].
pub(crate) async fn patiently<T>(
    what: &str,
    future: impl Future<Output = std::io::Result<T>>,
) -> std::io::Result<T> {
    within(PATIENCE, what, future).await
}

pub(crate) async fn within<T>(
    patience: std::time::Duration,
    what: &str,
    future: impl Future<Output = std::io::Result<T>>,
) -> std::io::Result<T> {
    tokio::time::timeout(patience, future).await.unwrap_or_else(|_| {
        let text = format!("{what}: nothing for {patience:?}");
        Err(std::io::Error::new(std::io::ErrorKind::TimedOut, text))
    })
}
