//! HTTP/1 on a byte stream, read strictly (RFC 9112): CRLF only, one framing, whole chunks.
//! Shared by [`crate::Origin`] and [`crate::RawClient`].

use std::io::{self, ErrorKind};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::headers::{Headers, latin1};

const MAX_HEAD: usize = 1024 * 1024;
const MAX_LINE: usize = 8192;

/// A TCP or TLS connection.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}
pub(crate) type IoStream = Box<dyn Io>;

pub(crate) fn bad(text: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text.into())
}

/// How the length of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

/// Where a body being read stands.
#[derive(Debug)]
pub(crate) struct Body {
    framing: Framing,
    /// Bytes still to come, of the body or of the present chunk.
    left: u64,
    between_chunks: bool,
    pub done: bool,
    pub trailers: Headers,
}

impl Body {
    pub(crate) fn new(framing: Framing) -> Self {
        let left = if let Framing::Length(n) = framing { n } else { 0 };
        let done = framing == Framing::Length(0);
        Self { framing, left, between_chunks: false, done, trailers: Headers::default() }
    }
}

/// A connection with what was read from it and not used yet.
pub(crate) struct Wire {
    pub stream: IoStream,
    pub buffer: BytesMut,
}

impl Wire {
    pub(crate) fn new(stream: IoStream) -> Self {
        Self { stream, buffer: BytesMut::with_capacity(16 * 1024) }
    }

    /// Reads more; 0 at the end of the stream.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        self.buffer.reserve(16 * 1024);
        self.stream.read_buf(&mut self.buffer).await
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// One message head with its empty line; `None` when the peer closed between messages.
    pub(crate) async fn read_head(&mut self) -> io::Result<Option<Bytes>> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffer[searched..].windows(4).position(|w| w == b"\r\n\r\n") {
                return Ok(Some(self.buffer.split_to(searched + at + 4).freeze()));
            }
            searched = self.buffer.len().saturating_sub(3);
            if self.buffer.len() > MAX_HEAD {
                return Err(bad("a head above 1 MiB"));
            }
            if self.fill().await? == 0 {
                if self.buffer.is_empty() {
                    return Ok(None);
                }
                let text = format!("closed within a head: {:?}", latin1(&self.buffer));
                return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
            }
        }
    }

    /// One CRLF-ended line, without the CRLF.
    async fn read_line(&mut self) -> io::Result<Bytes> {
        loop {
            if let Some(at) = self.buffer.iter().position(|&b| b == b'\n') {
                let line = self.buffer.split_to(at + 1).freeze();
                let Some(line) = line.strip_suffix(b"\r\n") else {
                    return Err(bad(format!("a line ends in a bare LF: {:?}", latin1(&line))));
                };
                return Ok(Bytes::copy_from_slice(line));
            }
            if self.buffer.len() > MAX_LINE {
                return Err(bad("a line above 8 KiB"));
            }
            if self.fill().await? == 0 {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "closed within a chunk line"));
            }
        }
    }

    /// The next piece of a body; `None` at its end, when `body.trailers` is complete.
    pub(crate) async fn read_body(&mut self, body: &mut Body) -> io::Result<Option<Bytes>> {
        if body.done {
            return Ok(None);
        }
        if body.framing == Framing::Chunked && body.left == 0 {
            if body.between_chunks && !self.read_line().await?.is_empty() {
                return Err(bad("a chunk is longer than its size says"));
            }
            body.between_chunks = true;
            let line = self.read_line().await?;
            body.left = chunk_size(&line)?;
            if body.left == 0 {
                loop {
                    let line = self.read_line().await?;
                    if line.is_empty() {
                        break;
                    }
                    body.trailers.0.push(parse_field(&latin1(&line))?);
                }
                body.done = true;
                return Ok(None);
            }
        }
        if self.buffer.is_empty() && self.fill().await? == 0 {
            if body.framing == Framing::UntilClose {
                body.done = true;
                return Ok(None);
            }
            let text = format!("closed within a body, {} bytes missing", body.left);
            return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
        }
        if body.framing == Framing::UntilClose {
            return Ok(Some(self.buffer.split().freeze()));
        }
        let take = usize::try_from(body.left).unwrap_or(usize::MAX).min(self.buffer.len());
        body.left -= take as u64;
        body.done = body.left == 0 && body.framing != Framing::Chunked;
        Ok(Some(self.buffer.split_to(take).freeze()))
    }
}

