//! Fixtures: everything in `good` compiles, everything in `bad` gives the problems beside it, and
//! what version 1 once meant it means for ever.

use std::{fs, path::PathBuf, time::Duration};

use proptest::prelude::*;

use crate::{
    Document, Format, Problem, Snapshot, decode, load, parse, render_problems,
    snapshot::*,
    to_json, to_yaml,
    tree::{Node, Value},
};

fn folder(name: &str) -> Vec<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    let mut files: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ext| ext == "yaml" || ext == "json"));
    files.sort();
    assert!(!files.is_empty());
    files
}

fn format(path: &std::path::Path) -> Format {
    if path.extension().is_some_and(|ext| ext == "json") { Format::Json } else { Format::Yaml }
}

fn env(name: &str) -> Option<String> {
    match name {
        "APP_HOST" => Some("app".to_owned()),
        "PORT" => Some("9000".to_owned()),
        _ => None,
    }
}

fn load_yaml(text: &str) -> Result<(Document, Snapshot), Vec<Problem>> {
    load(text, Format::Yaml, &env)
}

/// Compares with a golden file; `UPDATE_GOLDEN=1` writes it, for a person to read before commit.
fn golden(path: &std::path::Path, actual: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, actual).unwrap();
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(actual, expected, "{}", path.display());
}

#[test]
fn good_documents_compile_and_survive_printing() {
    for path in folder("good") {
        let text = fs::read_to_string(&path).unwrap();
        let (document, _) = load(&text, format(&path), &env)
            .unwrap_or_else(|p| panic!("{}", render_problems(&p, &path.display().to_string())));
        for (format, printed) in [
            (Format::Yaml, to_yaml(&document).unwrap()),
            (Format::Json, to_json(&document).unwrap()),
        ] {
            let (again, _) = load(&printed, format, &env)
                .unwrap_or_else(|p| panic!("{printed}\n{}", render_problems(&p, "printed")));
            assert_eq!(again, document, "{}", path.display());
        }
    }
}

#[test]
fn bad_documents_give_all_their_problems() {
    for path in folder("bad") {
        let text = fs::read_to_string(&path).unwrap();
        let problems = load(&text, format(&path), &env).map(|_| ()).unwrap_err();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for problem in &problems {
            let first = problem.message.chars().next().unwrap();
            assert!(!first.is_uppercase() && !problem.message.ends_with('.'), "{problem}");
        }
        golden(&path.with_extension("problems"), &render_problems(&problems, &name));
    }
}

#[test]
fn version_1_means_for_ever_what_it_meant() {
    for path in folder("versions/v1") {
        if path.extension().is_some_and(|ext| ext == "json") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let document = decode(&parse(&text, Format::Yaml).unwrap()).unwrap();
        golden(&path.with_extension("json"), &(to_json(&document).unwrap() + "\n"));
        for (format, printed) in [
            (Format::Yaml, to_yaml(&document).unwrap()),
            (Format::Json, to_json(&document).unwrap()),
        ] {
            assert_eq!(decode(&parse(&printed, format).unwrap()).as_ref(), Ok(&document));
        }
    }
}

