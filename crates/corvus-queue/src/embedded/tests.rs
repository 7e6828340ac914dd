use std::{fs, time::Duration};

use corvus_config::snapshot::QueueSettings;
use corvus_core::{
    FakeClock,
    token::{Admission, Place, Sid, Ticket},
};

use super::*;
use crate::{
    contract::{gate, settings, sid},
    op::Answer,
};

struct Bench {
    dir: tempfile::TempDir,
    clock: FakeClock,
    id: Id,
}

impl Bench {
    fn new() -> Self {
        let clock = FakeClock::new(1_800_000_000_000);
        Self { dir: tempfile::tempdir().unwrap(), clock, id: Id::new("drop").unwrap() }
    }

    fn open(&self, capacity: u64) -> Embedded {
        let clock = Arc::new(self.clock.clone());
        let engine = Embedded::open_idle(Some(self.dir.path()), clock, [3; 16], true).unwrap();
        assert_eq!(engine.configure(&[queue(settings(capacity))]), []);
        engine
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("drop.journal")
    }

    fn enter(&self, engine: &Embedded, sid: Sid) -> Answer {
        let op = Op::Enter { sid, place: None, join: true };
        engine.call(&self.id, &[op]).unwrap().answers[0]
    }
}

fn queue(settings: QueueSettings) -> Arc<Queue> {
    Arc::new(Queue { settings, gate: gate() })
}

fn ticket(answer: Answer) -> u64 {
    match answer {
        Answer::Waiting(waiting) => match waiting.ticket {
            Ticket::Number(n) => n,
            other => panic!("{other:?}"),
        },
        other => panic!("not waiting: {other:?}"),
    }
}

#[test]
fn a_killed_process_keeps_what_was_saved_and_tokens_put_back_the_rest() {
    let bench = Bench::new();
    let engine = bench.open(1);
    let Answer::Admitted { expires_ms, .. } = bench.enter(&engine, sid(0)) else { panic!() };
    let inside = Admission { sid: sid(0), issued_ms: bench.clock.wall_ms(), expires_ms };
    let tickets: Vec<u64> = (1..4).map(|i| ticket(bench.enter(&engine, sid(i)))).collect();
    engine.save().unwrap();
    // The last second, which is lost: one more joins.
    bench.clock.advance(Duration::from_millis(400));
    let issued_ms = bench.clock.wall_ms();
    let lost = ticket(bench.enter(&engine, sid(4)));
    let due_ms = issued_ms + 3_000;
    let lost = Place { sid: sid(4), issued_ms, ticket: Ticket::Number(lost), due_ms };
    drop(engine);

    bench.clock.advance(Duration::from_secs(2));
    let engine = bench.open(1);
    let stats = engine.stats(&bench.id).unwrap();
    assert_eq!((stats.inside, stats.waiting), (1, 3));
    for i in 1..4 {
        assert_eq!(ticket(bench.enter(&engine, sid(i))), tickets[i - 1]);
    }
    // A newcomer who comes before the lost one returns is still behind it.
    let newcomer = ticket(bench.enter(&engine, sid(5)));
    let op = Op::Enter { sid: sid(4), place: Some(lost), join: true };
    let answer = engine.call(&bench.id, &[op]).unwrap().answers[0];
    assert!(ticket(answer) < newcomer);
    assert!(matches!(answer, Answer::Waiting(w) if w.rank == Some(4)));
    let op = Op::Heartbeat { admission: inside, place: None, join: true };
    let answer = engine.call(&bench.id, &[op]).unwrap().answers[0];
    assert!(matches!(answer, Answer::Admitted { .. }));
}

#[test]
fn a_restart_does_not_wait_for_survivors() {
    let bench = Bench::new();
    let engine = bench.open(2);
    bench.enter(&engine, sid(0));
    engine.save().unwrap();
    drop(engine);
    let engine = bench.open(2);
    assert!(matches!(bench.enter(&engine, sid(1)), Answer::Admitted { .. }));
}

