//! The connection to the store: one that all requests share, opened when the first one needs it and
//! given up when it proves bad.
//!
//! A connection that fails, stays silent for too long, or leads to a server that is no master (any
//! more) is dropped, and the next request opens another: names are resolved again, sentinels asked
//! again. However many requests wait, one attempt is under way. A Cluster's is never dropped, as its
//! other masters may be well: see `replace`.

mod connect;
mod error;
mod inspect;
mod replace;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::Value;
use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};

use self::{
    connect::{Conn, Target},
    error::{Fault, scrub},
};
use super::address::Address;

pub use self::connect::LinkSetupError;

/// What one request may take in all, connecting included.
pub(crate) const DEADLINE: Duration = Duration::from_millis(500);
/// An attempt to connect may go on for longer than the request that began it: a store that needs a
/// second to be reached is then there for a later request.
const CONNECT: Duration = Duration::from_secs(2);

/// Why a request has no answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LinkError {
    /// No connection, no answer in time, or a server that cannot serve just now.
    #[error("{0}")]
    Unreachable(String),
    /// The server has no memory left; it did nothing.
    #[error("the store has no memory left")]
    Full,
    /// The server does not want this request or this user; another connection would not help.
    #[error("the store refused: {0}")]
    Refused(String),
}

/// A Lua script and the name under which a server remembers it.
#[derive(Clone, Debug)]
pub struct Script {
    source: String,
    sha: String,
}

impl Script {
    pub fn new(source: String) -> Self {
        let sha = sha1_smol::Sha1::from(&source).digest().to_string();
        Self { source, sha }
    }

    fn evaluation(&self, by_sha: bool, keys: &[&str], args: &[Vec<u8>]) -> redis::Cmd {
        let mut cmd = redis::cmd(if by_sha { "EVALSHA" } else { "EVAL" });
        cmd.arg(if by_sha { &self.sha } else { &self.source });
        cmd.arg(keys.len()).arg(keys).arg(args);
        cmd
    }
}

/// The one connection to a store; clones share it. To be used in one runtime.
#[derive(Clone)]
pub struct Link(Arc<Shared>);

struct Shared {
    target: Target,
    state: Mutex<State>,
    /// Held while a Cluster's client may be replaced.
    replacing: Arc<tokio::sync::Mutex<()>>,
    /// Attempts so far.
    attempts: AtomicU64,
    /// One of them led to a server.
    met: AtomicBool,
}

#[derive(Default)]
enum State {
    #[default]
    Idle,
    /// The channel brings the outcome.
    Opening(watch::Receiver<Option<Result<Open, LinkError>>>),
    Open(Open),
}

/// A connection in use.
#[derive(Clone)]
struct Open {
    /// The number of the attempt that made it.
    id: u64,
    since: Instant,
    conn: Conn,
}

impl Link {
    /// Reads the file with the authorities, if `address` names one. Connects later.
    pub fn new(address: Address) -> Result<Self, LinkSetupError> {
        Ok(Self(Arc::new(Shared {
            target: Target::new(address)?,
            state: Mutex::default(),
            replacing: Arc::default(),
            attempts: AtomicU64::new(0),
            met: AtomicBool::new(false),
        })))
    }

    /// Runs `script` on the server that owns the first key's slot; loads it there if it has to.
    pub async fn run(
        &self,
        script: &Script,
        keys: &[&str],
        args: &[Vec<u8>],
    ) -> Result<Value, LinkError> {
        self.run_by(Instant::now() + DEADLINE, script, keys, args).await
    }

    /// As [`Self::run`], to be done by `deadline`.
    pub(crate) async fn run_by(
        &self,
        deadline: Instant,
        script: &Script,
        keys: &[&str],
        args: &[Vec<u8>],
    ) -> Result<Value, LinkError> {
        let open = self.connection(deadline).await?;
        match self.ask(&open, &script.evaluation(true, keys, args), deadline).await {
            // It was not executed, so to send it once more does nothing twice.
            Err(Fault::NoScript) => {
                let cmd = script.evaluation(false, keys, args);
                Ok(self.ask(&open, &cmd, deadline).await?)
            }
            outcome => Ok(outcome?),
        }
    }

