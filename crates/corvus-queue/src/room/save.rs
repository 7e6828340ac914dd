//! A room's state as bytes: what changed since the last save, and the way back.
//!
//! A save is a *frame*: the variables, the sids that are gone, the records that changed. Frames
//! applied in order give the state. A frame of everything is the same thing, cut into ranges of
//! slots so that no range holds the room's lock for long; records that change meanwhile are in
//! later frames, and a record is always replaced as a whole.

use corvus_config::snapshot::QueueSettings;
use corvus_core::token::Sid;
use foldhash::HashMap;

use super::{Room, Totals, Vars, table::Session};

/// Bytes of one record.
const RECORD: usize = 64;
/// Sids forgotten between two saves; beyond it (a disk that hangs) everything is written anew.
const MAX_REMOVED: usize = 1 << 20;

/// What the next frame must say.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// One bit for each slot, set while it is in `touched`.
    marks: Vec<u64>,
    touched: Vec<u32>,
    removed: Vec<Sid>,
    /// Changes were dropped: only a save of everything is true again.
    lost: bool,
}

impl Changes {
    pub(super) fn touch(&mut self, slot: u32) {
        let (word, bit) = (slot as usize / 64, 1u64 << (slot % 64));
        if word >= self.marks.len() {
            self.marks.resize((word + 1).next_power_of_two().max(16), 0);
        }
        if self.marks[word] & bit == 0 {
            self.marks[word] |= bit;
            self.touched.push(slot);
        }
    }

    pub(super) fn remove(&mut self, sid: Sid) {
        if self.removed.len() < MAX_REMOVED {
            self.removed.push(sid);
        } else {
            self.lost = true;
        }
    }
}

/// Why saved bytes are not a room.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a saved frame does not have the form this version writes")]
pub struct LoadError;

impl Room {
    /// From now on, remembers what changes.
    pub fn track_changes(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// Whether changes were dropped since the last full save, so that only a new one helps.
    pub fn lost_changes(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| changes.lost)
    }

    /// Starts a full save: dropped changes no longer matter.
    pub fn begin_full_save(&mut self) {
        if let Some(changes) = &mut self.changes {
            changes.lost = false;
        }
    }

    /// Nothing but the time of the last pass is worth saving.
    pub fn is_idle(&self) -> bool {
        self.table.len() == 0
            && self.changes.as_ref().is_none_or(|c| c.touched.is_empty() && c.removed.is_empty())
    }

    /// Appends a frame of what changed since the last one, at most `max` records. True: there are
    /// more.
    pub fn save_changes(&mut self, max: usize, out: &mut Vec<u8>) -> bool {
        let Some(mut changes) = self.changes.take() else { return false };
        self.save_vars(out);
        put(out, changes.removed.len() as u64);
        // The removed first: who left and came again is in both lists.
        for sid in changes.removed.drain(..) {
            out.extend_from_slice(sid.as_bytes());
        }
        let rest = changes.touched.len().saturating_sub(max);
        for slot in changes.touched.drain(rest..) {
            changes.marks[slot as usize / 64] &= !(1 << (slot % 64));
            self.save_slot(slot, out);
        }
        self.changes = Some(changes);
        rest > 0
    }

    /// Appends a frame of the records in `slots`. False: there are no more slots after these.
    pub fn save_range(&self, slots: std::ops::Range<u32>, out: &mut Vec<u8>) -> bool {
        self.save_vars(out);
        put(out, 0);
        let end = slots.end.min(self.table.slots());
        for slot in slots.start..end {
            self.save_slot(slot, out);
        }
        end < self.table.slots()
    }

    fn save_slot(&self, slot: u32, out: &mut Vec<u8>) {
        let s = self.table.at(slot);
        if !s.is_empty() {
            out.extend_from_slice(s.sid.as_bytes());
            for field in [s.ticket, s.due, s.expiry, s.used, s.left, s.joined] {
                put(out, field);
            }
        }
    }

