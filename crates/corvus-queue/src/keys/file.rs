//! The secrets as text, under DATA and in a store that gateways share.

use std::{
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
};

use corvus_core::token::{SigningKey, SigningKeys};
use serde::{Deserialize, Serialize};

use super::KeyError;

/// Longer texts are not ours.
const MAX_TEXT: usize = 4_096;

/// The secrets of one gateway, or of all that share a store.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct KeyFile {
    /// Counts the changes that gateways made together, from 1. A gateway that runs alone does not
    /// count its rotations: it could not be told from one that knows more than the others.
    pub(super) generation: u64,
    pub(super) current: [u8; 32],
    pub(super) previous: Option<[u8; 32]>,
    pub(super) next: Option<Next>,
    /// Never rotated: places of a draw must stay what they are.
    pub(super) draw: [u8; 16],
}

/// A key that is believed already and signs later.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) struct Next {
    pub(super) key: [u8; 32],
    /// Store time, Unix ms.
    pub(super) activates_at_ms: u64,
}

/// The form of the text. Version 1 had neither `generation` nor `next`. Bytes are lower-case
/// hexadecimal.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: u32,
    #[serde(default)]
    generation: Option<u64>,
    current: String,
    previous: Option<String>,
    #[serde(default)]
    next: Option<NextText>,
    draw: String,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct NextText {
    key: String,
    activates_at: u64,
}

impl KeyFile {
    pub(super) fn fresh() -> Result<Self, getrandom::Error> {
        Ok(Self { generation: 1, current: random()?, previous: None, next: None, draw: random()? })
    }

    /// `None`: not a text of ours, or of a later version.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let text: Text = serde_json::from_str(text).ok()?;
        let generation = match (text.version, text.generation, &text.next) {
            (1, None, None) => 1,
            // The last one could not be counted further.
            (2, Some(n), _) if (1..u64::MAX).contains(&n) => n,
            _ => return None,
        };
        Some(Self {
            generation,
            current: unhex(&text.current)?,
            previous: match &text.previous {
                Some(hex) => Some(unhex(hex)?),
                None => None,
            },
            next: match &text.next {
                Some(next) => {
                    Some(Next { key: unhex(&next.key)?, activates_at_ms: next.activates_at })
                }
                None => None,
            },
            draw: unhex(&text.draw)?,
        })
    }

    pub(super) fn to_text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(&Text {
            version: 2,
            generation: Some(self.generation),
            current: hex(&self.current),
            previous: self.previous.as_ref().map(|key| hex(key)),
            next: self
                .next
                .map(|next| NextText { key: hex(&next.key), activates_at: next.activates_at_ms }),
            draw: hex(&self.draw),
        })
    }

    pub(super) fn signing_keys(&self) -> SigningKeys {
        SigningKeys {
            next: self.next.map(|next| SigningKey::new(&next.key)),
            current: SigningKey::new(&self.current),
            previous: self.previous.as_ref().map(SigningKey::new),
        }
    }

    /// With `key` in place of the current one, at once.
    pub(super) fn rotated(&self, key: [u8; 32]) -> Self {
        Self { current: key, previous: Some(self.current), next: None, ..self.clone() }
    }

    /// With `key` announced.
    pub(super) fn announcing(&self, key: [u8; 32], activates_at_ms: u64) -> Self {
        let next = Some(Next { key, activates_at_ms });
        Self { generation: self.generation + 1, next, ..self.clone() }
    }

    /// With the announced key signing, if its time has come. Whoever computes this gets the same:
    /// it does not matter which gateway is first.
    pub(super) fn activated(&self, store_now_ms: u64) -> Option<Self> {
        let next = self.next.filter(|next| next.activates_at_ms <= store_now_ms)?;
        Some(Self { generation: self.generation + 1, ..self.rotated(next.key) })
    }
}

/// Names keys by their ids: secrets must not get into logs.
impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFile")
            .field("generation", &self.generation)
            .field("keys", &self.signing_keys())
            .field("activates_at_ms", &self.next.map(|next| next.activates_at_ms))
            .finish_non_exhaustive()
    }
}

/// The file at `path`; `None`: there is none.
pub(super) fn read(path: &Path) -> Result<Option<KeyFile>, KeyError> {
    match fs::read_to_string(path) {
        Ok(text) => {
            let malformed = || KeyError::Malformed { path: path.to_path_buf() };
            KeyFile::parse(&text).map(Some).ok_or_else(malformed)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io_error("read", path, e)),
    }
}

pub(super) fn write(path: &Path, file: &KeyFile) -> Result<(), KeyError> {
    let text = file.to_text().map_err(|e| io_error("write", path, io::Error::other(e)))?;
    replace(path, text.as_bytes()).map_err(|e| io_error("write", path, e))
}

/// Beside the old file first, then in its place: a reader or a crash sees one or the other. Only the
/// owner can read it.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // A leftover of a crash may have other permissions: `create_new` below must make its own.
    match fs::remove_file(&beside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut out = options.open(&beside)?;
    out.write_all(bytes)?;
    out.sync_all()?;
    fs::rename(&beside, path)
}

pub(super) fn io_error(what: &'static str, path: &Path, source: io::Error) -> KeyError {
    KeyError::Io { what, path: path.to_path_buf(), source }
}

pub(super) fn random<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(bytes)
}
