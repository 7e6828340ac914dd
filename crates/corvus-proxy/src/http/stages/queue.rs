//! Stage 13: inside, or waiting. `corvus_queue` decides; here requests become its questions, and
//! its answers cookies and responses.

pub(crate) mod answer;

use std::{rc::Rc, time::Duration};

use corvus_config::snapshot::SameSite;
use corvus_core::{Reason, Stage, token::Admission};
use corvus_queue::{Check, CookieChange, Cookies, Decision, Outcome as QueueOutcome, QueueService};
use corvus_rules::path::prefix_matches;

use crate::{
    http::{exchange::Exchange, name::Name, pipeline::Stop},
    worker::SiteQueue,
};

/// In the query of an address that a browser was sent back to, to see whether it keeps cookies.
pub(crate) const MARKER: &str = "__corvus_c=1";
/// Cookies of one name that are looked at: verifying costs, and a browser sends two or three.
const MAX_SAME_NAME: usize = 4;
/// How long a browser keeps a place beyond the time that the place itself is good for.
const PLACE_COOKIE_EXTRA_S: u64 = 600;

/// Lets the request pass, or answers it.
pub(crate) async fn admit(x: &mut Exchange) -> Result<(), Stop> {
    let Some(site) = x.site.clone() else { return Ok(()) };
    let Some(queue) = &site.queue else { return Ok(()) };
    if !is_queued(x, queue) {
        return Ok(());
    }
    let service = std::sync::Arc::clone(&x.worker.shared.queues);
    if let Some(admission) = young_admission(x, queue, &service) {
        x.session = Some(admission);
        return Ok(());
    }
    let visitor = match service.check(&queue.queue, cookies(x, queue), x.client) {
        Check::Admitted(admission) => {
            x.session = Some(admission);
            return Ok(());
        }
        Check::Ask(visitor) => visitor,
    };
    if x.marked && service.is_known(&queue.queue, &visitor) && answer::is_navigation(x) {
        // The cookie came back: off with the marker, so that it ends up in no bookmark.
        return Err(answer::to_itself(x, false).into());
    }
    let outcome = service.enter(&queue.queue, &visitor).await;
    let decision = take_cookies(x, queue, outcome);
    if let Decision::Pass { session } = decision {
        x.session = session;
        return Ok(());
    }
    x.reason = Some(Reason::new(Stage::Queue, answer::rule(&decision)));
    Err(answer::response(x, queue, &decision).into())
}

/// The common case, which every request of everybody inside comes through: one admission cookie,
/// and nothing else looked at.
fn young_admission(x: &Exchange, queue: &SiteQueue, service: &QueueService) -> Option<Admission> {
    let mut admissions = x.cookies(&queue.admission_cookie);
    let only = admissions.next().filter(|_| admissions.next().is_none())?;
    let cookies = Cookies { admission: std::str::from_utf8(only).ok(), place: None };
    let mut shown = x.conn.shown.borrow_mut();
    match service.check_again(&queue.queue, cookies, x.client, &mut shown) {
        Check::Admitted(admission) => Some(admission),
        Check::Ask(_) => None,
    }
}

/// Whether the queue stands in front of this request.
fn is_queued(x: &Exchange, queue: &SiteQueue) -> bool {
    let gate = &queue.queue.gate;
    // A preflight carries no cookies by design; the request behind it is queued.
    let preflight = || {
        x.head.method() == b"OPTIONS"
            && x.head.headers.all_named("access-control-request-method").next().is_some()
    };
    // Origins differ in where a path ends that has a `#` in it, so such a target is in every scope.
    let hash = x.head.target().contains(&b'#');
    let in_scope = || {
        queue.whole_site || hash || gate.paths.iter().any(|prefix| prefix_matches(prefix, x.path()))
    };
    let bypassed = || gate.bypass.as_ref().is_some_and(|bypass| bypass.matches(x));
    let passes = preflight() || (!hash && is_open(x)) || bypassed();
    !passes && in_scope()
}

/// Crawlers must be able to read that they should come back later, and certificate authorities to
/// check the name. Only what every origin reads so: `/sale/..;/robots.txt` normalises to one of
/// these paths, and is a page of the sale to many servers.
fn is_open(x: &Exchange) -> bool {
    let raw = x.raw_path();
    (raw == b"/robots.txt" || raw.starts_with(b"/.well-known/")) && raw == x.path().as_bytes()
}

/// The queue's cookies on this request.
pub(crate) fn cookies<'a>(x: &'a Exchange, queue: &'a SiteQueue) -> Cookies<'a> {
    let all = |name: &'a str| -> [Option<&'a str>; MAX_SAME_NAME] {
        let mut values = x.cookies(name).filter_map(|value| std::str::from_utf8(value).ok());
        std::array::from_fn(|_| values.next())
    };
    let (admissions, places) = (all(&queue.admission_cookie), all(&queue.place_cookie));
    let (one, service) = (&queue.queue, &x.worker.shared.queues);
    Cookies {
        admission: match admissions {
            [first, None, ..] => first,
            many => service.choose_admission(one, many.into_iter().flatten(), x.client),
        },
        place: match places {
            [first, None, ..] => first,
            many => service.choose_place(one, many.into_iter().flatten(), x.client),
        },
    }
}

