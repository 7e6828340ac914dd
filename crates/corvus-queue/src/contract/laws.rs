//! The nine laws (section 7 of the specification), each on random traces.

use proptest::{prelude::*, test_runner::Config};

use super::{
    Pair, Peek, Store, settings, sid,
    tape::{self, Taped},
    with_rate,
    world::{Call, GATEWAYS, START, Step, VISITORS, World, calm, live, wild},
};
use crate::op::{Answer, Op};

type Verdict = Result<(), TestCaseError>;

/// 256 cases, or as many as `CORVUS_LAW_CASES` says.
pub(crate) fn config() -> Config {
    let cases = std::env::var("CORVUS_LAW_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(256);
    Config { cases, max_shrink_iters: 20_000, failure_persistence: None, ..Config::default() }
}

fn trace(step: impl Strategy<Value = Step>) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step, 0..80)
}

/// A world past its first five seconds, in which both gateways are known.
fn world<S: Store>(capacity: u64) -> World<S> {
    let settings = settings(capacity);
    let mut world = World::new(S::open(&settings), settings, VISITORS, GATEWAYS);
    world.wait(6_000);
    world
}

/// Runs a trace; `check` sees each call.
fn run<S: Store>(
    world: &mut World<S>,
    steps: &[Step],
    mut check: impl FnMut(&mut World<S>, &Step, &[Call]) -> Verdict,
) -> Verdict {
    for step in steps {
        world.calls.clear();
        world.step(step);
        let calls = std::mem::take(&mut world.calls);
        for call in &calls {
            prop_assert!(
                call.after.queue.keys().all(|sid| !call.after.active.contains_key(sid)),
                "in queue and active at once"
            );
        }
        check(world, step, &calls)?;
    }
    Ok(())
}

fn never_over_capacity(call: &Call, capacity: u64) -> Verdict {
    if call.admissions() > 0 {
        let occupied = call.after.active.len() as u64 + call.after.owed;
        // A session that is put back after the pass comes on top, and was held for by `owed`.
        let on_top = u64::from(call.put_back());
        prop_assert!(occupied <= capacity + on_top, "{:?}: {occupied} of {capacity}", call.op);
    }
    Ok(())
}

/// The lowest live ticket first, and newcomers only when nobody live waits.
fn in_order<S: Store>(call: &Call, world: &World<S>) -> Verdict {
    let waiting = live(&call.before, &world.settings, call.now);
    let still = |(_, sid): &&(u64, _)| call.after.queue.contains_key(sid);
    let passed_over = waiting.iter().filter(still).min();
    for (sid, _) in call.after.active.iter().filter(|(s, _)| !call.before.active.contains_key(s)) {
        if let Some(ticket) = call.before.queue.get(sid).filter(|_| !call.put_back()) {
            prop_assert!(passed_over.is_none_or(|first| (*ticket, *sid) < *first));
        }
    }
    let newcomer = matches!(call.answer(), Some(Answer::Admitted { joined: true, .. }));
    prop_assert!(!newcomer || passed_over.is_none(), "a newcomer overtook {passed_over:?}");
    Ok(())
}

fn l1_capacity<S: Store>(capacity: u64, steps: &[Step]) -> Verdict {
    run(&mut world::<S>(capacity), steps, |_, _, calls| {
        for call in calls {
            prop_assert!(call.after.active.len() as u64 <= capacity);
        }
        Ok(())
    })
}

fn l1_capacity_through_faults<S: Store>(capacity: u64, steps: &[Step]) -> Verdict {
    run(&mut world::<S>(capacity), steps, |world, _, calls| {
        calls.iter().try_for_each(|call| never_over_capacity(call, world.settings.capacity))
    })
}

fn l2_order<S: Store>(capacity: u64, steps: &[Step]) -> Verdict {
    run(&mut world::<S>(capacity), steps, |world, _, calls| {
        calls.iter().try_for_each(|call| in_order(call, world))
    })
}

