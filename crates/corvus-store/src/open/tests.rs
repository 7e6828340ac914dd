use std::{fs, os::unix::fs::PermissionsExt as _};

use corvus_core::FakeClock;

use super::*;
use crate::{
    NewVersion, Role,
    testing::{START_MS, Sample, open_with},
};

const VERSION_1: &str = include_str!("../../testdata/v1.sql");
const KEY_1: &[u8; 32] = include_bytes!("../../testdata/v1.key");

/// A folder with the database of schema version 1 as it was released.
fn folder_of_version_1() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let connection = Connection::open(folder.path().join(DATABASE)).unwrap();
    connection.execute_batch(VERSION_1).unwrap();
    fs::write(folder.path().join(SECRET_KEY), KEY_1).unwrap();
    folder
}

/// Every table, index and trigger.
fn schema(connection: &Connection) -> Vec<(String, Option<String>)> {
    let sql = "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name";
    let mut query = connection.prepare(sql).unwrap();
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

fn error(result: Result<Store, OpenError>) -> OpenError {
    result.err().unwrap()
}

#[test]
fn migrations_are_sound() {
    MIGRATIONS.validate().unwrap();
}

#[test]
fn a_released_migration_is_never_edited() {
    let released = Connection::open_in_memory().unwrap();
    released.execute_batch(VERSION_1).unwrap();
    let mut now = Connection::open_in_memory().unwrap();
    MIGRATIONS.to_version(&mut now, 1).unwrap();
    assert_eq!(schema(&released), schema(&now));
}

#[test]
fn a_database_of_schema_1_is_brought_up_to_date_and_keeps_everything() {
    let folder = folder_of_version_1();
    let clock = Arc::new(FakeClock::new(START_MS));
    let store = Store::open(folder.path(), clock, None).unwrap();
    store
        .read(|r| {
            let newest = r.newest_version()?.unwrap();
            assert_eq!((newest.info.version, newest.info.restores), (3, Some(1)));
            assert_eq!(newest.document, "version: 1\nproxy_hosts: []\n");
            assert_eq!(newest.info.comment, "back to the beginning");
            let ana = r.account_by_email("ANA@example.com")?.unwrap();
            assert_eq!((ana.profile.role, ana.has_totp), (Role::Admin, true));
            assert_eq!(&**r.totp_secret(ana.id)?.unwrap(), b"12345678901234567890");
            assert_eq!(r.recovery_codes(ana.id)?, ["$argon2id$code"]);
            assert_eq!(r.passkeys(ana.id)?[0].name, "laptop");
            assert_eq!(r.tokens(ana.id)?[0].scopes, ["metrics"]);
            assert_eq!(r.identities(ana.id)?, [("https://id.example.com".into(), "4711".into())]);
            assert_eq!(r.sessions(ana.id)?[0].address, "203.0.113.7");
            assert_eq!(&**r.secret("slack")?.unwrap(), b"https://hooks.example.com/x");
            let shop = corvus_core::Id::new("shop").unwrap();
            assert_eq!(&**r.certificate_key(&shop)?.unwrap(), b"KEY");
            assert_eq!(r.certificate(&shop)?.unwrap().issuer["order"], "17");
            let entries = r.audit_entries(&crate::audit::AuditFilter::default(), 10)?;
            assert_eq!(entries[0].detail["version"], 3);
            Ok(())
        })
        .unwrap();
    let opened = connect(&folder.path().join(DATABASE)).unwrap();
    let fresh = Sample::new();
    let fresh = connect(&fresh.data.path().join(DATABASE)).unwrap();
    assert_eq!(schema(&opened), schema(&fresh));
}

#[test]
fn a_new_store_is_private_marked_and_durable() {
    let sample = Sample::new();
    for name in [DATABASE, "corvus.db-wal", SECRET_KEY, MARKER, LOCK] {
        let mode = fs::metadata(sample.data.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    sample
        .store
        .write(|w| {
            let number = |name| {
                w.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap()
            };
            assert_eq!(number("synchronous"), 2, "FULL");
            assert_eq!(number("foreign_keys"), 1);
            let mode: String =
                w.connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
            assert_eq!(mode, "wal");
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_second_store_on_the_folder_is_refused_until_the_first_is_gone() {
    let sample = Sample::new();
    let found = error(open_with(sample.data.path(), None));
    assert!(matches!(found, OpenError::InUse { .. }), "{found}");
    let sample = sample.reopen();
    assert_eq!(sample.store.read(|r| r.current_version()).unwrap(), 0);
}

#[test]
fn a_command_works_beside_an_open_store_and_sees_what_it_writes() {
    let sample = Sample::new();
    let clock = Arc::new(sample.clock.clone());
    let beside = Store::attach(sample.data.path(), clock, None).unwrap();
    let ana = sample.account("ana@example.com", Role::Admin);
    beside.write(|w| w.set_password_hash(ana, Some("$argon2id$new"), None)).unwrap();
    let hash = sample.store.read(|r| r.password_hash(ana)).unwrap();
    assert_eq!(hash.as_deref(), Some("$argon2id$new"));
}

#[test]
fn a_command_makes_no_database_and_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(FakeClock::new(START_MS));
    let found = error(Store::attach(folder.path(), clock.clone(), None));
    assert!(matches!(found, OpenError::None { .. }), "{found}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

    let sample = Sample::new();
    fs::remove_file(sample.data.path().join(SECRET_KEY)).unwrap();
    let found = error(Store::attach(sample.data.path(), clock, None));
    assert!(matches!(found, OpenError::Key(KeyError::Missing { .. })), "{found}");
}

#[test]
fn a_missing_database_in_a_marked_folder_is_never_replaced_by_an_empty_one() {
    let Sample { store, data, .. } = Sample::new();
    drop(store);
    let path = data.path().join(DATABASE);
    fs::remove_file(&path).unwrap();
    for _ in 0..2 {
        let found = error(open_with(data.path(), None));
        assert!(matches!(found, OpenError::Missing { .. }), "{found}");
        assert!(found.to_string().contains(path.to_str().unwrap()), "{found}");
        assert!(!path.exists());
    }
    // Emptied is as bad as gone.
    fs::write(&path, "").unwrap();
    let found = error(open_with(data.path(), None));
    assert!(matches!(found, OpenError::Missing { .. }), "{found}");
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn a_database_without_marker_gets_one() {
    let Sample { store, data, .. } = Sample::new();
    drop(store);
    fs::remove_file(data.path().join(MARKER)).unwrap();
    open_with(data.path(), None).unwrap();
    assert!(data.path().join(MARKER).exists());
}

#[test]
fn damage_anywhere_is_found_at_the_start_and_left_as_it_is() {
    let sample = Sample::new();
    let document = "x".repeat(100_000);
    sample
        .store
        .write(|w| {
            for base in 0..5 {
                w.append_version(&NewVersion {
                    base,
                    author: "",
                    comment: "",
                    document: &document,
                })?;
            }
            Ok(())
        })
        .unwrap();
    let Sample { store, data, .. } = sample;
    drop(store);
    let path = data.path().join(DATABASE);
    let whole = fs::read(&path).unwrap();
    // The header; the root page of the schema; a page of a table.
    for (from, to) in [(0, 100), (100, 200), (4096, 5 * 4096)] {
        let mut bad = whole.clone();
        bad[from..to].fill(0xA5);
        fs::write(&path, &bad).unwrap();
        let found = error(open_with(data.path(), None));
        assert!(matches!(found, OpenError::Corrupt { .. }), "{from}: {found:?}");
        assert!(found.to_string().contains("restore a backup"), "{found}");
        assert_eq!(fs::read(&path).unwrap(), bad, "{from}: the file was changed");
    }
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let found = error(open_with(data.path(), None));
    assert!(matches!(found, OpenError::Corrupt { .. }), "cut: {found:?}");
    fs::write(&path, whole).unwrap();
    open_with(data.path(), None).unwrap();
}

#[test]
fn a_database_from_the_future_is_left_alone() {
    let Sample { store, data, .. } = Sample::new();
    drop(store);
    let path = data.path().join(DATABASE);
    let connection = connect(&path).unwrap();
    connection.pragma_update(None, "user_version", newest_schema() + 1).unwrap();
    drop(connection);
    let before = fs::read(&path).unwrap();
    let found = error(open_with(data.path(), None));
    assert!(matches!(found, OpenError::Newer { found: 2, known: 1, .. }), "{found}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn somebody_elses_database_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let connection = Connection::open(folder.path().join(DATABASE)).unwrap();
    connection.execute_batch("CREATE TABLE songs (title TEXT)").unwrap();
    drop(connection);
    let found = error(open_with(folder.path(), None));
    assert!(matches!(found, OpenError::Foreign { .. }), "{found}");
}

#[test]
fn a_database_that_another_program_holds_is_said_to_be_held() {
    let Sample { store, data, .. } = Sample::new();
    drop(store);
    let other = Connection::open(data.path().join(DATABASE)).unwrap();
    other.execute_batch("PRAGMA locking_mode = exclusive; BEGIN IMMEDIATE").unwrap();
    let found = error(open_with(data.path(), None));
    assert!(matches!(found, OpenError::Locked { .. }), "{found}");
    drop(other);
    open_with(data.path(), None).unwrap();
}

#[test]
fn a_disk_that_is_full_from_the_start_is_said_to_be_full_and_blocks_nothing_later() {
    let folder = tempfile::tempdir().unwrap();
    let found = error(open_with(folder.path(), Some(3)));
    assert!(matches!(found, OpenError::Full { .. }), "{found:?}");
    assert!(!folder.path().join(MARKER).exists());
    open_with(folder.path(), None).unwrap();
}

#[test]
fn a_missing_key_is_named_and_never_made_anew() {
    let Sample { store, data, .. } = Sample::new();
    drop(store);
    let path = data.path().join(SECRET_KEY);
    let key = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let found = error(open_with(data.path(), None));
    assert!(matches!(found, OpenError::Key(KeyError::Missing { .. })), "{found}");
    assert!(found.to_string().contains(path.to_str().unwrap()), "{found}");
    assert!(!path.exists());
    fs::write(&path, key).unwrap();
    open_with(data.path(), None).unwrap();
}

#[test]
fn another_key_is_named_and_changes_nothing() {
    let sample = Sample::new();
    sample.store.write(|w| w.put_secret("slack", b"hunter2")).unwrap();
    let Sample { store, data, .. } = sample;
    drop(store);
    let path = data.path().join(SECRET_KEY);
    let right = fs::read(&path).unwrap();
    fs::write(&path, [7; 32]).unwrap();
    let found = error(open_with(data.path(), None));
    assert!(matches!(found, OpenError::Key(KeyError::Wrong { .. })), "{found}");
    assert!(found.to_string().contains(path.to_str().unwrap()), "{found}");
    assert_eq!(fs::read(&path).unwrap(), [7; 32]);
    fs::write(&path, right).unwrap();
    let store = open_with(data.path(), None).unwrap();
    assert_eq!(&**store.read(|r| r.secret("slack")).unwrap().unwrap(), b"hunter2");
}

#[test]
fn the_key_may_be_elsewhere() {
    let (data, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let clock = Arc::new(FakeClock::new(START_MS));
    let path = keys.path().join("corvus.key");
    drop(Store::open(data.path(), clock.clone(), Some(&path)).unwrap());
    assert!(path.exists() && !data.path().join(SECRET_KEY).exists());
    let found = error(Store::open(data.path(), clock, None));
    assert!(matches!(found, OpenError::Key(KeyError::Missing { .. })), "{found}");
}

#[test]
fn an_unfinished_restore_and_a_folder_that_is_a_file_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(RESTORING)).unwrap();
    let found = error(open_with(folder.path(), None));
    assert!(matches!(found, OpenError::RestoreUnfinished { .. }), "{found}");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let found = error(open_with(&file, None));
    assert!(matches!(found, OpenError::Folder { .. }), "{found:?}");
}

#[test]
fn copies_that_a_crash_left_behind_are_removed() {
    let Sample { store, data, .. } = Sample::new();
    drop(store);
    let copy = data.path().join("backup-abc.tmp");
    fs::write(&copy, "half").unwrap();
    open_with(data.path(), None).unwrap();
    assert!(!copy.exists());
}
