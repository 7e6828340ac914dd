//! The path as rules and queues compare it.
//!
//! Backends disagree on what `/x/..;/Sale%2f` means. Whoever wants to slip past a rule picks the
//! spelling that the gateway reads one way and the backend another, so matching happens on the
//! most decoded reading, and the upstream still gets the bytes the client sent.

use std::borrow::Cow;

/// The normalised form of a raw request path (no query): decoded until nothing is left to decode,
/// `\` as `/`, no `;parameters`, no empty or dot segments, no control characters, always starting
/// with `/`.
///
/// A NUL counts as `/`: a backend that reads C strings would stop there, so what stands before it
/// has to match as a whole segment. Bytes that are no UTF-8 become U+FFFD. Linear in the length;
/// idempotent; borrows when the path is in its normal form already.
pub fn normalise(raw: &[u8]) -> Cow<'_, str> {
    if is_plain(raw)
        && let Ok(text) = std::str::from_utf8(raw)
    {
        return Cow::Borrowed(text);
    }
    let decoded = decode(raw);
    let mut out: Vec<u8> = Vec::with_capacity(decoded.len() + 1);
    // Ends with `/` between segments: `a/.` and `a/b/..` name the folder (RFC 3986 section 5.2.4).
    out.push(b'/');
    let mut segments = decoded.split(|b| *b == b'/').peekable();
    while let Some(segment) = segments.next() {
        let name = segment.split(|b| *b == b';').next().unwrap_or_default();
        match name {
            b"" | b"." => {}
            b".." => {
                out.pop();
                let parent = out.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
                out.truncate(parent);
                if out.is_empty() {
                    out.push(b'/');
                }
            }
            _ => {
                out.extend_from_slice(name);
                if segments.peek().is_some() {
                    out.push(b'/');
                }
            }
        }
    }
    Cow::Owned(match String::from_utf8(out) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// Whether nothing in the path needs work. Sends `/.well-known` the long way, which is correct too.
fn is_plain(raw: &[u8]) -> bool {
    raw.first() == Some(&b'/')
        && raw.iter().all(|b| !matches!(b, 0..=0x1f | 0x7f | b'%' | b'\\' | b';'))
        && raw.windows(2).all(|pair| pair != b"//" && pair != b"/.")
}

/// Percent-decoding to its fixed point in one pass: the output never holds a complete escape,
/// because each byte that completes one is folded at once. Escapes cannot overlap, so the order of
/// folding does not change the result, and `%2525…` costs no more than its length.
fn decode(raw: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(raw.len());
    for byte in raw {
        let mut next = Some(*byte);
        while let Some(byte) = next.take() {
            match byte {
                0 | b'\\' => out.push(b'/'),
                1..=0x1f | 0x7f => {}
                _ => out.push(byte),
            }
            next = fold_escape(&mut out);
        }
    }
    out
}

/// Takes a complete escape off the end and says what it stands for.
fn fold_escape(out: &mut Vec<u8>) -> Option<u8> {
    let (byte, len) = match *out.as_slice() {
        [.., b'%', high, low] => {
            let digit = |b: u8| char::from(b).to_digit(16);
            ((digit(high)? << 4 | digit(low)?) as u8, 3)
        }
        // Overlong UTF-8 (RFC 3629 section 3 forbids it): `%c0%af` is `/` to old decoders.
        [.., lead @ (0xc0 | 0xc1), tail @ 0x80..=0xbf] => ((lead & 1) << 6 | tail & 0x3f, 2),
        _ => return None,
    };
    out.truncate(out.len() - len);
    Some(byte)
}

/// A path prefix as [`prefix_matches`] compares it: normalised, lower case, without a closing
/// slash; `/` for all.
pub fn canonical_prefix(prefix: &str) -> String {
    let normal = normalise(prefix.as_bytes()).to_lowercase();
    match normal.trim_end_matches('/') {
        "" => "/".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

/// Whether `path` (raw or normalised) is `prefix` or lies below it. Case is ignored and the prefix
/// ends at a segment boundary: `/sale` covers `/Sale`, `//sale/x` and `/sale%2F`, not `/salesman`.
/// `prefix` is in [canonical form](canonical_prefix).
pub fn prefix_matches(prefix: &str, path: &str) -> bool {
    let path = normalise(path.as_bytes());
    let prefix = prefix.trim_end_matches('/');
    let mut rest = path.chars().flat_map(char::to_lowercase);
    for wanted in prefix.chars().flat_map(char::to_lowercase) {
        if rest.next() != Some(wanted) {
            return false;
        }
    }
    // Servers on Windows drop dots and spaces at the end of a name: `/sale.` is `/sale` there.
    matches!(rest.find(|c| !matches!(c, '.' | ' ')), None | Some('/'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn norm(raw: &str) -> String {
        normalise(raw.as_bytes()).into_owned()
    }

    #[test]
    fn spellings_of_one_path_become_one() {
        let cases = [
            ("", "/"),
            ("/", "/"),
            ("*", "/*"),
            ("/a/b", "/a/b"),
            ("/a/", "/a/"),
            ("//a///b", "/a/b"),
            ("/a/./b/../c", "/a/c"),
            ("/a/.", "/a/"),
            ("/a/b/..", "/a/"),
            ("/../../etc/passwd", "/etc/passwd"),
            ("/x/..;/admin", "/admin"),
            ("/x/..%3b/admin", "/admin"),
            ("/;v=1/admin;jsessionid=1/x;", "/admin/x"),
            ("/%61dmin", "/admin"),
            ("/%2561dmin", "/admin"),
            ("/%25252561dmin", "/admin"),
            ("/%%361dmin", "/admin"),
            ("/a%2fb%5Cc\\d", "/a/b/c/d"),
            ("/%2e%2e/%2e/a", "/a"),
            ("/%c0%ae%c0%ae%c0%afa", "/a"),
            ("/a%00.jpg", "/a/.jpg"),
            ("/ad%0amin%7f", "/admin"),
            ("/%6%0a1", "/a"),
            ("/100%", "/100%"),
            ("/%zz%4", "/%zz%4"),
            ("/caf%C3%A9", "/café"),
            ("/%ff", "/\u{fffd}"),
            ("/.well-known/x", "/.well-known/x"),
            ("/...", "/..."),
        ];
        for (raw, normal) in cases {
            assert_eq!(norm(raw), normal, "{raw}");
        }
    }

    #[test]
    fn nested_escapes_cost_linear_time() {
        // Decoding round by round would take 200,000 passes over 400,000 bytes.
        let raw = format!("/%{}61", "25".repeat(200_000));
        assert_eq!(norm(&raw), "/a");
    }

    #[test]
    fn plain_paths_are_borrowed() {
        assert!(matches!(normalise(b"/shop/cart.html"), Cow::Borrowed(_)));
    }

    #[test]
    fn prefixes_end_at_segments_and_ignore_case() {
        for path in [
            "/sale",
            "/sale/",
            "/sale/x",
            "/Sale",
            "//sale",
            "/sale%2F",
            "/sale;x",
            "/x/../sale",
            "/sale%2fx",
            "/%53ALE",
            "\\sale",
            "/sale%00x",
            "/./sale",
            "/s%61le",
            "/sale.",
            "/saLe%20",
            "/sale. /x",
        ] {
            assert!(prefix_matches("/sale", path), "{path}");
            assert!(prefix_matches("/", path), "{path}");
        }
        for path in ["/salesman", "/", "/x/sale", "/sal", "/sale/../x", "/sale-2", "/sale.html"] {
            assert!(!prefix_matches("/sale", path), "{path}");
        }
        assert!(prefix_matches(&canonical_prefix("/Été/"), "/%C3%89T%C3%89/x"));
        assert_eq!(canonical_prefix("//Sale/./x//"), "/sale/x");
        assert_eq!(canonical_prefix(""), "/");
    }

    /// Text rich in what the normaliser reacts to.
    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"%".to_vec()),
            Just(b"25".to_vec()),
            Just(b"%2e".to_vec()),
            Just(b"/".to_vec()),
            Just(b"..".to_vec()),
            Just(b";".to_vec()),
            Just(b"\\".to_vec()),
            Just(b"\xc0\xaf".to_vec()),
            Just(b"%00".to_vec()),
            Just(b"5".to_vec()),
            prop::collection::vec(any::<u8>(), 1..4),
        ];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing(raw in hostile()) {
            let once = normalise(&raw).into_owned();
            prop_assert_eq!(normalise(once.as_bytes()), once.as_str());
            prop_assert!(once.starts_with('/'));
            prop_assert!(!once.contains("//") && !once.contains(['\\', ';', '\0']));
            prop_assert!(once.split('/').all(|s| s != "." && s != ".."), "{}", once);
        }

        #[test]
        fn encoding_a_letter_changes_nothing(
            path in "(/[a-z]{1,5}){1,4}", at in any::<prop::sample::Index>(), deep in 0usize..3,
        ) {
            let at = at.index(path.len());
            let escape = format!("%{}{:02x}", "25".repeat(deep), path.as_bytes()[at]);
            let spelt = format!("{}{escape}{}", &path[..at], &path[at + 1..]);
            prop_assert_eq!(norm(&spelt), path);
        }

        #[test]
        fn the_raw_and_the_normal_path_match_alike(raw in "(/|%2f|[sS]ale|%73|;|\\.\\.|x){0,8}") {
            let normal = norm(&raw);
            prop_assert_eq!(prefix_matches("/sale", &raw), prefix_matches("/sale", &normal));
        }
    }
}
