//! The thread that empties the workers' buffers.

use std::{
    cell::RefCell,
    fs::{File, OpenOptions},
    io::{self, Write},
    mem,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, Thread},
    time::Duration,
};

use super::{AccessLog, AccessLogError, Batch, Buffers, LogHandle};

/// The longest a line waits in a buffer.
const PERIOD: Duration = Duration::from_millis(200);
/// The longest the end of the process waits for somebody to read our output.
const CLOSE_WAIT: Duration = Duration::from_secs(3);

/// What the writer thread shares with everybody else.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Locked by the writer and when a worker is made, never on the request path.
    workers: Mutex<Vec<Arc<Buffers>>>,
    thread: OnceLock<Thread>,
    reopen: AtomicBool,
    stop: AtomicBool,
    written: AtomicU64,
    /// Lines that were handed over and could not be written.
    lost: AtomicU64,
}

impl Shared {
    /// Costs a system call only when the writer sleeps.
    pub(super) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// The running log. Dropping it writes out what is buffered.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    /// Ends when the thread does.
    done: Mutex<Receiver<()>>,
}

impl Writer {
    pub(crate) fn start(log: &AccessLog) -> Result<Option<Self>, AccessLogError> {
        let sink = match log {
            AccessLog::Off => return Ok(None),
            AccessLog::Stdout => Sink::Stdout,
            AccessLog::File(path) => {
                let opened = open(path);
                let failed = |source| AccessLogError::Open { path: path.clone(), source };
                Sink::File { file: opened.map_err(failed)?, path: path.clone() }
            }
        };
        let shared = Arc::new(Shared::default());
        let (alive, done) = sync_channel(0);
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || run(&of_thread, sink, alive))
            .map_err(AccessLogError::Thread)?;
        shared.thread.get_or_init(|| thread.thread().clone());
        Ok(Some(Self { shared, done: Mutex::new(done) }))
    }

    pub(crate) fn handle(&self) -> LogHandle {
        let buffers = Arc::new(Buffers::default());
        let workers = &self.shared.workers;
        workers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&buffers));
        LogHandle { buffers, shared: Arc::clone(&self.shared), second: RefCell::default() }
    }

    pub(crate) fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
        self.shared.wake();
    }

    pub(crate) fn close(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake();
        // Either it ends, and the channel with it, or it hangs in a write.
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if done.recv_timeout(CLOSE_WAIT) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the access log is not read; its last lines are lost");
        }
    }

    /// Lines written, and lines dropped or lost.
    pub(crate) fn lines(&self) -> (u64, u64) {
        let workers = self.shared.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped: u64 = workers.iter().map(|buffers| buffers.dropped.get()).sum();
        let lost = self.shared.lost.load(Ordering::Relaxed);
        (self.shared.written.load(Ordering::Relaxed), dropped + lost)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

fn run(shared: &Shared, sink: Sink, _alive: SyncSender<()>) {
    let mut output = Output { sink, broken: false };
    let mut batch = Batch::default();
    loop {
        // Read before the buffers are emptied, so that nothing logged before the stop is missed.
        let stop = shared.stop.load(Ordering::Acquire);
        if shared.reopen.swap(false, Ordering::AcqRel) {
            output.reopen();
        }
        let workers = shared.workers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for slot in workers.iter().flat_map(|buffers| &buffers.slots) {
            batch.bytes.clear();
            batch.lines = 0;
            mem::swap(&mut batch, &mut *slot.lock().unwrap_or_else(PoisonError::into_inner));
            if batch.lines == 0 {
                continue;
            }
            let counter = if output.write(&batch.bytes) { &shared.written } else { &shared.lost };
            counter.fetch_add(batch.lines, Ordering::Relaxed);
        }
        if stop {
            return;
        }
        thread::park_timeout(PERIOD);
    }
}

enum Sink {
    Stdout,
    File { file: File, path: PathBuf },
}

struct Output {
    sink: Sink,
    /// The last write failed, perhaps in the middle of a line.
    broken: bool,
}

impl Output {
    fn write(&mut self, batch: &[u8]) -> bool {
        let mut write = |bytes: &[u8]| match &mut self.sink {
            Sink::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }
            Sink::File { file, .. } => file.write_all(bytes),
        };
        let result =
            if self.broken { write(b"\n").and_then(|()| write(batch)) } else { write(batch) };
        match &result {
            // Once, not for every batch: the log of failures must not become the next full disk.
            Err(error) if !self.broken => {
                tracing::warn!(%error, "the access log cannot be written");
            }
            Ok(()) if self.broken => tracing::info!("the access log is written again"),
            _ => {}
        }
        self.broken = result.is_err();
        result.is_ok()
    }

    fn reopen(&mut self) {
        if let Sink::File { file, path } = &mut self.sink {
            match open(path) {
                Ok(new) => {
                    *file = new;
                    self.broken = false;
                }
                Err(error) => tracing::warn!(
                    %error,
                    path = %path.display(),
                    "the access log cannot be opened again; writing to the old file"
                ),
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_moved_file_is_left_when_told_to() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
        let sink = Sink::File { file: open(&path).unwrap(), path: path.clone() };
        let mut output = Output { sink, broken: false };
        assert!(output.write(b"1\n"));
        fs::rename(&path, &moved).unwrap();
        assert!(output.write(b"2\n"));
        output.reopen();
        assert!(output.write(b"3\n"));
        assert_eq!(fs::read(&moved).unwrap(), b"1\n2\n");
        assert_eq!(fs::read(&path).unwrap(), b"3\n");
    }

    #[test]
    fn a_half_written_line_is_ended_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let sink = Sink::File { file: open(&path).unwrap(), path: path.clone() };
        let mut output = Output { sink, broken: true };
        assert!(output.write(b"{}\n"));
        assert!(output.write(b"{}\n"));
        assert_eq!(fs::read(&path).unwrap(), b"\n{}\n{}\n");
    }
}
