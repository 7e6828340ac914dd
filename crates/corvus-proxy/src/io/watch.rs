//! Idle deadlines, cheap enough to be renewed with each read and write.
//!
//! A timer of the runtime costs a trip into its wheel each time it moves. An idle limit moves with
//! every piece of data, fires almost never, and nobody minds if it fires half a second late. So a
//! deadline is a number in a cell; once each tick the worker looks through all of them and wakes
//! those that are due.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    task::{Context, Waker},
};

/// How often deadlines are looked at, and so how late they may fire, in milliseconds.
pub(crate) const TICK_MS: u64 = 500;

/// All deadlines of one worker.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    now_ms: Cell<u64>,
    draining: Cell<bool>,
    list: RefCell<Vec<Rc<Entry>>>,
}

#[derive(Debug)]
struct Entry {
    deadline_ms: Cell<u64>,
    waker: RefCell<Option<Waker>>,
    /// Position in the list, so that leaving it is a swap.
    at: Cell<usize>,
    /// Whether draining wakes it: set while its connection waits for a next request.
    idle: Cell<bool>,
}

/// One deadline. Leaves the list when dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    watches: Rc<Watches>,
    entry: Rc<Entry>,
}

impl Watches {
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Moves the time and wakes what is due.
    pub(crate) fn tick(&self, now_ms: u64) {
        self.now_ms.set(now_ms);
        for entry in self.list.borrow().iter() {
            if entry.deadline_ms.get() <= now_ms {
                entry.wake();
            }
        }
    }

    /// No connection begins another request from now on; idle ones are told.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        for entry in self.list.borrow().iter() {
            if entry.idle.get() {
                entry.wake();
            }
        }
    }
}

impl Entry {
    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

impl Watch {
    pub(crate) fn new(watches: &Rc<Watches>) -> Self {
        let mut list = watches.list.borrow_mut();
        let entry = Rc::new(Entry {
            deadline_ms: Cell::new(u64::MAX),
            waker: RefCell::new(None),
            at: Cell::new(list.len()),
            idle: Cell::new(false),
        });
        list.push(Rc::clone(&entry));
        Self { watches: Rc::clone(watches), entry }
    }

    /// Another deadline of the same worker.
    pub(crate) fn sibling(&self) -> Self {
        Self::new(&self.watches)
    }

    /// Sets the deadline `idle_ms` from now.
    pub(crate) fn arm(&self, idle_ms: u64) {
        // The time seen here may be a tick old; the limit is a lower bound.
        let deadline = self.watches.now_ms.get().saturating_add(idle_ms).saturating_add(TICK_MS);
        self.entry.deadline_ms.set(deadline);
    }

    pub(crate) fn disarm(&self) {
        self.entry.deadline_ms.set(u64::MAX);
    }

    /// Marks the connection as waiting for a next request, so that draining ends it.
    pub(crate) fn set_idle(&self, idle: bool) {
        self.entry.idle.set(idle);
    }

    /// Whether the deadline has passed; if not, the task is woken when it does.
    pub(crate) fn poll_expired(&self, cx: &Context<'_>) -> bool {
        if self.entry.deadline_ms.get() <= self.watches.now_ms.get() {
            return true;
        }
        let mut waker = self.entry.waker.borrow_mut();
        match &mut *waker {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            slot => *slot = Some(cx.waker().clone()),
        }
        false
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut list = self.watches.list.borrow_mut();
        let at = self.entry.at.get();
        if at < list.len() {
            list.swap_remove(at);
            if let Some(moved) = list.get(at) {
                moved.at.set(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_move_and_fire() {
        let watches = Rc::new(Watches::default());
        let first = Watch::new(&watches);
        let second = Watch::new(&watches);
        first.arm(1_000);
        second.arm(5_000);
        let cx = Context::from_waker(Waker::noop());
        watches.tick(1_000);
        assert!(!first.poll_expired(&cx));
        watches.tick(1_500);
        assert!(first.poll_expired(&cx) && !second.poll_expired(&cx));
        first.arm(1_000);
        assert!(!first.poll_expired(&cx));
        drop(first);
        watches.tick(5_500);
        assert!(second.poll_expired(&cx));
        second.disarm();
        assert!(!second.poll_expired(&cx));
        drop(second);
        assert!(watches.list.borrow().is_empty());
    }
}
