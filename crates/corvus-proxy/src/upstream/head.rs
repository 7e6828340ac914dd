//! The request as the upstream gets it: the client's, byte for byte where it may be, without what
//! belongs to one hop, with what we know about the client.

use corvus_config::snapshot::HeaderPolicy;

use crate::{
    http::{
        exchange::Exchange,
        headers::{Headers, cookie_pairs, list},
        name::Name,
    },
    http1::framing::Length,
};

/// What the upstream is told about this hop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop<'a> {
    pub(crate) length: Length,
    /// The protocol to upgrade to, as the client wrote it.
    pub(crate) upgrade: Option<&'a [u8]>,
    pub(crate) expects_continue: bool,
}

/// Writes the head of an HTTP/1.1 request.
pub(crate) fn write_h1(out: &mut Vec<u8>, x: &Exchange, hop: Hop<'_>) {
    out.extend_from_slice(x.head.method());
    out.push(b' ');
    out.extend_from_slice(x.head.target());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let field = |out: &mut Vec<u8>, name: &[u8], value: &[&[u8]]| {
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        for part in value {
            out.extend_from_slice(part);
        }
        out.extend_from_slice(b"\r\n");
    };
    each_field(x, |name, value| field(out, name, value));
    match hop.length {
        // RFC 9110 section 8.6: a method that expects content says so even when there is none.
        Length::Known(0) if !expects_content(x.head.method()) => {}
        Length::Known(len) => {
            field(out, b"Content-Length", &[itoa::Buffer::new().format(len).as_bytes()]);
        }
        Length::Chunked | Length::Close => field(out, b"Transfer-Encoding", &[b"chunked"]),
    }
    if let Some(protocol) = hop.upgrade {
        field(out, b"Connection", &[b"upgrade"]);
        field(out, b"Upgrade", &[protocol]);
    }
    if hop.expects_continue {
        field(out, b"Expect", &[b"100-continue"]);
    }
    out.extend_from_slice(b"\r\n");
}

fn expects_content(method: &[u8]) -> bool {
    matches!(method, b"POST" | b"PUT" | b"PATCH")
}

/// The header section of an HTTP/2 request.
pub(crate) fn map_h2(x: &Exchange, length: Length) -> http::HeaderMap {
    let mut map = http::HeaderMap::new();
    each_field(x, |name, value| {
        // `:authority` carries it.
        if name.eq_ignore_ascii_case(b"host") {
            return;
        }
        let name = http::HeaderName::from_bytes(name);
        if let (Ok(name), Ok(value)) = (name, http::HeaderValue::from_bytes(&value.concat())) {
            map.append(name, value);
        }
    });
    // The one TE that HTTP/2 knows (RFC 9113 section 8.2.2); gRPC servers insist on it.
    if x.head.headers.all(Name::Te).flat_map(list).any(|te| te.eq_ignore_ascii_case(b"trailers")) {
        map.insert(http::header::TE, http::HeaderValue::from_static("trailers"));
    }
    if let Length::Known(len) = length
        && (len > 0 || expects_content(x.head.method()))
    {
        map.insert(http::header::CONTENT_LENGTH, len.into());
    }
    map
}

/// The host that the upstream is asked for: the client's, unless the site says another.
pub(crate) fn host(x: &Exchange) -> &[u8] {
    let set = x.site.as_ref().and_then(|site| {
        let mut set = site.host.request_headers.set.iter();
        set.rfind(|(name, _)| name.eq_ignore_ascii_case("host")).map(|(_, value)| value.as_bytes())
    });
    set.unwrap_or(&x.authority)
}

/// Visits every field for the upstream. Values come in parts, to spare joining them.
fn each_field(x: &Exchange, mut field: impl FnMut(&[u8], &[&[u8]])) {
    let headers = &x.head.headers;
    let policy = x.site.as_ref().map(|site| &site.host.request_headers);
    let hop_by_hop = connection_options(headers);
    field(b"Host", &[host(x)]);
    for (known, name, value) in headers.iter() {
        if is_hop_by_hop(known) || hop_by_hop.iter().any(|listed| name.eq_ignore_ascii_case(listed))
        {
            continue;
        }
        match known {
            // All written anew, below or by the caller. Only a trusted proxy may say who the client
            // is; `stages::client` has removed what others said.
            Name::Host
            | Name::ContentLength
            | Name::Expect
            | Name::Proxy
            | Name::Via
            | Name::XForwardedFor
            | Name::XForwardedHost
            | Name::XForwardedProto
            | Name::XRealIp
            | Name::XRequestId => continue,
            _ => {}
        }
        if policy.is_some_and(|policy| is_replaced(policy, name)) {
            continue;
        }
        if known == Name::Cookie {
            match without_own_cookies(value) {
                Kept::All => field(name, &[value]),
                Kept::Some(rest) => field(name, &[&rest]),
                Kept::Nothing => {}
            }
            continue;
        }
        field(name, &[value]);
    }
    let forwarded;
    let client = if x.client.ip() == x.conn.peer.ip() {
        x.conn.peer_text.as_bytes()
    } else {
        forwarded = x.client.to_string();
        forwarded.as_bytes()
    };
    let mut ours = |known: Name, value: &[&[u8]]| {
        let name = known.as_str().as_bytes();
        if !policy.is_some_and(|policy| is_replaced(policy, name)) {
            field(name, value);
        }
    };
    match joined(headers, Name::XForwardedFor).filter(|_| x.trusted) {
        Some(before) => {
            ours(Name::XForwardedFor, &[&before, b", ", x.conn.peer_text.as_bytes()]);
        }
        None => ours(Name::XForwardedFor, &[client]),
    }
    ours(Name::XForwardedProto, &[x.scheme().as_bytes()]);
    let host = headers.get(Name::XForwardedHost).filter(|_| x.trusted);
    ours(Name::XForwardedHost, &[host.unwrap_or(&x.authority)]);
    ours(Name::XRealIp, &[client]);
    ours(Name::XRequestId, &[&x.id]);
    let hop = match x.protocol {
        corvus_core::event::Protocol::Http10 => &b"1.0 corvus"[..],
        corvus_core::event::Protocol::Http11 => b"1.1 corvus",
        corvus_core::event::Protocol::Http2 => b"2.0 corvus",
    };
    match joined(headers, Name::Via) {
        Some(before) => ours(Name::Via, &[&before, b", ", hop]),
        None => ours(Name::Via, &[hop]),
    }
    if let Some(policy) = policy {
        for (name, value) in &policy.set {
            if !name.eq_ignore_ascii_case("host") {
                field(name.as_bytes(), &[value.as_bytes()]);
            }
        }
    }
}

