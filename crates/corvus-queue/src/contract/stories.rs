//! The traces that broke earlier drafts (section 8 of the specification), and the weak points of
//! the articles' design that an engine can mend.

use corvus_config::snapshot::{Method, QueueSettings};
use corvus_core::token::{Admission, Place, Ticket};

use super::{
    Store, settings, sid, with_rate,
    world::{START, Step, World},
};
use crate::op::{Answer, Caller, Op};

fn world<S: Store>(settings: QueueSettings, visitors: usize, gateways: usize) -> World<S> {
    let mut world = World::new(S::open(&settings), settings, visitors, gateways);
    world.wait(6_000);
    world
}

/// No gateway is in contact for `ms`.
fn outage<S: Store>(world: &mut World<S>, ms: u64) {
    world.time += ms;
}

/// `v` polls whenever the answer says so, for `ms`.
fn poll_for<S: Store>(world: &mut World<S>, visitors: &[usize], ms: u64) {
    let mut left = ms;
    while left > 0 {
        let part = left.min(3_000);
        world.wait(part);
        for v in visitors {
            world.poll(*v, 0);
        }
        left -= part;
    }
}

fn rank(answer: Option<Answer>) -> Option<u64> {
    match answer? {
        Answer::Waiting(waiting) => waiting.rank,
        _ => None,
    }
}

fn admitted(answer: Option<Answer>) -> bool {
    matches!(answer, Some(Answer::Admitted { .. }))
}

fn s01_rejoining_after_leaving_keeps_the_second_ticket_through_a_lapsed_grant<S: Store>() {
    let mut w = world::<S>(settings(1), 3, 1);
    w.enter(0, 0);
    assert_eq!(rank(w.enter(1, 0)), Some(1));
    let first = w.ticket(1).unwrap();
    w.wait(1_000);
    w.leave(1, 0);
    w.wait(1_000);
    w.enter(1, 0);
    let second = w.ticket(1).unwrap();
    assert!(second > first);
    w.leave(0, 0);
    w.wait(1_000);
    assert!(w.is_inside(1), "promoted");
    w.configure(settings(0));
    w.wait(36_000);
    assert!(!w.is_inside(1), "the grant lapsed");
    assert_eq!(rank(w.poll(1, 0)), Some(1));
    assert_eq!(w.ticket(1), Some(second));
}

fn s02_inside_after_an_outage_longer_than_the_session<S: Store>() {
    let mut w = world::<S>(settings(1), 2, 1);
    assert!(admitted(w.enter(0, 0)));
    outage(&mut w, 70_000);
    // The newcomer comes first, and finds the place taken.
    assert_eq!(rank(w.enter(1, 0)), Some(1));
    assert!(w.is_inside(0));
}

fn s03_a_failover_that_lost_a_promotion_leaves_the_session_inside_once<S: Store>() {
    let mut w = world::<S>(settings(1), 2, 1);
    w.enter(0, 0);
    w.enter(1, 0);
    w.step(&Step::Replicate);
    w.leave(0, 0);
    w.wait(1_000);
    assert!(admitted(w.enter(1, 0)));
    w.step(&Step::Failover);
    assert!(w.is_waiting(1), "the replica is behind");
    w.wait(16_000);
    assert!(admitted(w.enter(1, 0)));
    assert!(w.is_inside(1) && !w.is_waiting(1));
}

fn s04_after_a_wipe_places_are_held_for_those_inside<S: Store>() {
    let mut w = world::<S>(settings(3), 5, 1);
    assert!(admitted(w.enter(0, 0)) && admitted(w.enter(1, 0)));
    w.step(&Step::Wipe);
    for v in 2..5 {
        assert!(!admitted(w.enter(v, 0)), "newcomer {v} waits for the survivors to report");
    }
    w.wait(16_000);
    assert!(admitted(w.enter(0, 0)) && admitted(w.enter(1, 0)), "the two return");
    w.wait(1_000);
    let in_now: Vec<usize> = (2..5).filter(|v| w.is_inside(*v)).collect();
    assert_eq!(in_now, [2], "one newcomer was let in, not three");
}

