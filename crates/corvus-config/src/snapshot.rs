//! The compiled, immutable configuration that requests run under.
//!
//! Everything here is resolved and checked: no references by name, no defaults left to apply, no
//! text to parse on the request path.

use std::{net::IpAddr, sync::Arc, time::Duration};

use corvus_core::Id;
use corvus_rules::Expr;
use ipnet::IpNet;

pub use crate::{
    host_index::{HostIndex, HostMatch},
    queue_settings::*,
};

/// One version of the whole configuration.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Version of the Document this was compiled from; 0 before any was persisted.
    pub version: u64,
    pub settings: Settings,
    pub hosts: Vec<Arc<Host>>,
    pub index: HostIndex,
    pub queues: Vec<Arc<Queue>>,
    pub certificates: Vec<CertificateSpec>,
}

#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Networks whose forwarding headers are believed (presets resolved to networks).
    pub trusted_proxies: Vec<IpNet>,
    /// Networks whose connections must begin with a PROXY header.
    pub proxy_protocol_from: Vec<IpNet>,
    pub default_site: DefaultSite,
    pub limits: Limits,
}

/// What answers a request whose host is not ours.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum DefaultSite {
    #[default]
    NotFound,
    /// Close the connection without an answer.
    Close,
    Redirect(String),
    /// An HTML page, as the operator wrote it.
    Page(Arc<str>),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Bytes of a request head, request line included.
    pub header_bytes: usize,
    /// Fields in a request head.
    pub header_count: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { header_bytes: 65_536, header_count: 200 }
    }
}

/// A proxied site.
#[derive(Debug)]
pub struct Host {
    pub id: Id,
    /// Lower case, no trailing dot, IDN as punycode; `*.example.com` for wildcards.
    pub domains: Vec<String>,
    pub upstreams: Vec<Upstream>,
    pub load_balancing: LoadBalancing,
    pub upstream_tls: UpstreamTls,
    pub tls: HostTls,
    pub request_headers: HeaderPolicy,
    pub response_headers: HeaderPolicy,
    /// Bytes; `None`: no limit.
    pub body_limit: Option<u64>,
    pub connect_timeout: Duration,
    /// Longest silence in either direction; never a total.
    pub idle_timeout: Duration,
    /// Lower-case tokens of `Upgrade` that may pass.
    pub upgrades: Vec<String>,
    pub queue: Option<Arc<Queue>>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Upstream {
    pub address: UpstreamAddress,
    pub protocol: UpstreamProtocol,
    pub tls: bool,
    /// Value of weighted choice, at least 1.
    pub weight: u32,
    /// Used only when no other upstream is up.
    pub backup: bool,
    /// As written in the Document, for logs, metrics and the console.
    pub url: String,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum UpstreamAddress {
    /// A name or a literal address (IPv6 without brackets), and a port.
    Tcp {
        host: String,
        port: u16,
    },
    Unix(String),
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum UpstreamProtocol {
    Http1,
    /// HTTP/2: prior knowledge in cleartext (h2c, grpc), ALPN over TLS (grpcs).
    Http2,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LoadBalancing {
    #[default]
    RoundRobin,
    LeastConnections,
    IpHash,
    RandomTwo,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct UpstreamTls {
    pub verify: bool,
    /// Name for SNI and verification; `None`: the upstream's host name.
    pub server_name: Option<String>,
    /// PEM text of certificate authorities, instead of the system's. The compile step keeps the
    /// reference (`file:PATH`); whoever applies reads it.
    pub ca: Option<String>,
}

impl Default for UpstreamTls {
    fn default() -> Self {
        Self { verify: true, server_name: None, ca: None }
    }
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HostTls {
    /// Id of the certificate served for this host's names.
    pub certificate: Option<Id>,
    pub force_https: bool,
}

/// Header fields set (replacing all of that name) and removed. Names are lower case for `remove`,
/// as written for `set`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HeaderPolicy {
    pub set: Vec<(String, String)>,
    pub remove: Vec<String>,
}

impl HeaderPolicy {
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }
}

/// An access queue as attached to hosts: the engine's settings and what the gateway does around it.
#[derive(Debug)]
pub struct Queue {
    pub settings: QueueSettings,
    pub gate: QueueGate,
}

/// What only the gateway needs to know of a queue.
#[derive(Debug)]
pub struct QueueGate {
    /// New places for one client address (IPv6 /64) a minute.
    pub joins_per_ip_per_min: u32,
    pub polls_per_session_per_s: u32,
    /// Waiting at once for one client address; `None`: unlimited.
    pub max_waiting_per_ip: Option<u32>,
    pub on_store_failure: OnStoreFailure,
    pub bind_network: bool,
    /// Normalised, lower-case path prefixes; a request outside them passes.
    pub paths: Vec<String>,
    pub bypass: Option<Expr>,
    pub cookie_same_site: SameSite,
    pub cookie_domain: Option<String>,
    /// Status of the waiting page: 429, 200 or 202.
    pub status: u16,
    pub page: QueuePage,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnStoreFailure {
    /// Everybody passes while the store is out of reach.
    Open,
    /// Newcomers get a try-again page.
    Closed,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SameSite {
    Lax,
    Strict,
    None,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct QueuePage {
    pub title: Option<String>,
    pub message: Option<String>,
    /// A whole HTML page with placeholders, instead of ours.
    pub template: Option<String>,
}

/// A certificate to be loaded or made when the Snapshot is applied.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateSpec {
    pub id: Id,
    pub source: CertificateSource,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CertificateSource {
    /// References (`file:PATH`, `${ENV}`) or PEM text.
    Upload { certificate: String, key: String },
    /// Made on the spot for these names, and kept under DATA.
    SelfSigned { domains: Vec<String> },
}

/// Helper for `trusted_proxies` and similar lists.
pub fn contains(nets: &[IpNet], ip: IpAddr) -> bool {
    nets.iter().any(|net| net.contains(&ip))
}
