//! `access_queues`.

use std::sync::Arc;

use corvus_core::Id;
use corvus_rules::{Expr, path};
use jiff::Timestamp;

use super::{Context, Parts};
use crate::{
    document::{
        Document,
        access_queue::{
            AccessQueue, QueueMethod, QueueSchedule, SameSitePolicy, StoreFailure, WaitingPage,
        },
    },
    domain,
    problem::did_you_mean,
    queue_settings::{Method, QueueSettings, Rate, Schedule},
    snapshot::{OnStoreFailure, Queue, QueueGate, QueuePage, SameSite},
};

/// What a waiting page of the operator's own may hold, in double braces. `rank` must be there.
pub const PLACEHOLDERS: &[&str] = &[
    "rank",
    "waiting",
    "eta",
    "refresh_s",
    "title",
    "message",
    "status_url",
    "leave_url",
    "request_id",
    "queue",
];

/// One part for each queue of the Document, in its order.
pub(super) fn compile(document: &Document, cx: &mut Context<'_>) -> Parts<Queue> {
    let queues = document.access_queues.iter().enumerate();
    queues
        .map(|(i, queue)| {
            compile_queue(document, queue, &format!("/access_queues/{i}"), cx).map(Arc::new)
        })
        .collect()
}

fn compile_queue(
    document: &Document,
    queue: &AccessQueue,
    at: &str,
    cx: &mut Context<'_>,
) -> Option<Queue> {
    times(queue, at, cx);
    let ms = |seconds: u64| seconds.saturating_mul(1_000);
    let schedule = schedule(&queue.schedule, &format!("{at}/schedule"), cx);
    let bypass = queue.bypass.as_ref().and_then(|text| match Expr::parse(text) {
        Ok(expr) => Some(expr),
        Err(error) => {
            cx.add(format!("{at}/bypass"), error.to_string());
            None
        }
    });
    if ![429, 200, 202].contains(&queue.status) {
        let message = format!("the status is 429, 200 or 202, not {}", queue.status);
        cx.add(format!("{at}/status"), message);
    }
    template(&queue.page, &format!("{at}/page/template"), cx);
    let gate = QueueGate {
        joins_per_ip_per_min: queue.joins_per_ip_per_min,
        polls_per_session_per_s: queue.polls_per_session_per_s,
        max_waiting_per_ip: queue.max_waiting_per_ip,
        on_store_failure: match queue.on_store_failure {
            StoreFailure::Open => OnStoreFailure::Open,
            StoreFailure::Closed => OnStoreFailure::Closed,
        },
        bind_network: queue.bind_network,
        paths: paths(&queue.paths, &format!("{at}/paths"), cx),
        bypass,
        cookie_same_site: match queue.cookie.same_site {
            SameSitePolicy::Lax => SameSite::Lax,
            SameSitePolicy::Strict => SameSite::Strict,
            SameSitePolicy::None => SameSite::None,
        },
        cookie_domain: cookie_domain(document, queue, &format!("{at}/cookie/domain"), cx),
        status: queue.status,
        page: QueuePage {
            title: queue.page.title.clone(),
            message: queue.page.message.clone(),
            template: queue.page.template.clone(),
        },
    };
    let settings = QueueSettings {
        id: Id::new(&queue.id).ok()?,
        capacity: queue.capacity,
        rate: queue.rate.as_ref().map(|rate| Rate { count: rate.count.0, per_s: rate.per_s.0 }),
        active_ttl_ms: ms(queue.active_ttl_s),
        grant_ttl_ms: ms(queue.grant_ttl_s),
        queue_ttl_ms: ms(queue.queue_ttl_s),
        refresh_ms: ms(queue.refresh_s),
        max_waiting: queue.max_waiting,
        method: match queue.method {
            QueueMethod::Fifo => Method::Fifo,
            QueueMethod::Random => Method::Random,
            QueueMethod::Passthrough => Method::Passthrough,
            QueueMethod::Reject => Method::Reject,
        },
        paused: queue.paused,
        schedule,
    };
    Some(Queue { settings, gate })
}

fn times(queue: &AccessQueue, at: &str, cx: &mut Context<'_>) {
    let AccessQueue { active_ttl_s, refresh_s, grant_ttl_s, .. } = queue;
    // For `refresh_s` an admission is believed without telling the store, which would meanwhile
    // give the place to somebody else.
    if active_ttl_s <= refresh_s {
        cx.add(
            format!("{at}/active_ttl_s"),
            format!(
                "active_ttl_s ({active_ttl_s}) must be more than refresh_s ({refresh_s}), \
                 or places of visitors inside are given away"
            ),
        );
    }
    if grant_ttl_s > active_ttl_s {
        cx.add(
            format!("{at}/grant_ttl_s"),
            format!(
                "grant_ttl_s ({grant_ttl_s}) must not be more than active_ttl_s ({active_ttl_s}): \
                 a place nobody came for would be held longer than one in use"
            ),
        );
    }
}

