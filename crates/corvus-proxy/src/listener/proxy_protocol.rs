//! The PROXY protocol, versions 1 and 2, as load balancers send it in front of a connection
//! (haproxy.org, proxy-protocol.txt). Read to the byte: what follows belongs to TLS or HTTP.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use tokio::io::{AsyncRead, AsyncReadExt as _};

const V2_SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Longest line of version 1 with its CR LF.
const V1_MAX: usize = 107;
/// Longest block of version 2: addresses of 36 bytes, the rest is TLVs that are read over.
const V2_MAX: usize = 4096;

/// Reads the header. `None`: the sender speaks for itself (`LOCAL`, `UNKNOWN`).
pub(crate) async fn read<S>(stream: &mut S) -> io::Result<Option<SocketAddr>>
where
    S: AsyncRead + Unpin,
{
    let mut start = [0; 12];
    stream.read_exact(&mut start).await?;
    if start == V2_SIGNATURE { read_v2(stream).await } else { read_v1(stream, &start).await }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

async fn read_v1<S>(stream: &mut S, start: &[u8; 12]) -> io::Result<Option<SocketAddr>>
where
    S: AsyncRead + Unpin,
{
    if !start.starts_with(b"PROXY ") {
        return Err(invalid("the connection does not begin with a PROXY header"));
    }
    let mut line = start.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() >= V1_MAX {
            return Err(invalid("the PROXY line is too long"));
        }
        line.push(stream.read_u8().await?);
    }
    parse_v1(&line).map(Into::into).ok_or_else(|| invalid("the PROXY line is malformed"))
}

/// Whom a PROXY header speaks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Source {
    Client(SocketAddr),
    /// The sender itself, or somebody without an address.
    Sender,
}

impl From<Source> for Option<SocketAddr> {
    fn from(source: Source) -> Self {
        match source {
            Source::Client(address) => Some(address),
            Source::Sender => None,
        }
    }
}

fn parse_v1(line: &[u8]) -> Option<Source> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix("\r\n")?;
    let mut words = line.strip_prefix("PROXY ")?.split(' ');
    let family = words.next()?;
    if family == "UNKNOWN" {
        return Some(Source::Sender);
    }
    let source: IpAddr = words.next()?.parse().ok()?;
    let _destination: IpAddr = words.next()?.parse().ok()?;
    let port: u16 = words.next()?.parse().ok()?;
    let _port: u16 = words.next()?.parse().ok()?;
    let fits = matches!((family, source), ("TCP4", IpAddr::V4(_)) | ("TCP6", IpAddr::V6(_)));
    (fits && words.next().is_none()).then_some(Source::Client(SocketAddr::new(source, port)))
}

async fn read_v2<S>(stream: &mut S) -> io::Result<Option<SocketAddr>>
where
    S: AsyncRead + Unpin,
{
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [command, family, high, low] = head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > V2_MAX {
        return Err(invalid("the PROXY header is too long"));
    }
    let mut block = vec![0; length];
    stream.read_exact(&mut block).await?;
    let source = parse_v2(command, family, &block);
    source.map(Into::into).ok_or_else(|| invalid("the PROXY header is malformed"))
}

fn parse_v2(command: u8, family: u8, block: &[u8]) -> Option<Source> {
    match command {
        0x20 => return Some(Source::Sender),
        0x21 => {}
        _ => return None,
    }
    let port = |at: usize| Some(u16::from_be_bytes(block.get(at..at + 2)?.try_into().ok()?));
    match family >> 4 {
        0x1 => {
            let ip: [u8; 4] = block.get(..4)?.try_into().ok()?;
            Some(Source::Client(SocketAddr::new(Ipv4Addr::from(ip).into(), port(8)?)))
        }
        0x2 => {
            let ip: [u8; 16] = block.get(..16)?.try_into().ok()?;
            Some(Source::Client(SocketAddr::new(Ipv6Addr::from(ip).into(), port(32)?)))
        }
        // Unspecified, or a Unix socket: no address to speak of.
        0x0 | 0x3 => Some(Source::Sender),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(bytes: &[u8]) -> (io::Result<Option<SocketAddr>>, usize) {
        let mut rest = bytes;
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = runtime.block_on(read(&mut rest));
        (read, rest.len())
    }

    #[test]
    fn both_versions_are_read_to_the_byte() {
        let (read, left) = run(b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 443\r\nGET /");
        assert_eq!((read.unwrap(), left), (Some("203.0.113.9:4711".parse().unwrap()), 5));
        let (read, left) = run(b"PROXY TCP6 2001:db8::1 ::1 4711 443\r\n");
        assert_eq!((read.unwrap(), left), (Some("[2001:db8::1]:4711".parse().unwrap()), 0));
        let (read, left) = run(b"PROXY UNKNOWN\r\nGET /");
        assert_eq!((read.unwrap(), left), (None, 5));

        let v2 = |command: u8, family: u8, block: &[u8]| {
            let mut bytes = V2_SIGNATURE.to_vec();
            bytes.extend([command, family]);
            bytes.extend((block.len() as u16).to_be_bytes());
            bytes.extend(block);
            bytes.extend(b"GET /");
            run(&bytes)
        };
        let block = [203, 0, 113, 9, 10, 0, 0, 1, 0x12, 0x67, 1, 0xbb, 0xee, 0, 1, 0];
        let (read, left) = v2(0x21, 0x11, &block);
        assert_eq!((read.unwrap(), left), (Some("203.0.113.9:4711".parse().unwrap()), 5));
        let (read, left) = v2(0x20, 0, &[]);
        assert_eq!((read.unwrap(), left), (None, 5));
        assert!(v2(0x21, 0x11, &block[..6]).0.is_err());
        assert!(v2(0x31, 0x11, &block).0.is_err());
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"PROXY TCP4 203.0.113.9 10.0.0.1 4711\r\n",
            b"PROXY TCP6 203.0.113.9 10.0.0.1 4711 443\r\n",
            b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 443 x\r\n",
            b"PROXY TCP4 999.0.113.9 10.0.0.1 4711 443\r\n",
            b"PROXY TCP4 203.0.113.9",
        ] {
            assert!(run(bad).0.is_err(), "{}", bad.escape_ascii());
        }
        assert!(run(&[b"PROXY ".as_slice(), &[b'x'; 200]].concat()).0.is_err());
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = run(&bytes);
            let _ = run(&[V2_SIGNATURE.as_slice(), &bytes].concat());
        }
    }
}
