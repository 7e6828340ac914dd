//! How long a message body is (RFC 9112 section 6), and who keeps the connection.
//!
//! Request smuggling lives where two readers answer this differently, so requests that could be
//! read in two ways are refused rather than repaired.

use crate::{
    http::{
        headers::{Headers, list},
        name::Name,
    },
    http1::parse::{Malformed, RequestHead, ResponseHead, Version},
};

/// Length of a body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Length {
    Known(u64),
    Chunked,
    /// Until the connection closes; responses only.
    Close,
}

impl Length {
    pub(crate) const NONE: Self = Self::Known(0);
}

/// The body length of a request.
pub(crate) fn request_length(head: &RequestHead) -> Result<Length, Malformed> {
    let content_length = content_length(&head.headers)?;
    if !head.headers.has(Name::TransferEncoding) {
        return Ok(Length::Known(content_length.unwrap_or(0)));
    }
    if content_length.is_some() {
        return Err(Malformed::LengthAndEncoding);
    }
    // HTTP/1.0 knows no chunks: whoever sends them there hopes that somebody reads them otherwise.
    if head.version == Version::Http10 || !only_chunked(&head.headers) {
        return Err(Malformed::TransferEncoding);
    }
    Ok(Length::Chunked)
}

/// The body length of a response to a request with `method`.
pub(crate) fn response_length(head: &ResponseHead, method: &[u8]) -> Result<Length, Malformed> {
    if method == b"HEAD" || head.status < 200 || matches!(head.status, 204 | 304) {
        return Ok(Length::NONE);
    }
    let content_length = content_length(&head.headers)?;
    if head.headers.has(Name::TransferEncoding) {
        if content_length.is_some() {
            return Err(Malformed::LengthAndEncoding);
        }
        if head.version == Version::Http10 || !only_chunked(&head.headers) {
            return Err(Malformed::TransferEncoding);
        }
        return Ok(Length::Chunked);
    }
    Ok(content_length.map_or(Length::Close, Length::Known))
}

fn only_chunked(headers: &Headers) -> bool {
    let mut values = headers.all(Name::TransferEncoding);
    let first = values.next();
    first.is_some_and(|value| value.eq_ignore_ascii_case(b"chunked")) && values.next().is_none()
}

fn content_length(headers: &Headers) -> Result<Option<u64>, Malformed> {
    let mut values = headers.all(Name::ContentLength);
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Malformed::ContentLength);
    }
    parse_decimal(value).map(Some).ok_or(Malformed::ContentLength)
}

/// Digits only: `+1`, `0x1`, `1,1` and the empty text are no lengths. At most 18 digits, so that no
/// sum overflows.
pub(crate) fn parse_decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 18 {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, byte| {
        byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0'))
    })
}

/// Whether the sender of this head keeps the connection open after the message.
pub(crate) fn keeps_alive(headers: &Headers, version: Version) -> bool {
    let mut keep = version == Version::Http11;
    for value in headers.all(Name::Connection) {
        for option in list(value) {
            if option.eq_ignore_ascii_case(b"close") {
                return false;
            }
            if option.eq_ignore_ascii_case(b"keep-alive") {
                keep = true;
            }
        }
    }
    keep
}

/// The only `Host` of a request, without user info. HTTP/1.0 may do without.
pub(crate) fn host(head: &RequestHead) -> Result<Option<&[u8]>, Malformed> {
    let mut values = head.headers.all(Name::Host);
    let first = values.next();
    if values.next().is_some() || (first.is_none() && head.version == Version::Http11) {
        return Err(Malformed::Host);
    }
    match first {
        Some(host) if !is_authority(host) => Err(Malformed::Host),
        host => Ok(host),
    }
}

/// `host[:port]` as far as it can be told without resolving: host characters only, and a decimal
/// port. User info (`user@host`) is no part of a Host header.
pub(crate) fn is_authority(text: &[u8]) -> bool {
    let (host, port) = split_port(text);
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(byte);
    let literal = |byte: &u8| byte.is_ascii_hexdigit() || b":.v".contains(byte);
    let host_ok = match host {
        [b'[', inner @ .., b']'] => !inner.is_empty() && inner.iter().all(literal),
        _ => host.len() <= 255 && host.iter().all(plain),
    };
    host_ok && port.is_none_or(|port| port.len() <= 5 && port.iter().all(u8::is_ascii_digit))
}

/// Splits `host:port`; an IPv6 literal keeps its brackets.
pub(crate) fn split_port(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let from = text.iter().rposition(|byte| *byte == b']').unwrap_or(0);
    match text.get(from..).and_then(|tail| tail.iter().rposition(|byte| *byte == b':')) {
        Some(at) => (&text[..from + at], text.get(from + at + 1..)),
        None => (text, None),
    }
}

/// The parts of a request target (RFC 9112 section 3.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Target<'a> {
    /// `/path?query`
    Origin,
    /// `http://authority/path?query`, as sent to proxies; a gateway must take it too. The rest may
    /// be empty.
    Absolute { authority: &'a [u8], rest: &'a [u8] },
    /// `*`, for OPTIONS.
    Asterisk,
}

