use corvus_core::token::{Admission, Place, Sid, Ticket};
use corvus_testkit::{
    ChaosProxy,
    store::{Data, StoreOptions, StoreServer},
};
use futures_util::future::join_all;

use super::*;
use crate::{
    contract::{settings, sid},
    op::Waiting,
    valkey::thread::Thread,
};

fn keys() -> Arc<KeyStore> {
    Arc::new(KeyStore::open(None).unwrap())
}

/// A queue on a store, with a script of its own.
struct Bench {
    room: Arc<Room>,
    _thread: Thread,
}

fn bench(url: &str, capacity: u64, scripts: Scripts) -> Bench {
    let settings = settings(capacity);
    let (room, requests) = room(settings, keys(), Arc::new(Book::open(None)));
    let thread = Thread::start().unwrap();
    let caterer = Caterer {
        link: Link::new(url.parse().unwrap()).unwrap(),
        scripts: Arc::new(scripts),
        gateway: 5,
        room: Arc::clone(&room),
    };
    thread.spawn(serve(caterer, requests));
    Bench { room, _thread: thread }
}

/// A script that answers every operation with "done", after `lua`, which may set `more`.
fn scripts(lua: &str) -> Scripts {
    Scripts::of(&format!(
        "local more, n = 0, redis.call('INCR', KEYS[1])
         {lua}
         local numbers = struct.pack('<dddddddddddddd', 1, 1, n, 0, 2, 3, 0, more, 9, 5, 0, 0, 0, 0)
         return numbers .. string.rep('d', #ARGV - 18)"
    ))
}

fn enter(i: usize) -> Op {
    Op::Enter { sid: sid(i), place: None, join: true }
}

fn waiting(reply: &Reply) -> Waiting {
    match reply.answers[..] {
        [Answer::Waiting(waiting)] => waiting,
        _ => panic!("{reply:?}"),
    }
}

fn calls(store: &StoreServer) -> u64 {
    store.cli(&["GET", "corvus:wr:{drop}:active"]).parse().unwrap_or(0)
}

/// How often the real script ran.
fn evaluations(store: &StoreServer) -> u64 {
    let stats = store.cli(&["INFO", "commandstats"]);
    let of = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(name));
        let calls = line.and_then(|line| line.split(['=', ',']).nth(1));
        calls.map_or(0, |calls| calls.parse::<u64>().unwrap())
    };
    of("cmdstat_evalsha:") + of("cmdstat_eval:")
}

#[tokio::test]
async fn thousands_share_few_calls_and_each_gets_its_own_answer() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let bench = bench(&store.url(), 100, Scripts::waitroom());
    bench.room.call(&[]).await.unwrap();

    // In waves: a machine that has much else to do takes its time for ten thousand.
    let wave = async |visitors: Vec<usize>| {
        let all = visitors.into_iter().map(|i| {
            let room = Arc::clone(&bench.room);
            async move { waiting(&room.call(&[enter(i)]).await.unwrap()).ticket }
        });
        join_all(all).await
    };
    let mut tickets = Vec::new();
    for start in (0..10_000).step_by(1_000) {
        tickets.extend(wave((start..start + 1_000).collect()).await);
    }
    let number = |ticket: &Ticket| match ticket {
        Ticket::Number(number) => *number,
        other => panic!("{other:?}"),
    };
    assert!(tickets.windows(2).all(|pair| number(&pair[0]) < number(&pair[1])), "in their order");
    let after = evaluations(&store);
    assert!(after < 200, "{after} calls");

    // Again, in another order: each is told what it was told before.
    let shuffled: Vec<usize> = (0..10_000).map(|i| (i * 7_919) % 10_000).collect();
    for visitors in shuffled.chunks(1_000) {
        let told = wave(visitors.to_vec()).await;
        for (i, ticket) in visitors.iter().zip(told) {
            assert_eq!(ticket, tickets[*i], "{i}");
        }
    }
    assert!(evaluations(&store) - after < 200);
    let level = bench.room.level().unwrap();
    assert_eq!((level.version, level.capacity), (1, 100));
}

#[tokio::test]
async fn several_operations_of_one_caller_stay_together() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let bench = bench(&store.url(), 1, Scripts::waitroom());
    let all = (0..200).map(|i| {
        let room = Arc::clone(&bench.room);
        async move {
            let ops = [enter(i), Op::Release { sid: sid(i), admission: None }, Op::Stats];
            room.call(&ops[..i % 4]).await.unwrap()
        }
    });
    for (i, reply) in join_all(all).await.into_iter().enumerate() {
        let kinds: Vec<&str> = reply
            .answers
            .iter()
            .map(|answer| match answer {
                Answer::Waiting(_) => "waiting",
                Answer::Done => "done",
                Answer::Stats(_) => "stats",
                _ => "other",
            })
            .collect();
        assert_eq!(kinds, ["waiting", "done", "stats"][..i % 4]);
    }
}