fn schedule(schedule: &QueueSchedule, at: &str, cx: &mut Context<'_>) -> Schedule {
    let mut read = |key: &str, text: &Option<String>| -> Option<u64> {
        let text = text.as_ref()?;
        let ms = text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond);
        let ms = ms.and_then(|ms| u64::try_from(ms).ok());
        if ms.is_none() {
            let message =
                format!("`{text}` is no time with an offset, such as 2026-12-24T12:00:00+01:00");
            cx.add(format!("{at}/{key}"), message);
        }
        ms
    };
    let schedule = Schedule {
        opens_at_ms: read("opens_at", &schedule.opens_at),
        starts_at_ms: read("starts_at", &schedule.starts_at),
        ends_at_ms: read("ends_at", &schedule.ends_at),
    };
    let times = [
        ("opens_at", schedule.opens_at_ms),
        ("starts_at", schedule.starts_at_ms),
        ("ends_at", schedule.ends_at_ms),
    ];
    let given: Vec<(&str, u64)> =
        times.iter().filter_map(|(name, time)| time.map(|time| (*name, time))).collect();
    for pair in given.windows(2) {
        if let [(first, a), (second, b)] = pair
            && a >= b
        {
            cx.add(format!("{at}/{second}"), format!("`{second}` must be after `{first}`"));
        }
    }
    schedule
}

fn paths(paths: &[String], at: &str, cx: &mut Context<'_>) -> Vec<String> {
    if paths.is_empty() {
        cx.add(at, "without a path nothing is queued; write [\"/\"] for all");
    }
    let mut prefixes: Vec<String> = Vec::with_capacity(paths.len());
    for (i, text) in paths.iter().enumerate() {
        let pointer = format!("{at}/{i}");
        if !text.starts_with('/') {
            cx.add(
                pointer,
                format!("a path begins with `/`, not like `{}`", text.escape_default()),
            );
        } else if text.contains(['?', '#', '*']) {
            cx.add(pointer, format!("`{text}` is a prefix; it holds no `?`, `#` or `*`"));
        } else {
            let prefix = path::canonical_prefix(text);
            if !prefixes.contains(&prefix) {
                prefixes.push(prefix);
            }
        }
    }
    prefixes
}

fn cookie_domain(
    document: &Document,
    queue: &AccessQueue,
    at: &str,
    cx: &mut Context<'_>,
) -> Option<String> {
    let text = queue.cookie.domain.as_ref()?;
    // A leading dot means nothing since RFC 6265, and people still write it.
    let name = match domain::normalise(text.strip_prefix('.').unwrap_or(text)) {
        Ok(name) if name.starts_with("*.") => {
            cx.add(
                at,
                format!("a cookie's domain covers what is below it; write `{}`", &name[2..]),
            );
            return None;
        }
        Ok(name) if name.parse::<std::net::IpAddr>().is_ok() || !name.contains('.') => {
            cx.add(at, format!("browsers take no cookie for `{name}` and what is below it"));
            return None;
        }
        Ok(name) => name,
        Err(message) => {
            cx.add(at, message);
            return None;
        }
    };
    for host in &document.proxy_hosts {
        if host.access_queue.as_deref() != Some(&queue.id) {
            continue;
        }
        for domain in host.domains.iter().filter_map(|text| domain::normalise(text).ok()) {
            if !domain::cookie_reaches(&name, &domain) {
                let message = format!(
                    "`{name}` does not cover `{domain}` of proxy host {}, which uses this queue",
                    host.id
                );
                cx.add(at, message);
            }
        }
    }
    Some(name)
}

fn template(page: &WaitingPage, at: &str, cx: &mut Context<'_>) {
    let Some(template) = &page.template else { return };
    let names: Vec<&str> = template
        .split("{{")
        .skip(1)
        .filter_map(|rest| rest.split_once("}}"))
        .map(|(name, _)| name.trim())
        .collect();
    if !names.contains(&"rank") {
        cx.add(at, "the template must contain {{rank}}, the visitor's place in the line");
    }
    for name in names {
        // Other names may belong to a script in the page, so only slips are told.
        if !PLACEHOLDERS.contains(&name)
            && let Some(meant) = did_you_mean(name, PLACEHOLDERS.iter().copied())
        {
            let message =
                format!("`{{{{{name}}}}}` is no placeholder; did you mean {{{{{meant}}}}}?");
            cx.add(at, message);
        }
    }
}
