//! One room's file: frames of changes, appended; written anew when most of it is history.
//!
//! ```text
//! file   = "corvus-queue-1\n" frame*
//! frame  = length: u32 LE, checksum: u64 LE (SipHash-1-3 of the payload), payload
//! ```
//!
//! Reading stops at the first frame that is cut short or damaged; the file is cut there. A new file
//! is written beside the old one, a range of slots at a time, while changes go to both; it takes
//! the old one's place when it is whole, so there is always one whole file.

use std::{
    fs::{self, File, OpenOptions},
    hash::Hasher,
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use siphasher::sip::SipHasher13;

use crate::room::{Loader, Room};

const MAGIC: &[u8] = b"corvus-queue-1\n";
const FRAME_HEAD: usize = 12;
/// Frames are at most a million removals or one range: far below this. More is damage.
const MAX_FRAME: usize = 1 << 30;
/// History is cleared out when a file is this many times its size when it was new, and ...
const GROWTH: u64 = 3;
/// ... at least this big, bytes.
const MIN_REWRITE: u64 = 4 << 20;
/// Records one frame holds: 2 MB, copied under the room's lock in about a millisecond.
const RANGE: u32 = 32_768;
/// Frames of changes in one save: two million records.
const MAX_FRAMES: usize = 64;

/// Why state cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("another process uses {0}")]
    Locked(PathBuf),
    #[error("{0} is not a saved queue, or of another version; it was set aside as {1}")]
    NotOurs(PathBuf, PathBuf),
}

pub(super) fn io_error(
    what: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> JournalError + use<> {
    let path = path.to_path_buf();
    move |source| JournalError::Io { what, path, source }
}

/// The file of one room, open for appending.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    /// `None`: there is no whole file yet, or the last write to it failed.
    current: Option<Sink>,
    rewrite: Option<Rewrite>,
    /// Bytes of the file when it was new.
    base: u64,
    frame: Vec<u8>,
}

#[derive(Debug)]
struct Sink {
    file: File,
    len: u64,
}

#[derive(Debug)]
struct Rewrite {
    sink: Sink,
    path: PathBuf,
    next_slot: u32,
}

impl Journal {
    pub(super) fn new(dir: &Path, room: &str) -> Self {
        let path = dir.join(format!("{room}.journal"));
        Self { path, current: None, rewrite: None, base: 0, frame: Vec::new() }
    }

