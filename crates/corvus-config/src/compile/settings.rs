//! `settings`.

use std::sync::Arc;

use ipnet::IpNet;

use super::{Context, absolute_url, network};
use crate::{
    document::settings::{self, DefaultAction},
    problem::did_you_mean,
    snapshot::{DefaultSite, Limits, Settings},
};

/// <https://www.cloudflare.com/ips-v4> and ips-v6; they last changed in 2021.
const CLOUDFLARE: &[&str] = &[
    "173.245.48.0/20",
    "103.21.244.0/22",
    "103.22.200.0/22",
    "103.31.4.0/22",
    "141.101.64.0/18",
    "108.162.192.0/18",
    "190.93.240.0/20",
    "188.114.96.0/20",
    "197.234.240.0/22",
    "198.41.128.0/17",
    "162.158.0.0/15",
    "104.16.0.0/13",
    "104.24.0.0/14",
    "172.64.0.0/13",
    "131.0.72.0/22",
    "2400:cb00::/32",
    "2606:4700::/32",
    "2803:f800::/32",
    "2405:b500::/32",
    "2405:8100::/32",
    "2a06:98c0::/29",
    "2c0f:f248::/32",
];

/// RFC 1918, loopback, link-local, unique local (RFC 4193). Not 100.64.0.0/10: behind a carrier's
/// NAT its addresses belong to strangers.
const PRIVATE: &[&str] = &[
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
];

const PRESETS: &[(&str, &[&str])] = &[("cloudflare", CLOUDFLARE), ("private", PRIVATE)];

pub(super) fn compile(settings: &settings::Settings, cx: &mut Context<'_>) -> Settings {
    let mut trusted_proxies = Vec::new();
    for (i, text) in settings.trusted_proxies.iter().enumerate() {
        let pointer = format!("/settings/trusted_proxies/{i}");
        if let Some((_, nets)) = PRESETS.iter().find(|(name, _)| name == text) {
            trusted_proxies.extend(nets.iter().filter_map(|net| net.parse::<IpNet>().ok()));
            continue;
        }
        match network(text) {
            Ok(net) if net.prefix_len() == 0 => {
                cx.add(pointer, "this would believe the forwarded headers of the whole Internet");
            }
            Ok(net) => trusted_proxies.push(net),
            Err(message) => {
                let message = match did_you_mean(text, PRESETS.iter().map(|(name, _)| *name)) {
                    Some(name) => format!("`{text}` is not known; did you mean `{name}`?"),
                    None if text.contains(['.', ':']) => message,
                    None => format!("{message}, nor `cloudflare` or `private`"),
                };
                cx.add(pointer, message);
            }
        }
    }
    let mut proxy_protocol_from = Vec::new();
    for (i, text) in settings.proxy_protocol_from.iter().enumerate() {
        match network(text) {
            Ok(net) => proxy_protocol_from.push(net),
            Err(message) => cx.add(format!("/settings/proxy_protocol_from/{i}"), message),
        }
    }
    Settings {
        trusted_proxies,
        proxy_protocol_from,
        default_site: default_site(&settings.default_site, cx),
        limits: Limits {
            header_bytes: settings.limits.header_bytes as usize,
            header_count: settings.limits.header_count as usize,
        },
    }
}

fn default_site(site: &settings::DefaultSite, cx: &mut Context<'_>) -> DefaultSite {
    let at = "/settings/default_site";
    let action = site.action;
    if site.url.is_some() && action != DefaultAction::Redirect {
        cx.add(format!("{at}/url"), "a `url` goes with `action: redirect`");
    }
    if site.html.is_some() && action != DefaultAction::Page {
        cx.add(format!("{at}/html"), "`html` goes with `action: page`");
    }
    match action {
        DefaultAction::NotFound => DefaultSite::NotFound,
        DefaultAction::Close => DefaultSite::Close,
        DefaultAction::Redirect => match site.url.as_deref().map(|url| (url, absolute_url(url))) {
            Some((url, Ok(()))) => DefaultSite::Redirect(url.to_owned()),
            Some((_, Err(message))) => {
                cx.add(format!("{at}/url"), message);
                DefaultSite::NotFound
            }
            None => {
                cx.add(at, "`action: redirect` needs a `url`");
                DefaultSite::NotFound
            }
        },
        DefaultAction::Page => {
            if let Some(html) = &site.html {
                return DefaultSite::Page(Arc::from(html.as_str()));
            }
            cx.add(at, "`action: page` needs `html`");
            DefaultSite::NotFound
        }
    }
}
