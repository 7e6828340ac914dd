//! `proxy_hosts`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use corvus_core::Id;

use super::{
    Context, Parts,
    headers::{self, Side, is_token_char},
    pem_reference, upstream,
};
use crate::{
    document::{
        Document,
        certificate::{Certificate, Issuer},
        proxy_host::{Balancing, ProxyHost, TlsOptions, UpstreamTlsOptions},
    },
    domain,
    snapshot::{Host, HostTls, LoadBalancing, Queue, UpstreamTls},
};

/// The enabled hosts; disabled ones are checked all the same.
pub(super) fn compile(
    document: &Document,
    queues: &Parts<Queue>,
    cx: &mut Context<'_>,
) -> Vec<Arc<Host>> {
    let parts = By {
        queues: queues.iter().flatten().map(|q| (q.settings.id.as_str(), q)).collect(),
        certificates: document.certificates.iter().map(|c| (c.id.as_str(), c)).collect(),
    };
    let mut hosts = Vec::with_capacity(document.proxy_hosts.len());
    for (i, host) in document.proxy_hosts.iter().enumerate() {
        let compiled = compile_host(host, &format!("/proxy_hosts/{i}"), &parts, cx);
        hosts.extend(compiled.filter(|_| host.enabled).map(Arc::new));
    }
    hosts
}

/// What hosts refer to, by id.
struct By<'a> {
    queues: HashMap<&'a str, &'a Arc<Queue>>,
    certificates: HashMap<&'a str, &'a Certificate>,
}

fn compile_host(host: &ProxyHost, at: &str, by: &By<'_>, cx: &mut Context<'_>) -> Option<Host> {
    let owner = format!("proxy host {}", host.id);
    let domains = cx.domains(&format!("{at}/domains"), &host.domains, &owner);
    let queue = host.access_queue.as_ref().and_then(|id| {
        let pointer = format!("{at}/access_queue");
        cx.reference(pointer, id, |cx| &cx.queues, "access queue")?;
        by.queues.get(id.as_str()).map(|queue| Arc::clone(queue))
    });
    let tls = tls(by, &host.tls, &domains, &format!("{at}/tls"), cx);
    let headers = |edits, side, name: &str, cx: &mut _| {
        headers::compile(edits, side, &format!("{at}/headers/{name}"), cx)
    };
    Some(Host {
        upstreams: upstream::compile(&host.upstreams, &format!("{at}/upstreams"), cx),
        load_balancing: match host.load_balancing {
            Balancing::RoundRobin => LoadBalancing::RoundRobin,
            Balancing::LeastConnections => LoadBalancing::LeastConnections,
            Balancing::IpHash => LoadBalancing::IpHash,
            Balancing::RandomTwo => LoadBalancing::RandomTwo,
        },
        upstream_tls: upstream_tls(&host.upstream_tls, &format!("{at}/upstream_tls"), cx),
        tls,
        request_headers: headers(&host.headers.request, Side::Request, "request", cx),
        response_headers: headers(&host.headers.response, Side::Response, "response", cx),
        body_limit: host.body_limit_bytes,
        connect_timeout: Duration::from_secs(host.timeouts.connect_s),
        idle_timeout: Duration::from_secs(host.timeouts.idle_s),
        upgrades: upgrades(&host.upgrades, &format!("{at}/upgrades"), cx),
        queue,
        domains,
        id: Id::new(&host.id).ok()?,
    })
}

fn tls(
    by: &By<'_>,
    tls: &TlsOptions,
    domains: &[String],
    at: &str,
    cx: &mut Context<'_>,
) -> HostTls {
    let pointer = format!("{at}/certificate");
    let certificate = tls.certificate.as_ref().and_then(|id| cx.certificate(pointer.clone(), id));
    let spec = certificate
        .as_ref()
        .and_then(|id| by.certificates.get(id.as_str()))
        // The names of an uploaded one are known when it is loaded.
        .filter(|spec| spec.issuer != Issuer::Upload);
    if let Some(spec) = spec {
        let covered: Vec<String> =
            spec.domains.iter().filter_map(|text| domain::normalise(text).ok()).collect();
        for name in domains {
            if !covered.iter().any(|pattern| domain::certificate_covers(pattern, name)) {
                let message = format!("the certificate `{}` is not for `{name}`", spec.id);
                cx.add(pointer.clone(), message);
            }
        }
    }
    HostTls { force_https: tls.force_https && certificate.is_some(), certificate }
}

fn upstream_tls(tls: &UpstreamTlsOptions, at: &str, cx: &mut Context<'_>) -> UpstreamTls {
    let mut server_name = None;
    match tls.server_name.as_deref().map(domain::normalise) {
        Some(Ok(name)) if !name.starts_with('*') => server_name = Some(name),
        Some(Ok(_)) => cx.add(format!("{at}/server_name"), "a server name is no wildcard"),
        Some(Err(message)) => cx.add(format!("{at}/server_name"), message),
        None => {}
    }
    if let Some(ca) = &tls.ca {
        if let Err(message) = pem_reference(ca) {
            cx.add(format!("{at}/ca"), message);
        }
        if !tls.verify {
            cx.add(format!("{at}/ca"), "`ca` does nothing with `verify: false`");
        }
    }
    UpstreamTls { verify: tls.verify, server_name, ca: tls.ca.clone() }
}

fn upgrades(tokens: &[String], at: &str, cx: &mut Context<'_>) -> Vec<String> {
    let mut known: Vec<String> = Vec::with_capacity(tokens.len());
    for (i, token) in tokens.iter().enumerate() {
        let lower = token.to_ascii_lowercase();
        let pointer = format!("{at}/{i}");
        if lower.is_empty() || !lower.chars().all(|c| is_token_char(c) || c == '/') {
            cx.add(pointer, format!("`{}` is no protocol name", token.escape_default()));
        } else if lower == "h2c" || lower.starts_with("http/") {
            // h2c smuggling: the tunnel would carry requests that nothing looks at.
            cx.add(pointer, format!("an upgrade to `{token}` would pass by every check"));
        } else if known.contains(&lower) {
            cx.add(pointer, format!("`{token}` stands here twice"));
        } else {
            known.push(lower);
        }
    }
    known
}
