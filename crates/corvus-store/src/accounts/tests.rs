use std::time::Duration;

use super::*;
use crate::{
    sessions::{NewSession, TokenHash},
    testing::{START_MS, Sample, profile},
    tokens::NewToken,
};

#[test]
fn an_account_is_made_found_changed_and_removed() {
    let sample = Sample::new();
    let root = sample.account("root@example.com", Role::Admin);
    let ana =
        Profile { own_only: true, name: "Ana".into(), ..profile("Ana@Example.com", Role::Editor) };
    let id = sample.store.write(|w| w.create_account(&ana, Some("$argon2id$1"))).unwrap();
    let sample = sample.reopen();
    let found = sample.store.read(|r| r.account_by_email("ana@example.COM")).unwrap().unwrap();
    let expected = Account {
        id,
        profile: ana,
        has_password: true,
        has_totp: false,
        created_ms: START_MS,
        last_login_ms: None,
    };
    assert_eq!(found, expected);

    sample.clock.advance(Duration::from_secs(5));
    let ben = profile("ben@example.com", Role::Viewer);
    sample
        .store
        .write(|w| {
            w.update_account(id, &ben)?;
            w.note_login(id)
        })
        .unwrap();
    let found = sample.store.read(|r| r.account(id)).unwrap().unwrap();
    assert_eq!((found.profile, found.last_login_ms), (ben, Some(START_MS + 5000)));

    sample.store.write(|w| w.remove_account(id)).unwrap();
    let left = sample.store.read(|r| r.accounts()).unwrap();
    assert_eq!(left.iter().map(|a| a.id).collect::<Vec<_>>(), [root]);
    let again = sample.account("ben@example.com", Role::Viewer);
    assert_ne!(again, id, "a number was given to a second account");
}

#[test]
fn addresses_are_unique_whatever_their_case() {
    let sample = Sample::new();
    sample.account("ana@example.com", Role::Admin);
    let ben = sample.account("ben@example.com", Role::Viewer);
    let taken = profile("ANA@example.com", Role::Viewer);
    let made = sample.store.write(|w| w.create_account(&taken, None));
    assert!(matches!(made, Err(StoreError::Exists("account"))), "{made:?}");
    let moved = sample.store.write(|w| w.update_account(ben, &taken));
    assert!(matches!(moved, Err(StoreError::Exists("account"))), "{moved:?}");
}

#[test]
fn there_is_one_first_account() {
    let sample = Sample::new();
    let make = |email| sample.store.write(|w| w.create_first_account(email, "Ana", "$argon2id$1"));
    let id = make("ana@example.com").unwrap();
    let account = sample.store.read(|r| r.account(id)).unwrap().unwrap();
    assert_eq!(account.profile.role, Role::Admin);
    let second = make("eve@example.com");
    assert!(matches!(second, Err(StoreError::Exists("first account"))), "{second:?}");
}

#[test]
fn the_last_administrator_stays_one() {
    let sample = Sample::new();
    let ana = sample.account("ana@example.com", Role::Admin);
    sample.account("eve@example.com", Role::Editor);
    let admin = profile("ana@example.com", Role::Admin);
    let demoted = Profile { role: Role::Editor, ..admin.clone() };
    let disabled = Profile { disabled: true, ..admin };
    let refused =
        |done: Result<()>| assert!(matches!(done, Err(StoreError::LastAdmin)), "{done:?}");
    refused(sample.store.write(|w| w.update_account(ana, &demoted)));
    refused(sample.store.write(|w| w.update_account(ana, &disabled)));
    refused(sample.store.write(|w| w.remove_account(ana)));

    // A disabled administrator is none.
    let ben = sample.account("ben@example.com", Role::Admin);
    let away = Profile { disabled: true, ..profile("ben@example.com", Role::Admin) };
    sample.store.write(|w| w.update_account(ben, &away)).unwrap();
    refused(sample.store.write(|w| w.remove_account(ana)));
    sample
        .store
        .write(|w| w.update_account(ben, &profile("ben@example.com", Role::Admin)))
        .unwrap();
    sample.store.write(|w| w.remove_account(ana)).unwrap();
}

#[test]
fn a_failed_check_that_the_caller_ignores_changes_nothing() {
    let sample = Sample::new();
    let ana = sample.account("ana@example.com", Role::Admin);
    sample
        .store
        .write(|w| {
            assert!(w.remove_account(ana).is_err());
            assert!(w.update_account(ana, &profile("x", Role::Viewer)).is_err());
            Ok(())
        })
        .unwrap();
    let found = sample.store.read(|r| r.account(ana)).unwrap().unwrap();
    assert_eq!(found.profile, profile("ana@example.com", Role::Admin));
}

#[test]
fn disabling_ends_sessions_and_a_removed_account_leaves_nothing() {
    let sample = Sample::new();
    sample.account("root@example.com", Role::Admin);
    let ana = sample.account("ana@example.com", Role::Viewer);
    let begin = |name: &[u8]| {
        let new = NewSession {
            token: TokenHash::of(name),
            account: ana,
            expires_ms: START_MS + 1000,
            user_agent: "",
            address: "",
        };
        sample.store.write(|w| w.create_session(&new)).unwrap();
    };
    begin(b"1");
    let off = Profile { disabled: true, ..profile("ana@example.com", Role::Viewer) };
    sample.store.write(|w| w.update_account(ana, &off)).unwrap();
    sample
        .store
        .write(|w| w.update_account(ana, &profile("ana@example.com", Role::Viewer)))
        .unwrap();
    assert!(sample.store.read(|r| r.session(&TokenHash::of(b"1"))).unwrap().is_none());

    begin(b"2");
    let token = NewToken {
        token: TokenHash::of(b"t"),
        account: ana,
        name: "",
        scopes: &[],
        expires_ms: None,
    };
    sample
        .store
        .write(|w| {
            w.create_token(&token)?;
            w.add_passkey(ana, b"c", "", &serde_json::json!({}))?;
            w.add_identity(ana, "i", "s")?;
            w.set_recovery_codes(ana, &["h".into()])?;
            w.remove_account(ana)
        })
        .unwrap();
    for table in ["sessions", "api_tokens", "passkeys", "identities", "recovery_codes"] {
        let sql = format!("SELECT count(*) FROM {table}");
        let count: u64 =
            sample.store.read(|r| Ok(r.connection.query_row(&sql, [], |row| row.get(0))?)).unwrap();
        assert_eq!(count, 0, "{table}");
    }
}

#[test]
fn roles_are_spelled_one_way() {
    for role in [Role::Admin, Role::Editor, Role::Viewer] {
        assert_eq!(Role::parse(role.as_str()), Some(role));
    }
    assert_eq!(Role::parse("Admin"), None);
}
