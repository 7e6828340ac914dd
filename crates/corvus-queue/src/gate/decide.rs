//! From a visitor to a decision.

use corvus_config::snapshot::{OnStoreFailure, Queue};
use corvus_core::token::{Admission, Place, Sid, Ticket};

use super::{
    CookieChange, Decision, Outcome, QueueService, SKEW_MS, Standing, UNPLACED_TTL_MS, Visitor,
    is_placed, view::View,
};
use crate::op::{Answer, Op, Reply, StoreError, Waiting};

/// Told to those who cannot be told better, seconds.
const RETRY_AFTER_S: u64 = 30;
/// Retry-After of a start far away, seconds: proxies and clients forget longer ones.
const RETRY_AFTER_MAX_S: u64 = 3_600;
/// During an outage, places are due again after this long.
const OUTAGE_POLL_MS: u64 = 30_000;

/// Why a visitor may take no new place.
#[derive(Clone, Copy)]
enum Limit {
    Joins,
    Waiting,
}

impl QueueService {
    /// A real request that [`QueueService::check`] did not let pass.
    pub async fn enter(&self, queue: &Queue, visitor: &Visitor) -> Outcome {
        let Some(view) = self.view(&queue.settings.id) else { return down(queue, None) };
        let Some(visitor) = self.judge_again(queue, visitor).await else {
            return down(queue, Some(false));
        };
        let visitor = &*visitor;
        let mono = self.clock.mono_ms();
        let running = visitor.admission.filter(|admission| self.is_running(&view, admission));
        let Some(sid) = self.session(&view, visitor) else {
            return self.first_visit(queue, &view, visitor).await;
        };
        let limit = self.limit(queue, &view, visitor, &sid);
        let answer = if let Some(admission) = running {
            if let Err(recent) = view.beats.begin(&admission, queue.settings.refresh_ms, mono) {
                return keep(Decision::Pass { session: Some(recent) });
            }
            let op = Op::Heartbeat { admission, place: visitor.place, join: limit.is_none() };
            match self.call(&view, &[op]).await {
                Ok((_, Answer::Gone)) => self.ask(&view, sid, visitor, false).await,
                other => other,
            }
        } else if let Some(limit) = limit
            && !visitor.place.as_ref().is_some_and(is_placed)
        {
            // Without a place nothing but a new one could come of it: spare the store.
            return refused(limit);
        } else {
            self.ask(&view, sid, visitor, limit.is_none()).await
        };
        if running.is_some() && !matches!(answer, Ok((_, Answer::Admitted { .. }))) {
            view.beats.forget(&sid);
        }
        match (answer, limit) {
            (Ok((_, Answer::Gone)), Some(limit)) => refused(limit),
            (Ok((reply, answer)), _) => self.outcome(queue, &view, visitor, sid, &reply, &answer),
            (Err(error), _) => self.without_store(queue, &view, visitor, running, &error, false),
        }
    }

    /// The waiting page asks.
    pub async fn poll(&self, queue: &Queue, visitor: &Visitor) -> Outcome {
        let Some(view) = self.view(&queue.settings.id) else { return down(queue, None) };
        let Some(visitor) = self.judge_again(queue, visitor).await else {
            return down(queue, Some(true));
        };
        let visitor = &*visitor;
        let Some(sid) = self.session(&view, visitor) else { return keep(Decision::Gone) };
        let mono = self.clock.mono_ms();
        if !view.polls.try_hit(sid, queue.gate.polls_per_session_per_s, mono) {
            return keep(Decision::TooManyPolls { retry_after_s: 1 });
        }
        let running = visitor.admission.filter(|admission| self.is_running(&view, admission));
        if let Some(admission) = running
            && view.beats.begin(&admission, queue.settings.refresh_ms, mono).is_err()
        {
            return keep(Decision::Ready);
        }
        let op = Op::Poll { sid, place: visitor.place, admission: running };
        let answer = self.call(&view, &[op]).await;
        if running.is_some() && !matches!(answer, Ok((_, Answer::Admitted { .. }))) {
            view.beats.forget(&sid);
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

    /// The leave button. Without a store the cookies go all the same, and the place lapses.
    pub async fn leave(&self, queue: &Queue, visitor: &Visitor) -> Outcome {
        if let Some(view) = self.view(&queue.settings.id)
            && let Some(visitor) = self.judge_again(queue, visitor).await
            && let Some(sid) = self.session(&view, &visitor)
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

    fn limit(&self, queue: &Queue, view: &View, visitor: &Visitor, sid: &Sid) -> Option<Limit> {
        let mono = self.clock.mono_ms();
        let ip = visitor.ip.limit_key();
        if view.joins.is_over(&ip, queue.gate.joins_per_ip_per_min, mono) {
            return Some(Limit::Joins);
        }
        let max = queue.gate.max_waiting_per_ip?;
        view.waiters.is_over(&ip, sid, max, mono).then_some(Limit::Waiting)
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
            Answer::Admitted { issued_ms, expires_ms, joined } => {
                if joined {
                    view.joins.hit(ip, mono);
                }
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
                if waiting.joined {
                    view.joins.hit(ip, mono);
                }
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
            return Outcome { place, ..keep(Decision::Busy { retry_after_s: RETRY_AFTER_S }) };
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