fn s05_nobody_loses_a_slot_while_nobody_was_in_contact<S: Store>() {
    let mut w = world::<S>(settings(1), 2, 1);
    assert!(admitted(w.enter(0, 0)));
    outage(&mut w, 61_000);
    assert!(!admitted(w.enter(1, 0)));
    // Its token ran out meanwhile: as a new request, and still inside.
    assert!(admitted(w.enter(0, 0)));
    let now = w.now();
    assert_eq!(w.store.peek(now).active.len(), 1);
}

fn s06_vanished_grants_cost_grant_ttl_not_active_ttl<S: Store>() {
    let mut w = world::<S>(settings(2), 5, 1);
    (0..5).for_each(|v| _ = w.enter(v, 0));
    w.leave(0, 0);
    w.leave(1, 0);
    w.wait(1_000);
    assert!(w.is_inside(2) && w.is_inside(3), "promoted, and never come back");
    outage(&mut w, 7_000);
    poll_for(&mut w, &[4], 30_000);
    assert!(w.is_inside(4));
}

fn s07_a_wipe_after_release_all_costs_five_seconds<S: Store>() {
    let mut w = world::<S>(settings(2), 3, 1);
    w.enter(0, 0);
    w.enter(1, 0);
    w.step(&Step::ReleaseAll);
    w.wait(1_000);
    w.step(&Step::Wipe);
    w.enter(2, 0);
    w.wait(6_000);
    assert!(w.is_inside(2));
}

fn s08_a_failover_that_lost_a_heartbeat_gives_nobodys_slot_away<S: Store>() {
    let mut w = world::<S>(settings(1), 2, 1);
    w.enter(0, 0);
    w.step(&Step::Replicate);
    w.wait(50_000);
    assert!(admitted(w.enter(0, 0)), "a heartbeat");
    w.step(&Step::Failover);
    w.enter(1, 0);
    poll_for(&mut w, &[1], 30_000);
    assert!(w.is_inside(0) && w.is_waiting(1));
}

fn s09_a_heartbeat_just_too_late_takes_no_slot<S: Store>() {
    let mut w = world::<S>(settings(1), 3, 1);
    w.enter(0, 0);
    let old = w.visitors[0].admission.unwrap();
    poll_for(&mut w, &[], 58_000);
    w.enter(1, 0);
    w.enter(2, 0);
    let ticket = w.ticket(2);
    w.time = w.time + old.expires_ms - w.now() + 5;
    let op = Op::Heartbeat { admission: old, place: None, join: true };
    let reply = w.call(0, Some(op));
    assert!(matches!(reply.answers[0], Answer::Waiting(_)), "{:?}", reply.answers);
    assert!(w.is_inside(1), "the next was promoted");
    assert_eq!(reply.inside, 1);
    // And who waits does not get another ticket for an old admission.
    let stale = Admission { sid: sid(2), ..old };
    w.call(0, Some(Op::Heartbeat { admission: stale, place: None, join: true }));
    let now = w.now();
    assert_eq!(w.store.peek(now).queue.get(&sid(2)).copied(), ticket);
}

fn s10_a_clock_thirty_seconds_back_stops_nothing_and_keeps_the_order<S: Store>() {
    let mut w = world::<S>(with_rate(2, 1.0, 1.0), 6, 1);
    (0..4).for_each(|v| _ = w.enter(v, 0));
    poll_for(&mut w, &[2, 3], 3_000);
    w.step(&Step::Clock(-30_000));
    w.wait(1_000);
    w.leave(0, 0);
    w.wait(3_000);
    assert!(w.is_inside(2), "admissions go on");
    let mut w = world::<S>(settings(0), 6, 1);
    (0..3).for_each(|v| _ = w.enter(v, 0));
    w.step(&Step::Wipe);
    w.step(&Step::Clock(-30_000));
    (0..3).rev().for_each(|v| _ = w.poll(v, 0));
    assert_eq!(rank(w.enter(5, 0)), Some(4), "behind returned places");
    assert_eq!(rank(w.poll(0, 0)), Some(1));
}

