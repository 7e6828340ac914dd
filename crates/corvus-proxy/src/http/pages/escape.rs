//! Escaping: the one door through which text from outside reaches a page.

/// Appends `text` so that it is inert in HTML text and in quoted attribute values.
pub(super) fn html(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Old parsers took a backtick for a quote.
            '`' => out.push_str("&#96;"),
            // A NUL never belongs into a page; browsers replace it, checkers complain.
            '\0' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

/// [`html`] as a value.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    html(&mut out, text);
    out
}

/// A link target on this site: `target` itself when it is a path, `/` when it is anything else.
///
/// A target that begins with two slashes is a legal request target, but as a link it names another
/// host; `/.` in front keeps it a path (the URL Standard drops the dot segment). Browsers also read
/// `\` as `/` and skip tabs and newlines, so those never pass.
pub(super) fn local_path(target: &str) -> String {
    if !target.starts_with('/') || target.contains(|c: char| c == '\\' || c.is_control()) {
        return "/".into();
    }
    let target = target.split('#').next().unwrap_or("/");
    if target.starts_with("//") { format!("/.{target}") } else { target.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_leaves_no_markup() {
        assert_eq!(
            escaped("<a b='c' d=\"e\">&`\0"),
            "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;&#96;\u{fffd}"
        );
        assert_eq!(escaped("日本語 ünï"), "日本語 ünï");
    }

    #[test]
    fn links_stay_on_this_site() {
        for (target, link) in [
            ("/a?b=1&c=2;d", "/a?b=1&c=2;d"),
            ("/a#part", "/a"),
            ("//evil.example/x", "/.//evil.example/x"),
            ("/\\evil.example", "/"),
            ("/\t/evil.example", "/"),
            ("https://evil.example/", "/"),
            ("javascript:alert(1)", "/"),
            ("*", "/"),
            ("", "/"),
        ] {
            assert_eq!(local_path(target), link, "{target}");
        }
    }
}
