//! `redirections`, `dead_hosts`, `streams`: hosts without an HTTP upstream.

use super::proxy_host::ProxyProtocol;
use crate::decode::{choice, range, section};

section! {
    /// Names that redirect elsewhere.
    pub struct Redirection {
        /// `[a-z0-9][a-z0-9_-]{0,62}`
        id: String,
        /// As of a proxy host.
        domains: Vec<String>,
        /// Where to, an absolute URL.
        target: String,
        /// 301, 302, 307 or 308.
        code: u16 = 301,
        /// Whether path and query go along.
        preserve_path: bool = true,
        /// TLS towards visitors.
        tls: CertificateChoice = CertificateChoice::default(),
    }
}

section! {
    /// A certificate by id.
    pub struct CertificateChoice {
        /// Id of the certificate; null: HTTP only.
        certificate: Option<String> = None,
    }
}

section! {
    /// Names that answer 404.
    pub struct DeadHost {
        /// `[a-z0-9][a-z0-9_-]{0,62}`
        id: String,
        /// As of a proxy host.
        domains: Vec<String>,
        /// TLS towards visitors.
        tls: CertificateChoice = CertificateChoice::default(),
    }
}

section! {
    /// A TCP or UDP port passed on.
    pub struct TcpUdpStream {
        /// `[a-z0-9][a-z0-9_-]{0,62}`
        id: String,
        /// Address and port to listen on.
        listen: String,
        /// TCP or UDP.
        protocol: Transport = Transport::Tcp,
        /// Addresses with ports.
        upstreams: Vec<String>,
        /// PROXY header towards upstreams.
        proxy_protocol: ProxyProtocol = ProxyProtocol::None,
        /// Seconds of silence after which a session ends.
        idle_s: u64 = 600 => range(1.0, 86_400.0),
        /// TLS ended here; null: bytes are passed on as they are.
        tls: Option<CertificateChoice> = None,
        /// Names in a TLS handshake that come here; empty: all.
        sni: Vec<String> = Vec::new(),
    }
}

choice! {
    /// TCP or UDP.
    pub enum Transport {
        /// TCP.
        Tcp = "tcp",
        /// UDP.
        Udp = "udp",
    }
}
