//! The header names the gateway acts on.

/// A header name, classified once while parsing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Name {
    Accept,
    AcceptLanguage,
    CacheControl,
    Connection,
    ContentLength,
    ContentSecurityPolicy,
    ContentType,
    Cookie,
    CorvusQueue,
    Date,
    Expect,
    Expires,
    Host,
    Http2Settings,
    KeepAlive,
    Location,
    ProxyConnection,
    Referer,
    Refresh,
    RetryAfter,
    SetCookie,
    Te,
    Trailer,
    TransferEncoding,
    Upgrade,
    UserAgent,
    Vary,
    Via,
    XContentTypeOptions,
    XForwardedFor,
    XForwardedHost,
    XForwardedProto,
    XRealIp,
    XRequestId,
    XRobotsTag,
    /// A name, or an alias of one with `_` or `.`, by which an origin could take a client for
    /// somebody else: see [`is_identity`].
    Identity,
    /// `Proxy`: becomes HTTP_PROXY in CGI programs (CVE-2016-5385).
    Proxy,
    Other,
}

impl Name {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "Accept",
            Self::AcceptLanguage => "Accept-Language",
            Self::CacheControl => "Cache-Control",
            Self::Connection => "Connection",
            Self::ContentLength => "Content-Length",
            Self::ContentSecurityPolicy => "Content-Security-Policy",
            Self::ContentType => "Content-Type",
            Self::Cookie => "Cookie",
            Self::CorvusQueue => "Corvus-Queue",
            Self::Date => "Date",
            Self::Expect => "Expect",
            Self::Expires => "Expires",
            Self::Host => "Host",
            Self::Http2Settings => "HTTP2-Settings",
            Self::KeepAlive => "Keep-Alive",
            Self::Location => "Location",
            Self::ProxyConnection => "Proxy-Connection",
            Self::Referer => "Referer",
            Self::Refresh => "Refresh",
            Self::RetryAfter => "Retry-After",
            Self::SetCookie => "Set-Cookie",
            Self::Te => "TE",
            Self::Trailer => "Trailer",
            Self::TransferEncoding => "Transfer-Encoding",
            Self::Upgrade => "Upgrade",
            Self::UserAgent => "User-Agent",
            Self::Vary => "Vary",
            Self::Via => "Via",
            Self::XContentTypeOptions => "X-Content-Type-Options",
            Self::XForwardedFor => "X-Forwarded-For",
            Self::XForwardedHost => "X-Forwarded-Host",
            Self::XForwardedProto => "X-Forwarded-Proto",
            Self::XRealIp => "X-Real-IP",
            Self::XRequestId => "X-Request-Id",
            Self::XRobotsTag => "X-Robots-Tag",
            Self::Identity | Self::Other => "",
            Self::Proxy => "Proxy",
        }
    }

    /// Classifies a name, compared without case.
    pub(crate) fn of(name: &[u8]) -> Self {
        // By length first: few names share one.
        let candidates: &[Self] = match name.len() {
            2 => &[Self::Te],
            3 => &[Self::Via],
            4 => &[Self::Host, Self::Date, Self::Vary],
            5 => &[Self::Proxy],
            6 => &[Self::Accept, Self::Cookie, Self::Expect],
            7 => &[Self::Referer, Self::Upgrade, Self::Expires, Self::Refresh, Self::Trailer],
            8 => &[Self::Location],
            9 => &[Self::XRealIp],
            10 => &[Self::Connection, Self::UserAgent, Self::SetCookie, Self::KeepAlive],
            11 => &[Self::RetryAfter],
            12 => &[Self::ContentType, Self::CorvusQueue, Self::XRequestId, Self::XRobotsTag],
            13 => &[Self::CacheControl],
            14 => &[Self::ContentLength, Self::Http2Settings],
            15 => &[Self::AcceptLanguage, Self::XForwardedFor],
            16 => &[Self::XForwardedHost, Self::ProxyConnection],
            17 => &[Self::TransferEncoding, Self::XForwardedProto],
            22 => &[Self::XContentTypeOptions],
            23 => &[Self::ContentSecurityPolicy],
            _ => &[],
        };
        for candidate in candidates {
            if name.eq_ignore_ascii_case(candidate.as_str().as_bytes()) {
                return *candidate;
            }
        }
        if is_identity(name) { Self::Identity } else { Self::Other }
    }
}

