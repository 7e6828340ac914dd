use std::{os::unix::fs::PermissionsExt, time::Duration};

use corvus_core::FakeClock;

use super::*;
use crate::fixture::{NOW_MS, NOW_S, id};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn leaf(certificate: &Certificate) -> Vec<u8> {
    certificate.key.cert[0].to_vec()
}

#[test]
fn it_is_kept_and_used_again() {
    let data = tempfile::tempdir().unwrap();
    let clock = FakeClock::new(NOW_MS);
    let domains = names(&["lab.example.com", "*.lab.example.com", "192.0.2.7"]);
    let made = self_signed(data.path(), &id("lab"), &domains, &clock).unwrap();
    assert_eq!(made.names, domains);
    assert!(made.self_signed);
    assert_eq!(made.not_before_s, NOW_S - 86_400);
    assert_eq!(made.not_after_s, NOW_S + 397 * 86_400);

    let path = data.path().join("certificates/self-signed/lab.pem");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file left");

    clock.advance(Duration::from_hours(24 * 300));
    let again = self_signed(data.path(), &id("lab"), &domains, &clock).unwrap();
    assert_eq!(leaf(&again), leaf(&made));
}

#[test]
fn it_is_made_anew_when_it_no_longer_fits() {
    let data = tempfile::tempdir().unwrap();
    let clock = FakeClock::new(NOW_MS);
    let get =
        |domains: &[&str]| self_signed(data.path(), &id("lab"), &names(domains), &clock).unwrap();
    let first = get(&["a.example.com"]);
    let more = get(&["a.example.com", "b.example.com"]);
    assert_ne!(leaf(&first), leaf(&more));
    let fewer = get(&["b.example.com"]);
    assert_eq!(fewer.names, ["b.example.com"]);

    clock.advance(Duration::from_hours(24 * (397 - 30)));
    let renewed = get(&["b.example.com"]);
    assert_ne!(leaf(&fewer), leaf(&renewed), "30 days are left");

    fs::write(data.path().join("certificates/self-signed/lab.pem"), "damaged").unwrap();
    assert_ne!(leaf(&get(&["b.example.com"])), leaf(&renewed));
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let data = tempfile::tempdir().unwrap();
    // A file where the folder belongs stops root too, which no permission would.
    fs::write(data.path().join("certificates"), "").unwrap();
    let clock = FakeClock::new(NOW_MS);
    let domains = names(&["a.example.com"]);
    let error = self_signed(data.path(), &id("lab"), &domains, &clock).unwrap_err();
    assert!(matches!(error, CertificateError::Write { .. }), "{error}");
    assert!(error.to_string().contains("certificates/self-signed/lab.pem"), "{error}");
}
