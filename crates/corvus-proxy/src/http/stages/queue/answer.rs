//! What those get who are not inside: pages for browsers, JSON for everybody else.

use std::sync::atomic::{AtomicU64, Ordering};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use corvus_core::event::Outcome;
use corvus_queue::{Decision, gate::Standing};

use super::{NO_INDEX, with_marker};
use crate::{
    http::{
        exchange::Exchange,
        name::Name,
        pages::{self, Notice, QueueState, Waiting},
        rescue,
        response::Response,
    },
    worker::SiteQueue,
};

/// When those come again who got the first cookie with this answer, seconds.
const COOKIE_RETRY_S: u64 = 3;

/// How much later than the script would ask a page without one comes anew, seconds: each time it
/// takes the leave button from under the hand, and screen readers begin again.
const REFRESH_SLACK_S: u64 = 7;

/// A browser that opens a page: what can be redirected without losing anything.
pub(crate) fn is_navigation(x: &Exchange) -> bool {
    x.head.method() == b"GET" && rescue::wants_html(x)
}

/// Stable name of a decision in logs and metrics.
pub(crate) fn rule(decision: &Decision) -> &'static str {
    match decision {
        Decision::Pass { .. } | Decision::Ready => "admitted",
        Decision::Waiting(_) => "waiting",
        Decision::NeedsCookie => "needs_cookie",
        Decision::Full { .. } => "full",
        Decision::Busy { .. } => "busy",
        Decision::Closed => "closed",
        Decision::NotOpen { .. } => "not_open",
        Decision::Gone => "gone",
        Decision::TooManyJoins { .. } => "too_many_joins",
        Decision::TooManyWaiting { .. } => "too_many_waiting",
        Decision::TooManyPolls { .. } => "too_many_polls",
        Decision::StoreDown { .. } => "store_down",
        Decision::Left => "left",
    }
}

/// The answer to a request that does not pass.
pub(crate) fn response(x: &Exchange, queue: &SiteQueue, decision: &Decision) -> Response {
    if *decision == Decision::NeedsCookie && is_navigation(x) && !x.marked {
        return to_itself(x, true);
    }
    if !rescue::wants_html(x) {
        return json(x, queue, decision, 429);
    }
    match decision {
        Decision::Waiting(standing) => waiting(x, queue, standing),
        // Not to be redirected (a POST would become a GET): the page asks again by GET.
        Decision::NeedsCookie if !x.marked => {
            let standing = Standing {
                rank: None,
                waiting: 0,
                eta_s: None,
                poll_s: COOKIE_RETRY_S,
                starts_at_ms: None,
            };
            waiting(x, queue, &standing)
        }
        Decision::NotOpen { opens_at_ms, retry_after_s } => {
            let left_ms = opens_at_ms.saturating_sub(x.worker.wall_ms(x.started_us));
            let notice = Notice::NotOpen { opens_in_ms: Some(left_ms) };
            notice_page(x, notice, Some(*retry_after_s))
        }
        Decision::Full { retry_after_s } => notice_page(x, Notice::Full, Some(*retry_after_s)),
        Decision::Busy { retry_after_s } => notice_page(x, Notice::Busy, Some(*retry_after_s)),
        Decision::TooManyJoins { retry_after_s }
        | Decision::TooManyWaiting { retry_after_s }
        | Decision::TooManyPolls { retry_after_s } => {
            notice_page(x, Notice::TooMany, Some(*retry_after_s))
        }
        Decision::StoreDown { retry_after_s } => {
            notice_page(x, Notice::TryAgain, Some(*retry_after_s))
        }
        Decision::Closed => notice_page(x, Notice::Closed, None),
        _ => {
            let again = String::from_utf8_lossy(x.head.target());
            notice_page(x, Notice::CookiesNeeded { again: &again }, None)
        }
    }
}

/// Sends the browser to the address it asked for: with the marker to set the first cookie, without
/// it to clean up. Absolute, with the scheme and host that were asked for and the target byte for
/// byte.
pub(crate) fn to_itself(x: &Exchange, marked: bool) -> Response {
    let target = x.head.target();
    let target = if marked { with_marker(target) } else { target.to_vec() };
    let location = [x.scheme().as_bytes(), b"://", &x.authority, &target].concat();
    rescue::private(Response::own(302, Outcome::Queued)).with(Name::Location, &location)
}

/// `{"state","rank","waiting","retry_after","eta_s","queue"}`.
pub(crate) fn json(x: &Exchange, queue: &SiteQueue, decision: &Decision, status: u16) -> Response {
    let id = queue.queue.settings.id.as_str();
    let (state, retry_after, standing) = match decision {
        Decision::Pass { .. } | Decision::Ready => (QueueState::Admitted, None, None),
        Decision::Waiting(standing) => {
            (QueueState::Waiting, Some(standing.poll_s), Some(*standing))
        }
        Decision::NeedsCookie => (QueueState::NeedsCookie, Some(COOKIE_RETRY_S), None),
        Decision::Full { retry_after_s } => (QueueState::Full, Some(*retry_after_s), None),
        Decision::Busy { retry_after_s }
        | Decision::TooManyJoins { retry_after_s }
        | Decision::TooManyWaiting { retry_after_s }
        | Decision::TooManyPolls { retry_after_s } => {
            (QueueState::Busy, Some(*retry_after_s), None)
        }
        Decision::StoreDown { retry_after_s } => {
            (QueueState::Unavailable, Some(*retry_after_s), None)
        }
        Decision::NotOpen { retry_after_s, .. } => {
            (QueueState::NotOpen, Some(*retry_after_s), None)
        }
        Decision::Closed => (QueueState::Closed, None, None),
        Decision::Gone | Decision::Left => (QueueState::Gone, None, None),
    };
    let body = pages::queue_json(
        state,
        standing.and_then(|s| s.rank),
        standing.map(|s| s.waiting),
        retry_after,
        standing.and_then(|s| s.eta_s),
        id,
    );
    let mut response = rescue::private(Response::own(status, Outcome::Queued))
        .with(Name::XRequestId, &x.id)
        .with_body(pages::JSON, body);
    if let Some(seconds) = retry_after {
        response.head.headers.set(Name::RetryAfter, seconds.to_string().as_bytes());
    }
    response
}