/// Exact names by which proxies tell origins who the client is.
const IDENTITY: [&str; 24] = [
    "forwarded",
    "client-ip",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    "true-client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-original-forwarded-for",
    "x-originating-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-remote-user",
    "x-original-url",
    "x-rewrite-url",
    "x-scheme",
    "x-url-scheme",
    "x-authenticated-user",
    "x-webauth-user",
    "front-end-https",
    "x-request-id",
];

/// Families of them.
const IDENTITY_PREFIXES: [&str; 6] =
    ["x-forwarded-", "remote-", "x-auth-request-", "x-authentik-", "x-pomerium-", "x-corvus-"];

/// Whether an origin could take this header for the word of a proxy in front of it. Applications
/// that read CGI variables see `X_Forwarded_Proto` and `X.Forwarded.Proto` as the same name
/// (CVE-2026-39858 and its incomplete fix), so `_` and `.` count as `-`.
fn is_identity(name: &[u8]) -> bool {
    let same = |a: &u8, b: &u8| {
        let folded = match *a {
            b'_' | b'.' => b'-',
            other => other.to_ascii_lowercase(),
        };
        folded == *b
    };
    let equal = |candidate: &str| {
        candidate.len() == name.len()
            && name.iter().zip(candidate.as_bytes()).all(|(a, b)| same(a, b))
    };
    let begins = |prefix: &str| {
        name.len() > prefix.len() && name.iter().zip(prefix.as_bytes()).all(|(a, b)| same(a, b))
    };
    match name.first().map(u8::to_ascii_lowercase) {
        Some(b'x' | b'f' | b'r' | b'c' | b't') => {
            IDENTITY.iter().any(|candidate| equal(candidate))
                || IDENTITY_PREFIXES.iter().any(|prefix| begins(prefix))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_in_any_case() {
        assert_eq!(Name::of(b"hOST"), Name::Host);
        assert_eq!(Name::of(b"x-forwarded-for"), Name::XForwardedFor);
        assert_eq!(Name::of(b"TE"), Name::Te);
        assert_eq!(Name::of(b"x-custom"), Name::Other);
        assert_eq!(Name::of(b""), Name::Other);
    }

    /// Each known name is found under its own length.
    #[test]
    fn every_name_is_found() {
        for name in [
            Name::Accept,
            Name::AcceptLanguage,
            Name::CacheControl,
            Name::Connection,
            Name::ContentLength,
            Name::ContentSecurityPolicy,
            Name::ContentType,
            Name::Cookie,
            Name::CorvusQueue,
            Name::Date,
            Name::Expect,
            Name::Expires,
            Name::Host,
            Name::Http2Settings,
            Name::KeepAlive,
            Name::Location,
            Name::Proxy,
            Name::ProxyConnection,
            Name::Referer,
            Name::Refresh,
            Name::RetryAfter,
            Name::SetCookie,
            Name::Te,
            Name::Trailer,
            Name::TransferEncoding,
            Name::Upgrade,
            Name::UserAgent,
            Name::Vary,
            Name::Via,
            Name::XContentTypeOptions,
            Name::XForwardedFor,
            Name::XForwardedHost,
            Name::XForwardedProto,
            Name::XRealIp,
            Name::XRequestId,
            Name::XRobotsTag,
        ] {
            assert_eq!(Name::of(name.as_str().to_ascii_lowercase().as_bytes()), name);
        }
    }

    #[test]
    fn aliases_of_identity_headers_are_caught() {
        for name in [
            "X_Forwarded_Proto",
            "X.Forwarded.For",
            "x-forwarded-user",
            "Remote_User",
            "Remote-Groups",
            "X_Real_IP",
            "Forwarded",
            "CF-Connecting-IP",
            "X-Authentik-Username",
        ] {
            assert_eq!(Name::of(name.as_bytes()), Name::Identity, "{name}");
        }
        for name in ["X-Forwarded", "Remote", "X-Requested-With", "Content_Type", "Referer"] {
            assert_ne!(Name::of(name.as_bytes()), Name::Identity, "{name}");
        }
    }
}