/// Notes the cookies that an outcome sets or drops; gives its decision.
pub(crate) fn take_cookies(x: &mut Exchange, queue: &SiteQueue, outcome: QueueOutcome) -> Decision {
    let settings = &queue.queue.settings;
    let place_life_s = settings.queue_ttl_ms / 1_000 + PLACE_COOKIE_EXTRA_S;
    let changes = [
        (&queue.admission_cookie, outcome.admission, settings.active_ttl_ms / 1_000),
        (&queue.place_cookie, outcome.place, place_life_s),
    ];
    for (name, change, life_s) in changes {
        match change {
            CookieChange::Keep => {}
            CookieChange::Set(text) => set_cookie(x, queue, name, &text, life_s),
            CookieChange::Drop => set_cookie(x, queue, name, "", 0),
        }
    }
    outcome.decision
}

fn set_cookie(x: &mut Exchange, queue: &SiteQueue, name: &str, value: &str, life_s: u64) {
    let gate = &queue.queue.gate;
    let same_site = match gate.cookie_same_site {
        SameSite::Lax => "Lax",
        SameSite::Strict => "Strict",
        SameSite::None => "None",
    };
    let mut cookie =
        format!("{name}={value}; Path=/; Max-Age={life_s}; HttpOnly; SameSite={same_site}");
    if x.https {
        cookie.push_str("; Secure");
    }
    if let Some(domain) = &gate.cookie_domain {
        cookie.push_str("; Domain=");
        cookie.push_str(domain);
    }
    x.set_cookies.push(cookie);
}

/// Takes the marker out of the query, before any stage or the origin sees it.
pub(crate) fn take_marker(x: &mut Exchange) {
    if let Some(clean) = without_marker(x.head.target()) {
        x.marked = true;
        x.replace_target(&clean);
    }
}

/// The target without any marker; `None` if it has none.
fn without_marker(target: &[u8]) -> Option<Vec<u8>> {
    memchr::memmem::find(target, MARKER.as_bytes())?;
    let end = memchr::memchr(b'#', target).unwrap_or(target.len());
    let (target, fragment) = target.split_at(end);
    let (path, query) = target.split_at(memchr::memchr(b'?', target)?);
    let mut clean = path.to_vec();
    let mut found = false;
    let mut joint = b'?';
    for part in query.get(1..)?.split(|byte| *byte == b'&') {
        if part == MARKER.as_bytes() {
            found = true;
            continue;
        }
        clean.push(joint);
        clean.extend_from_slice(part);
        joint = b'&';
    }
    clean.extend_from_slice(fragment);
    found.then_some(clean)
}

/// The target with the marker, for the redirect that sets the first cookie.
pub(crate) fn with_marker(target: &[u8]) -> Vec<u8> {
    let end = memchr::memchr(b'#', target).unwrap_or(target.len());
    let (target, fragment) = target.split_at(end);
    let joint: &[u8] = if target.contains(&b'?') { b"&" } else { b"?" };
    [target, joint, MARKER.as_bytes(), fragment].concat()
}

/// `Corvus-Queue: release`: the origin ends the session.
pub(crate) async fn release(x: &mut Exchange) {
    let Some(site) = x.site.clone() else { return };
    let (Some(queue), Some(admission)) = (&site.queue, x.session.take()) else { return };
    let service = std::sync::Arc::clone(&x.worker.shared.queues);
    let id = &queue.queue.settings.id;
    if let Err(error) = service.release(id, &admission).await {
        tracing::warn!(queue = %id, %error, "a session could not be released");
    }
    x.set_cookies.clear();
    set_cookie(x, queue, &queue.admission_cookie, "", 0);
}

/// Keeps an admitted session alive while a response, a WebSocket or a stream is open.
#[derive(Debug)]
pub(crate) struct Keeper(Option<tokio::task::JoinHandle<()>>);

impl Keeper {
    pub(crate) fn start(x: &Exchange) -> Self {
        let queue = x.site.as_ref().and_then(|site| site.queue.as_ref());
        let (Some(queue), Some(admission)) = (queue, x.session) else { return Self(None) };
        let (queue, worker) = (std::sync::Arc::clone(&queue.queue), Rc::clone(&x.worker));
        Self(Some(tokio::task::spawn_local(keep_alive(worker, queue, admission))))
    }
}

async fn keep_alive(
    worker: Rc<crate::worker::Worker>,
    queue: std::sync::Arc<corvus_config::snapshot::Queue>,
    mut admission: Admission,
) {
    let service = std::sync::Arc::clone(&worker.shared.queues);
    loop {
        tokio::time::sleep(Duration::from_millis(queue.settings.refresh_ms)).await;
        if !service.keep_alive(&queue, &mut admission).await {
            return;
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// Crawlers are told not to keep what they see here.
pub(crate) const NO_INDEX: (Name, &[u8]) = (Name::XRobotsTag, b"noindex");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_is_put_before_the_fragment() {
        for (target, marked) in [
            ("/a", "/a?__corvus_c=1"),
            ("/a?b=1;c", "/a?b=1;c&__corvus_c=1"),
            ("//a%2Fb?#x", "//a%2Fb?&__corvus_c=1#x"),
        ] {
            assert_eq!(with_marker(target.as_bytes()), marked.as_bytes());
            assert_eq!(without_marker(marked.as_bytes()).as_deref(), Some(target.as_bytes()));
        }
    }

    #[test]
    fn only_whole_markers_in_the_query_count() {
        for target in
            ["/a", "/?x__corvus_c=1", "/__corvus_c=1", "/?a#__corvus_c=1", "/?__corvus_c=12"]
        {
            assert_eq!(without_marker(target.as_bytes()), None, "{target}");
        }
        let several = b"/?x__corvus_c=1&__corvus_c=1&b&__corvus_c=1";
        assert_eq!(without_marker(several).as_deref(), Some(&b"/?x__corvus_c=1&b"[..]));
    }
}