    /// Sends one command.
    pub async fn command(&self, cmd: redis::Cmd) -> Result<Value, LinkError> {
        let deadline = Instant::now() + DEADLINE;
        let open = self.connection(deadline).await?;
        Ok(self.ask(&open, &cmd, deadline).await?)
    }

    /// Attempts to connect so far.
    #[cfg(test)]
    pub(crate) fn attempts(&self) -> u64 {
        self.0.attempts.load(Ordering::Relaxed)
    }

    async fn ask(&self, open: &Open, cmd: &redis::Cmd, by: Instant) -> Result<Value, Fault> {
        let answer = self.0.query(&open.conn, cmd, by).await;
        if answer.as_ref().is_err_and(Fault::spoils) {
            match open.conn {
                Conn::One(_) => self.0.forget(open.id),
                Conn::Cluster(_) => self.0.replace_if_old(open, cmd),
            }
        }
        answer
    }

    /// The connection, opened if there is none.
    async fn connection(&self, deadline: Instant) -> Result<Open, LinkError> {
        let mut opening = match &mut *self.0.lock() {
            State::Open(open) => return Ok(open.clone()),
            State::Opening(opening) => opening.clone(),
            state @ State::Idle => {
                let id = self.0.attempts.fetch_add(1, Ordering::Relaxed) + 1;
                let (done, opening) = watch::channel(None);
                tokio::spawn(Arc::clone(&self.0).open(id, done));
                *state = State::Opening(opening.clone());
                opening
            }
        };
        let waiting = timeout_at(deadline, opening.wait_for(Option::is_some)).await;
        match waiting.map(|outcome| outcome.ok().and_then(|outcome| outcome.clone())) {
            Ok(Some(outcome)) => outcome,
            // The attempt ended without a word: it panicked. The next request makes another.
            Ok(None) => {
                let mut state = self.0.lock();
                if matches!(&*state, State::Opening(other) if other.same_channel(&opening)) {
                    *state = State::Idle;
                }
                Err(LinkError::Unreachable("the attempt to connect ended early".to_owned()))
            }
            Err(_) => {
                let text = format!("no connection within {} ms", DEADLINE.as_millis());
                Err(LinkError::Unreachable(text))
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Never held while something could panic, so what is in there is sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn query(&self, conn: &Conn, cmd: &redis::Cmd, by: Instant) -> Result<Value, Fault> {
        let answer = match conn.clone() {
            Conn::One(mut conn) => timeout_at(by, cmd.query_async(&mut conn)).await,
            Conn::Cluster(mut conn) => timeout_at(by, cmd.query_async(&mut conn)).await,
        };
        match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Fault::of(&error, &self.target.address)),
            // A peer that is gone without a word (half-open) looks like this too.
            Err(_) => Err(Fault::Lost(format!("no answer within {} ms", DEADLINE.as_millis()))),
        }
    }

    async fn open(self: Arc<Self>, id: u64, done: watch::Sender<Option<Result<Open, LinkError>>>) {
        let shared = Arc::downgrade(&self);
        let lost = move || Self::lost(&shared, id);
        let outcome = match timeout(CONNECT, self.target.connect(lost)).await {
            Ok(Ok(conn)) => Ok(Open { id, since: Instant::now(), conn }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(LinkError::Unreachable(format!(
                "{} does not answer within {} s",
                self.target.address,
                CONNECT.as_secs()
            ))),
        };
        *self.lock() = match &outcome {
            Ok(open) => State::Open(open.clone()),
            Err(_) => State::Idle,
        };
        if let Ok(open) = &outcome {
            let first = !self.met.swap(true, Ordering::Relaxed);
            let address = self.target.address.to_string();
            tokio::spawn(inspect::inspect(open.conn.clone(), address, first));
        }
        // Nobody may be waiting any more.
        let _ = done.send(Some(outcome));
    }

    /// The server closed the connection while nobody asked for anything: the next request need not
    /// fail to find out.
    fn lost(shared: &Weak<Self>, id: u64) {
        if let Some(shared) = shared.upgrade() {
            shared.forget(id);
        }
    }

    fn forget(&self, id: u64) {
        let mut state = self.lock();
        if matches!(&*state, State::Open(open) if open.id == id) {
            *state = State::Idle;
        }
    }
}

#[cfg(test)]
mod tests;
