//! Weights in `Accept` and `Accept-Language`, and whether a client asks for a page at all.

/// The weight of a range in thousandths, from its parameters (RFC 9110 section 12.4.2). No `q`
/// means 1; one that makes no sense counts as 0, so that it never wins.
pub(super) fn weight<'a>(parameters: impl Iterator<Item = &'a str>) -> u32 {
    for parameter in parameters {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        if name.trim().eq_ignore_ascii_case("q") {
            return match value.trim().parse::<f32>() {
                Ok(q) if (0.0..=1.0).contains(&q) => (q * 1000.0) as u32,
                _ => 0,
            };
        }
    }
    1000
}

/// Whether to answer with a page rather than JSON: the client names `text/html` (or XHTML), and
/// does not like JSON better.
///
/// A wildcard does not ask for HTML: `curl`, `fetch` and most HTTP libraries send `*/*`, and a
/// program that gets a page where it expects data fails without saying why. Browsers name
/// `text/html` when they navigate. No `Accept` at all is a program too.
pub(crate) fn wants_html(accept: Option<&str>) -> bool {
    let (mut html, mut json) = (0, 0);
    for range in accept.unwrap_or_default().split(',').take(64) {
        let mut parts = range.split(';');
        let kind = parts.next().unwrap_or_default().trim();
        let is = |name: &str| kind.eq_ignore_ascii_case(name);
        if is("text/html") || is("application/xhtml+xml") {
            html = html.max(weight(parts));
        } else if is("application/json") || is("application/problem+json") {
            json = json.max(weight(parts));
        }
    }
    html > 0 && html >= json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_get_pages_and_programs_get_json() {
        for accept in [
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
            "text/html",
            "TEXT/HTML; charset=utf-8; q=0.3",
            "application/xhtml+xml",
            "text/vnd.turbo-stream.html, text/html, application/xhtml+xml",
            "application/json;q=0.5, text/html",
        ] {
            assert!(wants_html(Some(accept)), "{accept}");
        }
        for accept in [
            "*/*",
            "text/*",
            "",
            "application/json",
            "application/json, text/plain, */*",
            "application/json, text/html;q=0.9",
            "text/html;q=0",
            "text/html;q=2",
            "text/html;q=-1",
            "text/html;q=NaN",
            "text/htmlx",
            "image/avif,image/webp,*/*;q=0.8",
            "text/event-stream",
        ] {
            assert!(!wants_html(Some(accept)), "{accept}");
        }
        assert!(!wants_html(None));
    }
}
