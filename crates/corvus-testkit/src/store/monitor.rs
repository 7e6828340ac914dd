//! What a store is asked.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Resp, StoreClient, StoreServer, wait_for};
use crate::PATIENCE;

/// Counts the commands that a store runs, by the MONITOR command, until it is dropped. What scripts
/// call is counted apart.
#[derive(Debug)]
pub struct Monitor {
    /// Asks the store for the marks; see [`Monitor::settle`].
    client: StoreClient,
    socket: TcpStream,
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
}

/// A command that a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The server's time.
    pub at: Duration,
    /// In capitals.
    pub name: String,
    /// As MONITOR prints them: bytes beyond ASCII, quotes and backslashes stay escaped.
    pub arguments: Vec<String>,
}

/// The newest commands are kept whole; of the others only the number.
const KEPT: usize = 20_000;

#[derive(Debug, Default)]
struct Seen {
    commands: BTreeMap<String, u64>,
    kept: VecDeque<Told>,
    scripted: BTreeMap<String, u64>,
    marks: u64,
    broken: Option<String>,
}

/// Nobody else echoes this.
const MARK: &str = "corvus-testkit-monitor-mark";

impl Monitor {
    /// Starts to count. What the store was asked before is not counted.
    pub fn start(store: &StoreServer) -> io::Result<Self> {
        let client = store.client()?;
        let mut monitoring = store.client()?;
        monitoring.call(&["MONITOR"])?.ok()?;
        // A store may well be silent for long.
        monitoring.set_patience(None)?;
        let socket = monitoring.socket().try_clone()?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = seen.clone();
        let thread = std::thread::Builder::new().name("monitor".to_owned()).spawn(move || {
            loop {
                let line = monitoring.read();
                let mut seen = shared.lock().unwrap_or_else(PoisonError::into_inner);
                match line {
                    Ok(Resp::Simple(line)) => seen.count(&line),
                    other => {
                        seen.broken = Some(format!("{other:?}"));
                        return;
                    }
                }
            }
        })?;
        Ok(Self { client, socket, seen, thread: Some(thread) })
    }

    /// How often each command was run for clients: all that were answered before this call. Names
    /// are in capitals; a client's `ECHO` of ours is left out, `AUTH` is never told.
    pub fn commands(&mut self) -> BTreeMap<String, u64> {
        self.settle();
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).commands.clone()
    }

    /// How often one command was run for clients.
    pub fn count(&mut self, command: &str) -> u64 {
        self.commands().get(command).copied().unwrap_or(0)
    }

    /// The newest commands of clients, whole and in order.
    pub fn told(&mut self) -> Vec<Told> {
        self.settle();
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.kept.iter().cloned().collect()
    }

    /// How often each command was run by scripts.
    pub fn scripted(&mut self) -> BTreeMap<String, u64> {
        self.settle();
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).scripted.clone()
    }

    /// Lines come in the order of the commands: when a mark of ours has come, all before it have.
    fn settle(&mut self) {
        let look = || {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            (seen.marks, seen.broken.clone())
        };
        let (before, _) = look();
        let marked = self.client.call(&["ECHO", MARK]).and_then(Resp::ok);
        marked.unwrap_or_else(|e| panic!("the monitored store does not answer: {e}"));
        wait_for("the monitor catches up", PATIENCE, || match look() {
            (_, Some(why)) => panic!("the monitor has ended: {why}"),
            (marks, None) if marks > before => Ok(()),
            (marks, None) => Err(format!("{marks} marks")),
        });
    }
}

impl Seen {
    /// A line such as `1700000000.123456 [0 127.0.0.1:4242] "get" "a"`, or `[0 lua]` of a script.
    fn count(&mut self, line: &str) {
        let Some((client, command)) = line.split_once("] \"") else { return };
        let (name, arguments) = command.split_once('"').unwrap_or((command, ""));
        if name.eq_ignore_ascii_case("echo") && arguments.contains(MARK) {
            self.marks += 1;
            return;
        }
        let name = name.to_ascii_uppercase();
        if client.ends_with(" lua") {
            *self.scripted.entry(name).or_default() += 1;
            return;
        }
        *self.commands.entry(name.clone()).or_default() += 1;
        let at = client.split(' ').next().and_then(|at| at.parse().ok()).unwrap_or_default();
        let at = Duration::try_from_secs_f64(at).unwrap_or_default();
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Told { at, name, arguments: quoted(arguments) });
    }
}

/// The strings in quotes of a line such as ` "a" "b\"c"`.
fn quoted(mut text: &str) -> Vec<String> {
    let mut found = Vec::new();
    while let Some((_, rest)) = text.split_once('"') {
        let mut escaped = false;
        let end = rest.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let (inner, after) = rest.split_at(end.unwrap_or(rest.len()));
        found.push(inner.to_owned());
        text = after.strip_prefix('"').unwrap_or_default();
    }
    found
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // The thread's read ends; if the store has closed first, it has ended already.
        let _ = self.socket.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