/// `total`: outages of all gateways and clock steps; else wipes, failovers and outages of some.
fn l3_place<S: Store>(capacity: u64, total: bool, faults: &[(u8, usize, usize, u64)]) -> Verdict {
    let mut world = world::<S>(capacity);
    let mut first = [None; VISITORS];
    // Store time by which each visitor's next check-in is in time.
    let mut until = [u64::MAX; VISITORS];
    let mut outage = 0;
    for &(kind, v, g, ms) in faults {
        match (kind, total) {
            (0, false) => world.step(&Step::Wipe),
            (1, false) => world.step(&Step::Replicate),
            (2, false) => world.step(&Step::Failover),
            (3, false) => world.step(&Step::Cut(1)),
            (4, false) => world.step(&Step::Mend(1)),
            (0 | 1, true) => {
                (0..GATEWAYS).for_each(|g| world.step(&Step::Cut(g)));
                outage += 6_000 + ms * 10;
                world.time += 6_000 + ms * 10;
                (0..GATEWAYS).for_each(|g| world.step(&Step::Mend(g)));
                world.wait(1);
            }
            (2, true) => {
                let by = (6_000 + ms).cast_signed();
                world.step(&Step::Clock(if g == 0 { by } else { -by }));
                world.wait(1);
                outage += ms + 6_000;
            }
            (5, _) => {
                world.step(&Step::Leave(v, 0));
                (first[v], until[v]) = (None, u64::MAX);
            }
            _ => {
                let mut left = ms * 3;
                while left > 0 {
                    let part = left.min(1_000);
                    world.wait(part);
                    left -= part;
                }
            }
        }
        if outage > 0 {
            // Nobody could check in: after a gap there are 30 s and `queue_ttl` to do it in.
            let resumed = world.now() + 30_000 + world.settings.queue_ttl_ms;
            for until in until.iter_mut().filter(|until| **until != u64::MAX) {
                *until = resumed.max(world.now());
            }
            outage = 0;
        }
        for w in 0..VISITORS {
            // In time, but often just so: with what one step above can take still to spare.
            let slack = 70_000 + 1_000 * w as u64;
            let late = until[w] != u64::MAX && world.now() + slack > until[w];
            if !late && w != v {
                continue;
            }
            let answer = if until[w] == u64::MAX { world.enter(w, g) } else { world.poll(w, g) };
            match answer {
                Some(Answer::Waiting(waiting)) => {
                    let ticket = world.ticket(w).unwrap();
                    let given = *first[w].get_or_insert(ticket);
                    prop_assert!(ticket <= given, "visitor {w}: {given} became {ticket}");
                    until[w] = waiting.due_ms + world.settings.queue_ttl_ms;
                }
                Some(Answer::Ready | Answer::Admitted { .. }) => {
                    // Its turn: it goes in, and out again.
                    world.enter(w, g);
                    prop_assert!(world.is_inside(w));
                    world.leave(w, 0);
                    (first[w], until[w]) = (None, u64::MAX);
                }
                Some(other) => {
                    prop_assert!(first[w].is_none(), "visitor {w} lost its place: {other:?}");
                }
                // A cut-off gateway gave the place a later due time.
                None => {
                    if let Some(place) = world.visitors[w].place {
                        until[w] = place.due_ms + world.settings.queue_ttl_ms;
                    }
                }
            }
        }
    }
    Ok(())
}

fn l4_progress<S: Store>(capacity: u64, steps: &[Step]) -> Verdict {
    run(&mut world::<S>(capacity), steps, |world, _, _| {
        let reply = world.call(0, None);
        let now = world.now();
        let peek = world.store.peek(now);
        let waiting = live(&peek, &world.settings, now);
        prop_assert!(reply.more || peek.free < 1 || waiting.is_empty());
        Ok(())
    })
}

/// A call that arrives twice leaves what it leaves once.
fn l5_once<S: Store>(capacity: u64, rate: Option<u32>, steps: &[Step]) -> Verdict {
    let mut world = world::<S>(capacity);
    if let Some(count) = rate {
        world.configure(with_rate(capacity, f64::from(count), 2.0));
    }
    run(&mut world, steps, |world, _, calls| {
        let Some(op) = calls.last().and_then(|call| call.op) else { return Ok(()) };
        if matches!(op, Op::Flush | Op::ReleaseAll) {
            return Ok(());
        }
        let now = world.now();
        let caller = world.caller(0);
        let (mut once, mut twice, mut batch) =
            (world.store.copy(), world.store.copy(), world.store.copy());
        once.call(now, caller, &[op]);
        once.call(now, caller, &[]);
        twice.call(now, caller, &[op]);
        twice.call(now, caller, &[op]);
        prop_assert_eq!(once.peek(now), twice.peek(now), "{:?}", op);
        batch.call(now, caller, &[op, op]);
        batch.call(now, caller, &[]);
        prop_assert_eq!(once.peek(now), batch.peek(now), "{:?}", op);
        Ok(())
    })
}

