//! The outer form of a backup, version 1, numbers big-endian:
//!
//! ```text
//! "CORVUSBK"  form (1 byte)  argon2id: memory in KiB (4), passes (4), lanes (4)  salt (16)
//! tag (16) of an empty piece, which tells a wrong passphrase from damage
//! pieces of 65,536 bytes, the last one shorter or as long, each with its tag (16)
//! ```
//!
//! The key is argon2id of passphrase and salt (RFC 9106), the cipher AES-256-GCM. A nonce is the
//! number of the piece and what it is (first tag, piece, last piece), so pieces cannot be moved,
//! left out or cut off; each is bound to the header. A salt, and so a key, is used for one file only.

#[cfg(test)]
mod tests;

use std::io::{self, Read, Write};

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use super::BackupError;

/// Fewest characters of a passphrase: the file holds every private key there is.
pub const MIN_PASSPHRASE: usize = 8;

const MAGIC: &[u8; 8] = b"CORVUSBK";
const FORM: u8 = 1;
const SALT: usize = 16;
const TAG: usize = 16;
const PIECE: usize = 64 << 10;
/// Most that a header may ask for, so that a bad one costs neither all memory nor an hour: 1 GiB.
const MAX_MEMORY_KIB: u32 = 1 << 20;
const MAX_PASSES: u32 = 16;
const MAX_LANES: u32 = 16;

/// What a key costs to derive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Cost {
    pub(super) memory_kib: u32,
    pub(super) passes: u32,
    pub(super) lanes: u32,
}

impl Cost {
    /// The second recommendation of RFC 9106, section 4, with one lane: nothing here runs lanes
    /// side by side.
    pub(super) const DEFAULT: Self = Self { memory_kib: 64 << 10, passes: 3, lanes: 1 };

    fn is_bearable(self) -> bool {
        self.memory_kib <= MAX_MEMORY_KIB && self.passes <= MAX_PASSES && self.lanes <= MAX_LANES
    }
}

/// What a nonce is for.
#[derive(Clone, Copy)]
enum Kind {
    Piece = 0,
    Last = 1,
    Check = 2,
}

/// Key, header and number of the next piece.
struct Cipher {
    key: LessSafeKey,
    header: Vec<u8>,
    next: u64,
}

impl Cipher {
    fn new(passphrase: &str, cost: Cost, salt: [u8; SALT]) -> Result<Self, BackupError> {
        let mut header = Vec::with_capacity(MAGIC.len() + 1 + 12 + SALT);
        header.extend_from_slice(MAGIC);
        header.push(FORM);
        for number in [cost.memory_kib, cost.passes, cost.lanes] {
            header.extend_from_slice(&number.to_be_bytes());
        }
        header.extend_from_slice(&salt);

        // Only numbers that make no sense fail, and those come from a header.
        let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(32))
            .map_err(|_| BackupError::Damaged)?;
        let mut key = Zeroizing::new([0; 32]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(passphrase.as_bytes(), &salt, &mut *key)
            .map_err(|_| BackupError::Damaged)?;
        let key = UnboundKey::new(&AES_256_GCM, &*key).map_err(|_| BackupError::Damaged)?;
        Ok(Self { key: LessSafeKey::new(key), header, next: 0 })
    }

