//! What happens to a store when its process is killed, and what other processes meet.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "clippy takes helpers of integration tests for code that ships"
)]

use std::{
    fs::{self, Permissions},
    io::{BufRead as _, BufReader, Read as _},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::{CommandExt as _, ExitStatusExt as _},
    },
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use corvus_core::SystemClock;
use corvus_store::{MARKER, OpenError, Store, audit::AuditFilter};

const CHILD: &str = env!("CARGO_BIN_EXE_corvus-store-child");

fn open(data: &Path) -> Result<Store, OpenError> {
    Store::open(data, Arc::new(SystemClock::new()), None)
}

/// A child that appends versions.
fn start(data: &Path) -> (Child, BufReader<ChildStdout>) {
    let mut child =
        Command::new(CHILD).arg("append").arg(data).stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

/// Kills a child that must still be running, and says the last number that it printed.
fn kill(mut child: Child, mut output: BufReader<ChildStdout>) -> u64 {
    child.kill().unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9), "it ended by itself: {rest}");
    // A line without its end was not printed whole.
    let whole = rest.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().rev().find_map(|line| line.parse().ok()).unwrap_or(0)
}

/// Everything up to `printed` is there and belongs together.
fn check(data: &Path, printed: u64) -> u64 {
    let store = open(data).unwrap();
    store
        .read(|r| {
            let newest = r.current_version()?;
            assert!(
                newest >= printed,
                "{printed} was answered with success, {newest} is the newest"
            );
            for number in (1..=newest).rev().take(200) {
                let version = r.version(number)?.expect("a version is missing");
                let text = number.to_string();
                assert_eq!(version.info.comment, text);
                assert!(version.document.split(&text).all(str::is_empty), "version {number}");
            }
            // What was one transaction is there as one.
            let secret = r.secret("newest")?.map(|value| value.to_vec());
            let expected = (newest > 0).then(|| newest.to_string().into_bytes());
            assert_eq!(secret, expected);
            let entries = r.audit_entries(&AuditFilter::default(), 1)?;
            let subject = entries.first().map(|entry| entry.subject.clone());
            assert_eq!(subject, (newest > 0).then(|| newest.to_string()));
            Ok(newest)
        })
        .unwrap()
}

/// SQLite's own, full check.
fn integrity(data: &Path) {
    let connection = rusqlite::Connection::open(data.join("corvus.db")).unwrap();
    let mut check = connection.prepare("PRAGMA integrity_check").unwrap();
    let answers: Vec<String> =
        check.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(answers, ["ok"]);
}

#[test]
fn nothing_that_was_answered_with_success_is_lost_when_the_process_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let mut before = 0;
    for round in 0..30 {
        let (child, mut output) = start(data);
        // Each round is killed at another point: after some answers and a few microseconds.
        let mut line = String::new();
        for _ in 0..=round % 7 * 5 {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "the child ended");
        }
        std::thread::sleep(Duration::from_micros(round * 173 % 4000));
        let printed = kill(child, output).max(line.trim().parse().unwrap_or(0));
        assert!(printed >= before || printed == 0);
        before = check(data, printed.max(before));
        integrity(data);
    }
    assert!(before > 100, "only {before} versions were appended");
}

#[test]
fn a_process_killed_while_it_makes_a_store_leaves_one_that_opens() {
    for round in 0..40 {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let (child, output) = start(&data);
        // Making one takes ten milliseconds, or ten times that on a busy disk. The steps grow, so
        // that they go through all of it in both cases.
        std::thread::sleep(Duration::from_micros(100 * round * round));
        let printed = kill(child, output);
        check(&data, printed);
        assert!(data.join(MARKER).exists());
        integrity(&data);
    }
}

#[test]
fn a_second_process_is_refused_and_may_come_when_the_first_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (child, mut output) = start(folder.path());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let refused = open(folder.path()).unwrap_err();
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
    kill(child, output);
    open(folder.path()).unwrap();
}

/// Runs a child as somebody who owns nothing here (root may write what is read-only), and returns
/// what it says.
fn open_as_nobody(data: &Path, program: &Path) -> String {
    let mut command = Command::new(program);
    command.arg("open").arg(data);
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_cannot_be_written_is_named_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    chmod(folder.path(), 0o755);
    // Where anybody may run it.
    let program = folder.path().join("child");
    fs::copy(CHILD, &program).unwrap();
    chmod(&program, 0o755);
    let data = folder.path().join("data");
    drop(open(&data).unwrap());
    let database = data.join("corvus.db");
    let before = fs::read(&database).unwrap();
    let says = |path: &Path| {
        format!(
            "{} cannot be written; the gateway needs to write all of its data folder",
            path.display()
        )
    };

    chmod(&data, 0o555);
    for entry in fs::read_dir(&data).unwrap() {
        chmod(&entry.unwrap().path(), 0o444);
    }
    assert_eq!(open_as_nobody(&data, &program), says(&data.join("corvus.db.lock")));
    // The folder may be written, the database may not.
    chmod(&data, 0o777);
    chmod(&data.join("corvus.db.lock"), 0o666);
    assert_eq!(open_as_nobody(&data, &program), says(&database));
    assert_eq!(fs::read(&database).unwrap(), before);
    // A new folder below one that may not be written.
    let new = folder.path().join("new");
    chmod(folder.path(), 0o555);
    assert_eq!(open_as_nobody(&new, &program), says(&new));
    chmod(folder.path(), 0o755);

    for entry in fs::read_dir(&data).unwrap() {
        chmod(&entry.unwrap().path(), 0o666);
    }
    assert_eq!(open_as_nobody(&data, &program), "");
}
