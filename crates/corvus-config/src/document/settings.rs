//! `settings`: what concerns the gateway as a whole.

use super::Secret;
use crate::decode::{choice, range, section};

section! {
    /// What concerns the gateway as a whole.
    pub struct Settings {
        /// Whose forwarded headers are believed: networks, addresses, or the presets `cloudflare`
        /// and `private`. Empty: nobody's.
        trusted_proxies: Vec<String> = Vec::new(),
        /// Networks whose connections must begin with a PROXY header (v1 or v2).
        proxy_protocol_from: Vec<String> = Vec::new(),
        /// What answers a request for a name that is not ours.
        default_site: DefaultSite = DefaultSite::default(),
        /// Certificates from an ACME authority. Not available in this version.
        acme: Acme = Acme::default(),
        /// The console's own address. Not available in this version.
        console: Console = Console::default(),
        /// Bounds on requests.
        limits: Limits = Limits::default(),
        /// What the traffic history keeps. Not available in this version.
        history: History = History::default(),
    }
}

section! {
    /// What answers a request for a name that is not ours.
    pub struct DefaultSite {
        /// What to do.
        action: DefaultAction = DefaultAction::NotFound,
        /// With `redirect`: where to, an absolute URL.
        url: Option<String> = None,
        /// With `page`: the HTML text.
        html: Option<String> = None,
    }
}

choice! {
    /// What to do with a request for an unknown name.
    pub enum DefaultAction {
        /// Answer 404.
        NotFound = "not_found",
        /// Close the connection without an answer.
        Close = "close",
        /// Redirect to `url`.
        Redirect = "redirect",
        /// Show `html`.
        Page = "page",
    }
}

section! {
    /// Certificates from an ACME authority.
    pub struct Acme {
        /// `letsencrypt`, `letsencrypt-staging`, `zerossl`, or a directory URL.
        directory: String = "letsencrypt".to_owned(),
        /// Where the authority writes to.
        email: Option<String> = None,
        /// External account binding, for authorities that ask for it.
        eab: Option<Eab> = None,
    }
}

section! {
    /// External account binding (RFC 8555 section 7.3.4).
    pub struct Eab {
        /// The key's identifier.
        key_id: String,
        /// The key, base64url.
        key: Secret,
    }
}

section! {
    /// The console's own address.
    pub struct Console {
        /// Names under which the console answers on the HTTPS port too.
        domains: Vec<String> = Vec::new(),
        /// Id of its certificate.
        certificate: Option<String> = None,
    }
}

section! {
    /// Bounds on requests.
    pub struct Limits {
        /// Bytes of a request head, request line included.
        header_bytes: u32 = 65_536 => range(1_024.0, 1_048_576.0),
        /// Fields in a request head.
        header_count: u32 = 200 => range(10.0, 2_000.0),
        /// Connections open at once for one client address. Not available in this version.
        connections_per_ip: Option<u32> = None => range(1.0, 1_000_000.0),
        /// Requests a second for one client address. Not available in this version.
        requests_per_ip: Option<u32> = None => range(1.0, 1_000_000.0),
    }
}

section! {
    /// What the traffic history keeps.
    pub struct History {
        /// Bytes on disk.
        max_bytes: u64 = 2_147_483_648 => range(1_048_576.0, 1e15),
        /// Days.
        days: u32 = 30 => range(1.0, 3_650.0),
        /// Whether single requests are kept, or only sums and what was refused.
        record_requests: bool = true,
    }
}