    fn nonce(&mut self, kind: Kind) -> io::Result<Nonce> {
        let mut nonce = [0; 12];
        let (number, what) = nonce.split_at_mut(8);
        number.copy_from_slice(&self.next.to_be_bytes());
        what.fill(kind as u8);
        self.next = self.next.checked_add(1).ok_or_else(damaged)?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    fn seal(&mut self, kind: Kind, piece: &mut Vec<u8>) -> io::Result<()> {
        let nonce = self.nonce(kind)?;
        self.key
            .seal_in_place_append_tag(nonce, Aad::from(&self.header), piece)
            .map_err(|_| io::Error::other("a piece of the backup cannot be encrypted"))
    }

    fn open(&mut self, kind: Kind, piece: &mut Vec<u8>) -> io::Result<()> {
        let nonce = self.nonce(kind)?;
        let plain = self.key.open_in_place(nonce, Aad::from(&self.header), piece);
        let length = plain.map_err(|_| damaged())?.len();
        piece.truncate(length);
        Ok(())
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a piece of the backup does not decrypt")
}

/// Encrypts what is written to it. Without [`SealWriter::finish`] the file has no valid end.
pub(super) struct SealWriter<W> {
    out: W,
    cipher: Cipher,
    piece: Vec<u8>,
}

impl<W: Write> SealWriter<W> {
    pub(super) fn new(mut out: W, passphrase: &str, cost: Cost) -> Result<Self, BackupError> {
        if passphrase.chars().count() < MIN_PASSPHRASE {
            return Err(BackupError::ShortPassphrase);
        }
        let mut salt = [0; SALT];
        getrandom::fill(&mut salt).map_err(io::Error::other)?;
        let mut cipher = Cipher::new(passphrase, cost, salt)?;
        let mut piece = Vec::with_capacity(PIECE + TAG);
        out.write_all(&cipher.header)?;
        cipher.seal(Kind::Check, &mut piece)?;
        out.write_all(&piece)?;
        piece.clear();
        Ok(Self { out, cipher, piece })
    }

    /// Writes the last piece.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.seal(Kind::Last)?;
        Ok(self.out)
    }

    fn seal(&mut self, kind: Kind) -> io::Result<()> {
        self.cipher.seal(kind, &mut self.piece)?;
        self.out.write_all(&self.piece)?;
        self.piece.clear();
        Ok(())
    }
}

impl<W: Write> Write for SealWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full piece waits for the next byte: it may be the last one.
        if self.piece.len() == PIECE && !bytes.is_empty() {
            self.seal(Kind::Piece)?;
        }
        let (taken, _) = bytes.split_at(bytes.len().min(PIECE - self.piece.len()));
        self.piece.extend_from_slice(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Decrypts while it is read. Bytes that it hands out are those that were written, in order; that
/// none is missing at the end is certain only when it has said that it is at its end.
pub(super) struct OpenReader<R> {
    from: R,
    cipher: Cipher,
    /// The present piece, and how much of it was read.
    piece: Vec<u8>,
    position: usize,
    /// First byte of the next sealed piece; `None`: there is none.
    ahead: Option<u8>,
}

impl<R: Read> OpenReader<R> {
    pub(super) fn new(mut from: R, passphrase: &str) -> Result<Self, BackupError> {
        let magic: [u8; MAGIC.len()] = take(&mut from)?;
        if magic != *MAGIC {
            return Err(BackupError::NotABackup);
        }
        let [form] = take(&mut from)?;
        if form != FORM {
            return Err(BackupError::UnknownForm(form));
        }
        let mut number = || Ok::<_, BackupError>(u32::from_be_bytes(take(&mut from)?));
        let cost = Cost { memory_kib: number()?, passes: number()?, lanes: number()? };
        if !cost.is_bearable() {
            return Err(BackupError::Damaged);
        }
        let mut cipher = Cipher::new(passphrase, cost, take(&mut from)?)?;
        let mut check = take::<TAG>(&mut from)?.to_vec();
        cipher.open(Kind::Check, &mut check).map_err(|_| BackupError::WrongPassphrase)?;
        let [first] = take(&mut from)?;
        Ok(Self { from, cipher, piece: Vec::new(), position: 0, ahead: Some(first) })
    }

    /// Decrypts the next piece into `piece`.
    fn advance(&mut self, first: u8) -> io::Result<()> {
        self.piece.clear();
        self.position = 0;
        self.piece.push(first);
        // One byte more than a piece, which is the next one's.
        let most = (PIECE + TAG) as u64;
        (&mut self.from).take(most).read_to_end(&mut self.piece)?;
        self.ahead = if self.piece.len() > PIECE + TAG { self.piece.pop() } else { None };
        let kind = if self.ahead.is_some() { Kind::Piece } else { Kind::Last };
        let opened = self.cipher.open(kind, &mut self.piece);
        if opened.is_err() {
            // Nothing of a piece that is not what was written gets out, not even by reading on.
            self.piece.clear();
            self.ahead = Some(0);
        }
        opened
    }
}

impl<R: Read> Read for OpenReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.position == self.piece.len() {
            match self.ahead {
                Some(first) => self.advance(first)?,
                None => return Ok(0),
            }
        }
        let rest = self.piece.get(self.position..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..length), rest.get(..length)) {
            to.copy_from_slice(from);
        }
        self.position += length;
        Ok(length)
    }
}

/// The next bytes of a header.
fn take<const N: usize>(from: &mut impl Read) -> Result<[u8; N], BackupError> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => BackupError::Damaged,
        _ => error.into(),
    })?;
    Ok(bytes)
}
