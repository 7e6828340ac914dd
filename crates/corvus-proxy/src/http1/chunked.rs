//! The chunked coding (RFC 9112 section 7.1), read strictly.
//!
//! Bare LF, spaces before the size, sizes beyond 15 hex digits and endless extensions are refused:
//! each of them has smuggled requests past some pair of servers. Extensions are read over and not
//! forwarded.

use crate::{
    http::headers::Headers,
    http1::parse::{HeadScanner, Malformed, parse_trailers},
};

/// Bytes of one chunk-size line with its extensions.
const MAX_SIZE_LINE: usize = 256;
/// Extension bytes of a whole body: an attacker can wrap each byte of data in a line of them.
const MAX_EXTENSIONS: usize = 16 * 1024;
/// Bytes and fields of a trailer section.
const MAX_TRAILERS: usize = 16 * 1024;
const MAX_TRAILER_FIELDS: usize = 64;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Size,
    Data(u64),
    DataEnd,
    Trailers,
    Done,
}

/// Follows the chunks of one body.
#[derive(Debug)]
pub(crate) struct Decoder {
    state: State,
    extensions: usize,
    scanner: HeadScanner,
    trailers: Option<Headers>,
}

/// What stands at the front of the input.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// Skip this many bytes of framing, then ask again.
    Skip(usize),
    /// This many bytes are data; tell [`Decoder::took`] how many were used.
    Data(usize),
    /// More input is needed.
    More,
    /// The body is complete.
    Done,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self { state: State::Size, extensions: 0, scanner: HeadScanner::default(), trailers: None }
    }

    pub(crate) fn step(&mut self, input: &[u8]) -> Result<Step, Malformed> {
        match self.state {
            State::Size => self.size_line(input),
            State::Data(left) => match input.len() {
                0 => Ok(Step::More),
                len => Ok(Step::Data(usize::try_from(left).map_or(len, |left| left.min(len)))),
            },
            State::DataEnd => match input {
                [b'\r', b'\n', ..] => {
                    self.state = State::Size;
                    Ok(Step::Skip(2))
                }
                [] | [b'\r'] => Ok(Step::More),
                _ => Err(Malformed::Chunk),
            },
            State::Trailers => self.trailer_section(input),
            State::Done => Ok(Step::Done),
        }
    }

    /// `len` bytes of data were consumed.
    pub(crate) fn took(&mut self, len: usize) {
        if let State::Data(left) = self.state {
            self.state = match left.saturating_sub(len as u64) {
                0 => State::DataEnd,
                left => State::Data(left),
            };
        }
    }

    /// The trailer section, once the body is complete and had one.
    pub(crate) fn take_trailers(&mut self) -> Option<Headers> {
        self.trailers.take()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    fn size_line(&mut self, input: &[u8]) -> Result<Step, Malformed> {
        let window = input.get(..MAX_SIZE_LINE.min(input.len())).unwrap_or_default();
        let Some(end) = memchr::memchr(b'\n', window) else {
            return if window.len() == MAX_SIZE_LINE {
                Err(Malformed::Chunk)
            } else {
                Ok(Step::More)
            };
        };
        let Some(line) = window.get(..end).and_then(|line| line.strip_suffix(b"\r")) else {
            return Err(Malformed::Chunk);
        };
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (size, extension) = line.split_at(digits);
        if digits == 0 || digits > 15 || extension.iter().any(|byte| *byte < b' ' && *byte != b'\t')
        {
            return Err(Malformed::Chunk);
        }
        if !matches!(extension.trim_ascii_start(), [] | [b';', ..]) {
            return Err(Malformed::Chunk);
        }
        self.extensions += extension.len();
        if self.extensions > MAX_EXTENSIONS {
            return Err(Malformed::Chunk);
        }
        let size = size.iter().fold(0_u64, |sum, digit| {
            sum * 16 + u64::from((*digit as char).to_digit(16).unwrap_or(0))
        });
        self.state = if size == 0 { State::Trailers } else { State::Data(size) };
        Ok(Step::Skip(end + 1))
    }

    fn trailer_section(&mut self, input: &[u8]) -> Result<Step, Malformed> {
        // The usual case: no trailers at all.
        if let [b'\r', b'\n', ..] = input {
            self.state = State::Done;
            return Ok(Step::Skip(2));
        }
        match self.scanner.scan(input)? {
            Some(end) => {
                let section = input.get(..end).unwrap_or_default();
                self.trailers = Some(parse_trailers(section, MAX_TRAILER_FIELDS)?);
                self.state = State::Done;
                Ok(Step::Skip(end))
            }
            None if input.len() > MAX_TRAILERS => Err(Malformed::HeadTooLarge),
            None => Ok(Step::More),
        }
    }
}