fn chunk_size(line: &[u8]) -> io::Result<u64> {
    let size = line.split(|&b| b == b';').next().unwrap_or_default();
    let text = std::str::from_utf8(size).unwrap_or_default();
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(bad(format!("a bad chunk size: {:?}", latin1(line))));
    }
    u64::from_str_radix(text, 16).map_err(|_| bad("a chunk size beyond 64 bits"))
}

fn parse_field(line: &str) -> io::Result<(String, String)> {
    let Some((name, value)) = line.split_once(':') else {
        return Err(bad(format!("a field without a colon: {line:?}")));
    };
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(bad(format!("a bad field name: {line:?}")));
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

/// The first line and the fields of a head that ends in its empty line.
pub(crate) fn parse_head(head: &[u8]) -> io::Result<(String, Headers)> {
    let text = latin1(head);
    let inner = text.strip_suffix("\r\n\r\n").ok_or_else(|| bad("a head without an end"))?;
    let mut lines = inner.split("\r\n");
    if lines.clone().any(|line| line.contains(['\r', '\n'])) {
        return Err(bad(format!("bare CR or LF in a head: {text:?}")));
    }
    let first = lines.next().unwrap_or_default().to_owned();
    let fields = lines.map(parse_field).collect::<io::Result<_>>()?;
    Ok((first, Headers(fields)))
}

/// The framing the fields tell; `None` when they tell nothing.
pub(crate) fn declared_framing(headers: &Headers) -> io::Result<Option<Framing>> {
    let lengths: Vec<_> = headers.all("content-length").collect();
    let codings: Vec<_> = headers.all("transfer-encoding").collect();
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(None),
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(Some(Framing::Chunked)),
        ([length], []) if length.bytes().all(|b| b.is_ascii_digit()) => {
            let length = length.parse().map_err(|_| bad("a bad content-length"))?;
            Ok(Some(Framing::Length(length)))
        }
        _ => Err(bad(format!("ambiguous framing: {lengths:?} with {codings:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(bytes: &'static [u8]) -> Wire {
        Wire::new(Box::new(tokio::io::join(bytes, tokio::io::sink())))
    }

    async fn body_of(bytes: &'static [u8]) -> io::Result<(Vec<u8>, Headers)> {
        let (mut wire, mut body) = (wire(bytes), Body::new(Framing::Chunked));
        let mut all = Vec::new();
        while let Some(piece) = wire.read_body(&mut body).await? {
            all.extend_from_slice(&piece);
        }
        Ok((all, body.trailers))
    }

    #[tokio::test]
    async fn reads_chunks_and_trailers() {
        let (body, trailers) =
            body_of(b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-Sum: 13\r\n\r\nnext").await.unwrap();
        assert_eq!(body, b"abc0123456789");
        assert_eq!(trailers.get("x-sum"), Some("13"));
    }

    #[tokio::test]
    async fn refuses_broken_chunks() {
        for bytes in [
            &b"3\nabc\r\n0\r\n\r\n"[..],
            b"2\r\nabc\r\n0\r\n\r\n",
            b"0x3\r\nabc\r\n0\r\n\r\n",
            b"+3\r\nabc\r\n0\r\n\r\n",
            b"\r\nabc\r\n0\r\n\r\n",
            b"3\r\nabc\r\n0\r\n",
        ] {
            assert!(body_of(bytes).await.is_err(), "{:?}", latin1(bytes));
        }
    }

    #[test]
    fn keeps_spelling_and_refuses_bare_line_ends() {
        let (first, headers) = parse_head(b"GET /\xe4#x HTTP/1.1\r\nX-aB:  1 \r\n\r\n").unwrap();
        assert_eq!(first, "GET /\u{e4}#x HTTP/1.1");
        assert_eq!(headers.0, [("X-aB".to_owned(), "1".to_owned())]);
        assert!(parse_head(b"GET / HTTP/1.1\nHost: a\r\n\r\n").is_err());
        assert!(parse_head(b"GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n").is_err());
        assert!(parse_head(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n").is_err());
    }

    #[test]
    fn refuses_two_framings() {
        let framing = |pairs| declared_framing(&Headers::from_pairs(pairs));
        assert_eq!(framing(&[("Content-Length", "5")]).unwrap(), Some(Framing::Length(5)));
        assert!(framing(&[("Content-Length", "5"), ("Transfer-Encoding", "chunked")]).is_err());
        assert!(framing(&[("Content-Length", "5"), ("Content-Length", "5")]).is_err());
        assert!(framing(&[("Transfer-Encoding", "gzip, chunked")]).is_err());
        assert!(framing(&[("Content-Length", "+5")]).is_err());
    }
}
