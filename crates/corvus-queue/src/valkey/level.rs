//! Capacity, rate and pause: what of a queue's settings all gateways of a store share, and who is
//! right when their configurations differ.
//!
//! The store keeps the level with the highest version. A gateway whose configuration is changed
//! writes the next version; the others take what they read, and tell their operator when it is not
//! what their own configuration says. What a gateway knows survives its restart: with an unchanged
//! configuration it does not take back what another one changed meanwhile, and a configuration that
//! was edited while it was down counts as changed.

use std::{
    collections::BTreeMap,
    fs, io,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use corvus_config::snapshot::{QueueSettings, Rate};
use corvus_core::Id;
use serde::{Deserialize, Serialize};

use crate::keys::Writer;

/// A version of what all gateways share.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    pub version: u64,
    pub capacity: u64,
    pub rate: Option<Rate>,
    pub paused: bool,
}

impl Level {
    pub const fn of(settings: &QueueSettings, version: u64) -> Self {
        let QueueSettings { capacity, rate, paused, .. } = settings;
        Self { version, capacity: *capacity, rate: *rate, paused: *paused }
    }

    /// The next version, with what differs between two configurations of a gateway. The rest stays
    /// as it is: another capacity does not end a pause that somebody else made.
    fn changed(&self, before: &Self, after: &Self) -> Self {
        let mut next = Self { version: self.version.saturating_add(1), ..*self };
        if after.capacity != before.capacity {
            next.capacity = after.capacity;
        }
        if after.rate != before.rate {
            next.rate = after.rate;
        }
        if after.paused != before.paused {
            next.paused = after.paused;
        }
        next
    }

    /// Whether both say the same, whatever their versions.
    fn agrees(&self, other: &Self) -> bool {
        Self { version: 0, ..*self } == Self { version: 0, ..*other }
    }
}

/// What a gateway knows of one queue's level.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Levels {
    /// What this gateway's configuration says; its version means nothing.
    own: Level,
    /// The highest version known: sent with each call, so that a store which lost it has it again.
    held: Level,
    /// `held` has a change of ours that the store has not shown yet: what our configuration said
    /// before it.
    pending: Option<Level>,
    /// The version of which the operator was told, since the start, that it differs.
    #[serde(skip)]
    told: u64,
}

/// What a reply says of the level.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum News {
    Nothing,
    /// Something to be kept over a restart.
    Changed,
    /// Another gateway's level holds, and our configuration says something else.
    Differs,
}

impl Levels {
    pub(super) const fn new(own: Level) -> Self {
        let held = Level { version: 1, ..own };
        Self { own, held, pending: None, told: 0 }
    }

    pub(super) const fn held(&self) -> &Level {
        &self.held
    }

    /// Takes the level of a configuration; true: it is another than before.
    pub(super) fn configure(&mut self, own: Level) -> bool {
        if own.agrees(&self.own) {
            return false;
        }
        let before = *self.pending.get_or_insert(self.own);
        self.own = own;
        self.held = self.held.changed(&before, &own);
        true
    }

    /// Takes what the store said.
    pub(super) fn note(&mut self, stored: Level) -> News {
        if stored == self.held {
            let was_pending = self.pending.take().is_some();
            return match self.compare() {
                News::Nothing if was_pending => News::Changed,
                news => news,
            };
        }
        if stored.version < self.held.version {
            // An old reply, or one to a call from before the change.
            return News::Nothing;
        }
        if let Some(before) = &self.pending {
            // Somebody else's change took the version: ours is the newer one.
            self.held = stored.changed(before, &self.own);
            return News::Changed;
        }
        self.held = stored;
        match self.compare() {
            News::Nothing => News::Changed,
            news => news,
        }
    }

    fn compare(&mut self) -> News {
        if self.held.agrees(&self.own) || self.told == self.held.version {
            return News::Nothing;
        }
        self.told = self.held.version;
        News::Differs
    }
}