    fn save_vars(&self, out: &mut Vec<u8>) {
        let v = &self.vars;
        let (opens, starts) = self.draw.window();
        let ints = [
            v.seq,
            v.at,
            v.born,
            v.n,
            v.last_pass,
            v.gap_from,
            v.resumed_at,
            v.owed,
            v.owed_until,
            v.flushed_at,
            v.released_at,
            v.admitted,
            v.abandoned,
            v.cfg,
            opens,
            starts,
            u64::from(self.order == super::Order::Random),
            self.pace.at,
            self.totals.waits,
            self.totals.wait_sum_ms,
        ];
        put(out, (ints.len() + self.totals.wait_buckets.len() + 3) as u64);
        for int in ints.iter().chain(&self.totals.wait_buckets) {
            put(out, *int);
        }
        for float in [v.tokens, self.pace.count, self.pace.span_ms] {
            put(out, float.to_bits());
        }
    }
}

fn put(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Builds a room out of its frames.
#[derive(Debug, Default)]
pub struct Loader {
    vars: Vec<u64>,
    records: HashMap<Sid, [u64; 6]>,
}

impl Loader {
    /// Applies the next frame. After an error the loader is as before.
    pub fn apply(&mut self, frame: &[u8]) -> Result<(), LoadError> {
        let mut rest = frame;
        let count = take(&mut rest).ok_or(LoadError)?;
        if count > 1_000 {
            return Err(LoadError);
        }
        let vars: Option<Vec<u64>> = (0..count).map(|_| take(&mut rest)).collect();
        let vars = vars.ok_or(LoadError)?;
        let removed = take(&mut rest).ok_or(LoadError)?;
        let removed_len = usize::try_from(removed)
            .ok()
            .and_then(|n| n.checked_mul(16))
            .filter(|n| *n <= rest.len())
            .ok_or(LoadError)?;
        let (removed, records) = rest.split_at(removed_len);
        if records.len() % RECORD != 0 {
            return Err(LoadError);
        }
        self.vars = vars;
        for sid in removed.as_chunks::<16>().0 {
            self.records.remove(&Sid::from_bytes(*sid));
        }
        for record in records.as_chunks::<RECORD>().0 {
            let mut fields = &record[16..];
            let mut sid = [0; 16];
            sid.copy_from_slice(&record[..16]);
            let values = [(); 6].map(|()| take(&mut fields).unwrap_or(0));
            self.records.insert(Sid::from_bytes(sid), values);
        }
        Ok(())
    }

    /// The room as it was; `None` if no frame was applied. Its first pass is one after a gap.
    pub fn finish(self, settings: QueueSettings, draw_key: [u8; 16]) -> Option<Room> {
        if self.vars.is_empty() {
            return None;
        }
        let mut room = Room::new(settings, draw_key, true);
        let mut vars = self.vars.into_iter();
        let mut next = || vars.next().unwrap_or(0);
        let v = Vars {
            seq: next(),
            at: next(),
            born: next(),
            n: next(),
            last_pass: next(),
            gap_from: next(),
            resumed_at: next(),
            owed: next(),
            owed_until: next(),
            flushed_at: next(),
            released_at: next(),
            admitted: next(),
            abandoned: next(),
            cfg: next(),
            tokens: 0.0,
        };
        let (opens, starts) = (next(), next());
        if next() == 1 {
            room.order = super::Order::Random;
        } else {
            room.order = super::Order::Fifo;
        }
        room.draw.restore(opens, starts);
        room.pace.at = next();
        room.totals =
            Totals { waits: next(), wait_sum_ms: next(), wait_buckets: [(); 12].map(|()| next()) };
        room.vars = v;
        room.vars.tokens = f64::from_bits(next());
        room.pace.count = f64::from_bits(next());
        room.pace.span_ms = f64::from_bits(next());
        room.restored = room.vars.born != 0;
        // In ticket order, so that the line is built by appending.
        let mut records: Vec<_> = self.records.into_iter().collect();
        records.sort_unstable_by_key(|(sid, fields)| (fields[0], *sid));
        for (sid, [ticket, due, expiry, used, left, joined]) in records {
            let slot = room.table.find_or_insert(&sid);
            if ticket != 0 {
                room.set_ticket(slot, ticket);
            }
            room.set_due(slot, due);
            room.set_expiry(slot, expiry);
            room.set_spent(slot, used, left);
            *room.table.at_mut(slot) = Session { joined, ..*room.table.at(slot) };
            room.tidy(slot);
        }
        room.take_order();
        Some(room)
    }
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*head))
}
