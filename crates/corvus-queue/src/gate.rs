//! The gateway's side of access queues (section 6 of the specification): tokens in, a decision and
//! tokens out. HTTP, cookies' attributes and pages are the caller's.
//!
//! ```text
//! check   every request to a queued path: a young admission passes here, without store or lock
//! enter   everybody else's real request
//! poll    the waiting page's question
//! leave   its leave button
//! keep_alive   each `refresh` of an open response, WebSocket or stream
//! release the origin ends a session
//! tick    once a second, from the app
//! ```

mod breaker;
mod decide;
mod judge;
mod limits;
mod view;

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
};

use arc_swap::ArcSwap;
use corvus_config::snapshot::Queue;
use corvus_core::{
    ClientIp, Clock, Id,
    token::{Admission, Place, Sid, SigningKeys, Ticket, TokenError},
};
use foldhash::HashMap;
use futures_util::future::join_all;

use self::view::View;
use crate::{
    embedded::{JournalError, Notice},
    engine::Engine,
    keys::{KeyError, KeyStore, Rotation, ShareError},
    op::{Op, Reply, Stats, StoreError},
};

/// A token may seem to come from this far in the future: replies cross on the network.
const SKEW_MS: i64 = 5_000;
/// A place that only proves cookies is good for this long.
const UNPLACED_TTL_MS: i64 = 300_000;
/// Passes in a row that one visitor's call pays for when much is to be reaped; the tick does the
/// rest.
const MORE_PASSES: usize = 16;
/// Passes in a row of one tick: ten million dead.
const TICK_PASSES: usize = 10_000;

/// All access queues of this gateway.
pub struct QueueService {
    engine: Engine,
    keys: Arc<KeyStore>,
    clock: Arc<dyn Clock>,
    /// Of every queue that was ever configured: calls may be under way.
    views: ArcSwap<HashMap<Id, Arc<View>>>,
    /// Those of the latest configuration.
    configured: ArcSwap<Vec<Arc<View>>>,
    configuring: Mutex<()>,
}

/// The two cookies of a queue, as the request has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cookies<'a> {
    /// `corvus_a_<queue>`.
    pub admission: Option<&'a str>,
    /// `corvus_q_<queue>`.
    pub place: Option<&'a str>,
}

/// Why keys are not rotated.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error(transparent)]
    Share(#[from] ShareError),
}

/// An admission whose signature was found good; see [`QueueService::check_again`].
#[derive(Debug)]
pub struct Shown {
    text: Box<str>,
    queue: Id,
    network: Option<IpAddr>,
    keys: Arc<SigningKeys>,
    admission: Admission,
}

/// What [`QueueService::check`] found.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// A young admission: pass. Kept for [`QueueService::keep_alive`] and `release`.
    Admitted(Admission),
    /// The store must be asked: give this to `enter`.
    Ask(Visitor),
}

/// A client and what its cookies prove.
#[derive(Clone, Debug, PartialEq)]
pub struct Visitor {
    ip: ClientIp,
    /// Signed by us; it may have run out.
    admission: Option<Admission>,
    /// Signed by us and of the same session as the admission.
    place: Option<Place>,
    /// Which cookies there were, believed or not.
    had_admission: bool,
    had_place: bool,
    /// Cookies signed by a key that we do not hold.
    unknown: Option<Box<judge::Unknown>>,
}

impl Visitor {
    /// The session the cookies name; the admission's if they differ.
    pub fn sid(&self) -> Option<Sid> {
        self.admission.map(|a| a.sid).or_else(|| self.place.map(|p| p.sid))
    }
}

/// What to do with a request, and with the queue's cookies on its response.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub decision: Decision,
    pub admission: CookieChange,
    pub place: CookieChange,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CookieChange {
    Keep,
    /// Set it to this text.
    Set(String),
    /// Expire it.
    Drop,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// On to the origin. `session` is `None` when the store is down and the queue fails open.
    Pass {
        session: Option<Admission>,
    },
    /// To a poll: reload, the next request passes.
    Ready,
    Waiting(Standing),
    /// The browser has to show that it keeps cookies: the place cookie is set; redirect once, or
    /// say that cookies are needed if the redirect's marker is there.
    NeedsCookie,
    /// As many wait as may: come back later.
    Full {
        retry_after_s: u64,
    },
    /// The store has no memory for newcomers.
    Busy {
        retry_after_s: u64,
    },
    Closed,
    NotOpen {
        opens_at_ms: u64,
        retry_after_s: u64,
    },
    /// To a poll: reload and enter anew.
    Gone,
    TooManyJoins {
        retry_after_s: u64,
    },
    TooManyWaiting {
        retry_after_s: u64,
    },
    TooManyPolls {
        retry_after_s: u64,
    },
    /// The store is down and the queue fails closed, or we cannot tell what the cookies prove.
    StoreDown {
        retry_after_s: u64,
    },
    /// After `leave`.
    Left,
}