pub(crate) fn target<'a>(method: &[u8], target: &'a [u8]) -> Result<Target<'a>, Malformed> {
    match target {
        [b'/', ..] => Ok(Target::Origin),
        b"*" if method == b"OPTIONS" => Ok(Target::Asterisk),
        _ => {
            let scheme = memchr::memmem::find(target, b"://").ok_or(Malformed::Target)?;
            let (name, rest) = (&target[..scheme], &target[scheme + 3..]);
            if !name.eq_ignore_ascii_case(b"http") && !name.eq_ignore_ascii_case(b"https") {
                return Err(Malformed::Target);
            }
            let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
            let (authority, rest) = rest.split_at(end);
            if authority.is_empty() || !is_authority(authority) {
                return Err(Malformed::Target);
            }
            Ok(Target::Absolute { authority, rest })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::parse::HeadScanner;

    fn head(text: &str) -> RequestHead {
        let end = HeadScanner::default().scan(text.as_bytes()).unwrap().unwrap();
        let mut head = RequestHead::default();
        head.parse(&text.as_bytes()[..end], 100).unwrap();
        head
    }

    fn length_of(fields: &str) -> Result<Length, Malformed> {
        request_length(&head(&format!("POST / HTTP/1.1\r\n{fields}\r\n")))
    }

    #[test]
    fn request_lengths() {
        let (cl, te) = (Malformed::ContentLength, Malformed::TransferEncoding);
        let both = Malformed::LengthAndEncoding;
        for (fields, expected) in [
            ("", Ok(Length::NONE)),
            ("Content-Length: 5\r\n", Ok(Length::Known(5))),
            ("Transfer-Encoding: chunked\r\n", Ok(Length::Chunked)),
            ("transfer-encoding: CHUNKED\r\n", Ok(Length::Chunked)),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", Err(cl)),
            ("Content-Length: 5, 5\r\n", Err(cl)),
            ("Content-Length: +5\r\n", Err(cl)),
            ("Content-Length: 0x5\r\n", Err(cl)),
            ("Content-Length: -1\r\n", Err(cl)),
            ("Content-Length:\r\n", Err(cl)),
            ("Content-Length: 5 5\r\n", Err(cl)),
            ("Content-Length: 99999999999999999999\r\n", Err(cl)),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Err(both)),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Err(both)),
            ("Transfer-Encoding: identity\r\nContent-Length: 5\r\n", Err(both)),
            ("Transfer-Encoding: gzip, chunked\r\n", Err(te)),
            ("Transfer-Encoding: chunked, identity\r\n", Err(te)),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Err(te)),
            ("Transfer-Encoding: xchunked\r\n", Err(te)),
            ("Transfer-Encoding: \"chunked\"\r\n", Err(te)),
            ("Transfer-Encoding:\r\n", Err(te)),
        ] {
            assert_eq!(length_of(fields), expected, "{fields:?}");
        }
        let old = head("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(request_length(&old), Err(te));
    }

    #[test]
    fn hosts_are_one_and_plain() {
        for (fields, good) in [
            ("Host: a.example\r\n", true),
            ("Host: a.example:8080\r\n", true),
            ("Host: [::1]:80\r\n", true),
            ("Host:\r\n", true),
            ("", false),
            ("Host: a\r\nHost: a\r\n", false),
            ("Host: a b\r\n", false),
            ("Host: user@a\r\n", false),
            ("Host: a/b\r\n", false),
            ("Host: a:x\r\n", false),
            ("Host: a\u{e9}\r\n", false),
            ("Host: [::1\r\n", false),
        ] {
            let head = head(&format!("GET / HTTP/1.1\r\n{fields}\r\n"));
            assert_eq!(host(&head).is_ok(), good, "{fields:?}");
        }
        assert_eq!(host(&head("GET / HTTP/1.0\r\n\r\n")), Ok(None));
    }

    #[test]
    fn targets() {
        assert_eq!(target(b"GET", b"/a"), Ok(Target::Origin));
        assert_eq!(
            target(b"GET", b"HTTP://a.example:80?q"),
            Ok(Target::Absolute { authority: b"a.example:80", rest: b"?q" })
        );
        assert_eq!(target(b"OPTIONS", b"*"), Ok(Target::Asterisk));
        for bad in [&b"*"[..], b"a", b"a.example:443", b"ftp://a/", b"http:///x", b"http://u@a/"] {
            assert_eq!(target(b"GET", bad), Err(Malformed::Target), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn keep_alive() {
        for (fields, version, keep) in [
            ("", "1.1", true),
            ("", "1.0", false),
            ("Connection: keep-alive\r\n", "1.0", true),
            ("Connection: Close\r\n", "1.1", false),
            ("Connection: x, close\r\nConnection: keep-alive\r\n", "1.1", false),
        ] {
            let head = head(&format!("GET / HTTP/{version}\r\n{fields}\r\n"));
            assert_eq!(keeps_alive(&head.headers, head.version), keep, "{fields:?} {version}");
        }
    }
}