    /// Reads the file if there is one, and leaves it ready for appending.
    pub(super) fn load(&mut self) -> Result<Option<Loader>, JournalError> {
        let open = OpenOptions::new().read(true).write(true).open(&self.path);
        let mut file = match open {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io_error("open", &self.path)(e)),
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io_error("read", &self.path))?;
        let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
            let aside = self.path.with_extension("unreadable");
            fs::rename(&self.path, &aside).map_err(io_error("set aside", &self.path))?;
            return Err(JournalError::NotOurs(self.path.clone(), aside));
        };
        let mut loader = Loader::default();
        while let Some((payload, after)) = split_frame(rest) {
            if loader.apply(payload).is_err() {
                break;
            }
            rest = after;
        }
        let len = (bytes.len() - rest.len()) as u64;
        if !rest.is_empty() {
            tracing::warn!(
                file = %self.path.display(),
                bytes = rest.len(),
                "the end of a saved queue is cut short or damaged and was dropped"
            );
            file.set_len(len).map_err(io_error("cut", &self.path))?;
        }
        file.seek(SeekFrom::Start(len)).map_err(io_error("read", &self.path))?;
        self.base = len;
        self.current = Some(Sink { file, len });
        Ok(Some(loader))
    }

    /// Writes what changed, and goes on with a rewrite if one is due or under way. `lock` gives the
    /// room; it is let go before anything is written.
    pub(super) fn save<G: std::ops::DerefMut<Target = Room>>(
        &mut self,
        lock: impl Fn() -> G,
    ) -> Result<(), JournalError> {
        let outcome = self.step(lock);
        if outcome.is_err() {
            // Whatever the files hold now may end in half a frame, or lack one: begin a new one.
            self.current = None;
            self.rewrite = None;
        }
        outcome
    }

    fn step<G: std::ops::DerefMut<Target = Room>>(
        &mut self,
        lock: impl Fn() -> G,
    ) -> Result<(), JournalError> {
        let grown = self
            .current
            .as_ref()
            .is_none_or(|sink| sink.len > MIN_REWRITE && sink.len > GROWTH * self.base);
        let mut room = lock();
        let lost = room.lost_changes();
        if lost {
            self.rewrite = None;
        }
        let start = self.rewrite.is_none() && (grown || lost);
        if start {
            room.begin_full_save();
        } else if room.is_idle() && self.rewrite.is_none() {
            return Ok(());
        }
        drop(room);
        if start {
            let path = self.path.with_extension("new");
            let file = new_file(&path)?;
            self.rewrite = Some(Rewrite { sink: file, path, next_slot: 0 });
        }
        if lost {
            self.current = None;
        }
        self.write_changes(&lock)?;
        let Some(rewrite) = &mut self.rewrite else { return Ok(()) };
        self.frame.clear();
        let end = rewrite.next_slot.saturating_add(RANGE);
        let more = lock().save_range(rewrite.next_slot..end, &mut self.frame);
        rewrite.next_slot = end;
        rewrite.sink.write(&self.frame).map_err(io_error("write", &rewrite.path))?;
        if more { Ok(()) } else { self.finish_rewrite(&lock) }
    }

    /// What changed goes to the file, and to the one that will take its place.
    fn write_changes<G: std::ops::DerefMut<Target = Room>>(
        &mut self,
        lock: &impl Fn() -> G,
    ) -> Result<(), JournalError> {
        let mut more = true;
        let mut frames = 0;
        // What changes faster than it is written is left for the next save.
        while more && frames < MAX_FRAMES {
            frames += 1;
            self.frame.clear();
            more = lock().save_changes(RANGE as usize, &mut self.frame);
            if let Some(sink) = &mut self.current {
                sink.write(&self.frame).map_err(io_error("write", &self.path))?;
            }
            if let Some(rewrite) = &mut self.rewrite {
                rewrite.sink.write(&self.frame).map_err(io_error("write", &rewrite.path))?;
            }
        }
        Ok(())
    }

    fn finish_rewrite<G: std::ops::DerefMut<Target = Room>>(
        &mut self,
        lock: &impl Fn() -> G,
    ) -> Result<(), JournalError> {
        // What changed while the last range was copied: with it the new file is whole.
        self.write_changes(lock)?;
        let Some(rewrite) = self.rewrite.take() else { return Ok(()) };
        // The name must not point to a file whose content a power cut could still take back.
        rewrite.sink.file.sync_data().map_err(io_error("write", &rewrite.path))?;
        fs::rename(&rewrite.path, &self.path).map_err(io_error("replace", &self.path))?;
        self.base = rewrite.sink.len;
        self.current = Some(rewrite.sink);
        Ok(())
    }
}

impl Sink {
    fn write(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut head = [0; FRAME_HEAD];
        let len = u32::try_from(payload.len()).map_err(io::Error::other)?;
        head[..4].copy_from_slice(&len.to_le_bytes());
        head[4..].copy_from_slice(&checksum(payload).to_le_bytes());
        self.file.write_all(&head)?;
        self.file.write_all(payload)?;
        self.len += (FRAME_HEAD + payload.len()) as u64;
        Ok(())
    }
}

fn new_file(path: &Path) -> Result<Sink, JournalError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let mut file = options.open(path).map_err(io_error("create", path))?;
    file.write_all(MAGIC).map_err(io_error("write", path))?;
    Ok(Sink { file, len: MAGIC.len() as u64 })
}

/// The first frame's payload, and what follows it; `None`: cut short or damaged.
fn split_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<8>()?;
    let len = u32::from_le_bytes(*len) as usize;
    if len > MAX_FRAME {
        return None;
    }
    let (payload, rest) = rest.split_at_checked(len)?;
    (checksum(payload) == u64::from_le_bytes(*sum)).then_some((payload, rest))
}

fn checksum(payload: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(payload);
    hasher.finish()
}
