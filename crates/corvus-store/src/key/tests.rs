use std::os::unix::fs::PermissionsExt as _;

use super::*;

#[test]
fn a_key_is_made_once_for_its_owner_alone_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.key");
    assert!(SecretKey::read(&path).unwrap().is_none());
    let made = SecretKey::create(&path).unwrap();
    let read = SecretKey::read(&path).unwrap().unwrap();
    assert_eq!(made.bytes(), read.bytes());
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.len(), found.permissions().mode() & 0o777), (32, 0o600));
    assert!(matches!(SecretKey::create(&path), Err(KeyError::Io { what: "made", .. })));
    assert_eq!(SecretKey::read(&path).unwrap().unwrap().bytes(), made.bytes());
}

#[test]
fn a_key_of_another_length_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.key");
    for length in [0, 31, 33] {
        fs::write(&path, vec![7; length]).unwrap();
        let error = SecretKey::read(&path).err().unwrap();
        assert!(matches!(error, KeyError::Length { found, .. } if found == length as u64));
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn what_was_sealed_opens_with_its_key_and_context_only() {
    let folder = tempfile::tempdir().unwrap();
    let key = SecretKey::create(&folder.path().join("a")).unwrap();
    let other = SecretKey::create(&folder.path().join("b")).unwrap();
    for plain in [b"".as_slice(), b"hunter2", &vec![0; 100_000]] {
        let sealed = key.seal("secret:a", plain).unwrap();
        assert_eq!(&*key.open("secret:a", &sealed).unwrap(), plain);
        assert!(key.open("secret:b", &sealed).is_err());
        assert!(other.open("secret:a", &sealed).is_err());
        assert_ne!(sealed, key.seal("secret:a", plain).unwrap(), "a nonce was used twice");
    }
}

#[test]
fn a_sealed_value_with_any_bit_changed_or_its_end_missing_does_not_open() {
    let folder = tempfile::tempdir().unwrap();
    let key = SecretKey::create(&folder.path().join("key")).unwrap();
    let sealed = key.seal("x", b"hunter2").unwrap();
    for bit in 0..sealed.len() * 8 {
        let mut bad = sealed.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(key.open("x", &bad).is_err(), "bit {bit}");
    }
    for length in 0..sealed.len() {
        assert!(key.open("x", &sealed[..length]).is_err(), "{length} bytes");
    }
}
