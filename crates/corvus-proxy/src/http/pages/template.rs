//! A page of the operator's own: `page.template` of an access queue.

use super::{
    escape,
    waiting::{Waiting, leave_url, status_url},
};

/// Fills the placeholders of a template for the waiting page: `{{rank}}`, `{{waiting}}`, `{{eta}}`,
/// `{{refresh_s}}`, `{{title}}`, `{{message}}`, `{{status_url}}`, `{{leave_url}}`,
/// `{{request_id}}`, `{{queue}}`; spaces inside the braces are fine.
///
/// Values are escaped for HTML text and quoted attributes, and are not searched for placeholders
/// again. Placeholders of other names stay as they are, since they may belong to a script. A hidden
/// rank is a dash.
pub(crate) fn render_template(template: &str, page: &Waiting<'_>) -> String {
    let mut out = String::with_capacity(template.len() + 256);
    let mut rest = template;
    while let Some(start) = rest.find("{{") {
        let (before, tail) = rest.split_at(start);
        out.push_str(before);
        let found = tail[2..].find("}}").and_then(|end| {
            value(page, tail[2..2 + end].trim()).map(|value| (value, &tail[end + 4..]))
        });
        if let Some((value, after)) = found {
            escape::html(&mut out, &value);
            rest = after;
        } else {
            // Only one brace: `{{{rank}}` has a placeholder behind its first brace.
            out.push('{');
            rest = &tail[1..];
        }
    }
    out.push_str(rest);
    out
}

fn value(page: &Waiting<'_>, name: &str) -> Option<String> {
    let language = page.visit.language;
    let text = language.text();
    Some(match name {
        "rank" => page.rank.map_or_else(|| "–".into(), |rank| language.number(rank)),
        "waiting" => language.number(page.waiting),
        "eta" => language.wait(page.eta_s),
        "refresh_s" => page.poll_s.to_string(),
        "title" => page.title.unwrap_or(text.title).into(),
        "message" => page.message.unwrap_or_default().into(),
        "status_url" => status_url(page.queue),
        "leave_url" => leave_url(page.queue),
        "request_id" => page.visit.request_id.into(),
        "queue" => page.queue.into(),
        _ => return None,
    })
}