#[test]
fn an_end_cut_short_at_any_byte_loses_the_last_save_only() {
    let bench = Bench::new();
    let engine = bench.open(0);
    bench.enter(&engine, sid(0));
    engine.save().unwrap();
    let whole = fs::metadata(bench.path()).unwrap().len();
    bench.enter(&engine, sid(1));
    engine.save().unwrap();
    drop(engine);
    let bytes = fs::read(bench.path()).unwrap();
    assert!((bytes.len() as u64) > whole);
    for cut in whole..=bytes.len() as u64 {
        fs::write(bench.path(), &bytes[..cut as usize]).unwrap();
        let engine = bench.open(0);
        let waiting = engine.stats(&bench.id).unwrap().waiting;
        assert_eq!(waiting, if cut == bytes.len() as u64 { 2 } else { 1 }, "cut at {cut}");
        // And what is appended after the cut is read again.
        bench.enter(&engine, sid(2));
        engine.save().unwrap();
        drop(engine);
        assert_eq!(bench.open(0).stats(&bench.id).unwrap().waiting, waiting + 1);
    }
    // A flipped bit in the last frame is the same as a cut.
    let mut flipped = bytes.clone();
    flipped[bytes.len() - 5] ^= 1;
    fs::write(bench.path(), flipped).unwrap();
    assert_eq!(bench.open(0).stats(&bench.id).unwrap().waiting, 1);
}

#[test]
fn history_is_cleared_out() {
    let bench = Bench::new();
    let engine = bench.open(0);
    for i in 0..40_000 {
        bench.enter(&engine, sid(i));
    }
    engine.save().unwrap();
    for _ in 0..60 {
        bench.clock.advance(Duration::from_secs(1));
        let polls: Vec<Op> = (0..40_000)
            .step_by(3)
            .map(|i| Op::Poll { sid: sid(i), place: None, admission: None })
            .collect();
        engine.call(&bench.id, &polls).unwrap();
        engine.save().unwrap();
    }
    drop(engine);
    let len = fs::metadata(bench.path()).unwrap().len();
    assert!(len < 16 << 20, "{len}: 60 saves of 13,000 records each are 50 MB");
    assert_eq!(bench.open(0).stats(&bench.id).unwrap().waiting, 40_000);
}

#[test]
fn a_file_that_is_not_ours_is_set_aside_and_said_so() {
    let bench = Bench::new();
    fs::write(bench.path(), "something else").unwrap();
    let clock = Arc::new(bench.clock.clone());
    let engine = Embedded::open_idle(Some(bench.dir.path()), clock, [3; 16], false).unwrap();
    let notices = engine.configure(&[queue(settings(1))]);
    assert!(matches!(&notices[..], [Notice { what: NoticeKind::StateLost(_), .. }]), "{notices:?}");
    assert!(bench.dir.path().join("drop.unreadable").exists());
    // What it held is unknown: newcomers wait until those inside could report.
    assert!(matches!(bench.enter(&engine, sid(0)), Answer::Waiting(_)));
    engine.save().unwrap();
    drop(engine);
    assert_eq!(bench.open(0).stats(&bench.id).unwrap().waiting, 1);
}

#[test]
fn a_folder_is_used_by_one_process() {
    let bench = Bench::new();
    let _engine = bench.open(1);
    let clock = Arc::new(bench.clock.clone());
    let second = Embedded::open_idle(Some(bench.dir.path()), clock, [3; 16], true);
    assert!(matches!(second, Err(JournalError::Locked(_))));
}

#[test]
fn a_folder_that_cannot_be_made_is_one_clear_error() {
    let bench = Bench::new();
    let file = bench.dir.path().join("file");
    fs::write(&file, "").unwrap();
    let clock = Arc::new(bench.clock);
    let error = Embedded::open_idle(Some(&file.join("queue")), clock, [3; 16], true).err().unwrap();
    assert!(error.to_string().contains("file/queue"), "{error}");
}

#[test]
fn a_failed_save_is_made_good_by_a_whole_one() {
    let bench = Bench::new();
    let engine = bench.open(0);
    bench.enter(&engine, sid(0));
    // A folder in the way of the new file.
    let beside = bench.dir.path().join("drop.new");
    fs::create_dir(&beside).unwrap();
    assert!(engine.save().is_err());
    bench.enter(&engine, sid(1));
    assert!(engine.save().is_err());
    fs::remove_dir(&beside).unwrap();
    engine.save().unwrap();
    drop(engine);
    assert_eq!(bench.open(0).stats(&bench.id).unwrap().waiting, 2);
}

#[test]
fn state_outlives_configuration() {
    let bench = Bench::new();
    let engine = bench.open(0);
    bench.enter(&engine, sid(0));
    engine.configure(&[]);
    assert_eq!(engine.configure(&[queue(settings(0))]), []);
    assert_eq!(engine.stats(&bench.id).unwrap().waiting, 1);
    let random = QueueSettings { method: corvus_config::snapshot::Method::Random, ..settings(0) };
    let notices = engine.configure(&[queue(random)]);
    assert_eq!(notices[0].what, NoticeKind::Deferred(Deferred::Method));
}
