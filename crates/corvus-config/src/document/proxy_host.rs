//! `proxy_hosts`: sites passed on to upstreams.

use super::protection::{ForwardAuth, Protection, Switch};
use crate::decode::{Entries, choice, range, section};

section! {
    /// A site passed on to upstreams.
    pub struct ProxyHost {
        /// `[a-z0-9][a-z0-9_-]{0,62}`
        id: String,
        /// Names: exact, or `*.example.com` for any depth below it. Exact wins, then the longest.
        domains: Vec<String>,
        /// Whether it answers. A disabled host is still checked and keeps its names.
        enabled: bool = true,
        /// For finding it again.
        tags: Vec<String> = Vec::new(),
        /// Where requests go.
        upstreams: Vec<UpstreamServer>,
        /// How an upstream is chosen.
        load_balancing: Balancing = Balancing::RoundRobin,
        /// Cookie that keeps a visitor on one upstream. Not available in this version.
        sticky_cookie: Option<String> = None,
        /// Active checks of the upstreams; passive ones always run. Not available in this version.
        health_check: Option<HealthCheck> = None,
        /// TLS towards upstreams.
        upstream_tls: UpstreamTlsOptions = UpstreamTlsOptions::default(),
        /// PROXY header towards upstreams. Only `none` in this version.
        proxy_protocol: ProxyProtocol = ProxyProtocol::None,
        /// Paths that go to other upstreams. Not available in this version.
        locations: Vec<Location> = Vec::new(),
        /// TLS towards visitors.
        tls: TlsOptions = TlsOptions::default(),
        /// Changes to header fields.
        headers: HeaderOptions = HeaderOptions::default(),
        /// Caching. Not available in this version.
        cache: Cache = Cache::default(),
        /// Longest request body in bytes; null: no limit.
        body_limit_bytes: Option<u64> = None => range(0.0, 1e15),
        /// How long to wait.
        timeouts: Timeouts = Timeouts::default(),
        /// Protocols that `Upgrade` may switch to.
        upgrades: Vec<String> = vec!["websocket".to_owned()],
        /// What is searched for attacks. Only the default in this version.
        protection: Protection = Protection::default(),
        /// Whether every visitor proves to be a browser. Only `off` in this version.
        challenge: Switch = Switch::Off,
        /// Ids of access lists. Not available in this version.
        access_lists: Vec<String> = Vec::new(),
        /// A service that decides on each request. Not available in this version.
        forward_auth: Option<ForwardAuth> = None,
        /// Id of the access queue in front of this host.
        access_queue: Option<String> = None,
        /// HTML pages by status (`502`, `4xx`). Not available in this version.
        error_pages: Entries<String> = Entries::default(),
        /// Whether everybody gets the maintenance page. Not available in this version.
        maintenance: bool = false,
    }
}

section! {
    /// Where requests go.
    pub struct UpstreamServer {
        /// `http://`, `https://`, `h2c://`, `grpc://` or `grpcs://` with host and port, or
        /// `unix:/path`.
        url: String,
        /// Its share against the others.
        weight: u32 = 1 => range(1.0, 1_000.0),
        /// Used only while no other upstream is up.
        backup: bool = false,
    }
}

choice! {
    /// How an upstream is chosen.
    pub enum Balancing {
        /// In turn, by weight.
        RoundRobin = "round_robin",
        /// The one with the fewest open requests.
        LeastConnections = "least_connections",
        /// Always the same for one client address.
        IpHash = "ip_hash",
        /// The better of two drawn by lot.
        RandomTwo = "random_two",
    }
}

section! {
    /// Active checks of upstreams.
    pub struct HealthCheck {
        /// Path that answers 2xx or 3xx when all is well.
        path: String = "/".to_owned(),
        /// Seconds between checks.
        interval_s: u32 = 10 => range(1.0, 3_600.0),
    }
}

section! {
    /// TLS towards upstreams.
    pub struct UpstreamTlsOptions {
        /// Whether the upstream's certificate must be valid.
        verify: bool = true,
        /// Name for SNI and verification; null: the upstream's host name.
        server_name: Option<String> = None,
        /// Authorities to believe instead of the system's: `file:PATH` or PEM text.
        ca: Option<String> = None,
    }
}

choice! {
    /// PROXY header towards upstreams.
    pub enum ProxyProtocol {
        /// None.
        None = "none",
        /// Version 1, text.
        V1 = "v1",
        /// Version 2, binary.
        V2 = "v2",
    }
}

section! {
    /// A path that goes to other upstreams.
    pub struct Location {
        /// The path, prefix or regular expression.
        path: String,
        /// How `path` is compared.
        r#match: PathMatch = PathMatch::Prefix,
        /// Where its requests go.
        upstreams: Vec<UpstreamServer>,
        /// Whether the matched prefix is taken off.
        strip_prefix: bool = false,
    }
}

choice! {
    /// How a location's path is compared.
    pub enum PathMatch {
        /// Begins with it, at a segment boundary.
        Prefix = "prefix",
        /// Is it.
        Exact = "exact",
        /// Matches it as a regular expression.
        Regex = "regex",
    }
}

section! {
    /// TLS towards visitors.
    pub struct TlsOptions {
        /// Id of the certificate; null: HTTP only.
        certificate: Option<String> = None,
        /// Whether plain HTTP is redirected to HTTPS. Takes effect with a certificate.
        force_https: bool = true,
        /// Lowest TLS version. Only `1.2` in this version.
        min_version: TlsVersion = TlsVersion::Tls12,
        /// Whether HTTP/3 is offered, once this gateway speaks it.
        http3: bool = true,
        /// Authorities whose client certificates are asked for. Not available in this version.
        client_ca: Option<String> = None,
        /// Strict-Transport-Security. Not available in this version.
        hsts: Option<Hsts> = None,
    }
}

choice! {
    /// A TLS version.
    pub enum TlsVersion {
        /// TLS 1.2.
        Tls12 = "1.2",
        /// TLS 1.3.
        Tls13 = "1.3",
    }
}

section! {
    /// Strict-Transport-Security (RFC 6797).
    pub struct Hsts {
        /// Seconds for which browsers insist on HTTPS.
        max_age_s: u64 = 63_072_000 => range(0.0, 315_360_000.0),
        /// Whether names below this one are meant too.
        include_subdomains: bool = false,
        /// Whether the name may go on the browsers' lists.
        preload: bool = false,
    }
}

section! {
    /// Changes to header fields.
    pub struct HeaderOptions {
        /// Of requests, before the upstream sees them.
        request: HeaderEdits = HeaderEdits::default(),
        /// Of responses, before the visitor sees them.
        response: HeaderEdits = HeaderEdits::default(),
    }
}

section! {
    /// Header fields to set and to remove.
    pub struct HeaderEdits {
        /// Name to value; replaces all fields of that name.
        set: Entries<String> = Entries::default(),
        /// Names.
        remove: Vec<String> = Vec::new(),
    }
}

section! {
    /// Caching.
    pub struct Cache {
        /// Whether images, scripts and styles are cached.
        assets: bool = false,
    }
}

section! {
    /// How long to wait.
    pub struct Timeouts {
        /// Seconds to connect to an upstream.
        connect_s: u64 = 5 => range(1.0, 300.0),
        /// Seconds of silence in either direction; never a total.
        idle_s: u64 = 60 => range(1.0, 86_400.0),
    }
}
