use corvus_core::FakeClock;
use rustls::{HandshakeKind, NamedGroup, ProtocolVersion};

use super::*;
use crate::{
    Verify, client_config,
    fixture::{
        Authority, NOW_MS, handshake, host, leaf_params, self_signed_spec, snapshot, upload,
    },
    server_config, store,
};

fn map(snapshot: &Arc<Snapshot>) -> CertificateMap {
    let data = tempfile::tempdir().unwrap();
    let loaded = store::load(snapshot, data.path(), &FakeClock::new(NOW_MS));
    assert_eq!(loaded.failures, []);
    CertificateMap::new(Arc::clone(snapshot), &loaded.store)
}

fn resolver(snapshot: &Arc<Snapshot>) -> SniResolver {
    SniResolver::new(map(snapshot), &FakeClock::new(NOW_MS)).unwrap()
}

fn names(resolver: &SniResolver, name: Option<&str>) -> Vec<String> {
    let key = resolver.certificate_for(name);
    let leaf = crate::certificate::parse_x509(&key.cert[0]).unwrap();
    let names = leaf.subject_alternative_name().unwrap().unwrap();
    names.value.general_names.iter().map(ToString::to_string).collect()
}

#[test]
fn the_host_decides_before_the_names_in_certificates() {
    let snapshot = snapshot(
        vec![
            host("exact", &["shop.example.com"], Some("one")),
            host("wild", &["*.example.com"], Some("two")),
            host("deep", &["*.deep.example.com"], Some("three")),
            host("without", &["plain.example.com"], None),
        ],
        vec![
            self_signed_spec("one", &["one.test"]),
            self_signed_spec("two", &["two.test", "plain.example.com"]),
            self_signed_spec("three", &["three.test", "*.four.test"]),
        ],
    );
    let resolver = resolver(&snapshot);
    let first = |name| names(&resolver, Some(name)).swap_remove(0);
    assert_eq!(first("shop.example.com"), "DNSName(one.test)");
    assert_eq!(first("blog.example.com"), "DNSName(two.test)");
    assert_eq!(first("a.b.example.com"), "DNSName(two.test)");
    assert_eq!(first("a.b.deep.example.com"), "DNSName(three.test)");
    // A host without a certificate, and names without a host: by the names in certificates.
    assert_eq!(first("plain.example.com"), "DNSName(two.test)");
    assert_eq!(first("one.test"), "DNSName(one.test)");
    assert_eq!(first("a.four.test"), "DNSName(three.test)");
}

#[test]
fn strangers_learn_no_names() {
    let snapshot = snapshot(
        vec![host("shop", &["shop.example.com"], Some("shop"))],
        vec![self_signed_spec("shop", &["shop.example.com", "*.four.test"])],
    );
    let resolver = resolver(&snapshot);
    for name in [None, Some("example.com"), Some("x.shop.example.com"), Some("a.b.four.test")] {
        assert_eq!(names(&resolver, name), ["DNSName(gateway.invalid)"], "{name:?}");
    }
}

#[test]
fn of_two_that_cover_a_name_the_longer_lasting_one_is_served() {
    let root = Authority::root("root");
    let mut long = leaf_params(&["a.example.com", "long.test"]);
    long.not_after = rcgen::date_time_ymd(2040, 1, 1);
    let mut short = leaf_params(&["a.example.com", "short.test"]);
    short.not_after = rcgen::date_time_ymd(2030, 1, 1);
    let (long, short) = (upload("a", &root.issue(&long)), upload("b", &root.issue(&short)));
    for specs in [vec![long.clone(), short.clone()], vec![short, long]] {
        let resolver = resolver(&snapshot(Vec::new(), specs));
        assert_eq!(names(&resolver, Some("a.example.com"))[1], "DNSName(long.test)");
    }
}

#[test]
fn handshakes_get_their_certificate_and_a_swap_changes_it() {
    let root = Authority::root("root");
    let of = |certificate: &str| {
        let pair = root.issue(&leaf_params(&["shop.example.com", certificate]));
        let hosts = vec![host("shop", &["shop.example.com"], Some("shop"))];
        snapshot(hosts, vec![upload("shop", &pair)])
    };
    let resolver = Arc::new(resolver(&of("one.test")));
    let server = server_config(Arc::clone(&resolver) as Arc<dyn ResolvesServerCert>).unwrap();
    let ca = root.pem();
    let client = |alpn: &[&[u8]]| client_config(Verify::Ca(&ca), alpn).unwrap();

    let first = handshake(&server, &client(&[b"h2", b"http/1.1"]), "shop.example.com").unwrap();
    assert_eq!(first.version, ProtocolVersion::TLSv1_3);
    assert_eq!(first.alpn.as_deref(), Some(b"h2".as_slice()));
    assert_eq!(first.group, Some(NamedGroup::X25519MLKEM768), "post-quantum is preferred");
    let old = handshake(&server, &client(&[b"http/1.1"]), "SHOP.example.com").unwrap();
    assert_eq!(old.alpn.as_deref(), Some(b"http/1.1".as_slice()));
    assert_eq!(old.leaf, first.leaf);
    assert!(handshake(&server, &client(&[]), "other.example.com").is_err(), "only the fallback");

    resolver.publish(map(&of("two.test")));
    let second = handshake(&server, &client(&[]), "shop.example.com").unwrap();
    assert_ne!(second.leaf, first.leaf);
    assert!(handshake(&server, &client(&[]), "two.test").is_ok());
    assert!(handshake(&server, &client(&[]), "one.test").is_err());
}

#[test]
fn sessions_are_resumed_in_both_versions() {
    let root = Authority::root("root");
    let pair = root.issue(&leaf_params(&["shop.example.com"]));
    let resolver = resolver(&snapshot(Vec::new(), vec![upload("shop", &pair)]));
    let server = server_config(Arc::new(resolver)).unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(root.certificate()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Arc::new(client);
        let first = handshake(&server, &client, "shop.example.com").unwrap();
        assert_eq!(first.version, version.version);
        assert_ne!(first.kind, HandshakeKind::Resumed);
        let second = handshake(&server, &client, "shop.example.com").unwrap();
        assert_eq!(second.kind, HandshakeKind::Resumed, "{version:?}");
    }
}
