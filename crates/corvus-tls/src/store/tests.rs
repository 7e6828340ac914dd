use std::fs;

use corvus_core::FakeClock;
use rcgen::date_time_ymd;

use super::*;
use crate::fixture::{
    Authority, NOW_MS, Pair, host, id, leaf_params, self_signed_spec, snapshot, upload,
};

#[test]
fn a_failed_certificate_touches_no_other() {
    let data = tempfile::tempdir().unwrap();
    let root = Authority::root("root");
    let good = root.issue(&leaf_params(&["good.example.com"]));
    let mixed = Pair {
        certificate: root.issue(&leaf_params(&["mixed.example.com"])).certificate,
        key: good.key.clone(),
    };
    let missing = Pair { certificate: "file:/nonexistent/x.pem".to_owned(), key: String::new() };
    let snapshot = snapshot(
        Vec::new(),
        vec![
            upload("mixed", &mixed),
            upload("good", &good),
            upload("missing", &missing),
            self_signed_spec("lab", &["lab.example.com"]),
        ],
    );
    let loaded = load(&snapshot, data.path(), &FakeClock::new(NOW_MS));
    let mut ids: Vec<&str> = loaded.store.iter().map(|(id, _)| id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["good", "lab"]);
    assert_eq!(
        loaded.failures.iter().map(|failure| failure.sentence.as_str()).collect::<Vec<_>>(),
        [
            "Certificate `mixed` is not served: its key belongs to none of the certificates given.",
            "Certificate `missing` is not served: its certificate cannot be read: the file \
             `/nonexistent/x.pem` cannot be read: No such file or directory (os error 2).",
        ]
    );
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}

#[test]
fn a_data_folder_that_cannot_be_written_fails_only_self_signed_ones() {
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("certificates"), "").unwrap();
    let good = Authority::root("root").issue(&leaf_params(&["good.example.com"]));
    let specs = vec![self_signed_spec("lab", &["lab.example.com"]), upload("good", &good)];
    let loaded = load(&snapshot(Vec::new(), specs), data.path(), &FakeClock::new(NOW_MS));
    assert!(loaded.store.get(&id("good")).is_some());
    assert_eq!(loaded.failures.len(), 1);
    assert_eq!(loaded.failures[0].id, id("lab"));
}

#[test]
fn files_are_read_by_reference() {
    let folder = tempfile::tempdir().unwrap();
    let pair = Authority::root("root").issue(&leaf_params(&["own.example.com"]));
    let put = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        format!("file:{}", path.display())
    };
    let references =
        Pair { certificate: put("own.pem", &pair.certificate), key: put("own.key", &pair.key) };
    let snapshot = snapshot(Vec::new(), vec![upload("own", &references)]);
    let loaded = load(&snapshot, folder.path(), &FakeClock::new(NOW_MS));
    assert!(loaded.store.get(&id("own")).unwrap().covers("own.example.com"));
}

#[test]
fn what_clients_will_object_to_is_a_warning() {
    let data = tempfile::tempdir().unwrap();
    let root = Authority::root("root");
    let mut old = leaf_params(&["old.example.com"]);
    old.not_after = date_time_ymd(2027, 1, 10);
    let mut early = leaf_params(&["early.example.com"]);
    early.not_before = date_time_ymd(2027, 2, 1);
    let wild = leaf_params(&["*.example.com"]);
    let snapshot = snapshot(
        vec![
            host("shop", &["shop.example.com", "a.b.example.com"], Some("wild")),
            host("other", &["other.example.org"], Some("old")),
        ],
        vec![
            upload("old", &root.issue(&old)),
            upload("early", &root.issue(&early)),
            upload("wild", &root.issue(&wild)),
        ],
    );
    let loaded = load(&snapshot, data.path(), &FakeClock::new(NOW_MS));
    assert_eq!(loaded.failures, []);
    assert_eq!(
        loaded.warnings.iter().map(|warning| warning.sentence.as_str()).collect::<Vec<_>>(),
        [
            "Certificate `old`: it expired 5 days ago, so browsers warn about it.",
            "Certificate `old`: it does not cover `other.example.org` of host `other`.",
            "Certificate `early`: it is not valid yet; check the clock of this machine and of who \
             issued it.",
            "Certificate `wild`: it does not cover `a.b.example.com` of host `shop`.",
        ]
    );
}