/// How a visitor stands who waits. Seconds are rounded up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Standing {
    /// 1 is next; `None` until the draw is held.
    pub rank: Option<u64>,
    pub waiting: u64,
    pub eta_s: Option<u64>,
    /// Ask again after this long.
    pub poll_s: u64,
    /// The start, while it is still to come; Unix ms of the store.
    pub starts_at_ms: Option<u64>,
}

impl QueueService {
    pub fn new(engine: Engine, keys: impl Into<Arc<KeyStore>>, clock: Arc<dyn Clock>) -> Self {
        Self {
            engine,
            keys: keys.into(),
            clock,
            views: ArcSwap::default(),
            configured: ArcSwap::default(),
            configuring: Mutex::new(()),
        }
    }

    /// Takes the queues of a new Snapshot; returns what of their settings does not hold yet. Call
    /// it before the Snapshot serves requests.
    pub fn configure(&self, queues: &[Arc<Queue>]) -> Vec<Notice> {
        let _one_at_a_time = self.configuring.lock().unwrap_or_else(PoisonError::into_inner);
        let notices = self.engine.configure(queues);
        let mut views = HashMap::clone(&self.views.load());
        let mut configured = Vec::with_capacity(queues.len());
        for queue in queues {
            let id = &queue.settings.id;
            let view = views.entry(id.clone()).or_insert_with(|| Arc::new(View::new(id.clone())));
            configured.push(Arc::clone(view));
        }
        self.views.store(Arc::new(views));
        self.configured.store(Arc::new(configured));
        notices
    }

    /// One pass over every configured queue, so that slots free themselves while nobody calls. Once a second.
    pub async fn tick(&self) {
        let views = self.configured.load_full();
        // At once: a queue whose store is away holds up no other.
        join_all(views.iter().map(|view| self.pass(view))).await;
    }

