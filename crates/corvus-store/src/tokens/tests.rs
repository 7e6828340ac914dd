use std::time::Duration;

use super::*;
use crate::{
    Profile, Role,
    testing::{START_MS, Sample, profile},
};

fn make(sample: &Sample, account: AccountId, token: &[u8], expires_ms: Option<u64>) -> Result<u64> {
    let scopes = ["metrics".to_owned(), "hosts:\"write\"".to_owned()];
    let token = TokenHash::of(token);
    let new = NewToken { token, account, name: "backup", scopes: &scopes, expires_ms };
    sample.store.write(|w| w.create_token(&new))
}

fn find(sample: &Sample, token: &[u8]) -> Option<ApiToken> {
    sample.store.read(|r| r.token(&TokenHash::of(token))).unwrap().map(|(token, _)| token)
}

#[test]
fn a_token_is_found_until_it_expires() {
    let sample = Sample::new();
    let ana = sample.account("ana@example.com", Role::Admin);
    let id = make(&sample, ana, b"t", Some(START_MS + 1000)).unwrap();
    make(&sample, ana, b"eternal", None).unwrap();
    let sample = sample.reopen();
    let expected = ApiToken {
        id,
        account: ana,
        name: "backup".into(),
        scopes: vec!["metrics".into(), "hosts:\"write\"".into()],
        created_ms: START_MS,
        expires_ms: Some(START_MS + 1000),
        last_used_ms: None,
    };
    assert_eq!(find(&sample, b"t"), Some(expected));
    sample.clock.advance(Duration::from_secs(1));
    assert_eq!(find(&sample, b"t"), None);
    assert!(find(&sample, b"eternal").is_some());
    assert_eq!(sample.store.read(|r| r.tokens(ana)).unwrap().len(), 2, "lists show expired ones");
}

#[test]
fn a_token_is_worth_nothing_once_revoked_or_its_account_disabled() {
    let sample = Sample::new();
    sample.account("root@example.com", Role::Admin);
    let ana = sample.account("ana@example.com", Role::Viewer);
    let ben = sample.account("ben@example.com", Role::Viewer);
    let id = make(&sample, ana, b"t", None).unwrap();
    let off = Profile { disabled: true, ..profile("ana@example.com", Role::Viewer) };
    sample.store.write(|w| w.update_account(ana, &off)).unwrap();
    assert_eq!(find(&sample, b"t"), None);
    sample
        .store
        .write(|w| w.update_account(ana, &profile("ana@example.com", Role::Viewer)))
        .unwrap();
    assert!(find(&sample, b"t").is_some());
    let other = sample.store.write(|w| w.revoke_token(ben, id));
    assert!(matches!(other, Err(StoreError::NotFound("token"))));
    sample.store.write(|w| w.revoke_token(ana, id)).unwrap();
    assert_eq!(find(&sample, b"t"), None);
}

#[test]
fn use_is_noted_at_first_and_then_once_a_minute() {
    let sample = Sample::new();
    let ana = sample.account("ana@example.com", Role::Admin);
    let id = make(&sample, ana, b"t", None).unwrap();
    let used = |after: u64| {
        sample.clock.advance(Duration::from_millis(after));
        sample.store.write(|w| w.touch_token(id)).unwrap();
        find(&sample, b"t").unwrap().last_used_ms.unwrap() - START_MS
    };
    assert_eq!((used(5), used(SEEN_MS - 1), used(1)), (5, 5, SEEN_MS + 5));
}

#[test]
fn tokens_scopes_and_names_have_a_limit() {
    let sample = Sample::new();
    let ana = sample.account("ana@example.com", Role::Admin);
    for number in 0..MAX_TOKENS {
        make(&sample, ana, &number.to_be_bytes(), None).unwrap();
    }
    assert!(matches!(make(&sample, ana, b"x", None), Err(StoreError::TooMany { .. })));
    let ben = sample.account("ben@example.com", Role::Viewer);
    assert!(matches!(make(&sample, ben, &[0; 8], None), Err(StoreError::Exists("token"))));
    let none = make(&sample, AccountId(99), b"x", None);
    assert!(matches!(none, Err(StoreError::NotFound("account"))));
    let scopes = vec![String::new(); MAX_SCOPES + 1];
    let new = NewToken {
        token: TokenHash::of(b"y"),
        account: ben,
        name: "",
        scopes: &scopes,
        expires_ms: None,
    };
    let many = sample.store.write(|w| w.create_token(&new));
    assert!(matches!(many, Err(StoreError::TooMany { what: "scopes", .. })));
}
