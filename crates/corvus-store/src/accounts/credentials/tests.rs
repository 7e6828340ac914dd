use serde_json::json;

use super::*;
use crate::{
    Role,
    sessions::{NewSession, TokenHash},
    testing::{START_MS, Sample},
};

#[test]
fn a_new_password_ends_all_other_sessions() {
    let sample = Sample::new();
    let ana = sample.account("ana@example.com", Role::Admin);
    let begin = |token: &[u8]| {
        let new = NewSession {
            token: TokenHash::of(token),
            account: ana,
            expires_ms: START_MS + 1,
            user_agent: "",
            address: "",
        };
        sample.store.write(|w| w.create_session(&new)).unwrap()
    };
    let (_, mine) = (begin(b"1"), begin(b"2"));
    assert_eq!(sample.store.read(|r| r.password_hash(ana)).unwrap(), None);
    sample.store.write(|w| w.set_password_hash(ana, Some("$h1"), Some(mine))).unwrap();
    let left = sample.store.read(|r| r.sessions(ana)).unwrap();
    assert_eq!(left.iter().map(|s| s.id).collect::<Vec<_>>(), [mine]);

    sample.store.write(|w| w.rehash_password(ana, "$h1", "$h2")).unwrap();
    assert_eq!(sample.store.read(|r| r.password_hash(ana)).unwrap().as_deref(), Some("$h2"));
    // The password was changed while its old hash was being made anew: the change stays.
    let late = sample.store.write(|w| w.rehash_password(ana, "$h1", "$h3"));
    assert!(matches!(late, Err(StoreError::NotFound("password"))));
    assert_eq!(sample.store.read(|r| r.sessions(ana)).unwrap().len(), 1);
    sample.store.write(|w| w.set_password_hash(ana, None, None)).unwrap();
    assert!(sample.store.read(|r| r.sessions(ana)).unwrap().is_empty());
}

#[test]
fn a_totp_code_is_good_once_and_the_secret_is_sealed_to_its_account() {
    let sample = Sample::new();
    let ana = sample.account("ana@example.com", Role::Admin);
    let ben = sample.account("ben@example.com", Role::Viewer);
    assert!(!sample.store.write(|w| w.use_totp_step(ana, 10)).unwrap(), "no secret, no code");
    sample.store.write(|w| w.set_totp_secret(ana, Some(b"12345678901234567890"))).unwrap();
    let sample = sample.reopen();
    let secret = sample.store.read(|r| r.totp_secret(ana)).unwrap().unwrap();
    assert_eq!(&**secret, b"12345678901234567890");
    assert!(sample.store.read(|r| r.account(ana)).unwrap().unwrap().has_totp);
    let mut used = Vec::new();
    for step in [10, 10, 9, 11] {
        used.push(sample.store.write(|w| w.use_totp_step(ana, step)).unwrap());
    }
    assert_eq!(used, [true, false, false, true]);

    sample
        .store
        .write(|w| {
            let sql = "UPDATE accounts SET totp_secret =
                       (SELECT totp_secret FROM accounts WHERE id = ?1)";
            w.connection.execute(sql, [ana])?;
            Ok(())
        })
        .unwrap();
    let moved = sample.store.read(|r| r.totp_secret(ben));
    assert!(matches!(moved, Err(StoreError::Sealed(_))), "{moved:?}");
}

