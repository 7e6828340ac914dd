//! What visitors meet: the waiting page, notices, error pages, and the same in JSON for programs.
//!
//! Pure functions from data to bodies. Every text from outside is escaped, every page is complete in
//! itself (no request for a style, a script, a font or an icon), and works without a script.

mod accept;
mod error;
mod escape;
mod json;
mod lang;
mod layout;
mod notice;
mod template;
#[cfg(test)]
mod tests;
mod waiting;

pub(crate) use accept::wants_html;
pub(crate) use error::{UPSTREAM_NAME, UPSTREAM_REFUSED, UPSTREAM_TIMEOUT, error, error_json};
pub(crate) use lang::Language;
pub(crate) use notice::{Notice, notice};
pub(crate) use template::render_template;
pub(crate) use waiting::{Waiting, waiting};

/// Content type of every page.
pub(crate) const HTML: &str = "text/html; charset=utf-8";
/// Content type of [`queue_json`].
pub(crate) const JSON: &str = "application/json";
/// Content type of [`error_json`] (RFC 9457 section 3).
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// What every page needs to know of the visit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit<'a> {
    pub(crate) language: Language,
    /// Random for each response, at least 128 bits in base64; the same goes to [`csp`]. Empty:
    /// without, which is enough for pages that have no script (all but the waiting page and
    /// [`Notice::NotOpen`]).
    pub(crate) nonce: &'a str,
    pub(crate) request_id: &'a str,
    /// The host that was asked for, shown at the top.
    pub(crate) host: Option<&'a str>,
}

/// The `Content-Security-Policy` for a page with this nonce.
///
/// `frame-ancestors` is left to the origin: shops embed their ticket pages, and the one thing to
/// click here, leaving the line, needs a cookie that other sites' frames do not send.
pub(crate) fn csp(nonce: &str) -> String {
    let code = if nonce.is_empty() {
        // No script at all, so inline styles can do no harm.
        "style-src 'unsafe-inline'".to_owned()
    } else {
        format!("script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'")
    };
    format!("default-src 'none'; {code}; img-src data:; form-action 'self'; base-uri 'none'")
}

/// What an access queue says of a visitor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum QueueState {
    Admitted,
    Waiting,
    /// Nothing came back of the cookies that hold a place: a program that keeps none waits for ever.
    NeedsCookie,
    Closed,
    NotOpen,
    /// The place is not known any more: ask for the page again.
    Gone,
    Full,
    /// The store is full, or a limit is reached.
    Busy,
    /// The store is down.
    Unavailable,
}

impl QueueState {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 9] = [
        Self::Admitted,
        Self::Waiting,
        Self::NeedsCookie,
        Self::Closed,
        Self::NotOpen,
        Self::Gone,
        Self::Full,
        Self::Busy,
        Self::Unavailable,
    ];

    /// The name in JSON bodies.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Waiting => "waiting",
            Self::NeedsCookie => "needs_cookie",
            Self::Closed => "closed",
            Self::NotOpen => "not_open",
            Self::Gone => "gone",
            Self::Full => "full",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The JSON answer of a queue, to polls and to programs: rank 1 is next, times in seconds, unknown
/// values are `null`.
pub(crate) fn queue_json(
    state: QueueState,
    rank: Option<u64>,
    waiting: Option<u64>,
    retry_after: Option<u64>,
    eta_s: Option<u64>,
    queue: &str,
) -> String {
    json::Object::new()
        .string("state", state.name())
        .number("rank", rank)
        .number("waiting", waiting)
        .number("retry_after", retry_after)
        .number("eta_s", eta_s)
        .string("queue", queue)
        .end()
}
