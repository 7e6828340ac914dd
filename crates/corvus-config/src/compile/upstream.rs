//! Addresses of upstreams.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Context;
use crate::{
    document::proxy_host::UpstreamServer,
    domain,
    problem::shown,
    snapshot::{Upstream, UpstreamAddress, UpstreamProtocol},
};

/// Scheme, protocol, TLS, default port.
const SCHEMES: &[(&str, UpstreamProtocol, bool, u16)] = &[
    ("http", UpstreamProtocol::Http1, false, 80),
    ("https", UpstreamProtocol::Http1, true, 443),
    ("h2c", UpstreamProtocol::Http2, false, 80),
    ("grpc", UpstreamProtocol::Http2, false, 80),
    ("grpcs", UpstreamProtocol::Http2, true, 443),
];

/// Bytes of a socket's path, one less than `sun_path` holds.
const UNIX_PATH_MAX: usize = 107;

pub(super) fn compile(servers: &[UpstreamServer], at: &str, cx: &mut Context<'_>) -> Vec<Upstream> {
    if servers.is_empty() {
        cx.add(at, "at least one upstream is needed");
    } else if servers.iter().all(|server| server.backup) {
        cx.add(at, "at least one upstream must not be a backup");
    }
    let mut upstreams: Vec<Upstream> = Vec::with_capacity(servers.len());
    for (i, server) in servers.iter().enumerate() {
        let pointer = format!("{at}/{i}/url");
        match parse(&server.url) {
            Ok((address, protocol, tls)) => {
                if upstreams.iter().any(|u| u.address == address && u.protocol == protocol) {
                    let message = format!("the upstream `{}` stands here twice", server.url);
                    cx.add(pointer, message);
                }
                upstreams.push(Upstream {
                    address,
                    protocol,
                    tls,
                    weight: server.weight.max(1),
                    backup: server.backup,
                    url: server.url.clone(),
                });
            }
            Err(message) => cx.add(pointer, message),
        }
    }
    upstreams
}

pub(super) fn parse(url: &str) -> Result<(UpstreamAddress, UpstreamProtocol, bool), String> {
    // CVE-2024-46256 and its like: a target that ends a line or a quote.
    if let Some(c) = url.chars().find(|c| c.is_whitespace() || c.is_control() || *c == '"') {
        return Err(format!("the URL of an upstream holds no `{}`", shown(c)));
    }
    if let Some(path) = url.strip_prefix("unix:") {
        if !path.starts_with('/') || path.starts_with("//") {
            return Err("a socket is written `unix:/path`".to_owned());
        }
        if path.len() > UNIX_PATH_MAX {
            return Err(format!("the path of a socket has at most {UNIX_PATH_MAX} bytes"));
        }
        return Ok((UpstreamAddress::Unix(path.to_owned()), UpstreamProtocol::Http1, false));
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(format!("`{url}` has no scheme; write `http://{url}`"));
    };
    let lower = scheme.to_ascii_lowercase();
    let Some((_, protocol, tls, port)) = SCHEMES.iter().find(|(name, ..)| *name == lower) else {
        return Err(format!(
            "the scheme `{scheme}` is not one of http, https, h2c, grpc, grpcs and unix"
        ));
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains('@') {
        return Err("the URL of an upstream holds no password".to_owned());
    }
    if authority.contains(['/', '?', '#', '\\']) {
        return Err(format!("`{url}` has a path; an upstream is a scheme, a host and a port"));
    }
    let (host, port) = split_port(authority, *port)?;
    Ok((UpstreamAddress::Tcp { host: check_host(host)?, port }, *protocol, *tls))
}

fn split_port(authority: &str, default: u16) -> Result<(&str, u16), String> {
    let bracketed = authority.starts_with('[');
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !bracketed || host.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if !bracketed && host.contains(':') {
        return Err(format!("an IPv6 address stands in brackets: `[{authority}]`"));
    }
    let port = match port {
        None => default,
        Some(text) if !text.bytes().all(|b| b.is_ascii_digit()) => {
            return Err(format!("`{text}` is no port"));
        }
        Some(text) => match text.parse() {
            Ok(0) | Err(_) => return Err(format!("`{text}` is no port; from 1 to 65535")),
            Ok(port) => port,
        },
    };
    Ok((host, port))
}

fn check_host(host: &str) -> Result<String, String> {
    if let Some(inner) = host.strip_prefix('[') {
        return inner
            .strip_suffix(']')
            .and_then(|text| text.parse::<Ipv6Addr>().ok())
            .map(|ip| ip.to_string())
            .ok_or_else(|| format!("`{host}` is no IPv6 address"));
    }
    if host.is_empty() {
        return Err("the URL of an upstream names a host".to_owned());
    }
    // 10.0.0.256 and 10.1 are mistakes, never names.
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    if !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()) {
        return match host.parse::<Ipv4Addr>() {
            Ok(ip) => Ok(ip.to_string()),
            Err(_) => Err(format!("`{host}` is no IPv4 address")),
        };
    }
    match domain::normalise(host) {
        Ok(name) if name.starts_with('*') => {
            Err(format!("`{host}` is a wildcard, not the name of an upstream"))
        }
        Ok(name) => Ok(name),
        Err(_) => Err(format!("`{host}` is no valid host name")),
    }
}