fn s11_a_lapsed_grant_keeps_its_place_through_an_outage<S: Store>() {
    let mut w = world::<S>(settings(1), 2, 1);
    w.enter(0, 0);
    w.enter(1, 0);
    let ticket = w.ticket(1);
    w.leave(0, 0);
    w.wait(1_000);
    assert!(w.is_inside(1));
    w.configure(settings(0));
    w.wait(35_000);
    outage(&mut w, 170_000);
    assert_eq!(rank(w.poll(1, 0)), Some(1));
    assert_eq!(w.ticket(1), ticket);
}

fn s12_a_flushed_place_reissued_by_a_cut_off_gateway_is_refused<S: Store>() {
    let mut w = world::<S>(settings(0), 2, 2);
    w.enter(0, 1);
    w.step(&Step::Cut(1));
    w.wait(1_000);
    w.step(&Step::Flush);
    w.poll(0, 1);
    w.step(&Step::Mend(1));
    w.wait(1_000);
    assert_eq!(w.poll(0, 1), Some(Answer::Gone));
    assert!(!w.is_waiting(0));
}

fn s13_passthrough_lets_waiters_pass_and_reject_tells_them<S: Store>() {
    let mut w = world::<S>(settings(1), 3, 1);
    (0..3).for_each(|v| _ = w.enter(v, 0));
    w.configure(QueueSettings { method: Method::Reject, ..settings(1) });
    assert_eq!(w.poll(1, 0), Some(Answer::Closed));
    assert_eq!(w.enter(2, 0), Some(Answer::Closed));
    let mut ended = settings(1);
    ended.schedule.ends_at_ms = Some(w.now());
    w.configure(ended);
    assert_eq!(w.poll(1, 0), Some(Answer::Closed));
    w.wait(16_000);
    assert!(admitted(w.enter(0, 0)), "who is inside stays");
    w.configure(QueueSettings { method: Method::Passthrough, ..settings(1) });
    assert_eq!(w.poll(1, 0), Some(Answer::Ready));
    assert!(admitted(w.enter(1, 0)) && admitted(w.enter(2, 0)));
    let now = w.now();
    assert_eq!((w.store.peek(now).active.len(), w.store.peek(now).queue.len()), (3, 0));
}

fn s14_an_open_stream_takes_no_slot_after_leaving<S: Store>() {
    let mut w = world::<S>(settings(1), 2, 1);
    w.enter(0, 0);
    let admission = w.visitors[0].admission.unwrap();
    w.wait(20_000);
    w.leave(0, 0);
    let op = Op::Heartbeat { admission, place: None, join: false };
    assert_eq!(w.call(0, Some(op)).answers, [Answer::Gone]);
    assert!(!w.is_inside(0));
    assert!(admitted(w.enter(1, 0)));
}

fn s15_two_thousand_five_hundred_dead_ahead_of_one_live<S: Store>() {
    let mut w = world::<S>(settings(0), 2_501, 1);
    w.calls.clear();
    for v in 0..2_500 {
        w.store.call(
            w.now(),
            Caller::new(9),
            &[Op::Enter { sid: sid(v), place: None, join: true }],
        );
    }
    w.enter(2_500, 0);
    // Its check-ins alone keep it alive.
    for _ in 0..14 {
        outage(&mut w, 4_900);
        w.poll(2_500, 0);
        outage(&mut w, 4_900);
        w.call(0, None);
    }
    w.poll(2_500, 0);
    w.time += 4_000;
    let now = w.now();
    assert!(w.store.peek(now).queue.len() <= 2_501);
    w.configure(settings(1));
    let mut passes = 1;
    while w.call(0, None).more {
        passes += 1;
    }
    assert!(passes <= 3, "{passes}");
    poll_for(&mut w, &[2_500], 30_000);
    assert!(w.is_inside(2_500));
}

// The weak points of the articles' design.

