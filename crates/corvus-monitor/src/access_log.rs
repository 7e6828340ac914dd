//! The access log: one line of JSON for each request, written by a thread of its own.
//!
//! A worker appends its line to a buffer of its own; the writer takes whole buffers and writes them
//! in one call. The request path never waits: each worker has two buffers, the writer holds one of
//! them at most and only to swap it, so one is always free. A buffer that is full (the disk or the
//! reader of our output is too slow) takes no more lines, and those are counted as dropped.

mod line;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    cell::RefCell,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, TryLockError},
};

use corvus_core::Event;

pub(crate) use self::writer::Writer;
use self::{
    line::{SecondText, push_line},
    writer::Shared,
};
use crate::counters::Counter;

/// Where the access log goes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum AccessLog {
    #[default]
    Off,
    Stdout,
    /// Appended to; made if missing, readable by owner and group only.
    File(PathBuf),
}

/// Why the access log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum AccessLogError {
    #[error("the access log `{path}` cannot be opened")]
    Open { path: PathBuf, source: io::Error },
    #[error("the thread that writes the access log cannot be started")]
    Thread(#[source] io::Error),
}

/// A buffer above this takes no more lines: about two thousand of them.
const FULL_BYTES: usize = 512 << 10;
/// At this size the writer is woken early.
const WAKE_BYTES: usize = 64 << 10;

/// The buffers of one worker, and what they could not take.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Buffers {
    slots: [Mutex<Batch>; 2],
    dropped: Counter,
}

/// Whole lines, and how many.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    lines: u64,
}

/// A worker's end of the log.
#[derive(Debug)]
pub(crate) struct LogHandle {
    buffers: Arc<Buffers>,
    shared: Arc<Shared>,
    second: RefCell<SecondText>,
}

impl LogHandle {
    pub(crate) fn push(&self, event: &Event<'_>) {
        for slot in &self.buffers.slots {
            let mut batch = match slot.try_lock() {
                Ok(batch) => batch,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            let before = batch.bytes.len();
            if before >= FULL_BYTES {
                break;
            }
            push_line(&mut batch.bytes, event, &mut self.second.borrow_mut());
            batch.lines += 1;
            let after = batch.bytes.len();
            drop(batch);
            if before < WAKE_BYTES && after >= WAKE_BYTES {
                self.shared.wake();
            }
            return;
        }
        self.buffers.dropped.add(1);
    }
}
