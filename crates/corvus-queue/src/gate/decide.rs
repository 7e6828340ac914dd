//! From a visitor to a decision.

use corvus_config::snapshot::{OnStoreFailure, Queue};
use corvus_core::token::{Admission, Place, Sid, Ticket};

use super::{
    CookieChange, Decision, Outcome, QueueService, SKEW_MS, Standing, UNPLACED_TTL_MS, Visitor,
    is_placed, limits::Noted, view::View,
};
use crate::op::{Answer, Op, Reply, StoreError, Waiting};

/// Told to those who cannot be told better, seconds.
const RETRY_AFTER_S: u64 = 30;
/// Retry-After of a start far away, seconds: proxies and clients forget longer ones.
const RETRY_AFTER_MAX_S: u64 = 3_600;
/// Reloads that one session may make a second, as a multiple of its polls.
const RELOADS_PER_POLL: u32 = 10;
/// During an outage, places are due again after this long.
const OUTAGE_POLL_MS: u64 = 30_000;

/// Why a visitor may take no new place.
#[derive(Clone, Copy)]
enum Limit {
    Joins,
    Waiting,
}

/// What a newcomer takes of the limits while the store is asked.
struct Reserved {
    at: u64,
    /// Counted among those who wait, and was not before.
    waits: bool,
}

