use std::time::Duration;

use super::*;
use crate::testing::{START_MS, Sample};

fn append(sample: &Sample, base: u64, document: &str) -> Result<u64> {
    let new = NewVersion { base, author: "ana", comment: "a comment", document };
    sample.store.write(|w| w.append_version(&new))
}

#[test]
fn versions_count_from_one_and_keep_their_text_byte_for_byte() {
    let sample = Sample::new();
    assert!(sample.store.read(|r| r.newest_version()).unwrap().is_none());
    let texts = ["version: 1\r\n", "", "é\u{0}\u{1F426}", "{\"version\": 1}"];
    for (base, text) in (0..).zip(texts) {
        assert_eq!(append(&sample, base, text).unwrap(), base + 1);
        sample.clock.advance(Duration::from_secs(1));
    }
    let sample = sample.reopen();
    for (base, text) in (0..).zip(texts) {
        let found = sample.store.read(|r| r.version(base + 1)).unwrap().unwrap();
        assert_eq!(found.document, text);
        assert_eq!(found.info.created_ms, START_MS + base * 1000);
        assert_eq!((found.info.author.as_str(), found.info.restores), ("ana", None));
    }
    assert!(sample.store.read(|r| r.version(5)).unwrap().is_none());
    assert_eq!(sample.store.read(|r| r.current_version()).unwrap(), 4);
}

#[test]
fn a_change_to_an_old_version_is_refused_and_told_the_newest() {
    let sample = Sample::new();
    append(&sample, 0, "a").unwrap();
    append(&sample, 1, "b").unwrap();
    for base in [0, 1, 3, u64::MAX] {
        let refused = append(&sample, base, "c");
        let Err(StoreError::Stale { base: told, current: 2 }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(told, base);
    }
    assert_eq!(append(&sample, 2, "c").unwrap(), 3);
}

#[test]
fn pages_go_through_all_versions_newest_first() {
    let sample = Sample::new();
    for base in 0..7 {
        append(&sample, base, "a").unwrap();
    }
    let (mut before, mut seen) = (None, Vec::new());
    loop {
        let page = sample.store.read(|r| r.versions(before, 3)).unwrap();
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        before = Some(last.version);
        seen.extend(page.iter().map(|info| info.version));
    }
    assert_eq!(seen, [7, 6, 5, 4, 3, 2, 1]);
    assert!(sample.store.read(|r| r.versions(Some(1), usize::MAX)).unwrap().is_empty());
    assert_eq!(sample.store.read(|r| r.versions(Some(u64::MAX), 1)).unwrap()[0].version, 7);
}

#[test]
fn a_rollback_appends_the_old_text_with_its_own_comment() {
    let sample = Sample::new();
    append(&sample, 0, "a").unwrap();
    append(&sample, 1, "b").unwrap();
    let back = |to, base| sample.store.write(|w| w.rollback(to, base, "ben", "b was bad"));
    assert!(matches!(back(1, 1), Err(StoreError::Stale { current: 2, .. })));
    assert!(matches!(back(9, 2), Err(StoreError::NotFound("version"))));
    assert_eq!(back(1, 2).unwrap(), 3);
    let newest = sample.store.read(|r| r.newest_version()).unwrap().unwrap();
    assert_eq!((newest.document.as_str(), newest.info.restores), ("a", Some(1)));
    assert_eq!((newest.info.author.as_str(), newest.info.comment.as_str()), ("ben", "b was bad"));
}

#[test]
fn nothing_that_was_appended_is_updated_or_deleted() {
    let sample = Sample::new();
    append(&sample, 0, "a").unwrap();
    for sql in ["UPDATE versions SET document = 'b'", "DELETE FROM versions"] {
        let done = sample.store.write(|w| Ok(w.connection.execute(sql, [])?));
        assert!(done.unwrap_err().to_string().contains("never"), "{sql}");
    }
}

#[test]
fn a_document_beyond_the_limit_is_refused() {
    let sample = Sample::new();
    let long = "x".repeat(MAX_DOCUMENT + 1);
    let refused = append(&sample, 0, &long);
    assert!(matches!(refused, Err(StoreError::TooLong { what: "document", .. })), "{refused:?}");
    assert_eq!(append(&sample, 0, &long[1..]).unwrap(), 1);
}
