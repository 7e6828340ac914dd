use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::*;
use crate::{
    NewVersion, OpenError, Role,
    testing::{Sample, open_with},
};

const CHEAP: Cost = Cost { memory_kib: 8, passes: 1, lanes: 1 };
const PASSPHRASE: &str = "correct horse";

fn filled() -> Sample {
    let sample = Sample::new();
    sample
        .store
        .write(|w| {
            w.create_account(&crate::testing::profile("ana@example.com", Role::Admin), Some("$h"))?;
            w.put_secret("slack", b"hunter2")?;
            let new = NewVersion { base: 0, author: "ana", comment: "", document: "version: 1" };
            w.append_version(&new)
        })
        .unwrap();
    let files = [
        ("queue/drop.journal", vec![7; 200_000]),
        ("queue/keys", b"keys".to_vec()),
        ("console/certificates/self-signed/console.pem", b"PEM".to_vec()),
        ("certificates/self-signed/lab.pem", b"LAB".to_vec()),
        ("queue/empty", Vec::new()),
    ];
    for (name, content) in files {
        let path = sample.data.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    fs::write(sample.data.path().join("not-ours.txt"), "stays").unwrap();
    sample
}

fn backup(store: &Store) -> Vec<u8> {
    let mut file = Vec::new();
    store.backup_at(PASSPHRASE, &mut file, CHEAP).unwrap();
    file
}

/// All files below a folder with their contents, without the database and what surrounds it.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found
                    .insert(path.strip_prefix(folder).unwrap().to_owned(), fs::read(path).unwrap());
            }
        }
    }
    found.retain(|name, _| !name.to_str().unwrap().starts_with(DATABASE));
    found
}