/// What is known of every queue's level, in one small file.
pub(super) struct Book {
    /// `None`: kept in memory only.
    writer: Option<Writer>,
    pages: Mutex<BTreeMap<String, Levels>>,
}

impl Book {
    /// A file that cannot be read counts as none: the store has the levels.
    pub(super) fn open(path: Option<PathBuf>) -> Self {
        let pages = path.as_ref().and_then(|path| {
            let text = match fs::read(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
                text => text,
            };
            let pages = text.and_then(|text| Ok(serde_json::from_slice(&text)?));
            pages
                .inspect_err(|error| {
                    tracing::warn!(path = %path.display(), %error, "levels cannot be read");
                })
                .ok()
        });
        let writer = path.map(|path| Writer::to(path, "levels cannot be saved"));
        Self { writer, pages: Mutex::new(pages.unwrap_or_default()) }
    }

    /// What is known of `queue`, whose configuration now says `own`.
    pub(super) fn read(&self, queue: &Id, own: Level) -> Levels {
        let known = {
            let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
            pages.get(queue.as_str()).cloned()
        };
        let mut levels = known.unwrap_or_else(|| Levels::new(own));
        levels.configure(own);
        self.write(queue, &levels);
        levels
    }

    /// Notes it, and has it written soon: whoever calls holds locks and must not wait for a disk.
    pub(super) fn write(&self, queue: &Id, levels: &Levels) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.get(queue.as_str()) == Some(levels) {
            return;
        }
        pages.insert(queue.to_string(), levels.clone());
        let Some(writer) = &self.writer else { return };
        match serde_json::to_vec_pretty(&*pages) {
            Ok(text) => writer.put(text),
            Err(error) => tracing::warn!(%error, "levels cannot be written"),
        }
    }

    /// Waits a few seconds for what is not yet written; false: it could not be.
    pub(super) fn save(&self) -> bool {
        self.writer.as_ref().is_none_or(Writer::finish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(version: u64, capacity: u64) -> Level {
        Level { version, capacity, rate: None, paused: false }
    }

    /// A store that keeps the highest version it is sent.
    fn exchange(store: &mut Option<Level>, levels: &mut Levels) -> News {
        if store.is_none_or(|stored| stored.version < levels.held().version) {
            *store = Some(*levels.held());
        }
        levels.note(store.unwrap())
    }

    #[test]
    fn the_newest_change_wins_and_the_others_are_told_once() {
        let (mut a, mut b) = (Levels::new(level(0, 10)), Levels::new(level(0, 10)));
        let mut store = None;
        assert_eq!(exchange(&mut store, &mut a), News::Nothing);
        assert_eq!(exchange(&mut store, &mut b), News::Nothing);
        assert!(b.configure(level(0, 20)));
        assert_eq!(exchange(&mut store, &mut b), News::Changed);
        assert_eq!(exchange(&mut store, &mut a), News::Differs);
        assert_eq!(exchange(&mut store, &mut a), News::Nothing, "told once");
        assert_eq!(store, Some(level(2, 20)));
        // The other one's configuration follows: nothing differs any more.
        assert!(a.configure(level(0, 20)));
        assert_eq!(exchange(&mut store, &mut a), News::Changed);
        assert_eq!(exchange(&mut store, &mut b), News::Changed);
        assert_eq!(store, Some(level(3, 20)));
    }

    #[test]
    fn of_two_changes_at_once_the_later_one_to_arrive_wins() {
        let (mut a, mut b) = (Levels::new(level(0, 10)), Levels::new(level(0, 10)));
        let mut store = Some(level(1, 10));
        a.configure(level(0, 20));
        b.configure(level(0, 30));
        assert_eq!(exchange(&mut store, &mut a), News::Changed);
        assert_eq!(exchange(&mut store, &mut b), News::Changed, "version 2 was taken");
        assert_eq!(exchange(&mut store, &mut b), News::Changed);
        assert_eq!(store, Some(level(3, 30)));
        assert_eq!(exchange(&mut store, &mut a), News::Differs);
    }

    #[test]
    fn a_wiped_store_gets_the_level_back_from_any_gateway() {
        let mut a = Levels::new(level(0, 10));
        let mut store = Some(level(7, 50));
        assert_eq!(exchange(&mut store, &mut a), News::Differs);
        store = None;
        assert_eq!(exchange(&mut store, &mut a), News::Nothing);
        assert_eq!(store, Some(level(7, 50)));
    }

    #[test]
    fn a_restart_takes_nothing_back_and_forgets_no_edit() {
        let mut a = Levels::new(level(0, 10));
        let mut store = Some(level(7, 50));
        exchange(&mut store, &mut a);
        let kept = serde_json::to_string(&a).unwrap();
        let mut again: Levels = serde_json::from_str(&kept).unwrap();
        assert!(!again.configure(level(0, 10)), "the same configuration as before");
        assert_eq!(exchange(&mut store, &mut again), News::Differs, "and says so again");
        assert_eq!(store, Some(level(7, 50)));
        let mut edited: Levels = serde_json::from_str(&kept).unwrap();
        assert!(edited.configure(level(0, 12)));
        store = Some(level(9, 60));
        exchange(&mut store, &mut edited);
        exchange(&mut store, &mut edited);
        assert_eq!(store, Some(level(10, 12)), "changed while others changed it too");
    }

    #[test]
    fn a_slow_disk_holds_up_no_queue_and_has_the_newest_at_the_end() {
        let (free, wait) = std::sync::mpsc::channel::<()>();
        let kept = std::sync::Arc::new(Mutex::new(Vec::new()));
        let (disk, wait) = (std::sync::Arc::clone(&kept), Mutex::new(wait));
        let sink = move |text: &[u8]| {
            // Until it is let go, which is when `free` is dropped.
            let _ = wait.lock().unwrap().recv_timeout(std::time::Duration::from_secs(10));
            *disk.lock().unwrap() = text.to_vec();
            Ok(())
        };
        let writer = Some(Writer::into("not saved".to_owned(), Box::new(sink)));
        let book = Book { writer, pages: Mutex::default() };
        let queue: Id = "drop".parse().unwrap();
        let mut levels = book.read(&queue, level(0, 10));
        for capacity in 11..20 {
            levels.configure(level(0, capacity));
            book.write(&queue, &levels);
        }
        assert_eq!(book.read(&queue, level(0, 19)), levels);
        assert!(kept.lock().unwrap().is_empty(), "nobody waited for the disk");
        drop(free);
        assert!(book.save());
        let pages: BTreeMap<String, Levels> =
            serde_json::from_slice(&kept.lock().unwrap()).unwrap();
        assert_eq!(pages["drop"], levels);
    }

    #[test]
    fn a_change_of_one_thing_leaves_the_others() {
        let (mut a, mut b) = (Levels::new(level(0, 10)), Levels::new(level(0, 10)));
        let mut store = Some(level(1, 10));
        b.configure(Level { paused: true, ..level(0, 10) });
        exchange(&mut store, &mut b);
        exchange(&mut store, &mut a);
        a.configure(level(0, 12));
        exchange(&mut store, &mut a);
        assert_eq!(store, Some(Level { paused: true, ..level(3, 12) }), "still paused");
        // At the same time on two gateways.
        a.configure(level(0, 14));
        b.configure(level(0, 10));
        exchange(&mut store, &mut a);
        exchange(&mut store, &mut b);
        exchange(&mut store, &mut b);
        exchange(&mut store, &mut a);
        assert_eq!(store, Some(level(5, 14)), "one opened the line, the other made it wider");
    }

    #[test]
    fn an_old_reply_takes_nothing_back() {
        let mut a = Levels::new(level(0, 10));
        a.configure(level(0, 20));
        assert_eq!(a.note(level(1, 10)), News::Nothing);
        assert_eq!(*a.held(), level(2, 20));
    }
}
