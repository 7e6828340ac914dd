//! Operations of one queue gather into calls of the script: one call for a hundred visitors costs the
//! store a third of what a hundred calls do.
//!
//! While no call is under way an operation is sent at once. While one is, others gather and go
//! together when it is back, or, if it is slow, after [`GATHER`] in a call of their own.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use corvus_config::snapshot::QueueSettings;
use corvus_core::Id;
use redis::Value;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use super::{
    level::{Book, Level, Levels, News},
    link::{DEADLINE, Link, LinkError, Script},
    script::{Call, Malformed, WAITROOM, decode, names},
    thread::PATIENCE,
};
use crate::{
    keys::KeyStore,
    op::{Answer, Caller, Op, Reply, Report, Stats, StoreError},
    room::Draw,
};

/// How long an operation waits for a call that is under way.
const GATHER: Duration = Duration::from_millis(5);
/// Calls of one queue under way at once.
const FLIGHTS: usize = 4;
/// Operations of one call.
const CALL_OPS: usize = 512;
/// Requests that wait for a call, of one queue.
const WAITING: usize = 16_384;
/// Calls in a row that the script itself asks for; the tick does the rest.
const MORE_CALLS: u32 = 1_000;

/// The script, for a store with memory and for a full one.
pub(super) struct Scripts {
    normal: Script,
    /// May run without memory.
    spare: Script,
}

impl Scripts {
    pub(super) fn waitroom() -> Self {
        Self::of(WAITROOM)
    }

    fn of(source: &str) -> Self {
        Self {
            normal: Script::new(format!("#!lua\n{source}")),
            spare: Script::new(format!("#!lua flags=allow-oom\n{source}")),
        }
    }
}

/// What a call sends of the settings.
#[derive(Clone, Debug)]
struct Setup {
    settings: QueueSettings,
    /// Without its key, which may not be there yet.
    draw: Draw,
}

/// One queue, as its callers and its calls see it.
pub(super) struct Room {
    id: Id,
    names: [String; 6],
    setup: ArcSwap<Setup>,
    keys: Arc<KeyStore>,
    levels: Mutex<Levels>,
    book: Arc<Book>,
    report: Mutex<Option<Report>>,
    /// The latest in a reply.
    stats: ArcSwapOption<Stats>,
    requests: mpsc::Sender<Request>,
}

/// Operations of one caller.
pub(super) struct Request {
    ops: Vec<Op>,
    since: Instant,
    answer: oneshot::Sender<Result<Reply, StoreError>>,
}

/// Its requests come out of the second value.
pub(super) fn room(
    settings: QueueSettings,
    keys: Arc<KeyStore>,
    book: Arc<Book>,
) -> (Arc<Room>, mpsc::Receiver<Request>) {
    let (requests, receiver) = mpsc::channel(WAITING);
    let id = settings.id.clone();
    let levels = book.read(&id, Level::of(&settings, 0));
    let mut draw = Draw::new([0; 16]);
    draw.follow(&settings.schedule);
    let room = Room {
        names: names(&id),
        id,
        setup: ArcSwap::from_pointee(Setup { settings, draw }),
        keys,
        levels: Mutex::new(levels),
        book,
        report: Mutex::new(None),
        stats: ArcSwapOption::empty(),
        requests,
    };
    (Arc::new(room), receiver)
}