#[test]
fn a_snapshot_holds_everything_resolved() {
    let text = include_str!("../../testdata/good/everything.yaml");
    let (_, snapshot) = load_yaml(text).unwrap();
    let settings = &snapshot.settings;
    for ip in ["104.16.1.1", "2606:4700::1", "192.168.1.1", "::1", "198.51.100.7", "2001:db8::9"] {
        assert!(contains(&settings.trusted_proxies, ip.parse().unwrap()), "{ip}");
    }
    assert!(!contains(&settings.trusted_proxies, "198.51.100.8".parse().unwrap()));
    assert_eq!(settings.default_site, DefaultSite::Redirect("https://example.com/".to_owned()));
    assert_eq!(settings.limits, Limits { header_bytes: 16_384, header_count: 100 });
    assert_eq!(snapshot.certificates.len(), 2);

    assert_eq!(snapshot.hosts.len(), 2, "the disabled host is not served");
    let find = |name: &str| snapshot.index.find(name).map(|host| host.id.as_str());
    assert_eq!(find("shop.example.com"), Some("shop"));
    assert_eq!(find("a.b.shop.example.com"), Some("shop"));
    assert_eq!(find("xn--bcher-kva.example"), None);
    assert_eq!(find("example.com"), None);

    let (h1, h2) = (UpstreamProtocol::Http1, UpstreamProtocol::Http2);
    let shop = &snapshot.hosts[0];
    let tcp = |host: &str, port| UpstreamAddress::Tcp { host: host.to_owned(), port };
    let upstreams: Vec<_> = shop
        .upstreams
        .iter()
        .map(|u| (&u.address, u.protocol, u.tls, u.weight, u.backup))
        .collect();
    assert_eq!(
        upstreams,
        [
            (&tcp("app-1", 9000), h1, false, 3, false),
            (&tcp("10.0.0.2", 443), h1, true, 1, false),
            (&tcp("2001:db8::5", 8080), h2, false, 1, false),
            (&tcp("rpc.internal", 443), h2, true, 1, false),
            (&UpstreamAddress::Unix("/run/app.sock".to_owned()), h1, false, 1, true),
        ]
    );
    assert_eq!(shop.load_balancing, LoadBalancing::LeastConnections);
    assert_eq!(shop.upgrades, ["websocket", "mqtt"]);
    assert_eq!(shop.request_headers.remove, ["x-debug"]);
    assert_eq!(shop.response_headers.remove, ["server", "x-powered-by"]);
    assert_eq!((shop.body_limit, shop.idle_timeout), (Some(10_000_000), Duration::from_mins(2)));
    assert!(shop.tls.force_https);
    assert!(!snapshot.hosts[1].tls.force_https);

    let queue = shop.queue.as_ref().unwrap();
    assert!(std::sync::Arc::ptr_eq(queue, &snapshot.queues[0]));
    assert_eq!(queue.settings.rate, Some(Rate { count: 0.5, per_s: 2.5 }));
    assert_eq!(queue.settings.active_ttl_ms, 600_000);
    assert_eq!(queue.settings.method, Method::Random);
    assert_eq!(queue.settings.schedule.starts_at_ms, Some(1_798_110_000_000));
    assert_eq!(queue.gate.paths, ["/sale", "/checkout/x"]);
    assert_eq!(queue.gate.cookie_domain.as_deref(), Some("shop.example.com"));
    assert_eq!((queue.gate.status, queue.gate.bypass.is_some()), (202, true));
}

#[test]
fn defaults_are_those_of_the_contract() {
    let (document, snapshot) = load_yaml(
        "{version: 1, proxy_hosts: [{id: a, domains: [a.example.com], access_queue: q,
          upstreams: [{url: 'http://a:1'}]}], access_queues: [{id: q, capacity: 7}]}",
    )
    .unwrap();
    let host = &snapshot.hosts[0];
    assert_eq!((host.connect_timeout, host.idle_timeout).0, Duration::from_secs(5));
    assert_eq!(
        (host.upgrades.as_slice(), host.body_limit),
        (["websocket".to_owned()].as_slice(), None)
    );
    assert_eq!(host.tls, HostTls::default(), "no redirect to HTTPS without a certificate");
    assert_eq!(host.upstream_tls, UpstreamTls::default());
    let QueueSettings { capacity, rate, active_ttl_ms, grant_ttl_ms, .. } =
        host.queue.as_ref().unwrap().settings;
    assert_eq!((capacity, rate, active_ttl_ms, grant_ttl_ms), (7, None, 300_000, 30_000));
    assert_eq!(snapshot.settings.limits, Limits::default());
    assert_eq!(snapshot.settings.default_site, DefaultSite::NotFound);
    // Spelling every default out changes nothing.
    let spelt = to_yaml(&document).unwrap();
    assert_eq!(load_yaml(&spelt).unwrap().0, document, "{spelt}");
}

