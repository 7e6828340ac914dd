//! HTTP/1 message heads, read strictly (RFC 9112): what two readers could understand differently is
//! refused, and what an origin may want to see byte for byte is kept.

use crate::http::{
    headers::{Headers, Span},
    name::Name,
};

/// Why a head is refused. Each is an answer of its own, so that logs can tell a scanner from a
/// broken client.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("a line does not end with CR LF")]
    BareLf,
    #[error("the request line is not `method target version`")]
    RequestLine,
    #[error("the method is not a token")]
    Method,
    #[error("the request target is none")]
    Target,
    #[error("the version is not HTTP/1.0 or HTTP/1.1")]
    Version,
    #[error("a header name is not a token followed by a colon")]
    HeaderName,
    #[error("a header value holds a control character")]
    HeaderValue,
    #[error("a header line is folded")]
    ObsFold,
    #[error("the head is too large")]
    HeadTooLarge,
    #[error("the head has too many fields")]
    TooManyFields,
    #[error("Content-Length and Transfer-Encoding together")]
    LengthAndEncoding,
    #[error("Content-Length is given more than once or is no number")]
    ContentLength,
    #[error("Transfer-Encoding is not `chunked` alone")]
    TransferEncoding,
    #[error("the Host header is missing, repeated or no host name")]
    Host,
    #[error("a chunk is malformed")]
    Chunk,
    #[error("the status line is malformed")]
    StatusLine,
    #[error("a response to an upgrade or the framing of a response is contradictory")]
    Response,
}

impl Malformed {
    /// Stable name in logs, metrics and pages.
    pub(crate) const fn rule(self) -> &'static str {
        match self {
            Self::BareLf => "bare_lf",
            Self::RequestLine => "request_line",
            Self::Method => "method",
            Self::Target => "target",
            Self::Version => "version",
            Self::HeaderName => "header_name",
            Self::HeaderValue => "header_value",
            Self::ObsFold => "obs_fold",
            Self::HeadTooLarge => "head_too_large",
            Self::TooManyFields => "too_many_fields",
            Self::LengthAndEncoding => "length_and_encoding",
            Self::ContentLength => "content_length",
            Self::TransferEncoding => "transfer_encoding",
            Self::Host => "host",
            Self::Chunk => "chunk",
            Self::StatusLine => "status_line",
            Self::Response => "response_framing",
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Version {
    Http10,
    Http11,
}

/// Finds the end of a head as bytes arrive, without reading any byte twice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadScanner {
    /// Everything before is whole lines.
    line: usize,
    /// Everything before holds no LF that ends `line`.
    scanned: usize,
}

impl HeadScanner {
    /// Length of the head with its final empty line, once it is there.
    ///
    /// An empty first line is part of no head: callers strip those first.
    pub(crate) fn scan(&mut self, buf: &[u8]) -> Result<Option<usize>, Malformed> {
        while let Some(at) = memchr::memchr(b'\n', buf.get(self.scanned..).unwrap_or_default()) {
            let end = self.scanned + at;
            if end == self.line || buf.get(end - 1) != Some(&b'\r') {
                return Err(Malformed::BareLf);
            }
            let empty = end - 1 == self.line;
            self.line = end + 1;
            self.scanned = end + 1;
            if empty {
                return Ok(Some(end + 1));
            }
        }
        self.scanned = buf.len();
        Ok(None)
    }
}

/// A request head.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub(crate) headers: Headers,
    pub(crate) version: Version,
    method: Span,
    target: Span,
}

impl Default for RequestHead {
    fn default() -> Self {
        Self {
            headers: Headers::default(),
            version: Version::Http11,
            method: Span::default(),
            target: Span::default(),
        }
    }
}

impl RequestHead {
    pub(crate) fn method(&self) -> &[u8] {
        self.method.of(self.headers.bytes())
    }

    /// The request target as the client sent it.
    pub(crate) fn target(&self) -> &[u8] {
        self.target.of(self.headers.bytes())
    }

