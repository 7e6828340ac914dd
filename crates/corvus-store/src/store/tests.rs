use std::sync::{Arc, Barrier};

use crate::{
    NewVersion, StoreError,
    testing::{Sample, open_with},
};

fn version(base: u64, document: &str) -> NewVersion<'_> {
    NewVersion { base, author: "ana", comment: "", document }
}

#[test]
fn a_change_that_fails_leaves_nothing_of_its_transaction() {
    let sample = Sample::new();
    let failed = sample.store.write(|w| {
        w.append_version(&version(0, "a"))?;
        w.put_secret("slack", b"x")?;
        w.append_version(&version(7, "b"))
    });
    assert!(matches!(failed, Err(StoreError::Stale { base: 7, current: 1 })));
    sample
        .store
        .read(|r| {
            assert_eq!(r.current_version()?, 0);
            assert!(r.secret("slack")?.is_none());
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_panic_in_a_change_rolls_it_back_and_the_store_goes_on() {
    let sample = Sample::new();
    let store = &sample.store;
    let panicked = std::thread::scope(|scope| {
        let work = || {
            store.write(|w| {
                w.append_version(&version(0, "a"))?;
                assert_eq!(w.current_version()?, 7, "a fault");
                Ok(())
            })
        };
        scope.spawn(work).join()
    });
    assert!(panicked.is_err());
    assert_eq!(store.write(|w| w.append_version(&version(0, "b"))).unwrap(), 1);
}

#[test]
fn a_reader_sees_one_state_and_waits_for_no_writer() {
    let sample = Sample::new();
    sample
        .store
        .read(|r| {
            assert_eq!(r.current_version()?, 0);
            sample.store.write(|w| w.append_version(&version(0, "a")))?;
            assert_eq!(r.current_version()?, 0);
            Ok(())
        })
        .unwrap();
    assert_eq!(sample.store.read(|r| r.current_version()).unwrap(), 1);
}

#[test]
fn a_reader_cannot_write() {
    let sample = Sample::new();
    let done = sample.store.read(|r| Ok(r.connection.execute("DELETE FROM secrets", [])?));
    assert!(matches!(done, Err(StoreError::ReadOnly)), "{done:?}");
}

#[test]
fn of_many_who_change_one_version_at_once_exactly_one_succeeds() {
    let sample = Sample::new();
    let start = Barrier::new(8);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let work = || {
            start.wait();
            sample.store.write(|w| w.append_version(&version(0, "a")))
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Ok(1))).count(), 1);
    let stale = |answer: &&_| matches!(answer, Err(StoreError::Stale { base: 0, current: 1 }));
    assert_eq!(answers.iter().filter(stale).count(), 7);
}

#[test]
fn connections_of_readers_do_not_pile_up() {
    let sample = Sample::new();
    let start = Barrier::new(12);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                sample.store.read(|r| {
                    start.wait();
                    r.current_version()
                })
            });
        }
    });
    assert_eq!(sample.store.readers.lock().unwrap().len(), super::READERS);
}

#[test]
fn a_full_disk_fails_the_change_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    drop(open_with(folder.path(), None).unwrap());
    let store = open_with(folder.path(), Some(100)).unwrap();
    let document = "x".repeat(50_000);
    let mut base = 0;
    let failed = loop {
        match store.write(|w| w.append_version(&version(base, &document))) {
            Ok(next) => base = next,
            Err(error) => break error,
        }
    };
    assert!(matches!(failed, StoreError::Full), "{failed:?}");
    assert!(base > 0);
    assert_eq!(store.read(|r| r.newest_version()).unwrap().unwrap().info.version, base);
    // What is small still fits, and space that comes back is used.
    drop(store);
    let store = open_with(folder.path(), None).unwrap();
    let done = store.write(|w| w.append_version(&version(base, &document))).unwrap();
    assert_eq!(done, base + 1);
}

#[test]
fn an_operation_that_meets_another_programs_lock_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with(folder.path(), None).unwrap();
    let other = rusqlite::Connection::open(folder.path().join(crate::DATABASE)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let failed = store.write(|w| w.append_version(&version(0, "a")));
    assert!(matches!(failed, Err(StoreError::Busy)), "{failed:?}");
    other.execute_batch("COMMIT").unwrap();
    store.write(|w| w.append_version(&version(0, "a"))).unwrap();
}

#[test]
fn the_store_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>(_: &T) {}
    shared(&Arc::new(Sample::new().store));
}