#[test]
fn a_backup_restored_into_an_empty_folder_is_the_same_gateway() {
    let sample = filled();
    let file = backup(&sample.store);
    for secret in [b"hunter2".as_slice(), b"ana@example.com", b"version: 1"] {
        assert!(!file.windows(secret.len()).any(|window| window == secret));
    }
    let target = tempfile::tempdir().unwrap();
    let data = target.path().join("made");
    restore(file.as_slice(), PASSPHRASE, &data).unwrap();

    let mut expected = tree(sample.data.path());
    expected.remove(Path::new("not-ours.txt"));
    assert_eq!(tree(&data), {
        expected.remove(Path::new("corvus.db.lock"));
        expected
    });
    let store = open_with(&data, None).unwrap();
    store
        .read(|r| {
            assert_eq!(r.newest_version()?.unwrap().document, "version: 1");
            assert_eq!(&**r.secret("slack")?.unwrap(), b"hunter2");
            assert!(r.account_by_email("ana@example.com")?.is_some());
            Ok(())
        })
        .unwrap();
    assert_eq!(store.write(|w| w.rollback(1, 1, "", "")).unwrap(), 2);
    let left: Vec<_> = fs::read_dir(sample.data.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_str().unwrap().starts_with(COPY.0))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_default_cost_works_too() {
    let sample = Sample::new();
    let mut file = Vec::new();
    sample.store.backup(PASSPHRASE, &mut file).unwrap();
    let target = tempfile::tempdir().unwrap();
    restore(file.as_slice(), PASSPHRASE, target.path()).unwrap();
    open_with(target.path(), None).unwrap();
}

#[test]
fn a_backup_holds_one_state_while_others_write() {
    let sample = filled();
    let done = AtomicBool::new(false);
    let store = &sample.store;
    let file = std::thread::scope(|scope| {
        scope.spawn(|| {
            let document = "x".repeat(10_000);
            let mut base = 1;
            while !done.load(Ordering::Relaxed) {
                let comment = base.to_string();
                let new = NewVersion { base, author: "", comment: &comment, document: &document };
                base = store
                    .write(|w| {
                        w.put_secret("count", comment.as_bytes())?;
                        w.append_version(&new)
                    })
                    .unwrap();
            }
        });
        while store.read(|r| r.current_version()).unwrap() < 5 {
            std::thread::yield_now();
        }
        let file = backup(store);
        done.store(true, Ordering::Relaxed);
        file
    });
    let target = tempfile::tempdir().unwrap();
    restore(file.as_slice(), PASSPHRASE, target.path()).unwrap();
    let restored = open_with(target.path(), None).unwrap();
    restored
        .read(|r| {
            let newest = r.newest_version()?.unwrap();
            assert!(newest.info.version >= 5);
            assert_eq!(&**r.secret("count")?.unwrap(), newest.info.comment.as_bytes());
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_wrong_passphrase_damage_and_a_missing_end_leave_the_folder_empty() {
    let sample = filled();
    let file = backup(&sample.store);
    let target = tempfile::tempdir().unwrap();
    let is_empty = || fs::read_dir(target.path()).unwrap().count() == 0;

    let failed = restore(file.as_slice(), "incorrect horse", target.path());
    assert!(matches!(failed, Err(BackupError::WrongPassphrase)), "{failed:?}");
    assert!(is_empty());
    for end in [50, 60, file.len() / 2, file.len() - 1] {
        let failed = restore(&file[..end], PASSPHRASE, target.path());
        assert!(matches!(failed, Err(BackupError::Damaged)), "{end}: {failed:?}");
        assert!(is_empty(), "{end}");
    }
    let mut bad = file.clone();
    *bad.last_mut().unwrap() ^= 1;
    let failed = restore(bad.as_slice(), PASSPHRASE, target.path());
    assert!(matches!(failed, Err(BackupError::Damaged)), "{failed:?}");
    assert!(is_empty());
    restore(file.as_slice(), PASSPHRASE, target.path()).unwrap();
}

#[test]
fn only_an_empty_folder_is_restored_into() {
    let sample = filled();
    let file = backup(&sample.store);
    let target = tempfile::tempdir().unwrap();
    fs::write(target.path().join("lock"), "").unwrap();
    fs::create_dir(target.path().join("lost+found")).unwrap();
    let other = target.path().join("holiday.jpg");
    fs::write(&other, "x").unwrap();
    let failed = restore(file.as_slice(), PASSPHRASE, target.path());
    assert!(matches!(failed, Err(BackupError::NotEmpty { .. })), "{failed:?}");
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 3);
    fs::remove_file(other).unwrap();
    restore(file.as_slice(), PASSPHRASE, target.path()).unwrap();
    let again = restore(file.as_slice(), PASSPHRASE, target.path());
    assert!(matches!(again, Err(BackupError::NotEmpty { .. })), "{again:?}");
    let over = restore(file.as_slice(), PASSPHRASE, sample.data.path());
    assert!(matches!(over, Err(BackupError::NotEmpty { .. })), "{over:?}");
}

#[test]
fn a_backup_that_would_write_elsewhere_is_refused() {
    for (name, kind) in [
        ("../secret.key", EntryType::Regular),
        ("/etc/passwd", EntryType::Regular),
        ("queue/../../x", EntryType::Regular),
        ("other/file", EntryType::Regular),
        ("corvus.marker", EntryType::Regular),
        ("queue/link", EntryType::Symlink),
    ] {
        let mut archive = Builder::new(SealWriter::new(Vec::new(), PASSPHRASE, CHEAP).unwrap());
        let mut header = Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_cksum();
        archive.append(&header, io::empty()).unwrap();
        let file = archive.into_inner().unwrap().finish().unwrap();
        let target = tempfile::tempdir().unwrap();
        let failed = restore(file.as_slice(), PASSPHRASE, target.path());
        assert!(matches!(failed, Err(BackupError::Damaged)), "{name}: {failed:?}");
        assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0, "{name}");
    }
}

#[test]
fn a_key_elsewhere_is_in_the_backup() {
    let (data, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let clock = Arc::new(corvus_core::FakeClock::new(0));
    let store = Store::open(data.path(), clock, Some(&keys.path().join("key"))).unwrap();
    store.write(|w| w.put_secret("slack", b"hunter2")).unwrap();
    let target = tempfile::tempdir().unwrap();
    restore(backup(&store).as_slice(), PASSPHRASE, target.path()).unwrap();
    let restored = open_with(target.path(), None).unwrap();
    assert_eq!(&**restored.read(|r| r.secret("slack")).unwrap().unwrap(), b"hunter2");
}

#[test]
fn a_file_that_shrinks_while_it_is_read_does_not_spoil_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    fs::write(&path, [7; 1000]).unwrap();
    let mut archive = Builder::new(Vec::new());
    let mut pack = Pack { archive: &mut archive, mtime: 0 };
    // As `Pack::file` does when the file is cut between the two.
    let file = File::open(&path).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
    pack.append(Path::new("queue/journal"), 1000, (&file).chain(io::repeat(0)).take(1000)).unwrap();
    pack.bytes(Path::new("queue/next"), b"next").unwrap();
    let bytes = archive.into_inner().unwrap();
    let mut archive = Archive::new(bytes.as_slice());
    let read: Vec<_> = archive
        .entries()
        .unwrap()
        .map(|entry| {
            let mut content = Vec::new();
            entry.unwrap().read_to_end(&mut content).unwrap();
            content
        })
        .collect();
    assert_eq!(read, [[vec![7; 10], vec![0; 990]].concat(), b"next".to_vec()]);
}

#[test]
fn a_restore_that_was_killed_is_not_taken_for_a_gateway() {
    let sample = filled();
    let file = backup(&sample.store);
    let target = tempfile::tempdir().unwrap();
    // What is there when it is killed just before its last step.
    restore(file.as_slice(), PASSPHRASE, target.path()).unwrap();
    fs::create_dir(target.path().join(RESTORING)).unwrap();
    let refused = open_with(target.path(), None).err().unwrap();
    assert!(matches!(refused, OpenError::RestoreUnfinished { .. }), "{refused}");
}

#[test]
fn a_folder_that_cannot_be_read_is_named_and_the_file_has_no_valid_end() {
    let sample = Sample::new();
    let queue = sample.data.path().join("queue");
    fs::write(&queue, "a file where a folder should be").unwrap();
    let mut file = Vec::new();
    let failed = sample.store.backup_at(PASSPHRASE, &mut file, CHEAP).unwrap_err();
    assert_eq!(failed.to_string(), format!("{} cannot be read", queue.display()));
    let target = tempfile::tempdir().unwrap();
    let restored = restore(file.as_slice(), PASSPHRASE, target.path());
    assert!(matches!(restored, Err(BackupError::Damaged)), "{restored:?}");
}