    pub(crate) fn set_line(&mut self, method: &[u8], target: &[u8]) {
        self.method = self.headers.store(method);
        self.target = self.headers.store(target);
    }

    pub(crate) fn set_target(&mut self, target: &[u8]) {
        self.target = self.headers.store(target);
    }

    /// Keeps what a malformed head holds of a request line, for the log, and what decides how the
    /// refusal is worded: a browser with too many cookies is to read a page.
    pub(crate) fn salvage(&mut self, bytes: &[u8]) {
        let end = memchr::memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len()).min(2048);
        let line = bytes.get(..end).unwrap_or_default();
        let mut words = line.splitn(3, |byte| *byte == b' ');
        let method = words.next().unwrap_or_default();
        let target = words.next().unwrap_or_default();
        self.headers.clear();
        self.set_line(method.get(..method.len().min(32)).unwrap_or_default(), target);
        for line in bytes.split(|byte| *byte == b'\n').skip(1) {
            let Some(colon) = memchr::memchr(b':', line) else { continue };
            let (name, value) = (Name::of(&line[..colon]), line[colon + 1..].trim_ascii());
            let wanted = matches!(name, Name::Accept | Name::AcceptLanguage | Name::UserAgent);
            if wanted && !self.headers.has(name) && is_field_value(value) {
                self.headers.add(name, value);
            }
        }
    }

    /// Parses a whole head, as found by [`HeadScanner`].
    pub(crate) fn parse(&mut self, head: &[u8], max_fields: usize) -> Result<(), Malformed> {
        self.headers.load(head);
        let line_end = memchr::memchr(b'\r', head).ok_or(Malformed::RequestLine)?;
        let line = head.get(..line_end).unwrap_or_default();
        let first = memchr::memchr(b' ', line).ok_or(Malformed::RequestLine)?;
        let last = memchr::memrchr(b' ', line).ok_or(Malformed::RequestLine)?;
        if first == last {
            return Err(Malformed::RequestLine);
        }
        let (method, target) = (&line[..first], &line[first + 1..last]);
        self.method = Span::new(0, first);
        self.target = Span::new(first + 1, last);
        if method.is_empty() || method.len() > 32 || !method.iter().all(|byte| is_token(*byte)) {
            return Err(Malformed::Method);
        }
        if target.is_empty() || target.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
            return Err(Malformed::Target);
        }
        self.version = match &line[last + 1..] {
            b"HTTP/1.1" => Version::Http11,
            b"HTTP/1.0" => Version::Http10,
            _ => return Err(Malformed::Version),
        };
        parse_fields(&mut self.headers, head, line_end, max_fields)
    }
}

/// A response head.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) headers: Headers,
    pub(crate) version: Version,
    pub(crate) status: u16,
    reason: Span,
}

impl Default for ResponseHead {
    fn default() -> Self {
        Self {
            headers: Headers::default(),
            version: Version::Http11,
            status: 200,
            reason: Span::default(),
        }
    }
}

impl ResponseHead {
    pub(crate) fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub(crate) fn reason(&self) -> &[u8] {
        self.reason.of(self.headers.bytes())
    }

    pub(crate) fn parse(&mut self, head: &[u8], max_fields: usize) -> Result<(), Malformed> {
        self.headers.load(head);
        let line_end = memchr::memchr(b'\r', head).ok_or(Malformed::StatusLine)?;
        let line = head.get(..line_end).unwrap_or_default();
        let (version, rest) = line.split_at_checked(9).ok_or(Malformed::StatusLine)?;
        self.version = match version {
            b"HTTP/1.1 " => Version::Http11,
            b"HTTP/1.0 " => Version::Http10,
            _ => return Err(Malformed::StatusLine),
        };
        let [a, b, c, rest @ ..] = rest else { return Err(Malformed::StatusLine) };
        if ![a, b, c].iter().all(|digit| digit.is_ascii_digit()) || *a == b'0' {
            return Err(Malformed::StatusLine);
        }
        self.status = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
        // The reason phrase may be missing together with its space (RFC 9112 section 4).
        match rest {
            [] => self.reason = Span::default(),
            [b' ', phrase @ ..] if is_field_value(phrase) => {
                self.reason = Span::new(13, line_end);
            }
            _ => return Err(Malformed::StatusLine),
        }
        parse_fields(&mut self.headers, head, line_end, max_fields)
    }
}

