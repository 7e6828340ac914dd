use corvus_core::token::Ticket;
use corvus_queue::op::{Answer, Caller, Waiting};

use super::{
    browse::Moment,
    gateway::Sent,
    report::{Laws, Report},
    store::{START_MS, Store},
    visitor::Kind,
    *,
};

fn options(args: &str) -> Options {
    Options::parse_from_args(args.split_whitespace().map(ToOwned::to_owned)).unwrap()
}

fn simulate(args: &str) -> Report {
    report::of(&world::run(&options(args)).unwrap())
}

const SMALL: &str = "--visitors 2000 --capacity 50 --session-s 40 --active-ttl-s 60 --horizon 400";

/// `CORVUS_UPDATE_GOLDEN=1 cargo test -p xtask golden` writes it anew.
#[test]
fn a_seed_gives_the_golden_table() {
    let text = simulate(&format!("{SMALL} --rate 5 --seed 7")).to_string();
    let path = crate::root().join("xtask/src/simulate/golden.txt");
    if std::env::var_os("CORVUS_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap());
}

#[test]
fn a_seed_decides_everything() {
    let json = |seed: u32| {
        let report = simulate(&format!("{SMALL} --seed {seed}"));
        serde_json::to_value(&report).unwrap()
    };
    let (first, again, other) = (json(1), json(1), json(2));
    assert_eq!(first, again);
    assert_ne!(first["timeline"], other["timeline"]);
    assert_eq!(first["visitors"]["arrived"], 2000);
    assert_eq!(first["options"]["open_burst"]["s"], 60);
}

#[test]
fn without_faults_every_law_is_kept() {
    let all = [
        "",
        "--rate 3",
        "--rate 0.4 --window-ms 0",
        "--gateways 16 --window-ms 50",
        "--method random --rate 5",
        // Everybody comes too late for a grant, or for a place.
        "--hidden 1 --grant-ttl-s 5 --queue-ttl-s 30",
        "--late 1 --closing 0",
        "--capacity 1 --session-s 5 --leaving 1",
        "--max-waiting 100",
        "--open-burst 1@1 --leaving 0 --page-every-s 60",
        // Answers come a tenth of a second late.
        "--store-round-trip-us 100000",
    ];
    for (seed, args) in all.into_iter().enumerate() {
        let small = "--visitors 2000 --active-ttl-s 60 --horizon 400";
        let fixed = if args.contains("--capacity") { "" } else { "--capacity 50 --session-s 40" };
        let report = simulate(&format!("{small} {fixed} {args} --seed {seed}"));
        assert_eq!(report.laws, Laws::KEPT, "{args}\n{report}");
        assert_eq!(report.visitors.failed_calls, 0);
        assert!(report.visitors.admitted_after_waiting > 10, "{args}\n{report}");
    }
}

#[test]
fn visitors_add_up() {
    let report = simulate(&format!("{SMALL} --open-burst 1@60"));
    let v = &report.visitors;
    assert_eq!(v.arrived, 2_000);
    assert!(v.waiting_at_end > 0 && v.closed_while_waiting > 0 && v.place_lapsed > 0, "{report}");
    let let_in = v.admitted_directly + v.admitted_after_waiting;
    // Some of those who are gone for good or for a while are still in line, so not all are named.
    let named = let_in + v.waiting_at_end + v.closed_while_waiting;
    assert!((1_900..=2_150).contains(&named), "{named}\n{report}");
    assert!(v.finished <= let_in);
    let inside = report.timeline.last().unwrap().inside;
    assert!(inside <= 50 && let_in - v.finished <= inside, "{report}");
}

#[test]
fn the_rate_is_reached_and_never_passed() {
    let report = simulate("--visitors 3000 --capacity 5000 --rate 7 --horizon 200");
    assert_eq!(report.laws, Laws::KEPT);
    assert!((6.8..=7.05).contains(&report.visitors.admitted_per_s), "{report}");
    // A second's worth may be saved up.
    assert!(report.visitors.admitted_per_s_peak <= 14, "{report}");
}

#[test]
fn a_wiped_store_is_rebuilt_in_order_and_nobody_is_let_in_on_top() {
    let calm = simulate(SMALL);
    let report = simulate(&format!("{SMALL} --wipe-at 200"));
    let laws = &report.laws;
    // Order among those who return in different moments is not promised; the rest is.
    assert_eq!(*laws, Laws { out_of_order: laws.out_of_order, ..Laws::KEPT }, "{report}");
    let waiting = |s| report.timeline.iter().find(|p| p.s == s).unwrap().waiting;
    assert!(waiting(200) > 1_500, "{report}");
    let rebuilt = waiting(260);
    let never_lost = calm.timeline.iter().find(|p| p.s == 260).unwrap().waiting;
    // Without those who are gone, and with those who wait longer because places are held.
    assert!(rebuilt.abs_diff(never_lost) * 10 < never_lost, "{rebuilt} of {never_lost}");
    assert!(report.visitors.joined < calm.visitors.joined + 20, "places, not new tickets");
}

#[test]
fn while_the_store_is_away_the_policy_decides() {
    let args = format!("{SMALL} --gateways 3 --store-down 150-210");
    let open = simulate(&args);
    assert!(open.visitors.let_through > 500, "{open}");
    let closed = simulate(&format!("{args} --on-store-failure closed"));
    assert_eq!(closed.visitors.let_through, 0);
    for report in [open, closed] {
        let laws = &report.laws;
        assert_eq!((laws.thrown_out, laws.places_lost, laws.over_rate), (0, 0, 0), "{report}");
        assert_eq!(laws.over_capacity, 0, "{report}");
        // Each gateway tries again each three seconds.
        let failed = report.visitors.failed_calls;
        assert!((3 * 15..=3 * 20).contains(&failed), "{failed} failed calls");
        let away: Vec<_> = report.timeline.iter().filter(|p| (180..=200).contains(&p.s)).collect();
        assert!(away.iter().all(|p| p.admitted_per_s == 0.0), "{report}");
        assert!(report.timeline.last().unwrap().admitted_per_s > 0.0, "{report}");
    }
}

#[test]
fn the_visitors_of_a_killed_gateway_keep_their_places() {
    let args = format!("{SMALL} --gateways 3 --open-burst 1@60");
    let (calm, killed) = (simulate(&args), simulate(&format!("{args} --kill-gateway-at 150")));
    assert_eq!(killed.laws, Laws::KEPT, "{killed}");
    let (all, left) = (calm.visitors.waiting_at_end, killed.visitors.waiting_at_end);
    assert!(left.abs_diff(all) * 20 < all, "{left} instead of {all}");
    let of = |report: &Report, what: &str| {
        report.load.iter().find(|load| load.what == what).unwrap().peak
    };
    let busiest = "connections, busiest gateway";
    assert!(of(&killed, busiest) > 1.3 * of(&calm, busiest), "{killed}");
    assert!(of(&killed, "connections") <= of(&calm, "connections") + 20.0, "{killed}");
}

#[test]
fn a_store_that_is_too_slow_is_seen_and_named() {
    let report = simulate(&format!("{SMALL} --op-us 20000 --open-burst 1@5"));
    assert!(report.visitors.failed_calls > 0, "{report}");
    assert!(report.sizing.store_cores_peak > 0.9, "{report}");
    let words = report.sizing.recommendation.join("\n");
    assert!(words.contains("does not carry this opening") && words.contains("overrun"), "{words}");
}

#[test]
fn operations_gather_in_calls() {
    let crowd = "--visitors 20000 --gateways 1 --capacity 50 --horizon 120 --open-burst 1@20";
    let at_once = simulate(&format!("{crowd} --window-ms 0"));
    let gathered = simulate(&format!("{crowd} --window-ms 20"));
    let mean = |report: &Report| report.ops_per_call_mean.unwrap();
    // 1,000 joins a second: 20 in 20 ms, 22 with the call under way.
    assert!(mean(&gathered) > 5.0 * mean(&at_once), "{} {}", mean(&at_once), mean(&gathered));
    assert!((15..=40).contains(&gathered.ops_per_call_p95.unwrap()), "{gathered}");
}

#[test]
fn costs_become_machines() {
    let of = |args: &str| simulate(&format!("{SMALL} {args}")).sizing;
    let (base, twice) = (
        of(""),
        of("--waiter-bytes 500 --connection-bytes 100000 --request-us 90 \
                                     --handshake-us 1000"),
    );
    let double = |a: f64, b: f64| (b / a - 2.0).abs() < 1e-9;
    assert!(double(base.store_bytes, twice.store_bytes));
    assert!(double(base.gateway_bytes, twice.gateway_bytes));
    assert!(double(base.gateway_cores_peak, twice.gateway_cores_peak));
    assert_eq!(base.gateways, 2, "one, and one that may fail");
    // 2,000 connections of 30 MB are 60 GB, and half of 16 GB may be used.
    assert!((8..=9).contains(&of("--connection-bytes 30000000").gateways));
}

#[test]
fn breaches_are_seen() {
    let options = options(SMALL);
    let mut world = world::run(&options).unwrap();
    let waiting = |ticket| {
        Answer::Waiting(Waiting {
            rank: Some(1),
            eta_ms: None,
            poll_ms: 3_000,
            issued_ms: START_MS + 1_000,
            ticket: Ticket::Number(ticket),
            due_ms: START_MS + 4_000,
            joined: false,
        })
    };
    let (sent, moment) = (
        Sent { visitor: 0, kind: Kind::Poll, at_ms: 1_000 },
        Moment { now_ms: 1_000, told_ms: 1_000, let_in: 50 },
    );
    world.visitors[0] = visitor::Visitor { ticket: 60, due: 1_000, ..visitor::Visitor::NEW };
    let before = (world.tally.out_of_order, world.tally.places_lost);
    world.answered(moment, sent, &waiting(60));
    assert_eq!((world.tally.out_of_order, world.tally.places_lost), before);
    world.answered(Moment { let_in: 61, ..moment }, sent, &waiting(60));
    assert_eq!((world.tally.out_of_order, world.tally.places_lost), (before.0 + 1, before.1));
    world.answered(moment, sent, &waiting(70));
    assert_eq!((world.tally.out_of_order, world.tally.places_lost), (before.0 + 1, before.1 + 1));
}

/// A store that obeys other settings than those it is judged by.
#[test]
fn too_many_inside_and_too_fast_are_seen() {
    let generous = options("--capacity 100 --rate 1000").settings().unwrap();
    let mut store = Store::new(&options(""), generous);
    store.judge_by(options("--capacity 3 --rate 2").settings().unwrap());
    store.call(0, Caller::new(1), &[]);
    let chance = chance::Chance::new(1);
    let ops: Vec<_> =
        (0..5).map(|v| visitor::Visitor::NEW.op(Kind::Enter, visitor::sid(chance, v))).collect();
    let called = store.call(6_000_000, Caller::new(1), &ops);
    assert_eq!(called.reply.unwrap().inside, 5);
    assert_eq!((store.laws.over_capacity, store.laws.over_rate), (1, 1));
}

#[test]
fn arguments_are_refused_with_a_reason() {
    for (args, reason) in [
        ("--visitors 0", "0 is not in 1..=20000000"),
        ("--visitors many", "invalid digit"),
        ("--visiters 5", "--visitors"),
        ("--gateways 257", "257 is not in 1..=256"),
        ("--rate 0", "from 0.001"),
        ("--open-burst 0.8", "write SHARE@SECONDS"),
        ("--open-burst 1.2@60", "write SHARE@SECONDS"),
        ("--hidden 30", "from 0 to 1"),
        ("--hidden NaN", "from 0 to 1"),
        ("--method passthrough", "[possible values: fifo, random]"),
        ("--store-down 60", "write FROM-TO"),
        ("--store-down 60-30", "write FROM-TO"),
        ("--wipe-at 900", "--wipe-at 900 is not before --horizon 900"),
        ("--store-down 900-950", "--store-down 900 is not before --horizon 900"),
        ("--gateways 1 --kill-gateway-at 5", "at least two --gateways"),
        ("--horizon 30", "longer than --horizon 30"),
        ("--horizon 60", "leaves no time for the others"),
        ("--active-ttl-s 15", "must be more than --refresh-s 15"),
        ("--op-us -1", "unexpected argument"),
        ("--op-us 0", "above 0"),
        ("--op-us inf", "above 0"),
    ] {
        let error = Options::parse_from_args(args.split(' ').map(ToOwned::to_owned)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(reason), "{args}: {text}");
        assert_eq!(error.exit_code(), 2, "{args}");
    }
}
