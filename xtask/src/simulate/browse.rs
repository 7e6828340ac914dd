//! What visitors do: when their time comes, and when they are answered.

use corvus_queue::op::{Answer, Waiting};

use super::{
    chance::Draw,
    gateway::Sent,
    options::OnFailure,
    visitor::{Kind, Next, number, run_ms},
    world::World,
};

/// What people do while they wait, they do after this long in the mean, s.
const PATIENCE_S: f64 = 300.0;
/// Away for so long, ms.
const AWAY_MS: (u32, u32) = (120_000, 600_000);
/// A round trip between visitor and gateway, ms.
const ROUND_TRIP_MS: (u32, u32) = (20, 200);
/// A hidden tab's timers run once in so long (Chromium's intensive throttling), ms.
const HIDDEN_MS: u32 = 60_000;
/// A browser whose connection broke comes back within so long, ms.
const RETRY_MS: (u32, u32) = (1_000, 5_000);
/// Told to those who cannot be told better (the gateway's Retry-After), and to those whose place a
/// gateway renews without the store, ms.
const LATER_MS: u32 = 30_000;

/// When an answer arrives.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) now_ms: u32,
    /// The store's time of the answer, ms of the run.
    pub(super) told_ms: u32,
    /// Highest ticket known to be let in before that call.
    pub(super) let_in: u64,
}

