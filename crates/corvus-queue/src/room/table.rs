//! Everything a room knows of single visitors: one record of one cache line for each sid, in a
//! slab, found through a hash table of slot numbers. At a million waiting: 64 bytes of record,
//! about 10 of hash table, 12 of [`super::line::Line`], 16 of deadlines.

use corvus_core::token::Sid;
use hashbrown::HashTable;

/// The record of one sid. 0 means "not there" in every field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Session {
    pub(super) sid: Sid,
    /// In `queue`, with this ticket.
    pub(super) ticket: u64,
    /// In `seen`, due at this time.
    pub(super) due: u64,
    /// In `active`, until this time.
    pub(super) expiry: u64,
    /// `u:sid`: its place was used then.
    pub(super) used: u64,
    /// `l:sid`: it left then.
    pub(super) left: u64,
    /// When it took the ticket; for the wait-time figures only.
    pub(super) joined: u64,
}

impl Session {
    const fn new(sid: Sid) -> Self {
        Self { sid, ticket: 0, due: 0, expiry: 0, used: 0, left: 0, joined: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.ticket | self.due | self.expiry | self.used | self.left == 0
    }

    /// Promoted, not yet claimed.
    pub(super) const fn granted(&self) -> bool {
        self.expiry != 0 && self.due != 0
    }

    /// The older of the two `spent` entries; 0: none.
    pub(super) const fn spent(&self) -> u64 {
        match (self.used, self.left) {
            (0, t) | (t, 0) => t,
            (u, l) if u < l => u,
            (_, l) => l,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    sessions: Vec<Session>,
    /// Slots of the sessions that exist.
    by_sid: HashTable<u32>,
    free: Vec<u32>,
}

/// Sids are random bits that we draw and sign ourselves, so their own bits are the hash.
fn hash(sid: &Sid) -> u64 {
    sid.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Table {
    pub(super) fn find(&self, sid: &Sid) -> Option<u32> {
        self.by_sid.find(hash(sid), |slot| self.at(*slot).sid == *sid).copied()
    }

    /// The slot of `sid`, made if there is none. An empty one must be given back.
    pub(super) fn find_or_insert(&mut self, sid: &Sid) -> u32 {
        if let Some(slot) = self.find(sid) {
            return slot;
        }
        let session = Session::new(*sid);
        let slot = if let Some(slot) = self.free.pop() {
            self.sessions[slot as usize] = session;
            slot
        } else {
            self.sessions.push(session);
            (self.sessions.len() - 1) as u32
        };
        let Self { sessions, by_sid, .. } = self;
        by_sid.insert_unique(hash(sid), slot, |slot| hash(&sessions[*slot as usize].sid));
        slot
    }

    /// Frees the slot of a session that has become empty.
    pub(super) fn release(&mut self, slot: u32) {
        let sid = self.at(slot).sid;
        if let Ok(entry) = self.by_sid.find_entry(hash(&sid), |s| *s == slot) {
            entry.remove();
            self.free.push(slot);
        }
    }

    pub(super) fn at(&self, slot: u32) -> &Session {
        &self.sessions[slot as usize]
    }

    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Session {
        &mut self.sessions[slot as usize]
    }

    pub(super) fn sid(&self, slot: u32) -> Sid {
        self.at(slot).sid
    }

    /// Sessions that exist.
    pub(super) fn len(&self) -> usize {
        self.by_sid.len()
    }

    /// Slots ever used; some may be free.
    pub(super) fn slots(&self) -> u32 {
        self.sessions.len() as u32
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Session)> {
        (0..).zip(&self.sessions).filter(|(_, session)| !session.is_empty())
    }
}
