//! What the Document has words for and this version no engine: checked like the rest, and refused
//! when used, because a protection that silently does nothing is worse than none.

use corvus_rules::Expr;

use super::{Context, absolute_url, network};
use crate::document::{
    Document,
    protection::{Protection, Switch},
    proxy_host::{ProxyHost, ProxyProtocol, TlsVersion},
    security::{AttackMode, Bans},
    settings::{Acme, Console, History},
};

impl Context<'_> {
    fn unavailable(&mut self, pointer: String, used: bool, what: &str) {
        if used {
            self.add(pointer, format!("{what} is not available in this version"));
        }
    }
}

pub(super) fn check(document: &Document, cx: &mut Context<'_>) {
    let settings = &document.settings;
    let at = |key: &str| format!("/settings/{key}");
    cx.unavailable(at("acme"), settings.acme != Acme::default(), "`acme`");
    cx.unavailable(at("console"), settings.console != Console::default(), "`console`");
    cx.unavailable(at("history"), settings.history != History::default(), "`history`");
    let limits = &settings.limits;
    let used = limits.connections_per_ip.is_some();
    cx.unavailable(at("limits/connections_per_ip"), used, "`connections_per_ip`");
    let used = limits.requests_per_ip.is_some();
    cx.unavailable(at("limits/requests_per_ip"), used, "`requests_per_ip`");

    for (i, host) in document.proxy_hosts.iter().enumerate() {
        check_host(host, &format!("/proxy_hosts/{i}"), cx);
    }
    for (i, queue) in document.access_queues.iter().enumerate() {
        let pointer = format!("/access_queues/{i}/challenge_at_join");
        cx.unavailable(pointer, queue.challenge_at_join, "`challenge_at_join`");
    }
    check_names(document, cx);
    check_lists(document, cx);

    let used = document.bans != Bans::default();
    cx.unavailable("/bans".to_owned(), used, "changing `bans`");
    let used = document.attack_mode != AttackMode::default();
    cx.unavailable("/attack_mode".to_owned(), used, "changing `attack_mode`");
    for (list, used) in [
        ("redirections", !document.redirections.is_empty()),
        ("dead_hosts", !document.dead_hosts.is_empty()),
        ("streams", !document.streams.is_empty()),
        ("access_lists", !document.access_lists.is_empty()),
        ("security_rules", !document.security_rules.is_empty()),
        ("alert_channels", !document.alert_channels.is_empty()),
    ] {
        cx.unavailable(format!("/{list}"), used, &format!("`{list}`"));
    }
}

fn check_host(host: &ProxyHost, at: &str, cx: &mut Context<'_>) {
    let tls = &host.tls;
    for (key, used) in [
        ("sticky_cookie", host.sticky_cookie.is_some()),
        ("health_check", host.health_check.is_some()),
        ("proxy_protocol", host.proxy_protocol != ProxyProtocol::None),
        ("locations", !host.locations.is_empty()),
        ("tls/min_version", tls.min_version != TlsVersion::Tls12),
        ("tls/client_ca", tls.client_ca.is_some()),
        ("tls/hsts", tls.hsts.is_some()),
        ("cache/assets", host.cache.assets),
        ("protection", host.protection != Protection::default()),
        ("challenge", host.challenge != Switch::Off),
        ("access_lists", !host.access_lists.is_empty()),
        ("forward_auth", host.forward_auth.is_some()),
        ("error_pages", !host.error_pages.0.is_empty()),
        ("maintenance", host.maintenance),
    ] {
        let name = key.replace('/', ".");
        cx.unavailable(format!("{at}/{key}"), used, &format!("`{name}`"));
    }
    for (i, id) in host.access_lists.iter().enumerate() {
        cx.reference(format!("{at}/access_lists/{i}"), id, |cx| &cx.access_lists, "access list");
    }
    for (i, location) in host.locations.iter().enumerate() {
        super::upstream::compile(&location.upstreams, &format!("{at}/locations/{i}/upstreams"), cx);
    }
}

/// Hosts of other kinds own their names too.
fn check_names(document: &Document, cx: &mut Context<'_>) {
    for (i, host) in document.redirections.iter().enumerate() {
        let at = format!("/redirections/{i}");
        cx.domains(&format!("{at}/domains"), &host.domains, &format!("redirection {}", host.id));
        if let Err(message) = absolute_url(&host.target) {
            cx.add(format!("{at}/target"), message);
        }
        if ![301, 302, 307, 308].contains(&host.code) {
            let message = format!("the code is 301, 302, 307 or 308, not {}", host.code);
            cx.add(format!("{at}/code"), message);
        }
        if let Some(id) = &host.tls.certificate {
            cx.certificate(format!("{at}/tls/certificate"), id);
        }
    }
    for (i, host) in document.dead_hosts.iter().enumerate() {
        let at = format!("/dead_hosts/{i}");
        cx.domains(&format!("{at}/domains"), &host.domains, &format!("dead host {}", host.id));
        if let Some(id) = &host.tls.certificate {
            cx.certificate(format!("{at}/tls/certificate"), id);
        }
    }
    let console = &document.settings.console;
    if !console.domains.is_empty() {
        cx.domains("/settings/console/domains", &console.domains, "the console");
    }
    if let Some(id) = &console.certificate {
        cx.certificate("/settings/console/certificate".to_owned(), id);
    }
}

fn check_lists(document: &Document, cx: &mut Context<'_>) {
    for (i, list) in document.access_lists.iter().enumerate() {
        for (j, rule) in list.clients.iter().enumerate() {
            if rule.network() != "all"
                && let Err(message) = network(rule.network())
            {
                cx.add(format!("/access_lists/{i}/clients/{j}"), message);
            }
        }
    }
    for (i, rule) in document.security_rules.iter().enumerate() {
        if let Err(error) = Expr::parse(&rule.when) {
            cx.add(format!("/security_rules/{i}/when"), error.to_string());
        }
        for (j, id) in rule.hosts.iter().enumerate() {
            let pointer = format!("/security_rules/{i}/hosts/{j}");
            cx.reference(pointer, id, |cx| &cx.hosts, "proxy host");
        }
    }
    for (i, text) in document.bans.exceptions.iter().enumerate() {
        if let Err(message) = network(text) {
            cx.add(format!("/bans/exceptions/{i}"), message);
        }
    }
}