#[test]
fn environment_variables_fill_texts_numbers_and_switches() {
    let env = |name: &str| Some(if name == "ON" { "false" } else { "9000" }.to_owned());
    let text = "{version: 1, proxy_hosts: [{id: a, domains: [a.example.com], enabled: '${ON}',
        upstreams: [{url: 'http://a:${PORT}'}], body_limit_bytes: '${PORT}', tags: ['${PORT}', '$${PORT}']}]}";
    let (document, _) = load(text, Format::Yaml, &env).unwrap();
    let host = &document.proxy_hosts[0];
    assert_eq!((host.enabled, host.body_limit_bytes), (false, Some(9000)));
    assert_eq!(host.upstreams[0].url, "http://a:9000");
    assert_eq!(host.tags, ["9000", "${PORT}"]);
}

#[test]
fn secrets_are_not_debugged() {
    let text = "{version: 1, certificates: [{id: a, issuer: upload,
        certificate: 'file:/c', key: '-----BEGIN PRIVATE KEY----- MIIE'}]}";
    let (document, _) = load_yaml(text).unwrap();
    assert!(!format!("{document:?}").contains("MIIE"));
}

/// Trees that resemble Documents: known keys over any values.
fn tree() -> impl Strategy<Value = Node> {
    let keys = vec![
        "version",
        "settings",
        "proxy_hosts",
        "certificates",
        "access_queues",
        "id",
        "domains",
        "upstreams",
        "url",
        "tls",
        "certificate",
        "headers",
        "request",
        "set",
        "remove",
        "capacity",
        "rate",
        "count",
        "schedule",
        "starts_at",
        "paths",
        "bypass",
        "cookie",
        "domain",
        "page",
        "template",
        "issuer",
        "key",
        "secret",
        "security_rules",
        "action",
        "limit",
        "skip",
        "when",
        "trusted_proxies",
        "default_site",
        "access_lists",
        "clients",
        "allow",
        "acces_queue",
        "ümlaut",
    ];
    let texts = vec![
        "a",
        "",
        "*",
        "*.",
        "unix:",
        "http://",
        "http://[",
        "http://a:",
        "a.example.com",
        "file:",
        "self_signed",
        "ssl",
        "not",
        "{{rank}}",
        "{{",
        "2026-12-24T12:00:00Z",
        "/",
        "${A}",
        "${",
        "redirect",
        "page",
        "10.0.0.0/8",
        "::/129",
        "é",
        "\u{0}",
        "xn--",
        "xn--a.",
        "a。b",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (0i64..400).prop_map(Value::Int),
        any::<f64>().prop_map(Value::Float),
        prop::sample::select(texts).prop_map(|text| Value::Text(text.to_owned())),
        any::<String>().prop_map(Value::Text),
    ];
    let node = |value| Node::new(value, Some(1));
    leaf.prop_map(node).prop_recursive(6, 80, 8, move |inner| {
        let key = prop::sample::select(keys.clone()).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::List),
            prop::collection::vec((key, inner), 0..8).prop_map(Value::Map),
        ]
        .prop_map(node)
    })
}

proptest! {
    #[test]
    fn no_tree_makes_decoding_or_compiling_panic(node in tree()) {
        let (document, problems) = crate::document::decode_lossy(&node);
        for problem in &problems {
            prop_assert!(problem.pointer.is_empty() || problem.pointer.starts_with('/'));
        }
        let _ = crate::compile(&document);
        let _ = crate::diff(&Document::default(), &document);
        let _ = to_yaml(&document).unwrap();
    }

    #[test]
    fn no_text_makes_loading_panic(text in any::<String>()) {
        let _ = load_yaml(&text);
        let _ = load(&text, Format::Json, &env);
    }
}
