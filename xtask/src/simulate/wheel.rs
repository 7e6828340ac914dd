//! What each visitor does next, and when: a calendar with one slot for each millisecond of the run.
//!
//! A visitor has one next event at most, so a slot is a list threaded through one array: four bytes
//! for each visitor, four for each millisecond, and nothing is allocated while it turns.

/// No visitor.
const NONE: u32 = u32::MAX;

pub(super) struct Wheel {
    /// First visitor of each millisecond.
    heads: Vec<u32>,
    /// The one after each visitor in its slot.
    nexts: Vec<u32>,
}

impl Wheel {
    pub(super) fn new(length_ms: u32, visitors: u32) -> Self {
        Self { heads: vec![NONE; length_ms as usize], nexts: vec![NONE; visitors as usize] }
    }

    /// Files a visitor that is not filed. What lies beyond the end of the run never happens.
    pub(super) fn file(&mut self, at_ms: u32, visitor: u32) {
        if let Some(head) = self.heads.get_mut(at_ms as usize) {
            self.nexts[visitor as usize] = std::mem::replace(head, visitor);
        }
    }

    /// Takes one visitor out of the slot of `at_ms`.
    pub(super) fn take(&mut self, at_ms: u32) -> Option<u32> {
        let head = self.heads.get_mut(at_ms as usize)?;
        let visitor = *head;
        *head = *self.nexts.get(visitor as usize)?;
        Some(visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_visitor_comes_up_once_in_its_millisecond() {
        let mut wheel = Wheel::new(10, 4);
        for (at, visitor) in [(3, 0), (3, 1), (9, 2), (10, 3)] {
            wheel.file(at, visitor);
        }
        let mut seen = Vec::new();
        for at in 0..20 {
            while let Some(visitor) = wheel.take(at) {
                seen.push((at, visitor));
                if (at, visitor) == (3, 1) {
                    wheel.file(4, 1);
                }
            }
        }
        assert_eq!(seen, [(3, 1), (3, 0), (4, 1), (9, 2)]);
    }
}
