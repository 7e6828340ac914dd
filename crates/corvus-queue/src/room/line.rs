//! The waiting line: an ordered set of (ticket, sid) with ranks.
//!
//! A list of sorted chunks, with a Fenwick tree over their lengths: insert, remove and rank take
//! O(log n) comparisons and one short move within a chunk. Tickets mostly grow, so the common
//! insert is an append, which leaves full chunks behind; places that return after a wipe insert in
//! the middle. 12 bytes for each waiter.

use corvus_core::token::Sid;

const CHUNK: usize = 512;

#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    chunks: Vec<Chunk>,
    /// First ticket of each chunk: the search stays in one cache-friendly array.
    firsts: Vec<u64>,
    /// Fenwick tree of chunk lengths.
    counts: Vec<u32>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Chunk {
    tickets: Vec<u64>,
    slots: Vec<u32>,
}

impl Chunk {
    fn new() -> Self {
        Self { tickets: Vec::with_capacity(CHUNK + 1), slots: Vec::with_capacity(CHUNK + 1) }
    }

    fn len(&self) -> usize {
        self.slots.len()
    }
}

/// Number of leading positions of `0..n` for which `pred` holds; it must hold for a prefix.
fn prefix_len(n: usize, pred: impl Fn(usize) -> bool) -> usize {
    let (mut lo, mut hi) = (0, n);
    while lo < hi {
        let mid = lo.midpoint(hi);
        if pred(mid) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    lo
}

impl Line {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Slot of the lowest ticket.
    pub(super) fn first(&self) -> Option<u32> {
        self.chunks.first().and_then(|chunk| chunk.slots.first().copied())
    }

    pub(super) fn last_ticket(&self) -> Option<u64> {
        self.chunks.last().and_then(|chunk| chunk.tickets.last().copied())
    }

    #[cfg(test)]
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        self.chunks.iter().flat_map(|chunk| chunk.slots.iter().copied())
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Adds a waiter that is not in the line. `sid_of` breaks ties between equal tickets (only
    /// draws have them), so that the order does not depend on history.
    pub(super) fn insert(&mut self, ticket: u64, slot: u32, sid_of: impl Fn(u32) -> Sid) {
        self.len += 1;
        if self.chunks.is_empty() {
            self.chunks.push(Chunk::new());
            self.firsts.push(ticket);
            self.chunks[0].tickets.push(ticket);
            self.chunks[0].slots.push(slot);
            self.recount();
            return;
        }
        let (c, at) = self.position(ticket, &sid_of(slot), &sid_of);
        let last_chunk = c + 1 == self.chunks.len();
        let chunk = &mut self.chunks[c];
        if chunk.len() < CHUNK {
            chunk.tickets.insert(at, ticket);
            chunk.slots.insert(at, slot);
            self.firsts[c] = chunk.tickets[0];
            self.count(c, 1);
            return;
        }
        let mut next = Chunk::new();
        if last_chunk && at == chunk.len() {
            next.tickets.push(ticket);
            next.slots.push(slot);
        } else {
            next.tickets.extend(chunk.tickets.drain(CHUNK / 2..));
            next.slots.extend(chunk.slots.drain(CHUNK / 2..));
            let (target, at) =
                if at <= CHUNK / 2 { (chunk, at) } else { (&mut next, at - CHUNK / 2) };
            target.tickets.insert(at, ticket);
            target.slots.insert(at, slot);
        }
        self.firsts[c] = self.chunks[c].tickets[0];
        self.firsts.insert(c + 1, next.tickets[0]);
        self.chunks.insert(c + 1, next);
        self.recount();
    }

    /// Takes a waiter that is in the line out of it.
    pub(super) fn remove(&mut self, ticket: u64, slot: u32, sid_of: impl Fn(u32) -> Sid) {
        let Some((c, at)) = self.find(ticket, slot, sid_of) else {
            debug_assert!(false, "slot {slot} is not in the line");
            return;
        };
        self.len -= 1;
        let chunk = &mut self.chunks[c];
        chunk.tickets.remove(at);
        chunk.slots.remove(at);
        if chunk.len() == 0 {
            self.chunks.remove(c);
            self.firsts.remove(c);
            self.recount();
            return;
        }
        self.firsts[c] = chunk.tickets[0];
        let small = chunk.len() < CHUNK / 8;
        if small && c + 1 < self.chunks.len() && self.chunks[c + 1].len() < CHUNK / 2 {
            let next = self.chunks.remove(c + 1);
            self.firsts.remove(c + 1);
            self.chunks[c].tickets.extend(next.tickets);
            self.chunks[c].slots.extend(next.slots);
            self.recount();
        } else {
            self.count(c, -1);
        }
    }

    /// Position from the head; 1 is next.
    pub(super) fn rank(&self, ticket: u64, slot: u32, sid_of: impl Fn(u32) -> Sid) -> Option<u64> {
        let (c, at) = self.find(ticket, slot, sid_of)?;
        let mut before = at as u64 + 1;
        let mut i = c;
        while i > 0 {
            before += u64::from(self.counts[i]);
            i &= i - 1;
        }
        Some(before)
    }

    fn find(&self, ticket: u64, slot: u32, sid_of: impl Fn(u32) -> Sid) -> Option<(usize, usize)> {
        if self.chunks.is_empty() {
            return None;
        }
        let (c, at) = self.position(ticket, &sid_of(slot), &sid_of);
        (self.chunks[c].slots.get(at) == Some(&slot)).then_some((c, at))
    }

    /// Chunk, and place in it, where (ticket, sid) is or belongs.
    fn position(&self, ticket: u64, sid: &Sid, sid_of: &impl Fn(u32) -> Sid) -> (usize, usize) {
        let at_or_before = |c: usize| match self.firsts[c].cmp(&ticket) {
            std::cmp::Ordering::Equal => sid_of(self.chunks[c].slots[0]) <= *sid,
            order => order.is_lt(),
        };
        let c = prefix_len(self.chunks.len(), at_or_before).saturating_sub(1);
        let chunk = &self.chunks[c];
        let before = |i: usize| match chunk.tickets[i].cmp(&ticket) {
            std::cmp::Ordering::Equal => sid_of(chunk.slots[i]) < *sid,
            order => order.is_lt(),
        };
        (c, prefix_len(chunk.len(), before))
    }

    fn count(&mut self, chunk: usize, change: i32) {
        let mut i = chunk + 1;
        while i < self.counts.len() {
            self.counts[i] = self.counts[i].wrapping_add_signed(change);
            i += i & i.wrapping_neg();
        }
    }

    /// Builds the Fenwick tree anew after chunks came or went: once in hundreds of inserts.
    fn recount(&mut self) {
        let n = self.chunks.len();
        self.counts.clear();
        self.counts.resize(n + 1, 0);
        for i in 1..=n {
            self.counts[i] += self.chunks[i - 1].len() as u32;
            let parent = i + (i & i.wrapping_neg());
            if parent <= n {
                self.counts[parent] += self.counts[i];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sid(slot: u32) -> Sid {
        // Reversed, so that ties do not come in insertion order.
        Sid::from_bytes((u128::MAX - u128::from(slot)).to_be_bytes())
    }

    fn check(ops: &[(bool, u64)]) -> Result<(), TestCaseError> {
        let mut line = Line::default();
        let mut sorted: Vec<(u64, Sid, u32)> = Vec::new();
        for (slot, (insert, value)) in (0u32..).zip(ops) {
            if *insert || sorted.is_empty() {
                line.insert(*value, slot, sid);
                let at = sorted.partition_point(|(t, s, _)| (*t, *s) < (*value, sid(slot)));
                sorted.insert(at, (*value, sid(slot), slot));
            } else {
                let (ticket, _, slot) = sorted.remove(*value as usize % sorted.len());
                line.remove(ticket, slot, sid);
            }
            prop_assert_eq!(line.len(), sorted.len());
        }
        prop_assert_eq!(
            line.slots().collect::<Vec<_>>(),
            sorted.iter().map(|e| e.2).collect::<Vec<_>>()
        );
        for (i, (ticket, _, slot)) in sorted.iter().enumerate() {
            prop_assert_eq!(line.rank(*ticket, *slot, sid), Some(i as u64 + 1));
        }
        prop_assert_eq!(line.first(), sorted.first().map(|e| e.2));
        prop_assert_eq!(line.last_ticket(), sorted.last().map(|e| e.0));
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// Few distinct tickets make many ties; many operations make and merge chunks.
        #[test]
        fn agrees_with_a_sorted_list(
            ops in prop::collection::vec((prop::bool::weighted(0.7), 0u64..3_000), 0..6_000),
        ) {
            check(&ops)?;
        }
    }

    #[test]
    fn appends_leave_full_chunks() {
        let mut line = Line::default();
        for slot in 0..10_000 {
            line.insert(u64::from(slot) + 1, slot, sid);
        }
        assert_eq!(line.chunks.len(), 10_000_usize.div_ceil(CHUNK));
        for slot in 0..10_000 {
            assert_eq!(line.first(), Some(slot));
            line.remove(u64::from(slot) + 1, slot, sid);
        }
        assert_eq!((line.len(), line.chunks.len()), (0, 0));
    }
}