/// A grant outlives the check-in the visitor was told, however far back it was promoted.
fn w1_a_grant_outlives_the_told_poll_interval<S: Store>() {
    let mut w = world::<S>(QueueSettings { grant_ttl_ms: 10_000, ..settings(0) }, 3_000, 1);
    for v in 0..3_000 {
        let op = Op::Enter { sid: sid(v), place: None, join: true };
        w.store.call(w.now(), Caller::new(9), &[op]);
    }
    let Some(Answer::Waiting(last)) = w.enter(2_999, 0) else { panic!() };
    assert!(last.poll_ms > 10_000, "told to come after the bare grant would be gone");
    w.configure(QueueSettings { grant_ttl_ms: 10_000, ..settings(3_000) });
    while w.call(0, None).more {}
    assert!(w.is_inside(2_999));
    w.wait(last.poll_ms);
    assert!(admitted(w.enter(2_999, 0)));
    assert!(w.is_inside(2_999));
}

/// Whoever is gone counts neither in ranks nor against the limit.
fn w2_the_dead_do_not_count<S: Store>() {
    let mut w = world::<S>(QueueSettings { max_waiting: 3, ..settings(0) }, 5, 1);
    (0..3).for_each(|v| _ = w.enter(v, 0));
    assert_eq!(w.enter(3, 0), Some(Answer::Full));
    poll_for(&mut w, &[2], 126_000);
    assert_eq!(rank(w.poll(2, 0)), Some(1));
    assert_eq!(rank(w.enter(3, 0)), Some(2));
    let now = w.now();
    assert_eq!(w.store.peek(now).abandoned, 2);
}

fn w3_a_thousand_dead_ahead_of_one_live_cost_one_pass<S: Store>() {
    let mut w = world::<S>(settings(0), 1_001, 1);
    for v in 0..1_000 {
        let op = Op::Enter { sid: sid(v), place: None, join: true };
        w.store.call(w.now(), Caller::new(9), &[op]);
    }
    // All are due within 10 s of here, and dead 120 s later; nobody reaps in between.
    w.wait(100_000);
    w.enter(1_000, 0);
    w.configure(settings(1));
    // The clock of the dead runs out between two passes.
    w.step(&Step::Pause(true));
    poll_for(&mut w, &[1_000], 30_000);
    w.configure(settings(1));
    w.call(0, None);
    assert!(w.is_inside(1_000));
}

fn w4_a_wipe_and_a_heartbeat_put_back_whatever_the_capacity<S: Store>() {
    let mut w = world::<S>(settings(1), 1, 1);
    w.enter(0, 0);
    w.step(&Step::Wipe);
    w.configure(settings(0));
    w.wait(20_000);
    assert!(admitted(w.enter(0, 0)));
    assert!(w.is_inside(0));
}

/// A fixed window would let twice the rate pass at its edge.
fn w8_no_window_edge_doubles_the_rate<S: Store>() {
    let mut w = world::<S>(with_rate(1_000, 10.0, 1.0), 200, 1);
    w.configure(QueueSettings { paused: true, ..with_rate(1_000, 10.0, 1.0) });
    (0..200).for_each(|v| _ = w.enter(v, 0));
    w.configure(with_rate(1_000, 10.0, 1.0));
    w.calls.clear();
    (0..30).for_each(|_| w.wait(100));
    let admitted: Vec<(u64, u64)> =
        w.calls.iter().map(|call| (call.now, call.admissions())).collect();
    for (from, _) in &admitted {
        let window = admitted.iter().filter(|(at, _)| at >= from && at - from < 1_000);
        let count: u64 = window.map(|(_, n)| n).sum();
        assert!(count <= 20, "{count} within a second: rate and burst");
    }
    assert!(admitted.iter().map(|(_, n)| n).sum::<u64>() >= 30);
}

fn switching_between_fifo_and_random_waits_for_an_empty_line<S: Store>() {
    let mut w = world::<S>(settings(0), 4, 1);
    w.enter(0, 0);
    w.enter(1, 0);
    w.configure(QueueSettings { method: Method::Random, ..settings(0) });
    w.enter(2, 0);
    assert!(w.ticket(2) > w.ticket(1), "still first come");
    w.wait(1_000);
    w.step(&Step::Flush);
    w.wait(1_000);
    w.enter(3, 0);
    assert!(w.ticket(3).unwrap() < 1 << 52);
    let place = w.visitors[3].place;
    w.leave(3, 0);
    w.wait(1_000);
    w.enter(3, 0);
    let again = w.visitors[3].place;
    assert_eq!(place.map(|p| p.ticket), again.map(|p| p.ticket), "no second lot");
}

