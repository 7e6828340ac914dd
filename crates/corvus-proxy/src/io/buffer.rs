//! A read buffer: bytes come in at the end and are used from the front.

/// How large a buffer starts, and how far it grows by itself.
const INITIAL: usize = 8 * 1024;
const LARGE: usize = 64 * 1024;

/// Bytes read and not yet used. Grows to 64 KiB when reads keep filling it, and
/// further while nothing is used.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// Initialised to its whole length; `start..end` is filled.
    data: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    pub(crate) fn filled(&self) -> &[u8] {
        self.data.get(self.start..self.end).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn consume(&mut self, len: usize) {
        self.start = (self.start + len).min(self.end);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Takes everything out.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let bytes = self.filled().to_vec();
        self.consume(bytes.len());
        bytes
    }

    /// Space to read into, never empty.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.end == self.data.len() {
            self.make_room();
        }
        self.data.get_mut(self.end..).unwrap_or_default()
    }

    /// `len` bytes of [`Self::space`] were filled.
    pub(crate) fn fill(&mut self, len: usize) {
        self.end = (self.end + len).min(self.data.len());
        // A read that filled all there was: bulk data, for which larger reads save system calls.
        if self.end == self.data.len() && self.start == 0 && self.data.len() < LARGE {
            let larger = (self.data.len() * 2).min(LARGE);
            self.data.resize(larger, 0);
        }
    }

    /// Gives back what bulk data made it grow to. For a connection that waits.
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() && self.data.len() > INITIAL {
            self.data = Vec::new();
        }
    }

    fn make_room(&mut self) {
        if self.start > 0 {
            self.data.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.data.len() {
            let larger = if self.data.is_empty() { INITIAL } else { self.data.len() * 2 };
            self.data.resize(larger, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(buffer: &mut Buffer, bytes: &[u8]) {
        for byte in bytes {
            buffer.space()[0] = *byte;
            buffer.fill(1);
        }
    }

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let mut buffer = Buffer::default();
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        let mut out = Vec::new();
        for piece in bytes.chunks(777) {
            put(&mut buffer, piece);
            let n = buffer.len().min(700);
            out.extend_from_slice(&buffer.filled()[..n]);
            buffer.consume(n);
        }
        out.extend_from_slice(&buffer.take());
        assert_eq!(out, bytes);
        assert!(buffer.is_empty());
    }
}