fn l6_rate<S: Store>(count: u32, per_s: u32, steps: &[Step], wipe_at: usize) -> Verdict {
    let (rate, mut admitted) = (f64::from(count) / f64::from(per_s), Vec::new());
    let mut world = world::<S>(100);
    world.configure(with_rate(100, f64::from(count), f64::from(per_s)));
    let mut n = 0;
    run(&mut world, steps, |world, _, calls| {
        for call in calls {
            admitted.extend((0..call.admissions()).map(|_| call.now));
        }
        n += 1;
        if n == wipe_at {
            world.step(&Step::Wipe);
        }
        Ok(())
    })?;
    // Without a rate the bucket is neither filled nor taken from: it may be full at the start.
    for (i, from) in admitted.iter().enumerate() {
        for (j, to) in admitted.iter().enumerate().skip(i) {
            let bound = rate * (to - from) as f64 / 1_000.0 + rate.max(1.0);
            prop_assert!((j - i + 1) as f64 <= bound + 1e-6, "{} in {} ms", j - i + 1, to - from);
        }
    }
    Ok(())
}

/// Two worlds whose store clocks and gateway clocks have nothing in common but their pace see
/// the same things.
fn l7_clock<S: Store>(capacity: u64, by: u64, steps: &[Step]) -> Verdict {
    let mut here = world::<S>(capacity);
    let settings = settings(capacity);
    let mut there = World::new(S::open(&settings), settings, VISITORS, GATEWAYS);
    there.step(&Step::Clock(by.cast_signed()));
    // The gateways' own clock, while the store's shows what it showed.
    there.time += 77_777_777;
    there.step(&Step::Clock(-77_777_777));
    there.wait(6_000);
    for step in steps {
        here.step(step);
        there.step(step);
        prop_assert_eq!(there.now() - here.now(), by);
        let (a, b) = (here.now(), there.now());
        prop_assert_eq!(here.store.peek(a), shifted(there.store.peek(b), by), "{:?}", step);
    }
    Ok(())
}

/// A wipe that every gateway survives lets nobody in on top of those inside.
fn l8_recovery<S: Store>(capacity: u64, steps: &[Step]) -> Verdict {
    run(&mut world::<S>(capacity), steps, |world, _, calls| {
        for call in calls {
            never_over_capacity(call, capacity)?;
            in_order(call, world)?;
        }
        let now = world.now();
        let inside = (0..VISITORS)
            .filter(|v| world.visitors[*v].admission.is_some_and(|a| a.expires_ms > now))
            .count() as u64;
        prop_assert!(inside <= capacity, "{inside} inside, {capacity} may be");
        Ok(())
    })
}

/// A failover lets in on top at most what was let in since the replica was made.
fn l8_recovery_from_a_failover<S: Store>(
    capacity: u64,
    before: &[Step],
    lost: &[Step],
    after: &[Step],
) -> Verdict {
    let mut world = world::<S>(capacity);
    run(&mut world, before, |_, _, _| Ok(()))?;
    world.step(&Step::Replicate);
    let mut admitted = 0;
    run(&mut world, lost, |_, _, calls| {
        admitted += calls.iter().map(Call::admissions).sum::<u64>();
        Ok(())
    })?;
    world.step(&Step::Failover);
    run(&mut world, after, |world, _, calls| {
        calls.iter().try_for_each(|call| never_over_capacity(call, world.settings.capacity))?;
        let now = world.now();
        let inside = (0..VISITORS)
            .filter(|v| world.visitors[*v].admission.is_some_and(|a| a.expires_ms > now))
            .count() as u64;
        prop_assert!(inside <= capacity + admitted, "{inside} inside, {admitted} lost");
        Ok(())
    })
}

