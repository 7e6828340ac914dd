//! One file, written on a thread of its own: a slow disk holds up nobody who has something to write.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use super::replace;

/// How long [`Writer::finish`] waits for the disk.
const FINISH: Duration = Duration::from_secs(5);

type Sink = Box<dyn Fn(&[u8]) -> io::Result<()> + Send + Sync>;

/// The newest text wins: one that another came after, while the disk was busy, is never written.
pub(crate) struct Writer(Arc<Shared>);

struct Shared {
    sink: Sink,
    /// What to tell the operator when it fails.
    trouble: String,
    state: Mutex<State>,
    idle: Condvar,
}

#[derive(Default)]
struct State {
    /// To be written.
    next: Option<Vec<u8>>,
    /// Could not be written.
    failed: Option<Vec<u8>>,
    /// The operator knows.
    told: bool,
    /// The thread is there; it ends when nothing is left to write.
    busy: bool,
}

impl Writer {
    /// Replaces the file at `path`.
    pub(crate) fn to(path: PathBuf, trouble: &str) -> Self {
        let trouble = format!("{}: {trouble}", path.display());
        Self::into(trouble, Box::new(move |text| replace(&path, text)))
    }

    pub(crate) fn into(trouble: String, sink: Sink) -> Self {
        let (state, idle) = (Mutex::default(), Condvar::new());
        Self(Arc::new(Shared { sink, trouble, state, idle }))
    }

    /// Has `text` written soon.
    pub(crate) fn put(&self, text: Vec<u8>) {
        let mut state = self.0.lock();
        (state.next, state.failed) = (Some(text), None);
        self.0.start(&mut state);
    }

    /// Has what could not be written tried again.
    pub(crate) fn retry(&self) {
        let mut state = self.0.lock();
        if let Some(text) = state.failed.take() {
            state.next = Some(text);
            self.0.start(&mut state);
        }
    }

    /// Waits until all is written, with one more attempt at what could not be; false: it is not.
    pub(crate) fn finish(&self) -> bool {
        self.retry();
        self.wait()
    }

    fn wait(&self) -> bool {
        let waiting = self.0.idle.wait_timeout_while(self.0.lock(), FINISH, |state| state.busy);
        let (state, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        !state.busy && state.failed.is_none()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(self: &Arc<Self>, state: &mut State) {
        if state.busy {
            return;
        }
        let shared = Arc::clone(self);
        let name = "corvus-queue-files".to_owned();
        match thread::Builder::new().name(name).spawn(move || shared.run()) {
            Ok(_) => state.busy = true,
            Err(error) => {
                state.failed = state.next.take();
                self.tell(state, &error);
            }
        }
    }

    fn run(&self) {
        loop {
            let text = {
                let mut state = self.lock();
                let Some(text) = state.next.take() else {
                    state.busy = false;
                    self.idle.notify_all();
                    return;
                };
                text
            };
            let written = (self.sink)(&text);
            let mut state = self.lock();
            match written {
                Ok(()) => state.told = false,
                Err(error) => {
                    if state.next.is_none() {
                        state.failed = Some(text);
                    }
                    self.tell(&mut state, &error);
                }
            }
        }
    }

    fn tell(&self, state: &mut State, error: &io::Error) {
        if !std::mem::replace(&mut state.told, true) {
            tracing::warn!(%error, "{}", self.trouble);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A disk that is told when to have done, and how; and what it was given.
    fn disk() -> (Writer, mpsc::Sender<bool>, mpsc::Receiver<Vec<u8>>) {
        let (done, wait) = mpsc::channel();
        let (given, texts) = mpsc::channel();
        let (wait, given) = (Mutex::new(wait), Mutex::new(given));
        let sink = move |text: &[u8]| {
            given.lock().unwrap().send(text.to_vec()).unwrap();
            let good = wait.lock().unwrap().recv_timeout(Duration::from_secs(10)).unwrap();
            if good { Ok(()) } else { Err(io::Error::other("full")) }
        };
        (Writer::into("not saved".to_owned(), Box::new(sink)), done, texts)
    }

    #[test]
    fn a_busy_disk_holds_nobody_up_and_the_newest_text_wins() {
        let (writer, done, texts) = disk();
        writer.put(vec![1]);
        // The disk has the first; these would wait for it for ever if `put` did.
        assert_eq!(texts.recv().unwrap(), [1]);
        writer.put(vec![2]);
        writer.put(vec![3]);
        done.send(true).unwrap();
        done.send(true).unwrap();
        assert!(writer.finish());
        assert_eq!(texts.try_iter().collect::<Vec<_>>(), [[3]]);
        writer.put(vec![4]);
        done.send(true).unwrap();
        assert!(writer.finish(), "by another thread");
        assert_eq!(texts.try_iter().collect::<Vec<_>>(), [[4]]);
    }

    #[test]
    fn what_could_not_be_written_is_tried_again_unless_there_is_newer() {
        let (writer, done, texts) = disk();
        writer.put(vec![1]);
        done.send(false).unwrap();
        assert!(!writer.wait());
        done.send(true).unwrap();
        assert!(writer.finish());
        assert_eq!(texts.try_iter().collect::<Vec<_>>(), [[1], [1]]);

        writer.put(vec![2]);
        assert_eq!(texts.recv().unwrap(), [2]);
        writer.put(vec![3]);
        done.send(false).unwrap();
        done.send(true).unwrap();
        assert!(writer.wait());
        assert!(writer.finish(), "nothing is left");
        assert_eq!(texts.try_iter().collect::<Vec<_>>(), [[3]]);
    }
}
