//! L3: everything the gateway knows about certificates, and the rustls configurations made of them.
//!
//! [`load`] turns the certificates of a Snapshot into a [`CertificateStore`]; [`SniResolver`] serves
//! it to handshakes and is swapped when a Snapshot is; [`server_config`] and [`client_config`] make
//! the two ends. A certificate that cannot be loaded costs its own hosts their name on the
//! certificate, and nobody else anything.

mod certificate;
mod client;
mod danger;
#[cfg(test)]
mod fixture;
mod names;
mod pinned;
mod reference;
mod resolver;
mod self_signed;
mod server;
mod store;

pub use certificate::{Certificate, CertificateError, Part};
pub use client::{ClientConfigError, Verify, client_config};
pub use reference::ReferenceError;
pub use resolver::{CertificateMap, SniResolver};
pub use self_signed::self_signed;
pub use server::server_config;
pub use store::{CertificateFailure, CertificateStore, CertificateWarning, Loaded, load};
