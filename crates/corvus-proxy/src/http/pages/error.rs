//! What a refused or failed request gets: a small page, or the same in JSON.

use super::{
    Visit,
    escape::escaped,
    json::Object,
    lang::{Errors, Language},
    layout,
};

/// Codes of why an upstream did not answer; the page says each in its own words. Any other code
/// with 502 is an answer that could not be used.
pub(crate) const UPSTREAM_NAME: &str = "upstream_name";
pub(crate) const UPSTREAM_REFUSED: &str = "upstream_refused";
pub(crate) const UPSTREAM_TIMEOUT: &str = "upstream_timeout";
/// With 503: the site is in maintenance.
pub(crate) const MAINTENANCE: &str = "maintenance";

/// The page for `status`, with the stable code of why (`Reason::rule`).
///
/// A 404 looks the same whatever the code: whether a site exists, is switched off or was never
/// here is nobody's business.
pub(crate) fn error(visit: &Visit<'_>, status: u16, reason: &str) -> String {
    let errors = &visit.language.text().errors;
    let (sentence, advice) = words(errors, status, reason);
    let main = format!(
        "<p class=\"code\">{status}</p><h1>{}</h1><p>{}</p>",
        escaped(sentence),
        escaped(advice)
    );
    layout::render(&layout::Page {
        visit,
        title: &format!("{status} · {sentence}"),
        main: &main,
        figures: false,
        script: None,
        reason: (status != 404).then_some(reason),
    })
}

/// The same for programs, in English: `{"status","error","detail","request_id"}`.
pub(crate) fn error_json(status: u16, reason: &str, request_id: &str) -> String {
    let (sentence, _) = words(&Language::En.text().errors, status, reason);
    Object::new()
        .number("status", u64::from(status))
        .string("error", if status == 404 { "not_found" } else { reason })
        .string("detail", sentence)
        .string("request_id", request_id)
        .end()
}

/// What happened, and what to do about it.
fn words(e: &'static Errors, status: u16, reason: &str) -> (&'static str, &'static str) {
    match (status, reason) {
        (401, _) => (e.unauthorized, e.sign_in),
        (403, _) => (e.forbidden, e.contact),
        (404 | 410, _) => (e.not_found, e.check_address),
        (405, _) => (e.method, e.go_back),
        (408, _) => (e.slow_request, e.connection),
        (413, _) => (e.too_large, e.smaller),
        (414, _) => (e.long_address, e.check_address),
        (421, _) => (e.misdirected, e.connection),
        (429, _) => (e.too_many, e.later),
        (431, _) => (e.headers, e.delete_cookies),
        (502 | 504, UPSTREAM_NAME) => (e.no_name, e.later),
        (502 | 504, UPSTREAM_REFUSED) => (e.refused, e.later),
        (502, UPSTREAM_TIMEOUT) | (504, _) => (e.slow_answer, e.later),
        (502, _) => (e.bad_answer, e.later),
        (503, MAINTENANCE) => (e.maintenance, e.later),
        (503, _) => (e.unavailable, e.later),
        (400..500, _) => (e.bad_request, e.check_address),
        _ => (e.internal, e.later),
    }
}