/// Why there is no answer of the store.
enum Refusal {
    Limit(Limit),
    Store(StoreError),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl QueueService {
    /// A real request that [`QueueService::check`] did not let pass.
    pub async fn enter(&self, queue: &Queue, visitor: &Visitor) -> Outcome {
        let Some(view) = self.view(&queue.settings.id) else { return down(queue, None) };
        let Some(visitor) = self.judge_again(queue, visitor).await else {
            return self.untold(queue, &view, false);
        };
        let visitor = &*visitor;
        let mono = self.clock.mono_ms();
        let running = visitor.admission.filter(|admission| self.is_running(&view, admission));
        let Some(sid) = self.session(&view, visitor) else {
            return self.first_visit(queue, &view, visitor).await;
        };
        let mut pending = None;
        // Those inside and those in line take nothing of the limits, so they ask without a right to
        // a new place first, and once more only if what they show is worth nothing.
        let answer = if let Some(admission) = running {
            match view.beats.begin(&admission, queue.settings.refresh_ms, mono) {
                Ok(begun) => pending = Some(begun),
                Err(recent) => return keep(Decision::Pass { session: Some(recent) }),
            }
            let op = Op::Heartbeat { admission, place: visitor.place, join: false };
            match self.call(&view, &[op]).await {
                Ok((_, Answer::Gone)) => self.join(queue, &view, visitor, sid, true).await,
                other => other.map_err(Refusal::from),
            }
        } else if visitor.place.as_ref().is_some_and(is_placed) {
            if self.is_too_often(queue, &view, sid) {
                return keep(Decision::TooManyPolls { retry_after_s: 1 });
            }
            match self.ask(&view, sid, visitor, false).await {
                Ok((_, Answer::Gone)) => self.join(queue, &view, visitor, sid, false).await,
                other => other.map_err(Refusal::from),
            }
        } else {
            self.join(queue, &view, visitor, sid, false).await
        };
        if let (Some(pending), Ok((_, Answer::Admitted { .. }))) = (pending, &answer) {
            pending.confirm();
        }
        match answer {
            Ok((reply, answer)) => self.outcome(queue, &view, visitor, sid, &reply, &answer),
            Err(Refusal::Limit(limit)) => refused(limit),
            Err(Refusal::Store(error)) => {
                self.without_store(queue, &view, visitor, running, &error, false)
            }
        }
    }

    /// The waiting page asks.
    pub async fn poll(&self, queue: &Queue, visitor: &Visitor) -> Outcome {
        let Some(view) = self.view(&queue.settings.id) else { return down(queue, None) };
        let Some(visitor) = self.judge_again(queue, visitor).await else {
            return self.untold(queue, &view, true);
        };
        let visitor = &*visitor;
        let Some(sid) = self.session(&view, visitor) else { return keep(Decision::Gone) };
        let mono = self.clock.mono_ms();
        if !view.polls.try_hit(sid, queue.gate.polls_per_session_per_s, mono) {
            return keep(Decision::TooManyPolls { retry_after_s: 1 });
        }
        let running = visitor.admission.filter(|admission| self.is_running(&view, admission));
        let mut pending = None;
        if let Some(admission) = running {
            match view.beats.begin(&admission, queue.settings.refresh_ms, mono) {
                Ok(begun) => pending = Some(begun),
                Err(_) => return keep(Decision::Ready),
            }
        }
        let op = Op::Poll { sid, place: visitor.place, admission: running };
        let answer = self.call(&view, &[op]).await;
        if let (Some(pending), Ok((_, Answer::Admitted { .. }))) = (pending, &answer) {
            pending.confirm();
        }
        match answer {
            Ok((reply, answer)) => {
                let mut outcome = self.outcome(queue, &view, visitor, sid, &reply, &answer);
                if let Decision::Pass { .. } = outcome.decision {
                    outcome.decision = Decision::Ready;
                }
                outcome
            }
            Err(error) => self.without_store(queue, &view, visitor, running, &error, true),
        }
    }

    /// The leave button. Without a store the cookies go all the same, and the place lapses. A mere
    /// proof of cookies has nothing to give up, and anybody can have any number of them: the store,
    /// which keeps a note of each leaving, is not asked.
    pub async fn leave(&self, queue: &Queue, visitor: &Visitor) -> Outcome {
        if let Some(view) = self.view(&queue.settings.id)
            && let Some(visitor) = self.judge_again(queue, visitor).await
            && (visitor.admission.is_some() || visitor.place.as_ref().is_some_and(is_placed))
            && let Some(sid) = self.session(&view, &visitor)
            && !self.is_too_often(queue, &view, sid)
        {
            view.beats.forget(&sid);
            view.waiters.forget(&visitor.ip.limit_key(), &sid);
            let admission = visitor.admission.filter(|admission| self.is_running(&view, admission));
            if let Err(error) = self.call(&view, &[Op::Release { sid, admission }]).await {
                tracing::debug!(queue = %view.id, %error, "a visitor's leaving was not noted");
            }
        }
        let dropped = |had: bool| if had { CookieChange::Drop } else { CookieChange::Keep };
        Outcome {
            decision: Decision::Left,
            admission: dropped(visitor.had_admission),
            place: dropped(visitor.had_place),
        }
    }

    async fn ask(
        &self,
        view: &View,
        sid: Sid,
        visitor: &Visitor,
        join: bool,
    ) -> Result<(Reply, Answer), StoreError> {
        self.call(view, &[Op::Enter { sid, place: visitor.place, join }]).await
    }

    /// The session of the cookies; a proof of cookies counts for five minutes.
    pub(super) fn session(&self, view: &View, visitor: &Visitor) -> Option<Sid> {
        if let Some(admission) = visitor.admission {
            return Some(admission.sid);
        }
        let place = visitor.place?;
        let age = view
            .store_now(self.clock.mono_ms())
            .map(|now| now.cast_signed().saturating_sub(place.issued_ms.cast_signed()));
        let good =
            is_placed(&place) || age.is_none_or(|age| (-SKEW_MS..=UNPLACED_TTL_MS).contains(&age));
        good.then_some(place.sid)
    }

    /// No cookie of ours: a sid and a proof of cookies, and nothing stored anywhere.
    async fn first_visit(&self, queue: &Queue, view: &View, visitor: &Visitor) -> Outcome {
        if view.store_now(self.clock.mono_ms()).is_none() {
            // Only until the first reply: tokens carry the store's time, and we do not know it.
            if let Err(error) = self.call_once(view, &[]).await {
                return self.without_store(queue, view, visitor, None, &error, false);
            }
        }
        let mut bytes = [0; 16];
        let now = view.store_now(self.clock.mono_ms());
        let (Some(now), Ok(())) = (now, getrandom::fill(&mut bytes)) else {
            return keep(Decision::Busy { retry_after_s: RETRY_AFTER_S });
        };
        let sid = Sid::from_bytes(bytes);
        let place = Place { sid, issued_ms: now, ticket: Ticket::Unplaced, due_ms: now };
        let place = self.sign_place(queue, visitor, &place);
        Outcome { place, ..keep(Decision::NeedsCookie) }
    }

    /// Whether a session makes more requests that the store must be asked for than a browser does
    /// that restores all its tabs. While the store is away nobody asks it anything, so all may.
    fn is_too_often(&self, queue: &Queue, view: &View, sid: Sid) -> bool {
        let limit = queue.gate.polls_per_session_per_s.saturating_mul(RELOADS_PER_POLL);
        !view.breaker.is_open() && !view.reloads.try_hit(sid, limit, self.clock.mono_ms())
    }

    /// Asks with the right to a new place, as far as the limits allow. What a newcomer takes of them
    /// is taken before the store is asked: of a thousand who come at once, no more get in than may.
    /// `known`: without that right something can still come of it.
    async fn join(
        &self,
        queue: &Queue,
        view: &View,
        visitor: &Visitor,
        sid: Sid,
        known: bool,
    ) -> Result<(Reply, Answer), Refusal> {
        let reserved = match self.reserve(queue, view, visitor, sid) {
            Ok(reserved) => reserved,
            Err(limit) if known => {
                let answer = self.ask(view, sid, visitor, false).await?;
                let gone = matches!(answer, (_, Answer::Gone));
                return if gone { Err(Refusal::Limit(limit)) } else { Ok(answer) };
            }
            Err(limit) => return Err(Refusal::Limit(limit)),
        };
        let answer = self.ask(view, sid, visitor, true).await;
        let ip = visitor.ip.limit_key();
        let (joined, inside_or_waits) = match &answer {
            Ok((_, Answer::Admitted { joined, .. })) => (*joined, true),
            Ok((_, Answer::Waiting(waiting))) => (waiting.joined, true),
            _ => (false, false),
        };
        if !joined {
            view.joins.take_back(ip, reserved.at);
        }
        if reserved.waits && !inside_or_waits {
            view.waiters.forget(&ip, &sid);
        }
        Ok(answer?)
    }

    fn reserve(
        &self,
        queue: &Queue,
        view: &View,
        visitor: &Visitor,
        sid: Sid,
    ) -> Result<Reserved, Limit> {
        let at = self.clock.mono_ms();
        let ip = visitor.ip.limit_key();
        if !view.joins.try_hit(ip, queue.gate.joins_per_ip_per_min, at) {
            return Err(Limit::Joins);
        }
        let noted = queue.gate.max_waiting_per_ip.map(|max| {
            // If nobody hears the answer, the place lapses no sooner.
            view.waiters.note(ip, sid, max, at + queue.settings.queue_ttl_ms, at)
        });
        if noted == Some(Noted::TooMany) {
            view.joins.take_back(ip, at);
            return Err(Limit::Waiting);
        }
        Ok(Reserved { at, waits: noted == Some(Noted::New) })
    }

    /// The store's answer as a decision, with new tokens.
    fn outcome(
        &self,
        queue: &Queue,
        view: &View,
        visitor: &Visitor,
        sid: Sid,
        reply: &Reply,
        answer: &Answer,
    ) -> Outcome {
        let mono = self.clock.mono_ms();
        let ip = visitor.ip.limit_key();
        let dropped = |had: bool| if had { CookieChange::Drop } else { CookieChange::Keep };
        match *answer {
            Answer::Admitted { issued_ms, expires_ms, .. } => {
                if queue.gate.max_waiting_per_ip.is_some() {
                    view.waiters.forget(&ip, &sid);
                }
                let session = Admission { sid, issued_ms, expires_ms };
                view.beats.note(&session);
                Outcome {
                    decision: Decision::Pass { session: Some(session) },
                    admission: self.sign_admission(queue, visitor, &session),
                    place: dropped(visitor.had_place),
                }
            }
            Answer::Waiting(waiting) => {
                if let Some(max) = queue.gate.max_waiting_per_ip {
                    let until = mono + waiting.poll_ms + queue.settings.queue_ttl_ms;
                    view.waiters.note(ip, sid, max, until, mono);
                }
                let Waiting { issued_ms, ticket, due_ms, .. } = waiting;
                let place = Place { sid, issued_ms, ticket, due_ms };
                Outcome {
                    decision: Decision::Waiting(standing(queue, reply, &waiting)),
                    admission: dropped(visitor.had_admission),
                    place: self.sign_place(queue, visitor, &place),
                }
            }
            Answer::Ready => keep(Decision::Ready),
            Answer::Full => keep(Decision::Full { retry_after_s: RETRY_AFTER_S }),
            Answer::Closed => keep(Decision::Closed),
            Answer::NotOpen { opens_at_ms } => {
                let wait_s = seconds(opens_at_ms.saturating_sub(reply.now_ms));
                let retry_after_s = wait_s.clamp(1, RETRY_AFTER_MAX_S);
                keep(Decision::NotOpen { opens_at_ms, retry_after_s })
            }
            Answer::Gone | Answer::Done | Answer::Stats(_) => keep(Decision::Gone),
        }
    }

    /// What the cookies prove can be told by nobody at the moment. The queue's policy is for a store
    /// that is down, and must not be had with a made-up cookie while this queue's store is well.
    fn untold(&self, queue: &Queue, view: &View, poll: bool) -> Outcome {
        if view.breaker.is_open() || self.keys.load().is_none() {
            return down(queue, Some(poll));
        }
        keep(Decision::StoreDown { retry_after_s: RETRY_AFTER_S })
    }

    /// The store cannot be asked. Those inside stay inside, places stay fresh, everybody else gets
    /// what the queue's policy says. A full store is not a store that is down.
    fn without_store(
        &self,
        queue: &Queue,
        view: &View,
        visitor: &Visitor,
        running: Option<Admission>,
        error: &StoreError,
        poll: bool,
    ) -> Outcome {
        let busy = Decision::Busy { retry_after_s: RETRY_AFTER_S };
        if *error == StoreError::TurnedAway {
            // The store did answer, and the tokens are worth nothing.
            return keep(busy);
        }
        let now = view.store_now(self.clock.mono_ms());
        if let Some(admission) = running {
            // `issued` stays: a release while we were cut off must still refuse it.
            let expires_ms = now.map_or(admission.expires_ms, |n| n + queue.settings.active_ttl_ms);
            let session = Admission { expires_ms, ..admission };
            let decision =
                if poll { Decision::Ready } else { Decision::Pass { session: Some(session) } };
            let admission = self.sign_admission(queue, visitor, &session);
            return Outcome { admission, ..keep(decision) };
        }
        let fresh = |place: &Place, now: u64| {
            is_placed(place) && now <= place.due_ms.saturating_add(queue.settings.queue_ttl_ms)
        };
        let place = match (visitor.place, now) {
            (Some(place), Some(now)) if fresh(&place, now) => {
                let due_ms = place.due_ms.max(now + OUTAGE_POLL_MS);
                self.sign_place(queue, visitor, &Place { due_ms, ..place })
            }
            _ => CookieChange::Keep,
        };
        if *error == StoreError::Full {
            return Outcome { place, ..keep(busy) };
        }
        let outcome = down(queue, Some(poll));
        Outcome { place, ..outcome }
    }
}

fn keep(decision: Decision) -> Outcome {
    Outcome { decision, admission: CookieChange::Keep, place: CookieChange::Keep }
}

/// What the policy says to those without an admission. `poll`: asked by the waiting page.
fn down(queue: &Queue, poll: Option<bool>) -> Outcome {
    keep(match queue.gate.on_store_failure {
        OnStoreFailure::Open if poll == Some(true) => Decision::Ready,
        OnStoreFailure::Open => Decision::Pass { session: None },
        OnStoreFailure::Closed => Decision::StoreDown { retry_after_s: RETRY_AFTER_S },
    })
}

fn refused(limit: Limit) -> Outcome {
    keep(match limit {
        Limit::Joins => Decision::TooManyJoins { retry_after_s: 60 },
        Limit::Waiting => Decision::TooManyWaiting { retry_after_s: RETRY_AFTER_S },
    })
}

fn standing(queue: &Queue, reply: &Reply, waiting: &Waiting) -> Standing {
    let start = queue.settings.schedule.starts_at_ms;
    Standing {
        rank: waiting.rank,
        waiting: reply.waiting,
        eta_s: waiting.eta_ms.map(seconds),
        poll_s: seconds(waiting.poll_ms),
        starts_at_ms: start.filter(|start| reply.now_ms < *start),
    }
}

fn seconds(ms: u64) -> u64 {
    ms.div_ceil(1_000)
}
