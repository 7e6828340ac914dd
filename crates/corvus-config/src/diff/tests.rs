//! What people read when they compare two versions.

use crate::{Document, Format, decode, diff, parse};

fn document(text: &str) -> Document {
    decode(&parse(text, Format::Yaml).unwrap()).unwrap()
}

fn lines(old: &str, new: &str) -> Vec<String> {
    diff(&document(old), &document(new)).iter().map(ToString::to_string).collect()
}

#[test]
fn changes_are_named_by_id_and_key() {
    let old = "
version: 1
settings: {trusted_proxies: [private]}
proxy_hosts:
  - {id: shop, domains: [a.example.com], upstreams: [{url: 'http://a:1'}]}
  - {id: gone, domains: [b.example.com], upstreams: [{url: 'http://b:1'}]}
access_queues: [{id: drop, capacity: 500, rate: {count: 5}}]
";
    let new = "
version: 1
proxy_hosts:
  - {id: new, domains: [c.example.com], upstreams: [{url: 'http://b:1'}]}
  - {id: shop, domains: [a.example.com], upstreams: [{url: 'http://a:2'}], timeouts: {idle_s: 5}}
access_queues: [{id: drop, capacity: 50}]
";
    assert_eq!(
        lines(old, new),
        [
            r#"settings: trusted_proxies ["private"] -> []"#,
            "proxy host new: added",
            "proxy host shop: upstreams \
             [{\"url\":\"http://a:1\",\"weight\":1,\"backup\":false}] -> \
             [{\"url\":\"http://a:2\",\"weight\":1,\"backup\":false}]",
            "proxy host shop: timeouts.idle_s 60 -> 5",
            "proxy host gone: removed",
            "access queue drop: capacity 500 -> 50",
            r#"access queue drop: rate {"count":5,"per_s":1} -> none"#,
        ]
    );
    assert!(lines(old, old).is_empty());
}

#[test]
fn the_order_of_rules_counts_and_that_of_hosts_does_not() {
    let hosts = |a, b| {
        let host = |id| format!("{{id: {id}, domains: [{id}.com], upstreams: []}}");
        format!("{{version: 1, proxy_hosts: [{}, {}]}}", host(a), host(b))
    };
    assert!(lines(&hosts("a", "b"), &hosts("b", "a")).is_empty());
    let rules = |list: &[&str]| {
        let rule = |id: &&str| format!("{{id: {id}, when: ssl, action: block}}");
        let rules: Vec<String> = list.iter().map(rule).collect();
        format!("{{version: 1, security_rules: [{}]}}", rules.join(", "))
    };
    let changes = lines(&rules(&["a", "b", "c"]), &rules(&["x", "b", "a", "c"]));
    assert_eq!(
        changes,
        ["security rule x: added", "security rule b: moved", "security rule a: moved"]
    );
}

#[test]
fn secrets_are_never_shown() {
    let text = |secret: &str| {
        format!(
            "
version: 1
settings: {{acme: {{eab: {{key_id: k, key: {secret}}}}}}}
proxy_hosts:
  - id: a
    domains: [a.com]
    upstreams: []
    headers: {{request: {{set: {{X-Api-Key: {secret}, Authorization: {secret}}}}}}}
    upstream_tls: {{ca: '-----BEGIN CERTIFICATE----- {secret}'}}
certificates:
  - {{id: c, issuer: upload, certificate: 'file:/c', key: {secret}}}
  - {{id: d, issuer: acme, dns: {{provider: x, credentials: {secret}}}}}
access_lists: [{{id: l, users: [{{name: ana, password_hash: {secret}}}]}}]
alert_channels: [{{id: o, kind: slack, url: 'https://hooks.example/{secret}'}}]
"
        )
    };
    let changes = lines(&text("hunter2"), &text("swordfish"));
    assert_eq!(changes.len(), 8, "{changes:#?}");
    for change in &changes {
        assert!(!change.contains("hunter2") && !change.contains("swordfish"), "{change}");
        assert!(change.contains("(secret)") || change.contains("(PEM text)"), "{change}");
    }
    let key = |key: &str| {
        format!("{{version: 1, certificates: [{{id: c, issuer: upload, key: {key}}}]}}")
    };
    assert_eq!(
        lines(&key("'file:/a'"), &key("{secret: b}")),
        [r#"certificate c: key "file:/a" -> {"secret":"b"}"#]
    );
}
