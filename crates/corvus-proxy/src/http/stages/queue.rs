//! Stage 13: inside, or waiting. `corvus_queue` decides; here requests become its questions, and
//! its answers cookies and responses.

pub(crate) mod answer;

use std::{rc::Rc, time::Duration};

use corvus_config::snapshot::SameSite;
use corvus_core::{Reason, Stage, token::Admission};
use corvus_queue::{Check, CookieChange, Cookies, Decision, Outcome as QueueOutcome};
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

/// Whether the queue stands in front of this request.
fn is_queued(x: &Exchange, queue: &SiteQueue) -> bool {
    let gate = &queue.queue.gate;
    // A preflight carries no cookies by design; the request behind it is queued.
    let preflight = || {
        x.head.method() == b"OPTIONS"
            && x.head.headers.all_named("access-control-request-method").next().is_some()
    };
    // Crawlers must be able to read that they should come back later, and certificate authorities
    // to check the name.
    let open = || x.path() == "/robots.txt" || x.path().starts_with("/.well-known/");
    let in_scope =
        || queue.whole_site || gate.paths.iter().any(|prefix| prefix_matches(prefix, x.path()));
    let bypassed = || gate.bypass.as_ref().is_some_and(|bypass| bypass.matches(x));
    let special = x.raw_path().get(1).is_some_and(|byte| matches!(byte, b'r' | b'.' | b'%' | b'/'));
    let passes = preflight() || (special && open()) || bypassed();
    !passes && in_scope()
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

/// Takes the marker out of the target, before any stage or the origin sees it.
pub(crate) fn take_marker(x: &mut Exchange) {
    let target = x.head.target();
    let Some(at) = memchr::memmem::find(target, MARKER.as_bytes()) else { return };
    let end = at + MARKER.len();
    let before = at.checked_sub(1).and_then(|at| target.get(at));
    let clean = match (before, target.get(end)) {
        // `?marker&rest`, `?rest&marker&rest`
        (Some(b'?' | b'&'), Some(b'&')) => [&target[..at], &target[end + 1..]].concat(),
        // `?marker`, `?rest&marker`, each perhaps with a fragment behind
        (Some(b'?' | b'&'), None | Some(b'#')) => [&target[..at - 1], &target[end..]].concat(),
        // Part of something else.
        _ => return,
    };
    x.marked = true;
    x.replace_target(&clean);
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
        }
    }
}
