use proptest::prelude::*;

use super::*;

fn request(text: &[u8]) -> Result<RequestHead, Malformed> {
    let mut scanner = HeadScanner::default();
    let end = scanner.scan(text)?.expect("a whole head");
    let mut head = RequestHead::default();
    head.parse(&text[..end], 100).map(|()| head)
}

#[test]
fn a_request_keeps_its_bytes() {
    let head =
        request(b"GET /a%2Fb/\xe9?q=<x>#y HTTP/1.1\r\nHOST:  a.example \r\nx-Y:\r\n\r\n").unwrap();
    assert_eq!(head.method(), b"GET");
    assert_eq!(head.target(), b"/a%2Fb/\xe9?q=<x>#y");
    let fields: Vec<_> = head.headers.iter().map(|(_, name, value)| (name, value)).collect();
    assert_eq!(fields, [(&b"HOST"[..], &b"a.example"[..]), (b"x-Y", b"")]);
}

#[test]
fn ambiguous_requests_are_refused() {
    let cases: [(&[u8], Malformed); 17] = [
        (b"GET / HTTP/1.1\nHost: a\n\n", Malformed::BareLf),
        (b"GET / HTTP/1.1\r\nHost: a\n\r\n", Malformed::BareLf),
        (b"GET /\r\n\r\n", Malformed::RequestLine),
        (b"GET  HTTP/1.1\r\n\r\n", Malformed::Target),
        (b"GET / x HTTP/1.1\r\n\r\n", Malformed::Target),
        (b"GET /\tx HTTP/1.1\r\n\r\n", Malformed::Target),
        (b"G(T / HTTP/1.1\r\n\r\n", Malformed::Method),
        (b" GET / HTTP/1.1\r\n\r\n", Malformed::Method),
        (b"GET / HTTP/1.2\r\n\r\n", Malformed::Version),
        (b"GET / http/1.1\r\n\r\n", Malformed::Version),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", Malformed::HeaderName),
        (b"GET / HTTP/1.1\r\n: a\r\n\r\n", Malformed::HeaderName),
        (b"GET / HTTP/1.1\r\nHost\r\n\r\n", Malformed::HeaderName),
        (b"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", Malformed::ObsFold),
        (b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", Malformed::ObsFold),
        (b"GET / HTTP/1.1\r\nX: a\0b\r\n\r\n", Malformed::HeaderValue),
        (b"GET / HTTP/1.1\r\nX: a\rb\r\n\r\n", Malformed::HeaderValue),
    ];
    for (text, expected) in cases {
        assert_eq!(request(text).err(), Some(expected), "{}", text.escape_ascii());
    }
}

#[test]
fn fields_are_counted() {
    let mut text = b"GET / HTTP/1.1\r\n".to_vec();
    for _ in 0..101 {
        text.extend_from_slice(b"a: b\r\n");
    }
    text.extend_from_slice(b"\r\n");
    assert_eq!(request(&text).err(), Some(Malformed::TooManyFields));
}

#[test]
fn responses_parse() {
    let mut head = ResponseHead::default();
    head.parse(b"HTTP/1.1 404 Not Found\r\nA: b\r\n\r\n", 10).unwrap();
    assert_eq!((head.status, head.reason()), (404, &b"Not Found"[..]));
    head.parse(b"HTTP/1.0 200\r\n\r\n", 10).unwrap();
    assert_eq!((head.status, head.reason(), head.version), (200, &b""[..], Version::Http10));
    for bad in [
        &b"HTTP/1.1 20\r\n\r\n"[..],
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2000\r\n\r\n",
        b"x\r\n\r\n",
    ] {
        assert_eq!(head.parse(bad, 10), Err(Malformed::StatusLine), "{}", bad.escape_ascii());
    }
}

#[test]
fn a_head_is_found_byte_by_byte() {
    let text = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
    let mut scanner = HeadScanner::default();
    for end in 0..26 {
        assert_eq!(scanner.scan(&text[..end]), Ok(None), "{end}");
    }
    assert_eq!(scanner.scan(text), Ok(Some(27)));
}

proptest! {
    #[test]
    fn nothing_panics(text in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut scanner = HeadScanner::default();
        if let Ok(Some(end)) = scanner.scan(&text) {
            let _ = RequestHead::default().parse(&text[..end], 10);
            let _ = ResponseHead::default().parse(&text[..end], 10);
        }
        RequestHead::default().salvage(&text);
        // Without the scanner's promise, too.
        let _ = RequestHead::default().parse(&text, 10);
        let _ = ResponseHead::default().parse(&text, 10);
        let _ = parse_trailers(&text, 10);
    }

    #[test]
    fn splitting_the_input_changes_nothing(cut in 0_usize..50, text in "[a-z \r\n:]{0,50}") {
        let bytes = text.as_bytes();
        let whole = HeadScanner::default().scan(bytes);
        let mut scanner = HeadScanner::default();
        let first = scanner.scan(&bytes[..cut.min(bytes.len())]);
        let split = match first {
            Ok(None) => scanner.scan(bytes),
            found => found,
        };
        prop_assert_eq!(whole, split);
    }
}
