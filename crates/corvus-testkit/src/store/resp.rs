//! RESP2, the protocol of Valkey and Redis: <https://valkey.io/topics/protocol/>.

use std::io::{self, BufRead, ErrorKind, Write};

/// The longest string that a server keeps, in bytes.
const LONGEST: i64 = 512 * 1024 * 1024;
/// Arrays within arrays; the deepest that the servers write are four.
const DEEPEST: u32 = 32;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resp {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    /// The null string and the null array.
    Nil,
    Array(Vec<Self>),
}

impl Resp {
    /// As text, an array one element a line, nothing for nil.
    pub fn text(&self) -> String {
        match self {
            Self::Simple(text) | Self::Error(text) => text.clone(),
            Self::Int(number) => number.to_string(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Nil => String::new(),
            Self::Array(items) => items.iter().map(Self::text).collect::<Vec<_>>().join("\n"),
        }
    }

    /// Error replies as errors.
    pub fn ok(self) -> io::Result<Self> {
        match self {
            Self::Error(text) => Err(io::Error::other(text)),
            reply => Ok(reply),
        }
    }
}

/// Writes a command: its name and arguments, any bytes.
pub(super) fn write<A: AsRef<[u8]>>(to: &mut impl Write, command: &[A]) -> io::Result<()> {
    write!(to, "*{}\r\n", command.len())?;
    for part in command {
        let part = part.as_ref();
        write!(to, "${}\r\n", part.len())?;
        to.write_all(part)?;
        to.write_all(b"\r\n")?;
    }
    Ok(())
}

pub(super) fn read(from: &mut impl BufRead) -> io::Result<Resp> {
    read_nested(from, 0)
}

fn read_nested(from: &mut impl BufRead, depth: u32) -> io::Result<Resp> {
    let line = read_line(from)?;
    let Some((&kind, rest)) = line.split_first() else { return Err(broken(&line)) };
    let text = || String::from_utf8_lossy(rest).into_owned();
    let number = || text().parse::<i64>().map_err(|_| broken(&line));
    match kind {
        b'+' => Ok(Resp::Simple(text())),
        b'-' => Ok(Resp::Error(text())),
        b':' => Ok(Resp::Int(number()?)),
        b'$' => match number()? {
            -1 => Ok(Resp::Nil),
            length @ 0..=LONGEST => {
                let mut bytes = vec![0; length as usize + 2];
                from.read_exact(&mut bytes)?;
                if !bytes.ends_with(b"\r\n") {
                    return Err(broken(&line));
                }
                bytes.truncate(length as usize);
                Ok(Resp::Bulk(bytes))
            }
            _ => Err(broken(&line)),
        },
        b'*' if depth < DEEPEST => match number()? {
            -1 => Ok(Resp::Nil),
            length @ 0.. => (0..length)
                .map(|_| read_nested(from, depth + 1))
                .collect::<Result<_, _>>()
                .map(Resp::Array),
            _ => Err(broken(&line)),
        },
        _ => Err(broken(&line)),
    }
}

/// A line without its end.
fn read_line(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    if !line.ends_with(b"\r\n") {
        return Err(broken(&line));
    }
    line.truncate(line.len() - 2);
    Ok(line)
}

fn broken(line: &[u8]) -> io::Error {
    let text = format!("not RESP: {:?}", String::from_utf8_lossy(line));
    io::Error::new(ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> io::Result<Resp> {
        read(&mut io::Cursor::new(bytes))
    }

    #[test]
    fn reads_each_kind_of_reply() {
        let bytes = b"*7\r\n+OK\r\n-ERR no\r\n:-7\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n*1\r\n$0\r\n\r\n";
        let expected = Resp::Array(vec![
            Resp::Simple("OK".to_owned()),
            Resp::Error("ERR no".to_owned()),
            Resp::Int(-7),
            Resp::Bulk(b"a\r\n".to_vec()),
            Resp::Nil,
            Resp::Nil,
            Resp::Array(vec![Resp::Bulk(Vec::new())]),
        ]);
        assert_eq!(parse(bytes).unwrap(), expected);
        assert_eq!(expected.text(), "OK\nERR no\n-7\na\r\n\n\n\n");
    }

    #[test]
    fn refuses_what_is_cut_off_or_no_reply() {
        for (bytes, kind) in [
            (&b""[..], ErrorKind::UnexpectedEof),
            (b"+OK", ErrorKind::InvalidData),
            (b"$3\r\nab", ErrorKind::UnexpectedEof),
            (b"$1\r\nabc\r\n", ErrorKind::InvalidData),
            (b"*2\r\n:1\r\n", ErrorKind::UnexpectedEof),
            (b"$-2\r\n", ErrorKind::InvalidData),
            (b":x\r\n", ErrorKind::InvalidData),
            (b"HTTP/1.1 200 OK\r\n", ErrorKind::InvalidData),
            (&b"*1\r\n".repeat(100), ErrorKind::InvalidData),
        ] {
            assert_eq!(parse(bytes).unwrap_err().kind(), kind, "{bytes:?}");
        }
    }

    #[test]
    fn writes_any_bytes() {
        let mut written = Vec::new();
        write(&mut written, &[&b"SET"[..], b"\r\n\0", b""]).unwrap();
        assert_eq!(written, b"*3\r\n$3\r\nSET\r\n$3\r\n\r\n\0\r\n$0\r\n\r\n");
    }
}
