//! Reading a body out of a buffer, whatever frames it.

use crate::{
    http::headers::Headers,
    http1::{
        chunked::{Decoder, Step},
        framing::Length,
        parse::Malformed,
    },
    io::Buffer,
};

/// Follows one body through a [`Buffer`].
#[derive(Debug)]
pub(crate) enum BodyDecoder {
    Known(u64),
    Chunked(Decoder),
    Close { ended: bool },
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Progress {
    /// So many bytes of data stand at the front of the buffer.
    Data(usize),
    /// Read more into the buffer.
    More,
    Done,
}

impl BodyDecoder {
    pub(crate) fn new(length: Length) -> Self {
        match length {
            Length::Known(len) => Self::Known(len),
            Length::Chunked => Self::Chunked(Decoder::new()),
            Length::Close => Self::Close { ended: false },
        }
    }

    /// Skips framing at the front of the buffer and says what comes next.
    pub(crate) fn advance(&mut self, buffer: &mut Buffer) -> Result<Progress, Malformed> {
        match self {
            Self::Known(0) | Self::Close { ended: true } => Ok(Progress::Done),
            Self::Known(left) => Ok(match buffer.len() {
                0 => Progress::More,
                len => Progress::Data(usize::try_from(*left).map_or(len, |left| left.min(len))),
            }),
            Self::Close { .. } => Ok(match buffer.len() {
                0 => Progress::More,
                len => Progress::Data(len),
            }),
            Self::Chunked(decoder) => loop {
                match decoder.step(buffer.filled())? {
                    Step::Skip(len) => buffer.consume(len),
                    Step::Data(len) => return Ok(Progress::Data(len)),
                    Step::More => return Ok(Progress::More),
                    Step::Done => return Ok(Progress::Done),
                }
            },
        }
    }

    /// `len` bytes of data were used.
    pub(crate) fn took(&mut self, len: usize) {
        match self {
            Self::Known(left) => *left = left.saturating_sub(len as u64),
            Self::Chunked(decoder) => decoder.took(len),
            Self::Close { .. } => {}
        }
    }

    /// Whether a body of known length has been taken to its end.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Self::Known(0))
    }

    /// The stream ended. True if that completes the body.
    pub(crate) fn ended(&mut self) -> bool {
        match self {
            Self::Close { ended } => {
                *ended = true;
                true
            }
            Self::Known(left) => *left == 0,
            Self::Chunked(decoder) => decoder.is_done(),
        }
    }

    pub(crate) fn take_trailers(&mut self) -> Option<Headers> {
        match self {
            Self::Chunked(decoder) => decoder.take_trailers(),
            _ => None,
        }
    }
}
