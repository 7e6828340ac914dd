//! A child process that cannot outlive its test.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use rustix::process::Signal;

/// The newest lines are kept, so that a chatty child does not fill the memory.
const KEPT_LINES: usize = 10_000;

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<String>,
    /// Readers (stdout, stderr) that have reached the end.
    ended: usize,
    status: Option<ExitStatus>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

/// How a wait for the end of a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitWait {
    Exited(ExitStatus),
    StillRunning,
}

/// A running program, killed on drop. Its stdout and stderr are read line by line.
///
/// The waits block the thread: the servers of this crate go on meanwhile, tasks of a current-thread
/// test do not.
#[derive(Debug)]
pub struct Child {
    pid: rustix::process::Pid,
    shared: Arc<Shared>,
}

impl Child {
    /// Starts a program without stdin.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| {
            io::Error::new(e.kind(), format!("{}: {e}", command.get_program().display()))
        })?;
        let pid = rustix::process::Pid::from_child(&child);
        let shared = Arc::new(Shared::default());
        if let Some(out) = child.stdout.take() {
            read_lines(out, shared.clone());
        }
        if let Some(err) = child.stderr.take() {
            read_lines(err, shared.clone());
        }
        let reaper = shared.clone();
        std::thread::spawn(move || {
            if let Ok(status) = child.wait() {
                reaper.update(|state| state.status = Some(status));
            }
        });
        Ok(Self { pid, shared })
    }

    pub fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// The lines so far, stdout and stderr mixed as they came.
    pub fn lines(&self) -> Vec<String> {
        self.shared.lock().lines.iter().cloned().collect()
    }

    /// Waits for a line that contains `text`, also among those that came already.
    pub fn wait_for_line(&self, text: &str, timeout: Duration) -> io::Result<String> {
        let find = |state: &State| state.lines.iter().find(|l| l.contains(text)).cloned();
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(self.shared.lock(), timeout, |state| {
                find(state).is_none() && state.ended < 2
            })
            .unwrap_or_else(PoisonError::into_inner);
        find(&state).ok_or_else(|| {
            let tail: Vec<_> = state.lines.iter().rev().take(20).rev().cloned().collect();
            let text = format!("no line with {text:?}; the last were:\n{}", tail.join("\n"));
            io::Error::new(io::ErrorKind::TimedOut, text)
        })
    }

    /// Waits for the end of the program.
    pub fn wait(&self, timeout: Duration) -> ExitWait {
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(self.shared.lock(), timeout, |state| state.status.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        state.status.map_or(ExitWait::StillRunning, ExitWait::Exited)
    }

    /// Sends a signal; nothing once the program has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        // Under the lock: the reaper cannot report the end, and the pid is not given to another
        // process, between this look and the signal, except in the instant of `wait` itself.
        let state = self.shared.lock();
        if state.status.is_some() {
            return Ok(());
        }
        match rustix::process::kill_process(self.pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// `kill -9`, and waits for the end.
    pub fn kill(&self) -> io::Result<()> {
        self.signal(Signal::KILL)?;
        match self.wait(crate::PATIENCE) {
            ExitWait::Exited(_) => Ok(()),
            ExitWait::StillRunning => Err(io::Error::other("still running after SIGKILL")),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Nothing to do about a failure here, and a panic in drop would hide the test's own.
        let _ = self.kill();
    }
}

fn read_lines(from: impl Read + Send + 'static, shared: Arc<Shared>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n') {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            shared.update(|state| {
                if state.lines.len() == KEPT_LINES {
                    state.lines.pop_front();
                }
                state.lines.push_back(line);
            });
        }
        shared.update(|state| state.ended += 1);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Child::spawn(command).unwrap()
    }

    #[test]
    fn finds_lines_and_ends_with_its_value() {
        let child = shell("echo one; echo two >&2; exec sleep 600");
        let patience = Duration::from_secs(10);
        assert_eq!(child.wait_for_line("wo", patience).unwrap(), "two");
        assert_eq!(child.wait_for_line("one", patience).unwrap(), "one");
        assert_eq!(child.wait(Duration::from_millis(1)), ExitWait::StillRunning);
        let shared = child.shared.clone();
        drop(child);
        assert!(shared.lock().status.is_some());
    }

    #[test]
    fn says_what_was_printed_when_a_line_does_not_come() {
        let child = shell("echo unlucky; exit 3");
        let error = child.wait_for_line("ready", Duration::from_secs(10)).unwrap_err();
        assert!(error.to_string().contains("unlucky"), "{error}");
        let ExitWait::Exited(status) = child.wait(Duration::from_secs(10)) else {
            panic!("still running")
        };
        assert_eq!(status.code(), Some(3));
    }
}
