//! The thread that saves rooms, and the folder it saves them in.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, SyncSender},
    },
    thread::JoinHandle,
    time::Duration,
};

use corvus_config::snapshot::QueueSettings;
use corvus_core::Id;
use foldhash::HashMap;

use super::{
    Rooms,
    journal::{Journal, JournalError, io_error},
};
use crate::room::Room;

/// Twice a second: with the time a save takes, a killed process loses less than one.
const INTERVAL: Duration = Duration::from_millis(500);

pub(super) struct Saver {
    shared: Arc<Shared>,
    /// Dropped first: ends the thread.
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    dir: PathBuf,
    rooms: Arc<Rooms>,
    journals: Mutex<HashMap<Id, Journal>>,
    /// Held for as long as the folder is ours; the kernel lets go of it however the process ends.
    _lock: File,
}

impl Saver {
    /// Makes sure that `dir` can be written and is nobody else's.
    pub(super) fn new(dir: &Path, rooms: Arc<Rooms>) -> Result<Self, JournalError> {
        fs::create_dir_all(dir).map_err(io_error("create", dir))?;
        let lock_path = dir.join("lock");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(io_error("write in", dir))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::Locked(dir.to_path_buf())),
            Err(TryLockError::Error(e)) => return Err(io_error("lock", &lock_path)(e)),
        }
        let shared = Arc::new(Shared {
            dir: dir.to_path_buf(),
            rooms,
            journals: Mutex::default(),
            _lock: lock,
        });
        Ok(Self { shared, stop: None, thread: None })
    }

    /// Saves twice a second from now on.
    pub(super) fn start(mut self) -> Result<Self, JournalError> {
        let dir = &self.shared.dir;
        let (stop, stopped) = mpsc::sync_channel(0);
        let of_thread = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name("queue-saver".into())
            .spawn(move || {
                let mut failing = false;
                while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    match of_thread.save() {
                        Ok(()) if failing => {
                            tracing::info!("access queues are saved again");
                            failing = false;
                        }
                        Err(error) if !failing => {
                            tracing::error!(%error, "access queues cannot be saved");
                            failing = true;
                        }
                        Ok(()) | Err(_) => {}
                    }
                }
            })
            .map_err(io_error("start the thread that saves", dir))?;
        (self.stop, self.thread) = (Some(stop), Some(thread));
        Ok(self)
    }

    /// The saved room of these settings, if there is one.
    pub(super) fn load(
        &self,
        settings: &QueueSettings,
        draw_key: [u8; 16],
    ) -> Result<Option<Room>, JournalError> {
        let mut journal = Journal::new(&self.shared.dir, settings.id.as_str());
        let loaded = journal.load();
        let mut journals = self.shared.journals.lock().unwrap_or_else(PoisonError::into_inner);
        journals.insert(settings.id.clone(), journal);
        Ok(loaded?.and_then(|loader| loader.finish(settings.clone(), draw_key)))
    }

    pub(super) fn save(&self) -> Result<(), JournalError> {
        self.shared.save()
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        // Saves nothing: a drop may be part of a panic, and whoever ends in order saves first.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Saves each room; the first failure is reported, the others are still saved.
    fn save(&self) -> Result<(), JournalError> {
        let mut journals = self.journals.lock().unwrap_or_else(PoisonError::into_inner);
        let mut outcome = Ok(());
        for shared in self.rooms.load().values() {
            let journal = journals
                .entry(shared.id.clone())
                .or_insert_with(|| Journal::new(&self.dir, shared.id.as_str()));
            let saved = journal.save(|| shared.lock());
            if outcome.is_ok() {
                outcome = saved;
            }
        }
        outcome
    }
}