#[test]
fn a_recovery_code_is_good_once_and_goes_with_the_second_factor() {
    let sample = Sample::new();
    let ana = sample.account("ana@example.com", Role::Admin);
    let codes: Vec<String> = (0..3).map(|n| format!("$code{n}")).collect();
    sample.store.write(|w| w.set_totp_secret(ana, Some(b"s"))).unwrap();
    sample.store.write(|w| w.set_recovery_codes(ana, &codes)).unwrap();
    let take = |code: &str| sample.store.write(|w| w.use_recovery_code(ana, code)).unwrap();
    assert_eq!((take("$code1"), take("$code1"), take("$other")), (true, false, false));
    assert_eq!(sample.store.read(|r| r.recovery_codes(ana)).unwrap(), ["$code0", "$code2"]);
    sample.store.write(|w| w.set_recovery_codes(ana, &codes[1..2])).unwrap();
    assert_eq!(sample.store.read(|r| r.recovery_codes(ana)).unwrap(), ["$code1"]);
    sample.store.write(|w| w.set_totp_secret(ana, None)).unwrap();
    assert!(sample.store.read(|r| r.recovery_codes(ana)).unwrap().is_empty());
    assert!(!sample.store.read(|r| r.account(ana)).unwrap().unwrap().has_totp);
    let many = vec![String::new(); 33];
    let refused = sample.store.write(|w| w.set_recovery_codes(ana, &many));
    assert!(matches!(refused, Err(StoreError::TooMany { .. })));
}

#[test]
fn passkeys_belong_to_one_account_and_note_their_use() {
    let sample = Sample::new();
    let ana = sample.account("ana@example.com", Role::Admin);
    let ben = sample.account("ben@example.com", Role::Viewer);
    let add = |id, credential: &[u8]| {
        sample.store.write(|w| w.add_passkey(id, credential, "laptop", &json!({"counter": 0})))
    };
    let key = add(ana, b"cred").unwrap();
    assert!(matches!(add(ben, b"cred"), Err(StoreError::Exists("passkey"))));
    let use_it = |credential: &[u8]| {
        sample.store.write(|w| w.note_passkey_use(credential, &json!({"counter": 1})))
    };
    use_it(b"cred").unwrap();
    assert!(matches!(use_it(b"none"), Err(StoreError::NotFound("passkey"))));
    let sample_key = sample.store.read(|r| r.passkey(b"cred")).unwrap().unwrap();
    let expected = Passkey {
        id: key,
        account: ana,
        credential: b"cred".to_vec(),
        name: "laptop".into(),
        data: json!({"counter": 1}),
        created_ms: START_MS,
        last_used_ms: Some(START_MS),
    };
    assert_eq!(sample_key, expected);
    assert_eq!(sample.store.read(|r| r.passkeys(ana)).unwrap(), [expected]);
    let other = sample.store.write(|w| w.remove_passkey(ben, key));
    assert!(matches!(other, Err(StoreError::NotFound("passkey"))));
    sample.store.write(|w| w.remove_passkey(ana, key)).unwrap();
    assert!(sample.store.read(|r| r.passkey(b"cred")).unwrap().is_none());

    for number in 0..MAX_EACH {
        add(ben, &number.to_be_bytes()).unwrap();
    }
    assert!(matches!(add(ben, b"one more"), Err(StoreError::TooMany { .. })));
    assert!(matches!(add(AccountId(99), b"x"), Err(StoreError::NotFound("account"))));
}

#[test]
fn an_identity_belongs_to_one_account() {
    let sample = Sample::new();
    let ana = sample.account("ana@example.com", Role::Admin);
    let ben = sample.account("ben@example.com", Role::Viewer);
    let add = |id| sample.store.write(|w| w.add_identity(id, "https://id.example.com", "7"));
    let whose =
        || sample.store.read(|r| r.account_of_identity("https://id.example.com", "7")).unwrap();
    assert_eq!(whose(), None);
    add(ana).unwrap();
    assert_eq!(whose(), Some(ana));
    assert!(matches!(add(ben), Err(StoreError::Exists("identity"))));
    let listed = sample.store.read(|r| r.identities(ana)).unwrap();
    assert_eq!(listed, [("https://id.example.com".to_owned(), "7".to_owned())]);
    sample.store.write(|w| w.remove_identity(ana, "https://id.example.com", "7")).unwrap();
    assert_eq!(whose(), None);
    add(ben).unwrap();
}