impl Room {
    /// Has `ops` executed, in order and in one call.
    pub(super) async fn call(&self, ops: &[Op]) -> Result<Reply, StoreError> {
        let (answer, outcome) = oneshot::channel();
        let request = Request { ops: ops.to_vec(), since: Instant::now(), answer };
        match self.requests.try_send(request) {
            Ok(()) => {}
            // As when the store is full: whoever is new is told to come back.
            Err(mpsc::error::TrySendError::Full(_)) => return Err(StoreError::Full),
            Err(mpsc::error::TrySendError::Closed(_)) => {
                return Err(StoreError::Unreachable("its thread has ended".to_owned()));
            }
        }
        match timeout(PATIENCE, outcome).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(StoreError::Unreachable("the call broke off".to_owned())),
            Err(_) => Err(StoreError::Unreachable("no answer in time".to_owned())),
        }
    }

    pub(super) fn configure(&self, settings: QueueSettings) {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        if levels.configure(Level::of(&settings, 0)) {
            self.book.write(&self.id, &levels);
        }
        let mut draw = self.setup.load().draw.clone();
        draw.follow(&settings.schedule);
        self.setup.store(Arc::new(Setup { settings, draw }));
    }

    pub(super) fn stats(&self) -> Option<Stats> {
        self.stats.load().as_deref().copied()
    }

    /// The level that holds; `None`: the store has not said.
    pub(super) fn level(&self) -> Option<Level> {
        self.report()?;
        Some(*self.levels.lock().unwrap_or_else(PoisonError::into_inner).held())
    }

    fn report(&self) -> Option<Report> {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, reply: &Reply, level: Level) {
        {
            let mut known = self.report.lock().unwrap_or_else(PoisonError::into_inner);
            if known.is_some_and(|known| known.born_ms < reply.born_ms) {
                tracing::warn!(
                    queue = %self.id,
                    "the store has lost this queue: places are held for those inside, and those who \
                     wait come back in their order"
                );
            }
            // Calls in parallel may come back in any order.
            if known.is_none_or(|known| known.born_ms != reply.born_ms || reply.n > known.n) {
                *known = Some(reply.report());
            }
        }
        if let Some(stats) = reply.answers.iter().rev().find_map(|answer| match answer {
            Answer::Stats(stats) => Some(*stats),
            _ => None,
        }) {
            self.stats.store(Some(Arc::new(stats)));
        }
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        match levels.note(level) {
            News::Nothing => return,
            News::Changed => {}
            News::Differs => tracing::warn!(
                queue = %self.id,
                version = level.version,
                capacity = level.capacity,
                rate = ?level.rate,
                paused = level.paused,
                "the store has another capacity, rate or pause than this gateway's configuration: \
                 the store's holds, it was changed last"
            ),
        }
        self.book.write(&self.id, &levels);
    }
}

/// What the calls of a queue need.
#[derive(Clone)]
pub(super) struct Caterer {
    pub(super) link: Link,
    pub(super) scripts: Arc<Scripts>,
    pub(super) gateway: u64,
    pub(super) room: Arc<Room>,
}

/// Sends what comes in, until nobody can send any more.
pub(super) async fn serve(caterer: Caterer, mut requests: mpsc::Receiver<Request>) {
    let mut flights: JoinSet<bool> = JoinSet::new();
    // The first that waits; the rest wait in the channel.
    let mut first: Option<Request> = None;
    // The script stopped at a bound and wants to be called again.
    let mut again = false;
    let mut in_a_row = 0;
    loop {
        let late = first.as_ref().map(|request| request.since + GATHER);
        let parallel = flights.len() < FLIGHTS;
        tokio::select! {
            Some(outcome) = flights.join_next() => {
                again = outcome.unwrap_or(false) && in_a_row < MORE_CALLS;
                in_a_row = if again { in_a_row + 1 } else { 0 };
            }
            request = requests.recv(), if first.is_none() => match request {
                Some(request) => first = Some(request),
                None => return,
            },
            () = sleep_until(late.unwrap_or_else(Instant::now)), if late.is_some() && parallel => {}
        }
        let idle = flights.is_empty();
        let due = first.as_ref().is_some_and(|request| {
            idle || (flights.len() < FLIGHTS && request.since.elapsed() >= GATHER)
        });
        if due || (idle && again) {
            let batch = gather(&mut first, &mut requests);
            if !batch.is_empty() || again {
                again = false;
                flights.spawn(caterer.clone().call(batch));
            }
        }
    }
}

