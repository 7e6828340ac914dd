//! The gateway's secrets for its queues: two signing keys and the key that draws lots, kept in one
//! file under DATA that only the owner can read.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use corvus_core::token::{SigningKey, SigningKeys};
use serde::{Deserialize, Serialize};

/// The secrets as they are in the file. Lower-case hexadecimal.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    version: u32,
    current: String,
    previous: Option<String>,
    /// Never rotated: places of a draw must stay what they are.
    draw: String,
}

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{path} does not hold queue keys; with it removed new ones are made, and every visitor \
             starts anew"
    )]
    Malformed { path: PathBuf },
    #[error("the system gives no random bytes: {0}")]
    Random(#[from] getrandom::Error),
}

/// Signing keys that can be rotated while tokens are checked.
pub struct KeyStore {
    path: Option<PathBuf>,
    file: Mutex<KeyFile>,
    keys: ArcSwap<SigningKeys>,
    draw: [u8; 16],
    new: bool,
}

impl KeyStore {
    /// The keys in `dir` (file `keys`), made if there are none; `None`: new ones, in memory only.
    pub fn open(dir: Option<&Path>) -> Result<Self, KeyError> {
        let Some(dir) = dir else { return Self::build(None, fresh()?, true) };
        fs::create_dir_all(dir).map_err(|e| io_error("create", dir, e))?;
        let path = dir.join("keys");
        match fs::read_to_string(&path) {
            Ok(text) => {
                let malformed = || KeyError::Malformed { path: path.clone() };
                let file = serde_json::from_str(&text).map_err(|_| malformed())?;
                Self::build(Some(path.clone()), file, false)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let file = fresh()?;
                write(&path, &file)?;
                Self::build(Some(path), file, true)
            }
            Err(e) => Err(io_error("read", &path, e)),
        }
    }

    fn build(path: Option<PathBuf>, file: KeyFile, new: bool) -> Result<Self, KeyError> {
        let malformed = || KeyError::Malformed { path: path.clone().unwrap_or_default() };
        let keys = signing_keys(&file).ok_or_else(malformed)?;
        let draw = unhex(&file.draw).filter(|_| file.version == 1).ok_or_else(malformed)?;
        Ok(Self { path, file: Mutex::new(file), keys: ArcSwap::from_pointee(keys), draw, new })
    }

    /// The keys in force.
    pub fn load(&self) -> arc_swap::Guard<Arc<SigningKeys>> {
        self.keys.load()
    }

    /// Key of the hash that draws lots.
    pub fn draw_key(&self) -> [u8; 16] {
        self.draw
    }

    /// Made just now: no token can be out.
    pub fn are_new(&self) -> bool {
        self.new
    }

    /// Makes a new current key; the old one becomes the previous, and tokens of the one before are
    /// refused from now on. Rotate no more often than tokens live.
    pub fn rotate(&self) -> Result<(), KeyError> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let next = KeyFile {
            current: random_hex::<32>()?,
            previous: Some(file.current.clone()),
            ..file.clone()
        };
        if let Some(path) = &self.path {
            write(path, &next)?;
        }
        if let Some(keys) = signing_keys(&next) {
            self.keys.store(Arc::new(keys));
        }
        *file = next;
        Ok(())
    }
}

fn fresh() -> Result<KeyFile, KeyError> {
    Ok(KeyFile {
        version: 1,
        current: random_hex::<32>()?,
        previous: None,
        draw: random_hex::<16>()?,
    })
}

fn signing_keys(file: &KeyFile) -> Option<SigningKeys> {
    let current = SigningKey::new(&unhex(&file.current)?);
    let previous = match &file.previous {
        Some(hex) => Some(SigningKey::new(&unhex(hex)?)),
        None => None,
    };
    Some(SigningKeys { current, previous })
}

/// Beside the old file first, then in its place: a reader or a crash sees one or the other.
fn write(path: &Path, file: &KeyFile) -> Result<(), KeyError> {
    let beside = path.with_extension("new");
    let text = serde_json::to_vec_pretty(file)
        .map_err(|e| io_error("write", &beside, io::Error::other(e)))?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // A leftover of a crash may have other permissions: `create_new` below must make its own.
    match fs::remove_file(&beside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(io_error("remove", &beside, e));
        }
        _ => {}
    }
    let mut out = options.open(&beside).map_err(|e| io_error("create", &beside, e))?;
    out.write_all(&text)
        .and_then(|()| out.sync_all())
        .map_err(|e| io_error("write", &beside, e))?;
    fs::rename(&beside, path).map_err(|e| io_error("replace", path, e))
}

fn io_error(what: &'static str, path: &Path, source: io::Error) -> KeyError {
    KeyError::Io { what, path: path.to_path_buf(), source }
}

fn random_hex<const N: usize>() -> Result<String, getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    Ok(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect())
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; N];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use corvus_core::token::{Admission, Sid};

    use super::*;

    #[test]
    fn keys_survive_a_restart_and_a_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let first = KeyStore::open(Some(dir.path())).unwrap();
        assert!(first.are_new());
        let admission = Admission { sid: Sid::from_bytes([1; 16]), issued_ms: 1, expires_ms: 2 };
        let text = first.load().sign_admission("drop", &admission, None);
        let second = KeyStore::open(Some(dir.path())).unwrap();
        assert!(!second.are_new());
        assert_eq!(second.draw_key(), first.draw_key());
        second.rotate().unwrap();
        let third = KeyStore::open(Some(dir.path())).unwrap();
        for keys in [&second, &third] {
            assert_eq!(keys.load().verify_admission("drop", &text, None), Ok(admission));
        }
        third.rotate().unwrap();
        assert!(third.load().verify_admission("drop", &text, None).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn the_file_is_the_owners_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        KeyStore::open(Some(dir.path())).unwrap().rotate().unwrap();
        let mode = fs::metadata(dir.path().join("keys")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_is_named_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        fs::write(&path, "{}").unwrap();
        let error = KeyStore::open(Some(dir.path())).err().unwrap();
        assert!(matches!(&error, KeyError::Malformed { path: p } if *p == path), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "{}");
    }
}