#[tokio::test]
async fn one_call_takes_512_operations() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let most = "redis.call('SET', KEYS[2], math.max(#ARGV - 18,
                    tonumber(redis.call('GET', KEYS[2]) or '0')))";
    let bench = bench(&store.url(), 1, scripts(most));
    let all = (0..5_000).map(|_| bench.room.call(&[Op::Stats]));
    assert!(join_all(all).await.into_iter().all(|reply| reply.unwrap().answers == [Answer::Done]));
    assert_eq!(store.cli(&["GET", "corvus:wr:{drop}:queue"]), "512");
    assert!((10..=30).contains(&calls(&store)), "{}", calls(&store));
}

#[tokio::test]
async fn a_slow_call_holds_the_next_for_five_milliseconds_only() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let proxy = ChaosProxy::start(store.addr());
    let bench = bench(&format!("redis://{}", proxy.addr()), 1, scripts(""));
    bench.room.call(&[]).await.unwrap();
    // One answer takes 300 ms; one after the other would miss the deadline.
    proxy.slow(Duration::from_millis(150));
    let all = (0..12).map(|i| {
        let room = Arc::clone(&bench.room);
        async move {
            tokio::time::sleep(Duration::from_millis(i * 7)).await;
            room.call(&[Op::Stats]).await
        }
    });
    let before = calls(&store);
    let outcomes = join_all(all).await;
    let made = calls(&store) - before;
    assert!(outcomes[..3].iter().all(Result::is_ok), "{outcomes:?}");
    assert!((4..=6).contains(&made), "four under way, the rest with the next: {made}");
}

#[tokio::test]
async fn a_script_that_wants_more_is_called_again_and_the_caller_not_told() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let bench = bench(&store.url(), 1, scripts("if n < 40 then more = 1 end"));
    assert!(!bench.room.call(&[]).await.unwrap().more);
    let begun = Instant::now();
    while calls(&store) < 40 {
        assert!(begun.elapsed() < Duration::from_secs(5), "{}", calls(&store));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(calls(&store), 40);
}

#[tokio::test]
async fn a_script_that_always_wants_more_is_left_after_a_thousand_calls() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let bench = bench(&store.url(), 1, scripts("more = 1"));
    bench.room.call(&[]).await.unwrap();
    // Others are served in between.
    let mut asked = 0;
    while calls(&store) < 900 {
        assert_eq!(bench.room.call(&[Op::Stats]).await.unwrap().answers, [Answer::Done]);
        asked += 1;
    }
    assert!(asked >= 1);
    let mut last = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = calls(&store);
        if now == last {
            break;
        }
        last = now;
    }
    assert!(last < 1_100, "{last}");
}

#[tokio::test]
async fn each_call_reports_what_the_latest_reply_said() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let note = "redis.call('RPUSH', KEYS[2], table.concat({unpack(ARGV, 2, 5)}, ' '))";
    let bench = bench(&store.url(), 1, scripts(note));
    for _ in 0..3 {
        bench.room.call(&[]).await.unwrap();
    }
    let told = store.cli(&["LRANGE", "corvus:wr:{drop}:queue", "0", "-1"]);
    for line in ["0000000000000005   ", "0000000000000005 1 5 1", "0000000000000005 1 5 2"] {
        assert!(told.contains(line), "{line}: {told}");
    }
}

#[test]
fn a_report_is_replaced_by_a_later_or_another_state_only() {
    let settings = settings(1);
    let level = Level::of(&settings, 1);
    let (room, _requests) = room(settings, keys(), Arc::new(Book::open(None)));
    let learn = |born_ms, n, claimed| {
        let reply = Reply {
            now_ms: 1,
            born_ms,
            n,
            inside: 0,
            claimed,
            owed: 0,
            waiting: 0,
            cfg: 1,
            more: false,
            answers: vec![],
        };
        room.learn(&reply, level);
        room.report().map(|report| (report.born_ms, report.n, report.claimed))
    };
    assert_eq!(room.report(), None);
    assert_eq!(learn(1, 5, 50), Some((1, 5, 50)));
    assert_eq!(learn(1, 4, 40), Some((1, 5, 50)), "overtaken on the way");
    assert_eq!(learn(1, 6, 60), Some((1, 6, 60)));
    assert_eq!(learn(2, 1, 10), Some((2, 1, 10)), "another state");
}

