//! The embedded engine: every room in this process, saved under DATA by a thread of its own.
//!
//! Requests hold a room's lock for a microsecond and never while a file is touched. The saver takes
//! what changed every half second, so a `kill -9` loses less than a second, which the visitors'
//! tokens put back.

mod journal;
mod saver;

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::ArcSwap;
use corvus_config::snapshot::Queue;
use corvus_core::{Clock, Id};
use foldhash::HashMap;

use self::saver::Saver;
use crate::{
    op::{Caller, Op, Reply, Stats, StoreError},
    room::{Deferred, Room},
};

pub use self::journal::JournalError;

/// Nobody else calls, and the state cannot be lost without us: nothing to report.
const LONE: Caller = Caller::new(0);

/// Rooms of one process.
pub struct Embedded {
    rooms: Arc<Rooms>,
    clock: Arc<dyn Clock>,
    draw_key: [u8; 16],
    /// Tokens signed by an earlier process may be out, so a room without saved state waits for
    /// nobody but must not take what it forgot for free: see [`Embedded::configure`].
    keys_are_new: bool,
    saver: Option<Saver>,
}

/// Every room that was ever configured, by id: state outlives configuration.
type Rooms = ArcSwap<HashMap<Id, Arc<SharedRoom>>>;

struct SharedRoom {
    id: Id,
    room: Mutex<Room>,
}

impl SharedRoom {
    /// A poisoned lock means a bug ended one request in the middle of a call. The room goes on:
    /// closing the queue for good would be worse than one doubtful entry, and the laws' tests are
    /// what keeps that from happening.
    fn lock(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What of a queue's new settings does not hold yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Notice {
    pub queue: Id,
    pub what: NoticeKind,
}

/// See [`Notice`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoticeKind {
    #[error(transparent)]
    Deferred(#[from] Deferred),
    /// The saved state could not be read; the queue starts empty, and tokens put visitors back.
    #[error("its saved state cannot be used: {0}")]
    StateLost(String),
}

impl Embedded {
    /// Rooms whose state is kept in `dir` (`None`: in memory only). `keys_are_new`: no token can be
    /// out, because the keys were made just now.
    pub fn open(
        dir: Option<&Path>,
        clock: Arc<dyn Clock>,
        draw_key: [u8; 16],
        keys_are_new: bool,
    ) -> Result<Self, JournalError> {
        let engine = Self::open_idle(dir, clock, draw_key, keys_are_new)?;
        Ok(Self { saver: engine.saver.map(Saver::start).transpose()?, ..engine })
    }

    /// As [`Self::open`], but state is saved only when [`Self::save`] says so.
    fn open_idle(
        dir: Option<&Path>,
        clock: Arc<dyn Clock>,
        draw_key: [u8; 16],
        keys_are_new: bool,
    ) -> Result<Self, JournalError> {
        let rooms = Arc::new(Rooms::default());
        let saver = match dir {
            Some(dir) => Some(Saver::new(dir, Arc::clone(&rooms))?),
            None => None,
        };
        Ok(Self { rooms, clock, draw_key, keys_are_new, saver })
    }

    /// Takes the settings of `queues`. Rooms that are new are loaded or made; rooms whose queue is
    /// gone keep their state in case it comes back.
    pub fn configure(&self, queues: &[Arc<Queue>]) -> Vec<Notice> {
        let now = self.clock.wall_ms();
        let mut notices = Vec::new();
        let mut rooms = HashMap::clone(&self.rooms.load());
        for queue in queues {
            let settings = &queue.settings;
            if let Some(shared) = rooms.get(&settings.id) {
                let deferred = shared.lock().configure(settings.clone(), now);
                notices.extend(
                    deferred
                        .into_iter()
                        .map(|what| Notice { queue: settings.id.clone(), what: what.into() }),
                );
                continue;
            }
            let loaded = match &self.saver {
                Some(saver) => saver.load(settings, self.draw_key),
                None => Ok(None),
            };
            // No file and keys that were used before: a new queue, or one whose file was lost. The
            // second costs newcomers five seconds, so that those inside are counted first.
            let lone = self.keys_are_new && loaded.is_ok();
            let mut room = match loaded {
                Ok(Some(room)) => room,
                Ok(None) => Room::new(settings.clone(), self.draw_key, lone),
                Err(error) => {
                    let what = NoticeKind::StateLost(error.to_string());
                    notices.push(Notice { queue: settings.id.clone(), what });
                    Room::new(settings.clone(), self.draw_key, false)
                }
            };
            if self.saver.is_some() {
                room.track_changes();
            }
            let id = settings.id.clone();
            rooms.insert(id.clone(), Arc::new(SharedRoom { id, room: Mutex::new(room) }));
        }
        self.rooms.store(Arc::new(rooms));
        notices
    }

    /// One call: a pass, then `ops` in order.
    pub fn call(&self, queue: &Id, ops: &[Op]) -> Result<Reply, StoreError> {
        let rooms = self.rooms.load();
        let shared = rooms.get(queue).ok_or_else(|| StoreError::UnknownQueue(queue.to_string()))?;
        let mut room = shared.lock();
        // Read under the lock: calls see times in the order in which they happen.
        Ok(room.call(self.clock.wall_ms(), LONE, ops))
    }

    /// Numbers of a queue, without a pass.
    pub fn stats(&self, queue: &Id) -> Option<Stats> {
        let rooms = self.rooms.load();
        let shared = rooms.get(queue)?;
        Some(shared.lock().stats(self.clock.wall_ms()))
    }

    /// Saves what changed now, on this thread. For a clean end, and for tests.
    pub fn save(&self) -> Result<(), JournalError> {
        self.saver.as_ref().map_or(Ok(()), Saver::save)
    }
}

#[cfg(test)]
mod tests;
