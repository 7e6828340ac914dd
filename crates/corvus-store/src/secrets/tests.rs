use std::fs;

use super::*;
use crate::testing::{START_MS, Sample};

fn get(sample: &Sample, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>> {
    sample.store.read(|r| r.secret(name))
}

#[test]
fn secrets_are_set_replaced_listed_and_removed() {
    let sample = Sample::new();
    sample
        .store
        .write(|w| {
            w.put_secret("slack", b"one")?;
            w.put_secret("dns", b"\x00\xff")?;
            w.put_secret("slack", b"two")
        })
        .unwrap();
    let sample = sample.reopen();
    assert_eq!(&**get(&sample, "slack").unwrap().unwrap(), b"two");
    assert_eq!(&**get(&sample, "dns").unwrap().unwrap(), b"\x00\xff");
    let listed = sample.store.read(|r| r.secrets()).unwrap();
    let info = |name: &str| SecretInfo { name: name.into(), updated_ms: START_MS };
    assert_eq!(listed, [info("dns"), info("slack")]);
    sample.store.write(|w| w.remove_secret("slack")).unwrap();
    assert!(get(&sample, "slack").unwrap().is_none());
    let gone = sample.store.write(|w| w.remove_secret("slack"));
    assert!(matches!(gone, Err(StoreError::NotFound("secret"))));
}

#[test]
fn no_file_of_the_database_holds_a_secret_in_the_clear() {
    let sample = Sample::new();
    let value = b"https://hooks.example.com/services/T0000";
    sample.store.write(|w| w.put_secret("slack", value)).unwrap();
    for entry in fs::read_dir(sample.data.path()).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(value.len()).any(|window| window == value));
    }
}

#[test]
fn a_value_moved_to_another_name_does_not_open_there() {
    let sample = Sample::new();
    sample
        .store
        .write(|w| {
            w.put_secret("a", b"one")?;
            w.put_secret("b", b"two")?;
            let sql = "UPDATE secrets SET value = (SELECT value FROM secrets WHERE name = 'a')";
            w.connection.execute(sql, [])?;
            Ok(())
        })
        .unwrap();
    assert_eq!(&**get(&sample, "a").unwrap().unwrap(), b"one");
    let failed = get(&sample, "b").unwrap_err();
    assert_eq!(failed.to_string(), "the stored secret b is damaged: it does not decrypt");
}

#[test]
fn names_and_values_have_a_longest() {
    let sample = Sample::new();
    let put = |name: &str, value: &[u8]| sample.store.write(|w| w.put_secret(name, value));
    assert!(matches!(put(&"n".repeat(MAX_NAME + 1), b""), Err(StoreError::TooLong { .. })));
    assert!(matches!(put("n", &vec![0; MAX_VALUE + 1]), Err(StoreError::TooLong { .. })));
    put(&"n".repeat(MAX_NAME), &vec![0; MAX_VALUE]).unwrap();
}