#[tokio::test]
async fn a_full_store_turns_newcomers_away_and_serves_the_others() {
    for kind in corvus_testkit::store::Kind::ALL {
        let Some(store) = StoreServer::start(StoreOptions::new(kind)) else { return };
        let bench = bench(&store.url(), 1, Scripts::waitroom());
        let first = waiting(&bench.room.call(&[enter(0)]).await.unwrap());
        let issued_ms = first.issued_ms;
        let admission = Admission { sid: sid(4), issued_ms, expires_ms: issued_ms + 60_000 };
        let release = Op::Release { sid: sid(4), admission: Some(admission) };
        bench.room.call(&[release]).await.unwrap();
        store.cli(&["CONFIG", "SET", "maxmemory", "1"]);

        let place = Place {
            sid: sid(0),
            issued_ms: first.issued_ms,
            ticket: first.ticket,
            due_ms: first.due_ms,
        };
        let known = Op::Enter { sid: sid(0), place: Some(place), join: true };
        let poll = Op::Poll { sid: sid(0), place: Some(place), admission: None };
        let stranger = Op::Poll { sid: sid(3), place: None, admission: None };
        let released = Op::Heartbeat { admission, place: None, join: true };
        let ops = [known, enter(1), poll, enter(2), stranger, released, Op::Stats];
        let outcomes = join_all(ops.iter().map(|op| bench.room.call(std::slice::from_ref(op))));
        let outcomes = outcomes.await;
        let [known, new, poll, new2, stranger, released, stats] = outcomes.as_slice() else {
            panic!()
        };
        assert_eq!(waiting(known.as_ref().unwrap()).ticket, first.ticket);
        assert_eq!(waiting(poll.as_ref().unwrap()).ticket, first.ticket);
        let away = Err(StoreError::TurnedAway);
        assert_eq!((new, new2, released), (&away, &away, &away));
        // It never asked to join, so to it nothing is full.
        assert_eq!(stranger.as_ref().unwrap().answers, [Answer::Gone]);
        assert!(matches!(stats.as_ref().unwrap().answers[..], [Answer::Stats(_)]));

        store.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        waiting(&bench.room.call(&[enter(1)]).await.unwrap());
    }
}

#[tokio::test]
async fn a_silent_store_fails_callers_in_time_and_more_than_can_wait_are_told_it_is_full() {
    let Some(mut store) = StoreServer::start(StoreOptions::default()) else { return };
    let bench = bench(&store.url(), 1, scripts(""));
    bench.room.call(&[]).await.unwrap();
    store.pause();
    let begun = Instant::now();
    let outcomes = join_all((0..200).map(|_| bench.room.call(&[Op::Stats]))).await;
    assert!(outcomes.iter().all(|o| matches!(o, Err(StoreError::Unreachable(_)))));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());

    let (mut full, mut unreachable) = (0, 0);
    for outcome in join_all((0..WAITING + 4_000).map(|_| bench.room.call(&[Op::Stats]))).await {
        match outcome {
            Err(StoreError::Full) => full += 1,
            Err(StoreError::Unreachable(_)) => unreachable += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(full >= 1_000 && unreachable >= 1_000, "{full} {unreachable}");

    store.resume();
    store.restart(Data::Wiped);
    let begun = Instant::now();
    while bench.room.call(&[]).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
    assert_eq!(bench.room.call(&[Op::Stats]).await.unwrap().answers, [Answer::Done]);
}

#[tokio::test]
async fn an_answer_that_is_none_of_the_script_is_a_failure() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    for source in ["return 1", "return 'short'", "error('boom')"] {
        let bench = bench(&store.url(), 1, Scripts::of(source));
        let outcome = bench.room.call(&[Op::Stats]).await;
        assert!(matches!(outcome, Err(StoreError::Unreachable(_))), "{source}: {outcome:?}");
    }
}

#[test]
fn only_what_could_join_is_barred() {
    let sid: Sid = sid(1);
    let mut ops = [
        Op::Enter { sid, place: None, join: true },
        Op::Enter { sid, place: None, join: false },
        Op::Poll { sid, place: None, admission: None },
        Op::Flush,
    ];
    assert_eq!(ops.each_mut().map(bar), [true, false, false, false]);
    assert_eq!(ops[0], ops[1]);
}
