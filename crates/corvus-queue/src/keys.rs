//! The gateway's secrets for its queues: signing keys and the key that draws lots. They are kept
//! in one file under DATA that only the owner can read, and, when several gateways share a store,
//! in the store as well: each gateway's copy outlives the store's.

mod file;
mod reconcile;
mod share;
mod writer;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::{ArcSwapOption, Guard};
use corvus_core::token::SigningKeys;
use tokio::sync::{Notify, watch};

use self::file::{KeyFile, io_error, random, replace};
pub use self::share::{Rotation, ShareError, SharedKeys};
pub(crate) use self::writer::Writer;

/// A reading of the store holds for so long: an unknown key makes us ask no more often.
const READ_HOLDS_MS: u64 = 1_000;
/// A visitor with an unknown key waits for a reading no longer.
const READ_WAIT: Duration = Duration::from_secs(1);

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
    #[error("there are no queue keys yet: the store that gateways share has not been reached")]
    NoneYet,
    #[error("queue keys are shared with other gateways: rotate them through the store")]
    Shared,
}

/// Signing keys that can be rotated while tokens are checked.
pub struct KeyStore {
    path: Option<PathBuf>,
    /// For keys that are shared, which change on a thread that must not wait for a disk.
    writer: Option<Writer>,
    file: Mutex<Option<KeyFile>>,
    /// Written under the lock of `file`; read by every request. Once there, never gone again.
    keys: ArcSwapOption<SigningKeys>,
    draw: ArcSwapOption<[u8; 16]>,
    new: bool,
    sharing: Option<Sharing>,
}

/// How requests and [`SharedKeys::run`] meet.
struct Sharing {
    wanted: Notify,
    /// The latest reading of the store.
    read: watch::Sender<Option<Read>>,
}

#[derive(Clone, Copy)]
struct Read {
    /// Monotonic ms.
    at_ms: u64,
    good: bool,
}

impl KeyStore {
    /// The keys in `dir` (file `keys`), made if there are none; `None`: new ones, in memory only.
    /// For a gateway that shares its queues with no other.
    pub fn open(dir: Option<&Path>) -> Result<Self, KeyError> {
        let (path, found) = find(dir)?;
        let new = found.is_none();
        let file = match found {
            Some(file) => file,
            None => KeyFile::fresh()?,
        };
        if let Some(path) = path.as_deref().filter(|_| new) {
            file::write(path, &file)?;
        }
        Ok(Self::build(path, Some(file), new, None))
    }

    /// For a gateway that shares queues: what `dir` has, and nothing made. [`SharedKeys`] brings
    /// the rest.
    pub fn open_shared(dir: Option<&Path>) -> Result<Self, KeyError> {
        let (path, file) = find(dir)?;
        let sharing = Sharing { wanted: Notify::new(), read: watch::Sender::new(None) };
        Ok(Self::build(path, file, false, Some(sharing)))
    }

    fn build(
        path: Option<PathBuf>,
        file: Option<KeyFile>,
        new: bool,
        sharing: Option<Sharing>,
    ) -> Self {
        let keys = file.as_ref().map(|file| Arc::new(file.signing_keys()));
        let draw = file.as_ref().map(|file| Arc::new(file.draw));
        let trouble = "queue keys are not saved; a restart needs the store";
        Self {
            writer: path.clone().map(|path| Writer::to(path, trouble)),
            path,
            file: Mutex::new(file),
            keys: ArcSwapOption::new(keys),
            draw: ArcSwapOption::new(draw),
            new,
            sharing,
        }
    }

    /// The keys in force. `None`: not yet any, so nothing is signed and no token believed.
    pub fn load(&self) -> Guard<Option<Arc<SigningKeys>>> {
        self.keys.load()
    }

    /// Key of the hash that draws lots; there when the signing keys are.
    pub fn draw_key(&self) -> Option<[u8; 16]> {
        self.draw.load().as_deref().copied()
    }

    /// Made just now: no token can be out.
    pub fn are_new(&self) -> bool {
        self.new
    }

    /// Makes a new current key; the old one becomes the previous, and tokens of the one before are
    /// refused from now on. Rotate no more often than tokens live. Keys that are shared rotate by
    /// [`SharedKeys::rotate`].
    pub fn rotate(&self) -> Result<(), KeyError> {
        if self.sharing.is_some() {
            return Err(KeyError::Shared);
        }
        let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let next = held.as_ref().ok_or(KeyError::NoneYet)?.rotated(random()?);
        if let Some(path) = &self.path {
            file::write(path, &next)?;
        }
        self.put_in_force(&next);
        *held = Some(next);
        Ok(())
    }

    /// For a token of a key that we do not hold: whether we hold all there are, having read the
    /// store again if need be. Waits a second at most. `mono_ms` is now.
    pub async fn are_all(&self, mono_ms: u64) -> bool {
        let Some(sharing) = &self.sharing else { return true };
        let mut read = sharing.read.subscribe();
        if let Some(read) = read.borrow_and_update().filter(|read| read.holds(mono_ms)) {
            return read.good;
        }
        sharing.wanted.notify_one();
        let changed = tokio::time::timeout(READ_WAIT, read.changed()).await;
        changed.is_ok_and(|open| open.is_ok()) && read.borrow().is_some_and(|read| read.good)
    }

    /// Resolves when [`Self::are_all`] wants the store to be read.
    async fn wanted(&self) {
        match &self.sharing {
            Some(sharing) => sharing.wanted.notified().await,
            None => std::future::pending().await,
        }
    }

    fn was_read_lately(&self, mono_ms: u64) -> bool {
        let read = self.sharing.as_ref().and_then(|sharing| *sharing.read.borrow());
        read.is_some_and(|read| read.holds(mono_ms))
    }

    fn note_read(&self, mono_ms: u64, good: bool) {
        if let Some(sharing) = &self.sharing {
            sharing.read.send_replace(Some(Read { at_ms: mono_ms, good }));
        }
    }

    fn file(&self) -> Option<KeyFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Uses `file` from now on, and has it written under DATA. The store has it, so the gateway need
    /// not wait for that.
    fn adopt(&self, file: KeyFile) {
        let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        self.put_in_force(&file);
        if let Some(writer) = &self.writer {
            match file.to_text() {
                Ok(text) => writer.put(text.into_bytes()),
                Err(error) => tracing::warn!(%error, "queue keys cannot be written"),
            }
        }
        *held = Some(file);
    }

    fn save_again(&self) {
        if let Some(writer) = &self.writer {
            writer.retry();
        }
    }

    /// Waits a few seconds for what is not yet written under DATA; before a clean end. False: it
    /// could not be written.
    pub fn save(&self) -> bool {
        self.writer.as_ref().is_none_or(Writer::finish)
    }

    fn put_in_force(&self, file: &KeyFile) {
        // The draw key first: whoever sees signing keys finds it.
        self.draw.store(Some(Arc::new(file.draw)));
        self.keys.store(Some(Arc::new(file.signing_keys())));
    }
}

impl Read {
    fn holds(self, mono_ms: u64) -> bool {
        mono_ms.saturating_sub(self.at_ms) < READ_HOLDS_MS
    }
}

/// Where the file is, and what it has.
fn find(dir: Option<&Path>) -> Result<(Option<PathBuf>, Option<KeyFile>), KeyError> {
    let Some(dir) = dir else { return Ok((None, None)) };
    fs::create_dir_all(dir).map_err(|e| io_error("create", dir, e))?;
    let path = dir.join("keys");
    let file = file::read(&path)?;
    Ok((Some(path), file))
}

#[cfg(test)]
pub(crate) mod tests;
