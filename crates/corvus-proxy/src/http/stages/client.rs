//! Stage 2: who asks. The peer, unless the peer is a proxy we were told to trust.

use std::net::IpAddr;

use corvus_config::snapshot;
use corvus_core::ClientIp;
use ipnet::IpNet;

use crate::http::{
    exchange::Exchange,
    headers::{Headers, list},
    name::Name,
};

pub(crate) fn identify(x: &mut Exchange) {
    let trusted = &x.active.snapshot.settings.trusted_proxies;
    x.trusted = snapshot::contains(trusted, x.conn.peer.ip());
    if !x.trusted {
        // Nobody else may tell the origin who is asking.
        x.head.headers.retain(|name, _, _| !says_who(name));
        return;
    }
    if let Some(ip) = forwarded_for(&x.head.headers, trusted) {
        x.client = ClientIp::new(ip);
    }
    if let Some(proto) = x.head.headers.all(Name::XForwardedProto).flat_map(list).last() {
        x.https = proto.eq_ignore_ascii_case(b"https");
    }
}

fn says_who(name: Name) -> bool {
    matches!(
        name,
        Name::XForwardedFor
            | Name::XForwardedHost
            | Name::XForwardedProto
            | Name::XRealIp
            | Name::XRequestId
            | Name::Identity
    )
}

/// The nearest address that is not a trusted proxy's, read from right to left: each proxy appends
/// whom it saw, so everything left of the first untrusted address is that client's own invention.
fn forwarded_for(headers: &Headers, trusted: &[IpNet]) -> Option<IpAddr> {
    let hops: Vec<&[u8]> = headers.all(Name::XForwardedFor).flat_map(list).collect();
    if hops.is_empty() {
        return headers.get(Name::XRealIp).and_then(address);
    }
    let mut nearest = None;
    for hop in hops.iter().rev() {
        // `unknown`, `_hidden` or rubbish: what stands left of it cannot be trusted either.
        let Some(ip) = address(hop) else { break };
        nearest = Some(ip);
        if !snapshot::contains(trusted, ip) {
            break;
        }
    }
    nearest
}

/// An address, perhaps with a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let ip = text.parse().ok().or_else(|| {
        let host = match text.strip_prefix('[') {
            Some(rest) => rest.split(']').next()?,
            None => text.rsplit_once(':')?.0,
        };
        host.parse().ok()
    });
    ip.map(|ip: IpAddr| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(values: &[&str]) -> Option<String> {
        let mut headers = Headers::default();
        for value in values {
            headers.push(b"x-forwarded-for", value.as_bytes());
        }
        let trusted = ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        forwarded_for(&headers, &trusted).map(|ip| ip.to_string())
    }

    #[test]
    fn hops_are_read_from_the_right() {
        for (values, expected) in [
            (&["203.0.113.9"][..], Some("203.0.113.9")),
            (&["1.1.1.1, 203.0.113.9, 10.0.0.2"], Some("203.0.113.9")),
            (&["1.1.1.1", "203.0.113.9", "10.0.0.2, fd00::1"], Some("203.0.113.9")),
            (&["203.0.113.9:4711"], Some("203.0.113.9")),
            (&["[2001:db8::1]:80"], Some("2001:db8::1")),
            (&["::ffff:203.0.113.9"], Some("203.0.113.9")),
            (&["1.1.1.1, unknown, 10.0.0.2"], Some("10.0.0.2")),
            (&["10.0.0.3, 10.0.0.2"], Some("10.0.0.3")),
            (&["rubbish"], None),
            (&[""], None),
        ] {
            assert_eq!(client(values).as_deref(), expected, "{values:?}");
        }
    }
}
