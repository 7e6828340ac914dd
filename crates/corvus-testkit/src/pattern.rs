//! A body that proves itself: byte `i` is `i mod 251`, so a lost, doubled or swapped buffer shows
//! (251 is prime, no power-of-two buffer hides in it).

use std::io;
use std::sync::LazyLock;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};

const PERIOD: usize = 251;
/// The longest slice [`pattern`] gives.
pub(crate) const CHUNK: usize = 64 * 1024;

static TABLE: LazyLock<Bytes> =
    LazyLock::new(|| (0..CHUNK + PERIOD).map(|i| (i % PERIOD) as u8).collect::<Vec<_>>().into());

/// The pattern from `offset` on: `len` bytes, without a copy up to 64 KiB.
pub fn pattern(offset: u64, len: usize) -> Bytes {
    let start = (offset % PERIOD as u64) as usize;
    if len <= CHUNK {
        return TABLE.slice(start..start + len);
    }
    (start..start + len).map(|i| (i % PERIOD) as u8).collect::<Vec<_>>().into()
}

/// The first `total` bytes, in pieces.
pub(crate) fn patterned(total: u64) -> BoxStream<'static, io::Result<Bytes>> {
    stream::unfold(0, move |sent| async move {
        let take = (total - sent).min(CHUNK as u64);
        (take > 0).then(|| (Ok(pattern(sent, take as usize)), sent + take))
    })
    .boxed()
}

/// The position in the body of the first byte that is not the pattern's, for a piece at `offset`.
pub fn first_mismatch(offset: u64, piece: &[u8]) -> Option<u64> {
    let mut position = offset;
    for part in piece.chunks(CHUNK) {
        let expected = pattern(position, part.len());
        if expected != part {
            let at = part.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or(0);
            return Some(position + at as u64);
        }
        position += part.len() as u64;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_lost_byte_in_a_long_body() {
        let mut body = pattern(0, 300_000).to_vec();
        assert_eq!(first_mismatch(0, &body), None);
        assert_eq!(first_mismatch(1000, &body[1000..]), None);
        body.remove(200_000);
        assert_eq!(first_mismatch(0, &body), Some(200_000));
    }
}
