//! Times by which something lapses, earliest first, kept lazily.
//!
//! A check-in moves a visitor's time later many times before it matters once. So a later time is
//! not filed: the filed one is looked at when it comes up, and filed again if the true time moved.
//! Only an earlier time is filed anew. For every slot with a time there is always an entry that is
//! not later than it, which makes the order exact.

use std::{cmp::Reverse, collections::BinaryHeap};

#[derive(Clone, Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Deadlines {
    /// Notes that the time of `slot` went from `old` to `new` (0: none). `live`: how many slots
    /// have a time; `time_of` tells a slot's true time, when leftovers are cleared out.
    pub(super) fn set(
        &mut self,
        slot: u32,
        old: u64,
        new: u64,
        live: usize,
        time_of: impl Fn(u32) -> u64,
    ) {
        if new == 0 || (old != 0 && old <= new) {
            return;
        }
        if self.heap.len() > 2 * live + 64 {
            self.compact(time_of);
        }
        self.heap.push(Reverse((new, slot)));
    }

    /// The earliest slot whose true time is at or before `until`. The caller then clears that time
    /// or sets another; until then it comes up again.
    pub(super) fn due(&mut self, until: u64, time_of: impl Fn(u32) -> u64) -> Option<u32> {
        while let Some(mut top) = self.heap.peek_mut() {
            let Reverse((filed, slot)) = *top;
            if filed > until {
                return None;
            }
            match time_of(slot) {
                0 => {
                    std::collections::binary_heap::PeekMut::pop(top);
                }
                time if time > filed => *top = Reverse((time, slot)),
                _ => return Some(slot),
            }
        }
        None
    }

    /// Leaves one entry for each slot that has a time. Slots are reused, so without this a visitor
    /// who leaves and rejoins for ever would grow the heap.
    fn compact(&mut self, time_of: impl Fn(u32) -> u64) {
        let mut slots: Vec<u32> = self.heap.drain().map(|Reverse((_, slot))| slot).collect();
        slots.sort_unstable();
        slots.dedup();
        self.heap = slots
            .into_iter()
            .map(|slot| (time_of(slot), slot))
            .filter(|(time, _)| *time != 0)
            .map(Reverse)
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_times_are_found_when_they_come() {
        let mut times = [0u64; 3];
        let mut deadlines = Deadlines::default();
        let set = |deadlines: &mut Deadlines, times: &mut [u64; 3], slot: usize, new| {
            let old = std::mem::replace(&mut times[slot], new);
            let live = times.iter().filter(|t| **t != 0).count();
            deadlines.set(slot as u32, old, new, live, |s| times[s as usize]);
        };
        set(&mut deadlines, &mut times, 0, 10);
        set(&mut deadlines, &mut times, 1, 20);
        set(&mut deadlines, &mut times, 0, 30);
        assert_eq!(deadlines.due(9, |s| times[s as usize]), None);
        assert_eq!(deadlines.due(25, |s| times[s as usize]), Some(1));
        set(&mut deadlines, &mut times, 1, 0);
        assert_eq!(deadlines.due(25, |s| times[s as usize]), None);
        set(&mut deadlines, &mut times, 0, 5);
        assert_eq!(deadlines.due(25, |s| times[s as usize]), Some(0));
    }

    #[test]
    fn leaving_and_rejoining_does_not_grow_it() {
        let mut deadlines = Deadlines::default();
        for round in 1..10_000 {
            deadlines.set(0, 0, round, 1, |_| round);
            assert!(deadlines.heap.len() <= 2 + 65);
        }
        assert_eq!(deadlines.due(u64::MAX, |_| 9_999), Some(0));
    }
}