fn waiting(x: &Exchange, queue: &SiteQueue, standing: &Standing) -> Response {
    let nonce = nonce();
    let now_ms = x.worker.wall_ms(x.started_us);
    let words = &queue.queue.gate.page;
    let place = place_mark(x, queue);
    let page = Waiting {
        visit: rescue::visit(x, &nonce),
        queue: queue.queue.settings.id.as_str(),
        title: words.title.as_deref(),
        message: words.message.as_deref(),
        place: &place,
        rank: standing.rank,
        waiting: standing.waiting,
        eta_s: standing.eta_s,
        poll_s: standing.poll_s,
        starts_in_ms: standing.starts_at_ms.map(|at| at.saturating_sub(now_ms)),
        paused: queue.queue.settings.paused,
    };
    // 200 or 202 to a POST would say that it was done.
    let safe = matches!(x.head.method(), b"GET" | b"HEAD");
    let status = if safe { queue.queue.gate.status } else { 429 };
    let response = Response::own(status, Outcome::Queued);
    let response = match &words.template {
        // The operator's own page brings its own code.
        Some(template) => rescue::private(response)
            .with_body(pages::HTML, pages::render_template(template, &page)),
        None => rescue::html(response, pages::waiting(&page), &nonce),
    };
    // A grant holds from when the visitor is due, so there is time to let people press a button.
    let slack_s = (queue.queue.settings.grant_ttl_ms / 2_000).min(REFRESH_SLACK_S);
    repeated(response, x, standing.poll_s, standing.poll_s + slack_s)
}

fn notice_page(x: &Exchange, notice: Notice<'_>, retry_after_s: Option<u64>) -> Response {
    let nonce = if matches!(notice, Notice::NotOpen { .. }) { nonce() } else { String::new() };
    let page = pages::notice(&rescue::visit(x, &nonce), notice);
    // `status` is the waiting page's: a line that is full or closed is no success in any case.
    let response = rescue::html(Response::own(429, Outcome::Queued), page, &nonce);
    match retry_after_s {
        Some(seconds) => repeated(response, x, seconds, seconds),
        None => response.with(Name::XRequestId, &x.id).with(NO_INDEX.0, NO_INDEX.1),
    }
}

/// Comes again by itself: `Retry-After` for programs, `Refresh` for browsers without a script.
fn repeated(response: Response, x: &Exchange, retry_after_s: u64, refresh_s: u64) -> Response {
    response
        .with(Name::RetryAfter, retry_after_s.max(1).to_string().as_bytes())
        .with(Name::Refresh, refresh_s.max(1).to_string().as_bytes())
        .with(Name::XRequestId, &x.id)
        .with(NO_INDEX.0, NO_INDEX.1)
}

/// After the leave button.
pub(crate) fn left(x: &Exchange, queue: &SiteQueue) -> Response {
    if !rescue::wants_html(x) {
        return json(x, queue, &Decision::Left, 200);
    }
    let again = referring_target(x).unwrap_or_else(|| "/".to_owned());
    let page = pages::notice(&rescue::visit(x, ""), Notice::Left { again: &again });
    rescue::html(Response::own(200, Outcome::Answered), page, "").with(Name::XRequestId, &x.id)
}

/// The page on this site that the request came from.
fn referring_target(x: &Exchange) -> Option<String> {
    let referer = x.head.headers.get_str(Name::Referer)?;
    let (_, rest) = referer.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find('/')?);
    authority.as_bytes().eq_ignore_ascii_case(&x.authority).then(|| path.to_owned())
}

/// Stays the same while the visitor keeps the place, and tells nothing about it.
fn place_mark(x: &Exchange, queue: &SiteQueue) -> String {
    use std::hash::BuildHasher as _;
    // The place token is set anew with each answer; its sid and ticket are what stays.
    let set =
        x.set_cookies.iter().find_map(|c| c.strip_prefix(&queue.place_cookie)?.strip_prefix('='));
    let sent = super::cookies(x, queue).place;
    let fields: Vec<&str> = set.or(sent).unwrap_or_default().split('.').collect();
    let stable = (fields.get(4), fields.get(6));
    format!("{:016x}", foldhash::quality::FixedState::with_seed(7).hash_one(stable))
}

/// 128 random bits in base64, for the page's Content-Security-Policy.
fn nonce() -> String {
    static FALLBACK: AtomicU64 = AtomicU64::new(0);
    let mut bytes = [0_u8; 16];
    if getrandom::fill(&mut bytes).is_err() {
        // No random numbers: the page must still differ from every other.
        let count = FALLBACK.fetch_add(1, Ordering::Relaxed);
        bytes[..8].copy_from_slice(&count.to_le_bytes());
    }
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests;