/// All values of a list field as one.
fn joined(headers: &Headers, name: Name) -> Option<Vec<u8>> {
    headers.has(name).then(|| headers.all(name).collect::<Vec<_>>().join(&b", "[..]))
}

fn is_replaced(policy: &HeaderPolicy, name: &[u8]) -> bool {
    if policy.is_empty() {
        return false;
    }
    policy.remove.iter().any(|removed| name.eq_ignore_ascii_case(removed.as_bytes()))
        || policy.set.iter().any(|(set, _)| name.eq_ignore_ascii_case(set.as_bytes()))
}

/// Fields that concern one connection (RFC 9110 section 7.6.1), whether listed or not.
pub(crate) fn is_hop_by_hop(name: Name) -> bool {
    matches!(
        name,
        Name::Connection
            | Name::KeepAlive
            | Name::ProxyConnection
            | Name::Te
            | Name::TransferEncoding
            | Name::Upgrade
            | Name::Http2Settings
    )
}

/// The names that `Connection` lists, other than its usual options. Never `Host` or a field that
/// frames or describes the content: listing those has been used to strip them in front of the
/// origin (CVE-2021-32813).
pub(crate) fn connection_options(headers: &Headers) -> Vec<&[u8]> {
    const USUAL: [&str; 3] = ["close", "keep-alive", "upgrade"];
    const PROTECTED: [&str; 8] = [
        "host",
        "content-length",
        "content-type",
        "content-encoding",
        "content-range",
        "authorization",
        "cookie",
        "via",
    ];
    let listed = |set: &[&str], option: &[u8]| {
        set.iter().any(|name| option.eq_ignore_ascii_case(name.as_bytes()))
    };
    headers
        .all(Name::Connection)
        .flat_map(list)
        .filter(|option| !listed(&USUAL, option) && !listed(&PROTECTED, option))
        .collect()
}

/// How the names of our cookies begin.
pub(crate) const OWN_COOKIES: &[u8] = b"corvus_";

enum Kept {
    All,
    Some(Vec<u8>),
    Nothing,
}

/// Our own cookies (`corvus_...`) are none of the origin's business: an origin that logs or echoes
/// them would hand out places and sessions.
fn without_own_cookies(value: &[u8]) -> Kept {
    if memchr::memmem::find(value, OWN_COOKIES).is_none() {
        return Kept::All;
    }
    let mut rest = Vec::with_capacity(value.len());
    for pair in cookie_pairs(value).filter(|pair| !pair.starts_with(OWN_COOKIES)) {
        if !rest.is_empty() {
            rest.extend_from_slice(b"; ");
        }
        rest.extend_from_slice(pair);
    }
    if rest.is_empty() { Kept::Nothing } else { Kept::Some(rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cookies_stay_here() {
        let kept = |value: &str| match without_own_cookies(value.as_bytes()) {
            Kept::All => Some(value.to_owned()),
            Kept::Some(rest) => Some(String::from_utf8(rest).unwrap()),
            Kept::Nothing => None,
        };
        assert_eq!(kept("a=1; b=2").as_deref(), Some("a=1; b=2"));
        assert_eq!(kept("a=1; corvus_a_x=v2.k; b=2;corvus_q_x=y").as_deref(), Some("a=1; b=2"));
        assert_eq!(kept("corvus_c=1"), None);
        assert_eq!(kept("xcorvus_c=1").as_deref(), Some("xcorvus_c=1"));
    }

    #[test]
    fn connection_lists_only_what_it_may() {
        let mut headers = Headers::default();
        headers.push(b"Connection", b"close, X-Real-IP, host");
        headers.push(b"connection", b"Keep-Alive,x-tmp, COOKIE");
        assert_eq!(connection_options(&headers), [&b"X-Real-IP"[..], b"x-tmp"]);
    }
}
