//! Names of hosts, as people write them and as requests carry them.

/// The form requests are compared with: lower case, no trailing dot, IDN as punycode; `*.` in front
/// for a wildcard. The error says what is wrong with it.
pub fn normalise(text: &str) -> Result<String, String> {
    if let Some(c) = text.chars().find(|c| c.is_whitespace() || c.is_control()) {
        return Err(match c {
            ' ' => format!("a domain holds no space: `{text}`"),
            c => format!("a domain holds no `{}`", c.escape_default()),
        });
    }
    if let Some((_, rest)) = text.split_once("://") {
        let name = rest.split(['/', ':']).next().unwrap_or_default();
        return Err(format!("a domain has no scheme; write `{name}`"));
    }
    let (wildcard, name) = match text.strip_prefix("*.") {
        Some(rest) => ("*.", rest),
        None => ("", text),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    if let Some((host, port)) = name.split_once(':')
        && !name.starts_with('[')
    {
        let is_port = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        return Err(if is_port {
            format!("a domain has no port; write `{wildcard}{host}`")
        } else {
            format!("`:` may not stand in a domain: `{text}`")
        });
    }
    if text == "*" {
        return Err("`*` alone is no domain; unknown names go to `settings.default_site`".into());
    }
    if name.contains('*') {
        return Err(format!("a wildcard stands in front, as in `*.example.com`, not `{text}`"));
    }
    if name.contains('/') {
        return Err(format!("a domain has no path: `{text}`"));
    }
    let bad = |c: &char| c.is_ascii() && !(c.is_ascii_alphanumeric() || "-_.".contains(*c));
    if let Some(c) = name.chars().find(bad) {
        return Err(format!("`{c}` may not stand in a domain: `{text}`"));
    }
    let ascii = idna::domain_to_ascii_cow(name.as_bytes(), idna::AsciiDenyList::URL)
        .map_err(|_| format!("`{text}` is no valid domain"))?;
    // An ideographic full stop is a dot to IDNA, so the last one may only show now.
    let ascii = ascii.strip_suffix('.').unwrap_or(&ascii);
    if ascii.is_empty() {
        return Err("a domain may not be empty".to_owned());
    }
    if let Some(label) = ascii.split('.').find(|label| !is_label(label)) {
        return Err(if label.is_empty() {
            format!("a domain has no empty part: `{text}`")
        } else if label.len() > 63 {
            "a part of a domain has at most 63 characters".to_owned()
        } else {
            format!("a part of a domain does not begin or end with `-`: `{text}`")
        });
    }
    if ascii.len() > 253 {
        return Err("a domain has at most 253 characters".to_owned());
    }
    Ok(format!("{wildcard}{ascii}"))
}

/// Underscores are no letters of host names, but networks of containers use them.
fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Whether a certificate for `pattern` is good for `name`, both normal: the wildcard of a
/// certificate covers one label (RFC 9525 section 6.3).
pub(crate) fn certificate_covers(pattern: &str, name: &str) -> bool {
    if pattern == name {
        return true;
    }
    let parent = name.split_once('.').map(|(_, parent)| parent);
    pattern.strip_prefix("*.").is_some_and(|rest| parent == Some(rest))
}

/// Whether a cookie for `domain` reaches `name` (RFC 6265 section 5.1.3), both normal.
pub(crate) fn cookie_reaches(domain: &str, name: &str) -> bool {
    let name = name.strip_prefix("*.").unwrap_or(name);
    name == domain || name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_folded() {
        for (text, normal) in [
            ("shop.example.com", "shop.example.com"),
            ("Shop.Example.COM.", "shop.example.com"),
            ("*.Example.com", "*.example.com"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("*.BÜCHER.example.", "*.xn--bcher-kva.example"),
            ("例え。jp", "xn--r8jz45g.jp"),
            ("localhost", "localhost"),
            ("my_app.lan", "my_app.lan"),
            ("10.0.0.5", "10.0.0.5"),
        ] {
            assert_eq!(normalise(text).as_deref(), Ok(normal), "{text}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "a domain may not be empty"),
            (".", "a domain may not be empty"),
            ("shop.example.com:8080", "a domain has no port; write `shop.example.com`"),
            ("https://shop.example.com/x", "a domain has no scheme; write `shop.example.com`"),
            ("a b.com", "a domain holds no space: `a b.com`"),
            ("a.com\nserver {", "a domain holds no `\\n`"),
            ("a\".com", "`\"` may not stand in a domain: `a\".com`"),
            ("a;b.com", "`;` may not stand in a domain: `a;b.com`"),
            ("a.com/x", "a domain has no path: `a.com/x`"),
            ("*", "`*` alone is no domain; unknown names go to `settings.default_site`"),
            ("a.*.com", "a wildcard stands in front, as in `*.example.com`, not `a.*.com`"),
            ("a..com", "a domain has no empty part: `a..com`"),
            ("-a.com", "a part of a domain does not begin or end with `-`: `-a.com`"),
            ("[::1]", "`[` may not stand in a domain: `[::1]`"),
            ("a::1", "`:` may not stand in a domain: `a::1`"),
        ] {
            assert_eq!(normalise(text), Err(reason.to_owned()), "{text}");
        }
        assert!(normalise(&"a".repeat(64)).is_err());
        assert!(normalise(&vec!["a".repeat(60); 5].join(".")).is_err());
    }

    #[test]
    fn certificates_cover_one_label_and_cookies_all() {
        assert!(
            certificate_covers("*.a.com", "x.a.com") && certificate_covers("*.a.com", "*.a.com")
        );
        assert!(!certificate_covers("*.a.com", "a.com"));
        assert!(!certificate_covers("*.a.com", "x.y.a.com"));
        assert!(cookie_reaches("a.com", "x.y.a.com") && cookie_reaches("a.com", "*.a.com"));
        assert!(!cookie_reaches("a.com", "ba.com") && !cookie_reaches("x.a.com", "a.com"));
    }

    proptest! {
        #[test]
        fn folding_twice_changes_nothing(text in prop_oneof![any::<String>(), "[a-zÄß.*_-]{0,12}"]) {
            if let Ok(normal) = normalise(&text) {
                prop_assert_eq!(normalise(&normal), Ok(normal.clone()));
                prop_assert!(normal.bytes().all(|b| b.is_ascii_graphic() && !b.is_ascii_uppercase()));
            }
        }
    }
}