/// The laws as tests on one engine.
macro_rules! laws_on {
    ($engine:ident, $store:ty) => {
        mod $engine {
            use super::*;

            proptest! {
                #![proptest_config(config())]

                #[test]
                fn l1_capacity(capacity in 0u64..4, steps in trace(calm())) {
                    super::l1_capacity::<$store>(capacity, &steps)?;
                }

                #[test]
                fn l1_capacity_through_faults(capacity in 0u64..4, steps in trace(wild())) {
                    super::l1_capacity_through_faults::<$store>(capacity, &steps)?;
                }

                #[test]
                fn l2_order(capacity in 1u64..4, steps in trace(wild())) {
                    super::l2_order::<$store>(capacity, &steps)?;
                }

                #[test]
                fn l3_place(capacity in 0u64..3, total: bool, faults in prop::collection::vec((0u8..10, 0..VISITORS, 0..GATEWAYS, 1u64..20_000), 0..80)) {
                    super::l3_place::<$store>(capacity, total, &faults)?;
                }

                #[test]
                fn l4_progress(capacity in 0u64..4, steps in trace(wild())) {
                    super::l4_progress::<$store>(capacity, &steps)?;
                }

                #[test]
                fn l5_once(capacity in 0u64..4, rate in prop::option::of(1u32..5), steps in trace(wild())) {
                    super::l5_once::<$store>(capacity, rate, &steps)?;
                }

                #[test]
                fn l6_rate(count in 1u32..20, per_s in 1u32..20, steps in trace(calm()), wipe_at in 0usize..160) {
                    super::l6_rate::<$store>(count, per_s, &steps, wipe_at)?;
                }

                #[test]
                fn l7_clock(capacity in 0u64..4, by in 1_000_000u64..1_000_000_000_000, steps in trace(wild())) {
                    super::l7_clock::<$store>(capacity, by, &steps)?;
                }

                #[test]
                fn l8_recovery(capacity in 1u64..4, steps in trace(prop_oneof![12 => calm(), 1 => Just(Step::Wipe)])) {
                    super::l8_recovery::<$store>(capacity, &steps)?;
                }

                #[test]
                fn l8_recovery_from_a_failover(capacity in 1u64..4, before in trace(calm()), lost in trace(calm()), after in trace(calm())) {
                    super::l8_recovery_from_a_failover::<$store>(capacity, &before, &lost, &after)?;
                }
            }

            #[test]
            fn l2_order_of_a_draw() {
                super::l2_order_of_a_draw::<$store>();
            }

            #[test]
            fn releasing_twice_frees_one_held_place() {
                super::releasing_twice_frees_one_held_place::<$store>();
            }
        }
    };
}

laws_on!(embedded, Pair);
laws_on!(valkey, Taped<tape::Valkey>);
laws_on!(redis, Taped<tape::Redis>);
laws_on!(cluster, Taped<tape::Cluster>);

proptest! {
    #![proptest_config(config())]

    /// What is saved in pieces along the way loads as what it was.
    #[test]
    fn a_saved_room_loads_as_it_was(capacity in 0u64..4, steps in trace(wild()), every in 1usize..9) {
        super::saved_alongside(&mut world(capacity), &steps, every);
    }
}

fn shifted(peek: Peek, by: u64) -> Peek {
    let back = |map: std::collections::BTreeMap<_, u64>, by: u64| {
        map.into_iter().map(|(sid, time)| (sid, time - by)).collect()
    };
    Peek {
        active: back(peek.active, by),
        queue: back(peek.queue, by * 1_000),
        seen: back(peek.seen, by),
        used: back(peek.used, by),
        left: back(peek.left, by),
        resumed_at: peek.resumed_at.saturating_sub(if peek.resumed_at == 0 { 0 } else { by }),
        ..peek
    }
}

/// The draw keeps its promise too: all who came before the start by lot and ahead of the others.
fn l2_order_of_a_draw<S: Store>() {
    let mut settings = settings(0);
    settings.schedule.opens_at_ms = Some(START - 60_000);
    settings.schedule.starts_at_ms = Some(START + 100_000);
    let mut world = World::new(S::open(&settings), settings.clone(), 40, 1);
    for v in 0..20 {
        world.wait(100);
        let Some(Answer::Waiting(waiting)) = world.enter(v, 0) else { panic!("not waiting") };
        assert_eq!(waiting.rank, None, "hidden until the start");
    }
    while world.now() < START + 100_000 {
        (0..20).for_each(|v| _ = world.poll(v, 0));
        world.wait(20_000);
    }
    for v in 20..40 {
        world.enter(v, 0);
    }
    let order = |world: &mut World<S>| {
        let now = world.now();
        let mut order: Vec<_> =
            world.store.peek(now).queue.into_iter().map(|(sid, ticket)| (ticket, sid)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, s)| (0..40).find(|v| sid(*v) == s).unwrap()).collect::<Vec<_>>()
    };
    let drawn = order(&mut world);
    assert_eq!(drawn[20..], (20..40).collect::<Vec<_>>(), "latecomers as they came");
    assert_ne!(drawn[..20], (0..20).collect::<Vec<_>>(), "the others by lot");
    // A wipe does not draw again.
    world.step(&Step::Wipe);
    (0..40).rev().for_each(|v| _ = world.poll(v, 0));
    assert_eq!(order(&mut world), drawn);
}

fn releasing_twice_frees_one_held_place<S: Store>() {
    let mut world = world::<S>(2);
    world.enter(0, 0);
    world.enter(1, 0);
    world.step(&Step::Wipe);
    world.wait(1_000);
    let admission = world.visitors[0].admission;
    for _ in 0..2 {
        world.call(0, Some(Op::Release { sid: sid(0), admission }));
    }
    let now = world.now();
    assert_eq!(world.store.peek(now).owed, 1);
}
