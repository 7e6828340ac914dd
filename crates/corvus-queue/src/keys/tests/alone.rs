//! The file under DATA, and a gateway that shares with nobody.

use super::*;

#[test]
fn keys_survive_a_restart_and_a_rotation() {
    let dir = tempfile::tempdir().unwrap();
    let first = KeyStore::open(Some(dir.path())).unwrap();
    assert!(first.are_new());
    let text = token(&first);
    let second = KeyStore::open(Some(dir.path())).unwrap();
    assert!(!second.are_new());
    assert_eq!(second.draw_key(), first.draw_key());
    second.rotate().unwrap();
    let third = KeyStore::open(Some(dir.path())).unwrap();
    for keys in [&second, &third] {
        assert!(believes(keys, &text));
    }
    third.rotate().unwrap();
    assert!(!believes(&third, &text));
}

#[cfg(unix)]
#[test]
fn the_file_is_the_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    KeyStore::open(Some(dir.path())).unwrap().rotate().unwrap();
    let mode = fs::metadata(dir.path().join("keys")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_damaged_file_is_named_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys");
    fs::write(&path, "{}").unwrap();
    for open in [KeyStore::open, KeyStore::open_shared] {
        let error = open(Some(dir.path())).err().unwrap();
        assert!(matches!(&error, KeyError::Malformed { path: p } if *p == path), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "{}");
    }
}

const V1: &str = include_str!("../testdata/v1.json");

/// A token that version 1 signed, and its keys: files out there stay good.
#[test]
fn the_first_form_of_the_file_is_read_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys");
    fs::write(&path, V1).unwrap();
    for open in [KeyStore::open, KeyStore::open_shared] {
        let keys = open(Some(dir.path())).unwrap();
        assert_eq!(token(&keys), TOKEN);
        assert!(believes(&keys, PREVIOUS_TOKEN));
        assert_eq!(keys.draw_key().unwrap()[..2], [0xa0, 0xa1]);
        assert_eq!(fs::read_to_string(&path).unwrap(), V1, "written only when something changes");
    }
    let keys = KeyStore::open(Some(dir.path())).unwrap();
    keys.rotate().unwrap();
    let again = KeyStore::open(Some(dir.path())).unwrap();
    assert!(believes(&again, TOKEN) && !believes(&again, PREVIOUS_TOKEN));
    assert_eq!(again.draw_key(), keys.draw_key());
}

#[test]
fn texts_of_keys_round_trip_and_others_are_refused() {
    let fresh = KeyFile::fresh().unwrap();
    let announced = fresh.announcing([9; 32], 77);
    for file in [&fresh, &announced, &announced.activated(77).unwrap()] {
        assert_eq!(KeyFile::parse(&file.to_text().unwrap()).as_ref(), Some(file));
    }
    let text = announced.to_text().unwrap();
    for (from, to) in [
        ("\"version\": 2", "\"version\": 1"),
        ("\"version\": 2", "\"version\": 3"),
        ("\"generation\": 2", "\"generation\": 0"),
        ("\"generation\": 2", "\"generation\": 18446744073709551615"),
        ("\"generation\": 2,", ""),
        ("\"generation\": 2", "\"generation\": 2, \"more\": 1"),
        ("\"draw\": \"", "\"draw\": \"0"),
        ("\"current\": \"", "\"current\": \"+"),
        ("{", &" ".repeat(5_000)),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        assert_eq!(KeyFile::parse(&changed), None, "{from} -> {to}");
    }
}

#[test]
fn secrets_are_not_shown() {
    let shown = format!("{:?}", KeyFile::parse(V1).unwrap().announcing([0x5a; 32], 1));
    for secret in ["2021", "32, 33", "0001", "0, 1", "a0a1", "160, 161", "5a5a", "90, 90"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

const TOKEN: &str =
    "v2.ofhKVM0O.a.drop.AQEBAQEBAQEBAQEBAQEBAQ.1.2.M-jSNo1Su30x7psXPoSkbRNTXk05ijEZPHOzbZL1Q_w";
const PREVIOUS_TOKEN: &str =
    "v2.e3B244XW.a.drop.AQEBAQEBAQEBAQEBAQEBAQ.1.2.KnZF781aLzAp3yklemIi2Rpy6XCIGuI_xjDrTVf_SAU";