/// As much of what waits as one call takes; what does not fit stays first.
fn gather(first: &mut Option<Request>, requests: &mut mpsc::Receiver<Request>) -> Vec<Request> {
    let mut batch = Vec::new();
    let mut ops = 0;
    while let Some(request) = first.take().or_else(|| requests.try_recv().ok()) {
        // Its caller gave up: nobody would learn what became of it.
        if request.answer.is_closed() {
            continue;
        }
        if !batch.is_empty() && ops + request.ops.len() > CALL_OPS {
            *first = Some(request);
            break;
        }
        ops += request.ops.len();
        batch.push(request);
        if ops >= CALL_OPS || batch.len() >= CALL_OPS {
            break;
        }
    }
    batch
}

impl Caterer {
    /// One call for all of `batch`; says whether the script wants another.
    async fn call(self, batch: Vec<Request>) -> bool {
        let ops: Vec<Op> = batch.iter().flat_map(|request| request.ops.iter().copied()).collect();
        match self.execute(ops).await {
            Ok((mut reply, turned_away)) => {
                let more = std::mem::take(&mut reply.more);
                let mut answers = std::mem::take(&mut reply.answers).into_iter();
                let mut turned_away = turned_away.into_iter();
                for Request { ops, answer, .. } in batch {
                    let own: Vec<Answer> = answers.by_ref().take(ops.len()).collect();
                    let full = turned_away.by_ref().take(ops.len()).fold(false, |a, b| a | b);
                    let outcome =
                        if full { Err(StoreError::TurnedAway) } else { Ok(with(&reply, own)) };
                    // Whoever gave up meanwhile is gone.
                    let _ = answer.send(outcome);
                }
                more
            }
            Err(error) => {
                for request in batch {
                    let _ = request.answer.send(Err(error.clone()));
                }
                false
            }
        }
    }

    /// The reply, and for each operation whether it was turned away because the store is full.
    async fn execute(&self, mut ops: Vec<Op>) -> Result<(Reply, Vec<bool>), StoreError> {
        let deadline = Instant::now() + DEADLINE;
        match self.send(deadline, &self.scripts.normal, &ops).await {
            Ok(reply) => Ok((reply, vec![false; ops.len()])),
            // Nothing was executed. Those who are known go on; those who are new would need memory.
            Err(CallError::Full) => {
                let without: Vec<bool> = ops.iter_mut().map(bar).collect();
                let reply = self.send(deadline, &self.scripts.spare, &ops).await?;
                let gone = |(barred, answer): (&bool, &Answer)| *barred && *answer == Answer::Gone;
                let turned_away = without.iter().zip(&reply.answers).map(gone).collect();
                Ok((reply, turned_away))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn send(&self, by: Instant, script: &Script, ops: &[Op]) -> Result<Reply, CallError> {
        let room = &*self.room;
        let args = {
            let setup = room.setup.load();
            let caller = Caller { gateway: self.gateway, report: room.report() };
            let level = *room.levels.lock().unwrap_or_else(PoisonError::into_inner).held();
            let Setup { settings, draw } = &**setup;
            // Without keys nobody has a place: what is left to do draws no lots.
            let draw = &draw.keyed(room.keys.draw_key().unwrap_or_default());
            Call { now: None, caller, level: &level, settings, draw, ops }.args()
        };
        let names = room.names.each_ref().map(String::as_str);
        let Value::BulkString(bytes) = self.link.run_by(by, script, &names, &args).await? else {
            return Err(Malformed.into());
        };
        let (reply, level) = decode(&bytes, ops.len())?;
        room.learn(&reply, level);
        Ok(reply)
    }
}

/// Takes from `op` the right to a new place; says whether it had it.
fn bar(op: &mut Op) -> bool {
    match op {
        Op::Enter { join, .. } | Op::Heartbeat { join, .. } => std::mem::take(join),
        Op::Poll { .. } | Op::Release { .. } | Op::Flush | Op::ReleaseAll | Op::Stats => false,
    }
}

fn with(reply: &Reply, answers: Vec<Answer>) -> Reply {
    Reply { answers, ..reply.clone() }
}

enum CallError {
    Full,
    Failed(String),
}

impl From<LinkError> for CallError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Full => Self::Full,
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<Malformed> for CallError {
    fn from(error: Malformed) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Full => Self::Full,
            CallError::Failed(text) => Self::Unreachable(text),
        }
    }
}

#[cfg(test)]
mod tests;
