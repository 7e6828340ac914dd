use std::time::Duration;

use super::*;
use crate::{
    Profile, Role,
    testing::{START_MS, Sample, profile},
};

fn begin(sample: &Sample, account: AccountId, token: &[u8]) -> SessionId {
    let new = NewSession {
        token: TokenHash::of(token),
        account,
        expires_ms: START_MS + 3_600_000,
        user_agent: "Browser",
        address: "203.0.113.7",
    };
    sample.store.write(|w| w.create_session(&new)).unwrap()
}

fn find(sample: &Sample, token: &[u8]) -> Option<(Session, Account)> {
    sample.store.read(|r| r.session(&TokenHash::of(token))).unwrap()
}

#[test]
fn a_token_is_hashed_with_sha_256() {
    // FIPS 180-4, example "abc".
    let TokenHash(hash) = TokenHash::of(b"abc");
    assert_eq!(hash[..4], [0xba, 0x78, 0x16, 0xbf]);
    assert_eq!(hash[28..], [0xf2, 0x00, 0x15, 0xad]);
}

#[test]
fn a_session_is_found_by_its_token_until_it_expires() {
    let sample = Sample::new();
    let ana = sample.account("ana@example.com", Role::Admin);
    let id = begin(&sample, ana, b"t");
    let sample = sample.reopen();
    let (session, account) = find(&sample, b"t").unwrap();
    let expected = Session {
        id,
        account: ana,
        created_ms: START_MS,
        seen_ms: START_MS,
        expires_ms: START_MS + 3_600_000,
        user_agent: "Browser".into(),
        address: "203.0.113.7".into(),
    };
    assert_eq!((session, account.id), (expected, ana));
    assert!(find(&sample, b"other").is_none());
    sample.clock.advance(Duration::from_millis(3_599_999));
    assert!(find(&sample, b"t").is_some());
    sample.clock.advance(Duration::from_millis(1));
    assert!(find(&sample, b"t").is_none());
    assert!(sample.store.read(|r| r.sessions(ana)).unwrap().is_empty());
}

#[test]
fn a_disabled_account_has_no_session_even_if_its_row_is_there() {
    let sample = Sample::new();
    sample.account("root@example.com", Role::Admin);
    let ana = sample.account("ana@example.com", Role::Viewer);
    let off = Profile { disabled: true, ..profile("ana@example.com", Role::Viewer) };
    sample.store.write(|w| w.update_account(ana, &off)).unwrap();
    begin(&sample, ana, b"t");
    assert!(find(&sample, b"t").is_none());
}

#[test]
fn rotation_makes_the_old_token_worthless() {
    let sample = Sample::new();
    let ana = sample.account("ana@example.com", Role::Admin);
    let id = begin(&sample, ana, b"old");
    let rotate = |from: &[u8], to: &[u8]| {
        sample.store.write(|w| w.rotate_session(&TokenHash::of(from), &TokenHash::of(to)))
    };
    rotate(b"old", b"new").unwrap();
    assert!(find(&sample, b"old").is_none());
    assert_eq!(find(&sample, b"new").unwrap().0.id, id);
    assert!(matches!(rotate(b"old", b"newer"), Err(StoreError::NotFound("session"))));
    sample.clock.advance(Duration::from_hours(1));
    assert!(matches!(rotate(b"new", b"newer"), Err(StoreError::NotFound("session"))));
}

#[test]
fn use_is_noted_once_a_minute() {
    let sample = Sample::new();
    let ana = sample.account("ana@example.com", Role::Admin);
    let id = begin(&sample, ana, b"t");
    let seen = |after: u64, address: &str| {
        sample.clock.advance(Duration::from_millis(after));
        sample.store.write(|w| w.touch_session(id, address)).unwrap();
        let session = find(&sample, b"t").unwrap().0;
        (session.seen_ms - START_MS, session.address)
    };
    assert_eq!(seen(SEEN_MS - 1, "a"), (0, "203.0.113.7".into()));
    assert_eq!(seen(1, "b"), (SEEN_MS, "b".into()));
    assert_eq!(seen(5, "c"), (SEEN_MS, "b".into()));
}

#[test]
fn sessions_end_one_by_one_or_all_at_once() {
    let sample = Sample::new();
    let ana = sample.account("ana@example.com", Role::Admin);
    let ben = sample.account("ben@example.com", Role::Viewer);
    let (one, two) = (begin(&sample, ana, b"1"), begin(&sample, ana, b"2"));
    begin(&sample, ana, b"3");
    begin(&sample, ben, b"b");
    let revoked = sample.store.write(|w| w.revoke_session(ben, one));
    assert!(matches!(revoked, Err(StoreError::NotFound("session"))), "somebody else's");
    sample.store.write(|w| w.revoke_session(ana, one)).unwrap();
    assert!(find(&sample, b"1").is_none());
    assert_eq!(sample.store.write(|w| w.revoke_sessions(ana, Some(two))).unwrap(), 1);
    assert!(find(&sample, b"2").is_some() && find(&sample, b"3").is_none());
    assert_eq!(sample.store.write(|w| w.revoke_sessions(ana, None)).unwrap(), 1);
    assert!(find(&sample, b"2").is_none() && find(&sample, b"b").is_some());
}

#[test]
fn an_account_has_so_many_sessions_and_the_idlest_goes_first() {
    let sample = Sample::new();
    let ana = sample.account("ana@example.com", Role::Admin);
    let first = begin(&sample, ana, b"first");
    begin(&sample, ana, b"second");
    sample.clock.advance(Duration::from_millis(SEEN_MS));
    sample.store.write(|w| w.touch_session(first, "")).unwrap();
    for number in 2..=MAX_SESSIONS {
        begin(&sample, ana, &number.to_be_bytes());
    }
    assert_eq!(sample.store.read(|r| r.sessions(ana)).unwrap().len() as u64, MAX_SESSIONS);
    assert!(find(&sample, b"first").is_some());
    assert!(find(&sample, b"second").is_none());
}

#[test]
fn long_user_agents_are_cut_between_characters() {
    assert_eq!(cut("abc"), "abc");
    let long = "é".repeat(200);
    assert_eq!(cut(&long).len(), 256);
    let long = format!("a{long}");
    assert_eq!(cut(&long).len(), 255);
}
