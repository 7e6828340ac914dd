//! The data plane: listeners, the request path, upstream connections.
//!
//! One thread a core, each with a current-thread runtime and its own sockets and pools; nothing on
//! the request path takes a lock that another core holds. HTTP/1 is our own codec (`http1`), HTTP/2
//! is hyper's; both end in the same stages (`http::pipeline`).

mod http;
mod http1;
mod http2;
mod io;
mod listener;
mod server;
mod upstream;
mod worker;

pub use listener::bind::{BindError, bind as bind_sockets};
pub use server::{Bound, Listen, Proxy, StartError, bind};
pub use worker::Shared;