impl World<'_> {
    /// A visitor's time has come.
    pub(super) fn act(&mut self, now: u32, v: u32) {
        let g = self.gateway_of(v) as usize;
        match self.visitors[v as usize].next {
            Next::Come => {
                // Redirected to prove its cookie, and once more to lose the marker.
                self.connect(now, v);
                self.gateways[g].requests += 2;
                let second = self.tally.at(now);
                second.arrivals += 1;
                second.small += 2;
                let later = now + 2 * self.round_trip(v);
                self.plan(later, v, Next::Enter);
            }
            Next::Enter => {
                let visitor = &mut self.visitors[v as usize];
                if visitor.through && visitor.until <= now {
                    self.finish(now, v);
                    return;
                }
                if visitor.came == 0 {
                    visitor.came = now;
                }
                self.gateways[g].requests += 1;
                self.ask(now, v, Kind::Enter);
            }
            Next::Poll => {
                if self.wanders_off(now, v) {
                    return;
                }
                self.gateways[g].requests += 1;
                self.tally.at(now).small += 1;
                self.ask(now, v, Kind::Poll);
            }
            Next::Page => self.page(now, v, g),
            Next::Nothing => {}
        }
    }

    /// Closes the page, or goes away for a while.
    fn wanders_off(&mut self, now: u32, v: u32) -> bool {
        let waited = now - self.visitors[v as usize].came;
        let by_now = |draw| waited / 1_000 >= self.chance.exponential(v, draw, 0, PATIENCE_S);
        if self.chance.share(v, Draw::Closes, 0) < self.options.closing && by_now(Draw::ClosesAfter)
        {
            self.tally.closed += 1;
            self.leave(v);
            return true;
        }
        let goes_away = !self.visitors[v as usize].was_away
            && self.chance.share(v, Draw::GoesAway, 0) < self.options.late
            && by_now(Draw::GoesAwayAfter);
        if goes_away {
            self.visitors[v as usize].was_away = true;
            self.tally.at(now).handshakes += 1;
            let back = now + self.chance.between(v, Draw::AwayFor, 0, AWAY_MS.0, AWAY_MS.1);
            self.plan(back, v, Next::Enter);
        }
        goes_away
    }

    /// The next page of the site, or the end of the visit.
    fn page(&mut self, now: u32, v: u32, g: usize) {
        let visitor = self.visitors[v as usize];
        if now >= visitor.until {
            if visitor.expires > now && self.chance.share(v, Draw::Leaves, 0) < self.options.leaving
            {
                self.gateways[g].requests += 1;
                self.tally.at(now).small += 1;
                self.ask(now, v, Kind::Leave);
                self.hold(v, 0, 0);
            }
            self.finish(now, v);
            return;
        }
        self.gateways[g].requests += u64::from(self.options.page_requests);
        if visitor.expires <= now {
            self.ask(now, v, Kind::Enter);
        } else if now.saturating_sub(visitor.issued) < self.options.refresh_s * 1_000 {
            self.plan_page(now, v);
        } else {
            self.ask(now, v, Kind::Beat);
        }
    }

    /// The store answered.
    pub(super) fn answered(&mut self, moment: Moment, sent: Sent, answer: &Answer) {
        let (now, v) = (moment.now_ms, sent.visitor);
        if sent.kind == Kind::Leave {
            return;
        }
        self.visitors[v as usize].through = false;
        match *answer {
            Answer::Admitted { issued_ms, expires_ms, joined } => {
                if joined {
                    self.tally.at(now).joins += 1;
                    self.tally.direct += 1;
                }
                let session_ms = self.session(v);
                let visitor = &mut self.visitors[v as usize];
                if sent.kind == Kind::Enter {
                    if visitor.ticket != 0 {
                        self.tally.waits_s.note(u64::from(now - visitor.came) / 1_000);
                    }
                    visitor.forget_place();
                    visitor.came = 0;
                }
                if visitor.until <= now {
                    visitor.until = now + session_ms;
                }
                if sent.kind == Kind::Enter {
                    self.gateways_requests(v, u64::from(self.options.page_requests) - 1);
                }
                self.hold(v, run_ms(issued_ms), run_ms(expires_ms));
                self.plan_page(now, v);
            }
            // Its page loads again: to claim, or to begin anew.
            Answer::Ready | Answer::Gone => {
                let later = now + self.round_trip(v);
                self.plan(later, v, Next::Enter);
            }
            Answer::Waiting(waiting) => self.waits(moment, sent, &waiting),
            Answer::Full => {
                self.tally.full += 1;
                self.try_later(now, v, Next::Enter);
            }
            // Nothing of this run leads here.
            Answer::Closed | Answer::NotOpen { .. } | Answer::Done | Answer::Stats(_) => {}
        }
    }

    fn waits(&mut self, moment: Moment, sent: Sent, waiting: &Waiting) {
        let (now, v) = (moment.now_ms, sent.visitor);
        let ticket = number(waiting.ticket);
        let grant_ms = self.options.grant_ttl_s * 1_000;
        let queue_ms = self.options.queue_ttl_s * 1_000;
        if waiting.joined {
            self.tally.at(now).joins += 1;
        }
        if sent.kind == Kind::Enter {
            self.tally.at(now).pages += 1;
        }
        let visitor = &mut self.visitors[v as usize];
        if visitor.expires != 0 {
            self.tally.thrown_out += u64::from(visitor.expires > moment.told_ms);
            visitor.came = now;
            visitor.until = 0;
        }
        if visitor.ticket == 0 || waiting.joined {
            if visitor.ticket != 0 {
                let kept = moment.told_ms <= visitor.due + queue_ms;
                self.tally.places_lost += u64::from(kept && ticket > visitor.ticket);
                self.tally.lapsed += u64::from(!kept);
            }
            visitor.returned = false;
        } else {
            self.tally.places_lost += u64::from(ticket > visitor.ticket);
            visitor.returned |= moment.told_ms > visitor.due + grant_ms;
            let overtaken = self.options.is_fifo() && ticket < moment.let_in;
            self.tally.out_of_order += u64::from(overtaken && !visitor.returned);
        }
        visitor.ticket = ticket;
        visitor.place_issued = run_ms(waiting.issued_ms);
        visitor.due = run_ms(waiting.due_ms);
        self.hold(v, 0, 0);
        // The page is told whole seconds, and adds up to a tenth.
        let told = waiting.poll_ms.div_ceil(1_000) as u32 * 1_000;
        let late = self.chance.between(v, Draw::Lateness, now, 0, told / 10);
        let hidden = self.asleep(now, v);
        self.plan(now + told + late + hidden, v, Next::Poll);
    }

    /// The store is out of reach: those inside stay inside, places stay fresh, everybody else gets
    /// what the queue's policy says.
    pub(super) fn without_store(&mut self, now: u32, v: u32, kind: Kind) {
        let session_ms = self.session(v);
        let visitor = &mut self.visitors[v as usize];
        let open = self.options.on_store_failure == OnFailure::Open;
        match kind {
            Kind::Leave => return,
            Kind::Beat => {
                let (issued, expires) = (visitor.issued, now + self.options.active_ttl_s * 1_000);
                self.hold(v, issued, expires);
                self.plan_page(now, v);
                return;
            }
            Kind::Enter | Kind::Poll => {}
        }
        if visitor.ticket != 0 && now <= visitor.due + self.options.queue_ttl_s * 1_000 {
            visitor.due = visitor.due.max(now + LATER_MS);
            // The store knows nothing of the later due time: a grant may come and lapse meanwhile.
            visitor.returned = true;
        }
        match kind {
            Kind::Enter if open => {
                // Each request asks again, so the first one after the outage finds the line.
                if !std::mem::replace(&mut visitor.through, true) {
                    self.tally.through += 1;
                    visitor.until = now + session_ms;
                }
                self.gateways_requests(v, u64::from(self.options.page_requests) - 1);
                let later = now + self.think(now, v);
                self.plan(later, v, Next::Enter);
            }
            Kind::Poll if open => {
                let later = now + self.round_trip(v);
                self.plan(later, v, Next::Enter);
            }
            Kind::Poll => self.try_later(now, v, Next::Poll),
            _ => self.try_later(now, v, Next::Enter),
        }
    }

    /// The gateway has too much in hand: newcomers come later, others go on without the store.
    pub(super) fn busy(&mut self, now: u32, v: u32, kind: Kind) {
        self.tally.busy += 1;
        match kind {
            Kind::Enter => self.try_later(now, v, Next::Enter),
            Kind::Poll => self.try_later(now, v, Next::Poll),
            Kind::Beat | Kind::Leave => self.without_store(now, v, kind),
        }
    }

    /// Its gateway ended with the operation in hand.
    pub(super) fn retry(&mut self, now: u32, sent: Sent) {
        let v = sent.visitor;
        let later = now + self.chance.between(v, Draw::Retry, now, RETRY_MS.0, RETRY_MS.1);
        match sent.kind {
            Kind::Enter => self.plan(later, v, Next::Enter),
            Kind::Poll => self.plan(later, v, Next::Poll),
            Kind::Beat => self.plan(later, v, Next::Page),
            Kind::Leave => {}
        }
    }

    fn try_later(&mut self, now: u32, v: u32, next: Next) {
        let late = self.chance.between(v, Draw::Lateness, now, 0, LATER_MS / 10);
        self.plan(now + LATER_MS + late, v, next);
    }

    fn plan_page(&mut self, now: u32, v: u32) {
        let at = (now + self.think(now, v)).min(self.visitors[v as usize].until.max(now + 1));
        self.plan(at, v, Next::Page);
    }

    fn plan(&mut self, at: u32, v: u32, next: Next) {
        self.visitors[v as usize].next = next;
        self.wheel.file(at, v);
    }

    /// Gives a visitor another admission; 0: takes it.
    fn hold(&mut self, v: u32, issued: u32, expires: u32) {
        let visitor = &mut self.visitors[v as usize];
        self.holders.moved(visitor.expires, expires);
        (visitor.issued, visitor.expires) = (issued, expires);
        let held = self.holders.count;
        self.tally.holders_max = self.tally.holders_max.max(held);
    }

    fn finish(&mut self, now: u32, v: u32) {
        debug_assert!(self.visitors[v as usize].until <= now);
        self.tally.finished += 1;
        self.leave(v);
    }

    fn connect(&mut self, now: u32, v: u32) {
        let g = self.gateway_of(v) as usize;
        self.gateways[g].connections += 1;
        self.tally.at(now).handshakes += 1;
    }

    /// Goes for good.
    fn leave(&mut self, v: u32) {
        let g = self.gateway_of(v) as usize;
        self.gateways[g].connections -= 1;
        self.visitors[v as usize].next = Next::Nothing;
    }

    fn gateways_requests(&mut self, v: u32, n: u64) {
        let g = self.gateway_of(v) as usize;
        self.gateways[g].requests += n;
    }

    fn round_trip(&self, v: u32) -> u32 {
        self.chance.between(v, Draw::RoundTrip, 0, ROUND_TRIP_MS.0, ROUND_TRIP_MS.1)
    }

    fn session(&self, v: u32) -> u32 {
        let mean_ms = f64::from(self.options.session_s) * 1e3;
        self.chance.exponential(v, Draw::Session, 0, mean_ms).clamp(1_000, 86_400_000)
    }

    fn think(&self, now: u32, v: u32) -> u32 {
        let mean_ms = f64::from(self.options.page_every_s) * 1e3;
        self.chance.exponential(v, Draw::NextPage, now, mean_ms).clamp(1_000, 3_600_000)
    }

    /// How much later a hidden tab's timer runs.
    fn asleep(&self, now: u32, v: u32) -> u32 {
        if self.chance.share(v, Draw::Hidden, 0) < self.options.hidden {
            self.chance.between(v, Draw::Hidden, now, 0, HIDDEN_MS)
        } else {
            0
        }
    }
}
