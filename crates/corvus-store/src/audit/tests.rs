use std::time::Duration;

use serde_json::json;

use super::*;
use crate::{
    StoreError,
    testing::{START_MS, Sample},
};

/// Entries a second apart: kind, actor, subject.
const ENTRIES: [(&str, &str, &str); 6] = [
    ("session.created", "ana", "203.0.113.7"),
    ("config.saved", "ana", "1"),
    ("sessionx", "eve", "1"),
    ("session.ended", "ana", "203.0.113.7"),
    ("config.saved", "ben", "2"),
    ("session.failed", "eve", "198.51.100.1"),
];

fn filled() -> Sample {
    let sample = Sample::new();
    for (kind, actor, subject) in ENTRIES {
        let new = NewEntry {
            account: (actor != "eve").then_some(AccountId(1)),
            actor,
            kind,
            subject,
            detail: json!({"of": kind}),
            address: "203.0.113.7",
        };
        sample.store.write(|w| w.audit(&new)).unwrap();
        sample.clock.advance(Duration::from_secs(1));
    }
    sample
}

fn ids(sample: &Sample, filter: &AuditFilter<'_>) -> Vec<u64> {
    let entries = sample.store.read(|r| r.audit_entries(filter, 100)).unwrap();
    entries.iter().map(|entry| entry.id).collect()
}

#[test]
fn entries_are_kept_as_written_newest_first() {
    let sample = filled().reopen();
    let entries = sample.store.read(|r| r.audit_entries(&AuditFilter::default(), 1)).unwrap();
    let expected = Entry {
        id: 6,
        at_ms: START_MS + 5000,
        account: None,
        actor: "eve".into(),
        kind: "session.failed".into(),
        subject: "198.51.100.1".into(),
        detail: json!({"of": "session.failed"}),
        address: "203.0.113.7".into(),
    };
    assert_eq!(entries, [expected]);
    assert_eq!(ids(&sample, &AuditFilter::default()), [6, 5, 4, 3, 2, 1]);
}

#[test]
fn filters_select_and_combine() {
    let sample = filled();
    let all = AuditFilter::default();
    let cases: &[(AuditFilter<'_>, &[u64])] = &[
        (AuditFilter { actor: Some("ana"), ..all }, &[4, 2, 1]),
        (AuditFilter { account: Some(AccountId(1)), ..all }, &[5, 4, 2, 1]),
        (AuditFilter { kind: Some("config.saved"), ..all }, &[5, 2]),
        (AuditFilter { kind: Some("session."), ..all }, &[6, 4, 1]),
        (AuditFilter { kind: Some("session"), ..all }, &[]),
        (AuditFilter { subject: Some("1"), ..all }, &[3, 2]),
        (AuditFilter { from_ms: Some(START_MS + 3000), ..all }, &[6, 5, 4]),
        (AuditFilter { until_ms: Some(START_MS + 2000), ..all }, &[2, 1]),
        (AuditFilter { before: Some(4), ..all }, &[3, 2, 1]),
        (
            AuditFilter {
                actor: Some("ana"),
                account: Some(AccountId(1)),
                kind: Some("session."),
                subject: Some("203.0.113.7"),
                from_ms: Some(START_MS),
                until_ms: Some(START_MS + 3000),
                before: Some(6),
            },
            &[1],
        ),
    ];
    for (filter, expected) in cases {
        assert_eq!(ids(&sample, filter), *expected, "{filter:?}");
    }
}

#[test]
fn an_entry_is_kept_with_its_change_or_not_at_all() {
    let sample = Sample::new();
    let failed = sample.store.write(|w| {
        w.audit(&NewEntry { kind: "secret.removed", ..NewEntry::default() })?;
        w.remove_secret("none")
    });
    assert!(failed.is_err());
    assert!(ids(&sample, &AuditFilter::default()).is_empty());
}

#[test]
fn entries_go_by_age_and_number_only() {
    let sample = filled();
    let update =
        sample.store.write(|w| Ok(w.connection.execute("UPDATE audit SET kind = ''", [])?));
    assert!(update.unwrap_err().to_string().contains("never updated"));
    let trim = |from, most| sample.store.write(|w| w.trim_audit(from, most)).unwrap();
    assert_eq!(trim(0, 6), 0);
    assert_eq!(trim(START_MS + 1000, 6), 1);
    assert_eq!(ids(&sample, &AuditFilter::default()), [6, 5, 4, 3, 2]);
    assert_eq!(trim(0, 2), 3);
    assert_eq!(ids(&sample, &AuditFilter::default()), [6, 5]);
    assert_eq!(trim(u64::MAX >> 1, 0), 2);
    // Numbers go on, so that a page's `before` never means something else.
    assert_eq!(sample.store.write(|w| w.audit(&NewEntry::default())).unwrap(), 7);
}

#[test]
fn fields_have_a_longest() {
    let sample = Sample::new();
    let long = "x".repeat(MAX_DETAIL);
    let subject = NewEntry { subject: &long, ..NewEntry::default() };
    let detail = NewEntry { detail: json!(long), ..NewEntry::default() };
    for (new, name) in [(subject, "subject"), (detail, "detail")] {
        let refused = sample.store.write(|w| w.audit(&new));
        assert!(matches!(refused, Err(StoreError::TooLong { what, .. }) if what == name));
    }
}
