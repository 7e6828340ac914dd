//! Which names a certificate speaks for (RFC 6125, as TLS clients apply it).

/// Whether a certificate for `pattern` (`shop.example.com` or `*.example.com`) is accepted for
/// `name`. A wildcard stands for exactly one label (RFC 6125 section 6.4.3), unlike the wildcards of
/// hosts, which match at any depth. For a wildcard `name` the question is whether all of the names
/// one label below are covered, which only the same wildcard does. Both are lower case.
pub(crate) fn covers(pattern: &str, name: &str) -> bool {
    if pattern == name {
        return true;
    }
    match (pattern.strip_prefix("*."), name.split_once('.')) {
        (Some(parent), Some((label, rest))) => rest == parent && label != "*",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_wildcard_stands_for_one_label() {
        assert!(covers("shop.example.com", "shop.example.com"));
        assert!(covers("*.example.com", "shop.example.com"));
        assert!(covers("*.example.com", "*.example.com"));
        assert!(!covers("*.example.com", "a.b.example.com"));
        assert!(!covers("*.example.com", "example.com"));
        assert!(!covers("shop.example.com", "*.example.com"));
        assert!(!covers("a.example.com", "b.example.com"));
    }
}