/// Writes the line that opens a chunk of `len` bytes.
pub(crate) fn write_size(out: &mut Vec<u8>, len: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut shift = (usize::BITS - len.leading_zeros()).div_ceil(4).max(1) * 4;
    while shift > 0 {
        shift -= 4;
        out.push(DIGITS[(len >> shift) & 0xf]);
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the last chunk and the trailer section.
pub(crate) fn write_end(out: &mut Vec<u8>, trailers: Option<&Headers>) {
    out.extend_from_slice(b"0\r\n");
    if let Some(trailers) = trailers {
        trailers.write_to(out);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Data, bytes left behind the body, trailers.
    type Decoded = (Vec<u8>, usize, Option<Headers>);

    /// Feeds `input` in pieces of `piece` bytes; gives the data and what is left behind the body.
    fn decode(input: &[u8], piece: usize) -> Result<Option<Decoded>, Malformed> {
        let mut decoder = Decoder::new();
        let (mut data, mut at, mut have) = (Vec::new(), 0, 0);
        loop {
            match decoder.step(&input[at..have])? {
                Step::Skip(n) => at += n,
                Step::Data(n) => {
                    data.extend_from_slice(&input[at..at + n]);
                    decoder.took(n);
                    at += n;
                }
                Step::More if have == input.len() => return Ok(None),
                Step::More => have = (have + piece).min(input.len()),
                Step::Done => return Ok(Some((data, input.len() - at, decoder.take_trailers()))),
            }
        }
    }

    #[test]
    fn bodies_are_decoded() {
        for piece in [1, 2, 3, 100] {
            let (data, left, trailers) =
                decode(b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\nGET", piece).unwrap().unwrap();
            assert_eq!(data, b"hello world");
            assert!(trailers.is_none());
            assert_eq!(left, 3);
            let (_, _, trailers) = decode(b"0\r\nX-Sum: 1\r\n\r\n", piece).unwrap().unwrap();
            assert_eq!(trailers.unwrap().all_named("x-sum").next(), Some(&b"1"[..]));
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for bad in [
            &b"\r\n"[..],
            b"x\r\n",
            b" 5\r\nhello\r\n",
            b"0x5\r\nhello\r\n",
            b"+5\r\nhello\r\n",
            b"-1\r\n",
            b"5\nhello\r\n",
            b"5\r\nhello\n",
            b"5\r\nhelloX\r\n",
            b"5\r\nhello\rX",
            b"5 5\r\nhello\r\n",
            b"5\rx\r\nhello\r\n",
            b"10000000000000000\r\n",
            b"0\r\nX\r\n\r\n",
            b"0\r\nX : a\r\n\r\n",
            b"0\r\nX: a\n\n",
        ] {
            assert!(decode(bad, 100).is_err(), "{}", bad.escape_ascii());
        }
        let endless = [b"1;".as_slice(), &[b'a'; 300]].concat();
        assert_eq!(decode(&endless, 100), Err(Malformed::Chunk));
        let many = b"1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n".repeat(1000);
        assert_eq!(decode(&many, 1000), Err(Malformed::Chunk));
    }

    impl PartialEq for Headers {
        fn eq(&self, other: &Self) -> bool {
            self.iter().eq(other.iter())
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..70), 0..8),
            piece in 1_usize..50,
        ) {
            let mut wire = Vec::new();
            for chunk in &chunks {
                write_size(&mut wire, chunk.len());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(b"\r\n");
            }
            write_end(&mut wire, None);
            let (data, left, _) = decode(&wire, piece).unwrap().unwrap();
            prop_assert_eq!(data, chunks.concat());
            prop_assert_eq!(left, 0);
        }

        #[test]
        fn nothing_panics(input in prop::collection::vec(any::<u8>(), 0..100), piece in 1_usize..20) {
            let _ = decode(&input, piece);
        }
    }
}