/// Parses a trailer section: field lines up to the empty line.
pub(crate) fn parse_trailers(section: &[u8], max_fields: usize) -> Result<Headers, Malformed> {
    let mut headers = Headers::default();
    let mut head = b"\r\n".to_vec();
    head.extend_from_slice(section);
    headers.load(&head);
    parse_fields(&mut headers, &head, 0, max_fields)?;
    headers.keep_trailers();
    Ok(headers)
}

/// Parses the field lines behind the first line, whose CR stands at `line_end`.
fn parse_fields(
    headers: &mut Headers,
    head: &[u8],
    line_end: usize,
    max_fields: usize,
) -> Result<(), Malformed> {
    if head.get(line_end + 1) != Some(&b'\n') {
        return Err(Malformed::BareLf);
    }
    let start_of_fields = line_end + 2;
    let mut at = start_of_fields;
    loop {
        let rest = head.get(at..).unwrap_or_default();
        match rest {
            [b'\r', b'\n', ..] | [] => {
                let fields = head.get(start_of_fields..at).unwrap_or_default();
                return if are_field_lines(fields) { Ok(()) } else { Err(Malformed::HeaderValue) };
            }
            [b' ' | b'\t', ..] => return Err(Malformed::ObsFold),
            _ => {}
        }
        if headers.len() == max_fields {
            return Err(Malformed::TooManyFields);
        }
        let colon = rest.iter().position(|byte| !is_token(*byte)).ok_or(Malformed::HeaderName)?;
        if colon == 0 || rest[colon] != b':' {
            return Err(Malformed::HeaderName);
        }
        // HeadScanner has shown that each LF follows a CR.
        let end = memchr::memchr(b'\n', rest).ok_or(Malformed::BareLf)?;
        let value = rest.get(colon + 1..end - 1).ok_or(Malformed::HeaderName)?;
        // Of control characters only tab passes in the end, so this trims what RFC 9110 calls OWS.
        let from = value.trim_ascii_start();
        let start = at + end - 1 - from.len();
        let stop = start + from.trim_ascii_end().len();
        headers.push_span(Span::new(at, at + colon), Span::new(start, stop));
        at += end + 1;
    }
}

/// RFC 9110 section 5.6.2.
const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let c = byte as u8;
        table[byte] = c.is_ascii_alphanumeric()
            || matches!(
                c,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        byte += 1;
    }
    table
};

pub(crate) fn is_token(byte: u8) -> bool {
    TOKEN[byte as usize]
}

/// Whether whole field lines hold no control character but tab and the CR LF that end them. All of
/// them at once: most values are too short to look at many bytes at a time.
fn are_field_lines(lines: &[u8]) -> bool {
    let is_bad = |byte: &u8| {
        (*byte < b' ' && *byte != b'\t' && *byte != b'\r' && *byte != b'\n') || *byte == 0x7f
    };
    let bad = lines.iter().fold(0_u8, |bad, byte| bad | u8::from(is_bad(byte)));
    // As many CR as LF, each LF behind a CR: no CR stands anywhere else.
    let count = |wanted: u8| memchr::memchr_iter(wanted, lines).count();
    bad == 0 && count(b'\r') == count(b'\n')
}

/// Field values: visible characters, space, tab and obs-text (RFC 9110 section 5.5). Looks at every
/// byte whatever it finds, which lets the compiler look at many at once.
fn is_field_value(value: &[u8]) -> bool {
    let is_bad = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
    value.iter().fold(0_u8, |bad, byte| bad | u8::from(is_bad(byte))) == 0
}

#[cfg(test)]
mod tests;