    async fn pass(&self, view: &View) {
        for _ in 0..TICK_PASSES {
            match self.call_once(view, &[Op::Stats]).await {
                Ok(reply) if reply.more => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::debug!(queue = %view.id, %error, "no pass");
                    break;
                }
            }
        }
    }

    /// Whether `enter` goes on with the session that the cookies name. Not so with an old proof of
    /// cookies: a new one must be set first.
    pub fn is_known(&self, queue: &Queue, visitor: &Visitor) -> bool {
        self.view(&queue.settings.id).is_some_and(|view| self.session(&view, visitor).is_some())
    }

    /// An open response, WebSocket or stream of an admitted session, each `refresh`: false when the
    /// session has ended. `admission` is brought up to date.
    pub async fn keep_alive(&self, queue: &Queue, admission: &mut Admission) -> bool {
        let Some(view) = self.view(&queue.settings.id) else { return false };
        let mono = self.clock.mono_ms();
        let pending = match view.beats.begin(admission, queue.settings.refresh_ms, mono) {
            Ok(pending) => pending,
            Err(recent) => {
                *admission = recent;
                return true;
            }
        };
        let op = Op::Heartbeat { admission: *admission, place: None, join: false };
        match self.call(&view, &[op]).await {
            Ok((_, crate::op::Answer::Admitted { issued_ms, expires_ms, .. })) => {
                *admission = Admission { sid: admission.sid, issued_ms, expires_ms };
                view.beats.note(admission);
                pending.confirm();
                true
            }
            Ok(_) => false,
            Err(_) => {
                // The store is away: sessions stay valid for as long as that lasts.
                let valid = self.is_running(&view, admission);
                if valid && let Some(now) = view.store_now(mono) {
                    admission.expires_ms = now + queue.settings.active_ttl_ms;
                }
                valid
            }
        }
    }

    /// The origin, or an operator, ends the session of `admission`.
    pub async fn release(&self, queue: &Id, admission: &Admission) -> Result<(), StoreError> {
        let op = Op::Release { sid: admission.sid, admission: Some(*admission) };
        self.command(queue, op, Some(&admission.sid)).await
    }

    /// Ends the session `sid`, whatever it is.
    pub async fn release_sid(&self, queue: &Id, sid: Sid) -> Result<(), StoreError> {
        self.command(queue, Op::Release { sid, admission: None }, Some(&sid)).await
    }

    /// Sends everybody who waits away.
    pub async fn flush(&self, queue: &Id) -> Result<(), StoreError> {
        self.command(queue, Op::Flush, None).await
    }

    /// Ends every session inside. Those with young admissions notice within `refresh`.
    pub async fn release_all(&self, queue: &Id) -> Result<(), StoreError> {
        self.command(queue, Op::ReleaseAll, None).await
    }

    /// Numbers for the console and metrics.
    pub fn stats(&self, queue: &Id) -> Option<Stats> {
        self.engine.stats(queue)
    }

    /// Whether the store of `queue` answered when it was asked last.
    pub fn store_is_up(&self, queue: &Id) -> bool {
        self.view(queue).is_some_and(|view| !view.breaker.is_open())
    }

    /// Signs with a new key: at once, or, when gateways share a store, ten seconds after all of
    /// them were told. Rotate no more often than tokens live.
    pub async fn rotate_keys(&self) -> Result<(), RotateError> {
        if let Engine::Valkey(engine) = &self.engine {
            let rotation = engine.rotate_keys().await?;
            let Rotation { generation, activates_at_ms, .. } = rotation;
            tracing::info!(generation, activates_at_ms, "{rotation}");
        } else {
            self.keys.rotate()?;
            tracing::info!("queues sign with a new key");
        }
        Ok(())
    }

    /// Writes what is not yet saved; before a clean end.
    pub fn save(&self) -> Result<(), JournalError> {
        self.engine.save()
    }

    async fn command(&self, queue: &Id, op: Op, ended: Option<&Sid>) -> Result<(), StoreError> {
        let view = self.view(queue).ok_or_else(|| StoreError::UnknownQueue(queue.to_string()))?;
        if let Some(sid) = ended {
            view.beats.forget(sid);
        }
        self.call(&view, &[op]).await.map(|_| ())
    }

    fn view(&self, queue: &Id) -> Option<Arc<View>> {
        self.views.load().get(queue).cloned()
    }

    /// Whether an admission has not run out, as far as we know the store's time. Before the first
    /// reply we do not, and those inside pass: an outage at start must not throw anybody out.
    fn is_running(&self, view: &View, admission: &Admission) -> bool {
        view.store_now(self.clock.mono_ms()).is_none_or(|now| admission.expires_ms > now)
    }

    /// A call with one operation, and its answer.
    async fn call(
        &self,
        view: &View,
        ops: &[Op],
    ) -> Result<(Reply, crate::op::Answer), StoreError> {
        let reply = self.call_once(view, ops).await?;
        let answer = reply.answers.first().copied().unwrap_or(crate::op::Answer::Done);
        let mut more = reply.more;
        for _ in 0..MORE_PASSES {
            if !more {
                break;
            }
            more = self.call_once(view, &[]).await.is_ok_and(|reply| reply.more);
        }
        Ok((reply, answer))
    }

    async fn call_once(&self, view: &View, ops: &[Op]) -> Result<Reply, StoreError> {
        if !view.breaker.allows(self.clock.mono_ms()) {
            return Err(StoreError::Unreachable("it failed moments ago".into()));
        }
        let result = self.engine.call(&view.id, ops).await;
        let mono = self.clock.mono_ms();
        match &result {
            Ok(reply) => {
                if view.breaker.is_open() {
                    tracing::info!(queue = %view.id, "the queue store answers again");
                }
                view.breaker.close();
                if view.turns_away.swap(false, Ordering::Relaxed) && !ops.is_empty() {
                    tracing::info!(queue = %view.id, "the queue store has memory again");
                }
                view.note(reply, mono);
            }
            Err(StoreError::Unreachable(why)) => {
                if !view.breaker.is_open() {
                    tracing::warn!(queue = %view.id, why, "the queue store cannot be reached");
                }
                view.breaker.trip(mono);
            }
            // It answered.
            Err(error @ (StoreError::Full | StoreError::TurnedAway)) => {
                view.breaker.close();
                if !view.turns_away.swap(true, Ordering::Relaxed) {
                    tracing::warn!(queue = %view.id, %error, "newcomers are told to come back");
                }
            }
            Err(StoreError::UnknownQueue(_)) => view.breaker.close(),
        }
        result
    }
}

/// What tokens of `queue` are bound to, besides their text.
fn network(queue: &Queue, ip: ClientIp) -> Option<IpAddr> {
    queue.gate.bind_network.then(|| ip.token_network())
}

fn is_placed(place: &Place) -> bool {
    place.ticket != Ticket::Unplaced
}

#[cfg(test)]
mod tests;
