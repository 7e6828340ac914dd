//! The key that secrets are encrypted with at rest, and the sealed form they have in the database.

#[cfg(test)]
mod tests;

use std::{
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
};

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, Nonce, RandomizedNonceKey};
use zeroize::Zeroizing;

use crate::files;

/// Bytes of a key.
const KEY: usize = 32;
const NONCE: usize = 12;
/// First byte of what is sealed: AES-256-GCM-SIV (RFC 8452) with a random nonce.
const FORM: u8 = 1;

/// Why the key of the secrets cannot be used. Nothing is ever overwritten because of it.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error(
        "the secret key {} is missing, and the database holds secrets encrypted with it; put the \
         file back (it is part of each backup)", .path.display()
    )]
    Missing { path: PathBuf },
    #[error(
        "the secret key {} is not the one that the database's secrets are encrypted with; put the \
         right file there", .path.display()
    )]
    Wrong { path: PathBuf },
    #[error(
        "the secret key {} has {found} bytes, not {KEY}; put the right file there", .path.display()
    )]
    Length { path: PathBuf, found: u64 },
    #[error("the secret key {} cannot be {what}", .path.display())]
    Io { path: PathBuf, what: &'static str, source: io::Error },
}

/// What was sealed does not open: another key, another context, or damage.
#[derive(Debug)]
pub(crate) struct Unopened;

/// 32 secret bytes.
pub(crate) struct SecretKey {
    bytes: Zeroizing<[u8; KEY]>,
}

impl SecretKey {
    /// Reads the key; `None`: there is no such file.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, KeyError> {
        let failed = |source| KeyError::Io { path: path.to_owned(), what: "read", source };
        let length = match fs::metadata(path) {
            Ok(found) => found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let wrong_length = |found| KeyError::Length { path: path.to_owned(), found };
        if length != KEY as u64 {
            return Err(wrong_length(length));
        }
        let text = Zeroizing::new(fs::read(path).map_err(failed)?);
        let mut bytes = Zeroizing::new([0; KEY]);
        if text.len() != KEY {
            return Err(wrong_length(text.len() as u64));
        }
        bytes.copy_from_slice(&text);
        Ok(Some(Self { bytes }))
    }

    /// Makes a new key. The file appears whole, on the disk, for its owner alone, and never in
    /// place of another.
    pub(crate) fn create(path: &Path) -> Result<Self, KeyError> {
        let mut bytes = Zeroizing::new([0; KEY]);
        getrandom::fill(&mut *bytes).map_err(|error| KeyError::Io {
            path: path.to_owned(),
            what: "made",
            source: io::Error::other(error),
        })?;
        files::create_whole(path, |file| file.write_all(&*bytes))
            .map_err(|source| KeyError::Io { path: path.to_owned(), what: "made", source })?;
        Ok(Self { bytes })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &*self.bytes
    }

    /// Encrypts. `context` says what this is (`secret:slack`), and is needed again to open it: a
    /// value that was moved to another row does not open there.
    pub(crate) fn seal(&self, context: &str, plain: &[u8]) -> Result<Vec<u8>, Unopened> {
        let key = RandomizedNonceKey::new(&AES_256_GCM_SIV, &*self.bytes).map_err(|_| Unopened)?;
        // Room for the tag: growing would leave a copy of the plain text behind.
        let mut sealed = Vec::with_capacity(plain.len() + AES_256_GCM_SIV.tag_len());
        sealed.extend_from_slice(plain);
        let nonce =
            key.seal_in_place_append_tag(Aad::from(context), &mut sealed).map_err(|_| Unopened)?;
        Ok([&[FORM], nonce.as_ref().as_slice(), &sealed].concat())
    }

    /// Decrypts what [`SecretKey::seal`] made for the same context.
    pub(crate) fn open(
        &self,
        context: &str,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Unopened> {
        let (form, rest) = sealed.split_first().ok_or(Unopened)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE).ok_or(Unopened)?;
        if *form != FORM {
            return Err(Unopened);
        }
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| Unopened)?;
        let key = RandomizedNonceKey::new(&AES_256_GCM_SIV, &*self.bytes).map_err(|_| Unopened)?;
        let mut plain = Zeroizing::new(sealed.to_vec());
        let length =
            key.open_in_place(nonce, Aad::from(context), &mut plain).map_err(|_| Unopened)?.len();
        plain.truncate(length);
        Ok(plain)
    }
}