fn schedule_not_open_then_lots_then_closed<S: Store>() {
    let mut s = settings(1);
    s.schedule.opens_at_ms = Some(START + 10_000);
    s.schedule.starts_at_ms = Some(START + 20_000);
    s.schedule.ends_at_ms = Some(START + 200_000);
    let mut w = world::<S>(s, 3, 1);
    let opens_at_ms = START + 10_000;
    assert_eq!(w.enter(0, 0), Some(Answer::NotOpen { opens_at_ms }));
    w.wait(5_000);
    w.enter(0, 0);
    assert_eq!(w.visitors[0].place.map(|p| p.ticket), Some(Ticket::Lottery));
    w.wait(10_000);
    assert_eq!(w.poll(0, 0), Some(Answer::Ready));
    assert!(admitted(w.enter(0, 0)));
    w.wait(180_000);
    assert_eq!(w.enter(1, 0), Some(Answer::Closed));
}

/// Somebody else's place, or one of the future, gives nothing away and breaks nothing.
fn a_place_of_another_session_is_ignored<S: Store>() {
    let mut w = world::<S>(settings(0), 3, 1);
    w.enter(0, 0);
    let stolen = Place { ticket: Ticket::Number(1), ..w.visitors[0].place.unwrap() };
    let now = w.now();
    let op = Op::Enter { sid: sid(2), place: Some(stolen), join: true };
    let reply = w.store.call(now, w.caller(0), &[op]);
    assert!(matches!(reply.answers[0], Answer::Waiting(w) if w.rank == Some(2)));
}

/// The stories as tests on one engine.
macro_rules! stories_on {
    ($engine:ident, $store:ty) => {
        mod $engine {
            stories! { $store;
                s01_rejoining_after_leaving_keeps_the_second_ticket_through_a_lapsed_grant
                s02_inside_after_an_outage_longer_than_the_session
                s03_a_failover_that_lost_a_promotion_leaves_the_session_inside_once
                s04_after_a_wipe_places_are_held_for_those_inside
                s05_nobody_loses_a_slot_while_nobody_was_in_contact
                s06_vanished_grants_cost_grant_ttl_not_active_ttl
                s07_a_wipe_after_release_all_costs_five_seconds
                s08_a_failover_that_lost_a_heartbeat_gives_nobodys_slot_away
                s09_a_heartbeat_just_too_late_takes_no_slot
                s10_a_clock_thirty_seconds_back_stops_nothing_and_keeps_the_order
                s11_a_lapsed_grant_keeps_its_place_through_an_outage
                s12_a_flushed_place_reissued_by_a_cut_off_gateway_is_refused
                s13_passthrough_lets_waiters_pass_and_reject_tells_them
                s14_an_open_stream_takes_no_slot_after_leaving
                s15_two_thousand_five_hundred_dead_ahead_of_one_live
                w1_a_grant_outlives_the_told_poll_interval
                w2_the_dead_do_not_count
                w3_a_thousand_dead_ahead_of_one_live_cost_one_pass
                w4_a_wipe_and_a_heartbeat_put_back_whatever_the_capacity
                w8_no_window_edge_doubles_the_rate
                switching_between_fifo_and_random_waits_for_an_empty_line
                schedule_not_open_then_lots_then_closed
                a_place_of_another_session_is_ignored
            }
        }
    };
}

macro_rules! stories {
    ($store:ty; $($story:ident)*) => {
        $(#[test]
        fn $story() {
            super::$story::<$store>();
        })*
    };
}

stories_on!(embedded, crate::contract::Pair);
stories_on!(valkey, crate::contract::tape::Taped<crate::contract::tape::Valkey>);
stories_on!(redis, crate::contract::tape::Taped<crate::contract::tape::Redis>);
stories_on!(cluster, crate::contract::tape::Taped<crate::contract::tape::Cluster>);
