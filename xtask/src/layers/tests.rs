use super::*;

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

fn problems(name: &str, normal: &[&str], dev: &[&str]) -> Vec<String> {
    let krate =
        Crate { name: name.to_owned(), normal: set(normal), dev: set(dev), reachable: set(normal) };
    check(&Graph { crates: vec![krate] })
}

#[test]
fn lower_layers_may_be_imported() {
    for (name, normal, dev) in [
        ("corvus-config", &["corvus-core", "corvus-rules", "serde"][..], &["proptest"][..]),
        ("corvus-queue", &["corvus-config", "redis", "tokio"], &["corvus-testkit"]),
        ("corvus-proxy", &["corvus-tls", "corvus-queue", "rustls", "hyper"], &["corvus-testkit"]),
        ("corvus", &["corvus-proxy", "corvus-admin"], &["corvus-testkit", "hyper", "rustls"]),
        ("corvus-testkit", &["corvus-core", "corvus-proxy", "rustls", "hyper"], &[]),
        ("xtask", &["corvus-core", "corvus-config", "corvus-queue"], &[]),
    ] {
        assert_eq!(problems(name, normal, dev), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn forbidden_edges_are_named() {
    for (name, normal, dev, expected) in [
        (
            "corvus-rules",
            &["corvus-config"][..],
            &[][..],
            "corvus-rules (L1) imports corvus-config (L2); a crate imports strictly lower layers.",
        ),
        (
            "corvus-queue",
            &["corvus-tls"],
            &[],
            "corvus-queue (L3) imports corvus-tls (L3); a crate imports strictly lower layers.",
        ),
        (
            "corvus-proxy",
            &["corvus-admin"],
            &[],
            "corvus-proxy (L4) imports corvus-admin (L4); a crate imports strictly lower layers.",
        ),
        (
            "corvus-core",
            &[],
            &["corvus-queue"],
            "corvus-core (L0) imports corvus-queue (L3); a crate imports strictly lower layers.",
        ),
        (
            "corvus-config",
            &["tokio"],
            &[],
            "corvus-config (L2) reaches tokio; L0 to L2 do no input or output.",
        ),
        (
            "corvus-queue",
            &["rustls"],
            &[],
            "corvus-queue depends on rustls; only corvus-tls, corvus-proxy, corvus-admin, \
             corvus-testkit may.",
        ),
        (
            "corvus-admin",
            &["rusqlite"],
            &[],
            "corvus-admin depends on rusqlite; only corvus-store, corvus-monitor may.",
        ),
        ("corvus", &["redis"], &[], "corvus depends on redis; only corvus-queue may."),
        (
            "corvus-admin",
            &["corvus-testkit"],
            &[],
            "corvus-admin ships corvus-testkit; it may only be a dev-dependency.",
        ),
        ("corvus-testkit", &["corvus"], &[], "corvus-testkit imports corvus, whose tests use it."),
        ("corvus-new", &[], &[], "corvus-new has no place in the layer table of xtask."),
        (
            "corvus-admin",
            &["xtask"],
            &[],
            "corvus-admin depends on xtask, which is a tool and not a library.",
        ),
    ] {
        assert_eq!(problems(name, normal, dev), [expected]);
    }
}

#[test]
fn impurity_is_found_behind_other_crates() {
    let krate = Crate {
        name: "corvus-core".to_owned(),
        normal: set(&["innocent"]),
        dev: set(&[]),
        reachable: set(&["innocent", "socket2"]),
    };
    assert_eq!(
        check(&Graph { crates: vec![krate] }),
        ["corvus-core (L0) reaches socket2; L0 to L2 do no input or output."]
    );
}
