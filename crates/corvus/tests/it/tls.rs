//! TLS towards clients: which certificate, which protocol, and plain HTTP sent to HTTPS.

use corvus_testkit::{Authority, Certificate, Origin, PATIENCE, data_dir};

use crate::gateway::{GatewayProcess, TestGateway, host, one_host};

fn self_signed(id: &str, domains: &str) -> String {
    format!("  - {{id: {id}, issuer: self_signed, domains: [{domains}]}}\n")
}

fn upload(id: &str, certificate: &str, key: &str) -> String {
    format!(
        "  - {{id: {id}, issuer: upload, certificate: \"file:{certificate}\", key: \"file:{key}\"}}\n"
    )
}

/// Whether a certificate names `name`: names stand in it as plain text.
fn names(der: &[u8], name: &str) -> bool {
    der.windows(name.len()).any(|window| window == name.as_bytes())
}

#[tokio::test]
async fn the_certificate_is_chosen_by_the_name_asked_for() {
    let origin = Origin::start();
    let dir = data_dir();
    let own = Authority::new("a test").issue(&["own.example", "*.own.example"]);
    let (pem, key) = (dir.path().join("own.pem"), dir.path().join("own.key"));
    std::fs::write(&pem, &own.certificate_pem).unwrap();
    std::fs::write(&key, &own.key_pem).unwrap();
    let document = [
        "version: 1\nproxy_hosts:\n".to_owned(),
        host("own", "own.example", &origin.url(), "tls: {certificate: own}"),
        host("wild", "*.own.example", &origin.url(), "tls: {certificate: own}"),
        host("lab", "lab.example", &origin.url(), "tls: {certificate: lab}"),
        host("wildlab", "*.lab.example", &origin.url(), "tls: {certificate: wildlab}"),
        "certificates:\n".to_owned(),
        upload("own", &pem.display().to_string(), &key.display().to_string()),
        self_signed("lab", "lab.example"),
        self_signed("wildlab", "\"*.lab.example\""),
    ];
    let gateway = TestGateway::start(document.concat());
    for (name, in_certificate) in [
        ("own.example", "own.example"),
        ("OWN.example", "own.example"),
        ("x.own.example", "*.own.example"),
        ("lab.example", "lab.example"),
        ("x.lab.example", "*.lab.example"),
    ] {
        let mut client = gateway.client_tls(name).await;
        let shown = client.certificate().unwrap().clone();
        assert!(names(&shown, in_certificate), "{name}");
        assert_eq!(shown == own.der, name.to_lowercase().ends_with("own.example"), "{name}");
        assert_eq!(client.get(name, "/", &[]).await.unwrap().status, 200, "{name}");
        let h2 = gateway.h2_tls(name).await;
        assert_eq!(h2.get("/", &[]).await.unwrap().status, 200, "{name}");
    }
    // A name of nobody's gets a certificate that names none of ours, and the default site.
    let mut client = gateway.client_tls("other.example").await;
    let shown = client.certificate().unwrap().clone();
    assert!(!names(&shown, "own.example") && !names(&shown, "lab.example"));
    assert_eq!(client.get("other.example", "/", &[]).await.unwrap().status, 404);
}

#[tokio::test]
async fn a_self_signed_certificate_survives_a_restart() {
    let origin = Origin::start();
    let document = one_host("a.example", &origin.url(), "tls: {certificate: c}")
        + "certificates:\n"
        + &self_signed("c", "a.example");
    let gateway = TestGateway::start(document);
    let first = gateway.client_tls("a.example").await.certificate().unwrap().clone();
    let gateway = gateway.restart();
    assert_eq!(gateway.client_tls("a.example").await.certificate(), Some(&first));
}

/// Case 4: a certificate that is missing or spoilt costs only its own hosts, and is told.
#[tokio::test]
async fn an_unreadable_certificate_affects_only_its_host() {
    let origin = Origin::start();
    let dir = data_dir();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (one, two) = (Certificate::self_signed(&["x"]), Certificate::self_signed(&["x"]));
    std::fs::write(path("rubbish.pem"), "no certificate").unwrap();
    std::fs::write(path("one.pem"), &one.certificate_pem).unwrap();
    std::fs::write(path("two.key"), &two.key_pem).unwrap();
    let document = [
        "version: 1\nproxy_hosts:\n".to_owned(),
        host("good", "good.example", &origin.url(), "tls: {certificate: good}"),
        host("gone", "gone.example", &origin.url(), "tls: {certificate: gone, force_https: false}"),
        host("spoilt", "spoilt.example", &origin.url(), "tls: {certificate: spoilt}"),
        host("mixed", "mixed.example", &origin.url(), "tls: {certificate: mixed}"),
        "certificates:\n".to_owned(),
        self_signed("good", "good.example"),
        upload("gone", &path("gone.pem"), &path("gone.key")),
        upload("spoilt", &path("rubbish.pem"), &path("two.key")),
        upload("mixed", &path("one.pem"), &path("two.key")),
    ];
    let gateway = GatewayProcess::start(&document.concat(), &[]);
    for id in ["gone", "spoilt", "mixed"] {
        let line = gateway.child.wait_for_line(&format!("`{id}` is not served"), PATIENCE).unwrap();
        assert!(line.contains("WARN"), "{line}");
    }
    let mut good =
        corvus_testkit::RawClient::connect_tls(gateway.https, "good.example", &[]).await.unwrap();
    assert!(names(good.certificate().unwrap(), "good.example"));
    assert_eq!(good.get("good.example", "/", &[]).await.unwrap().status, 200);
    for name in ["gone.example", "spoilt.example", "mixed.example"] {
        let tls = corvus_testkit::RawClient::connect_tls(gateway.https, name, &[]).await;
        if let Ok(client) = tls {
            assert!(!names(client.certificate().unwrap(), "good.example"), "{name}");
        }
    }
    let mut plain = gateway.client().await;
    assert_eq!(plain.get("gone.example", "/", &[]).await.unwrap().status, 200);
}

#[tokio::test]
async fn alpn_decides_the_protocol() {
    let origin = Origin::start();
    let gateway =
        TestGateway::start(one_host("a.example", &origin.url(), "tls: {force_https: false}"));
    for (offered, agreed) in [
        (&["h2", "http/1.1"][..], Some(&b"h2"[..])),
        (&["http/1.1", "h2"], Some(b"h2")),
        (&["http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ] {
        let client = corvus_testkit::RawClient::connect_tls(gateway.https, "a.example", offered);
        let mut client = client.await.unwrap();
        assert_eq!(client.alpn(), agreed, "{offered:?}");
        if agreed != Some(b"h2") {
            assert_eq!(client.get("a.example", "/", &[]).await.unwrap().status, 200);
        }
    }
}

#[tokio::test]
async fn plain_http_is_sent_to_https() {
    let origin = Origin::start();
    let document = one_host("a.example", &origin.url(), "tls: {certificate: c}")
        + &host("open", "open.example", &origin.url(), "tls: {certificate: c, force_https: false}")
        + "certificates:\n"
        + &self_signed("c", "a.example, open.example");
    let gateway = TestGateway::start(document);
    let (http, https) = (gateway.http.port(), gateway.https.port());
    for (method, host, target, status, location) in [
        ("GET", "a.example", "/x?y=%20z", 301, "https://a.example/x?y=%20z".to_owned()),
        ("HEAD", "A.example", "/", 301, "https://A.example/".to_owned()),
        ("POST", "a.example", "//x", 308, "https://a.example//x".to_owned()),
        // Whoever reached our own port directly is sent to our own port.
        ("GET", &format!("a.example:{http}"), "/", 301, format!("https://a.example:{https}/")),
        // Whoever came through a mapping is not told of a port that is not his.
        ("GET", "a.example:80", "/", 301, "https://a.example/".to_owned()),
    ] {
        let request = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let response = gateway.exchange(request).await;
        assert_eq!(response.status, status, "{method} {host}");
        assert_eq!(response.headers.get("location"), Some(&*location), "{method} {host}");
    }
    assert_eq!(gateway.get("open.example", "/", &[]).await.status, 200);
    let mut tls = gateway.client_tls("a.example").await;
    assert_eq!(tls.get("a.example", "/", &[]).await.unwrap().status, 200);
    let h2 = gateway.h2("a.example").await.get("/h2", &[]).await.unwrap();
    assert_eq!(h2.headers.get("location"), Some("https://a.example/h2"));
}

#[tokio::test]
async fn what_is_no_tls_on_the_https_port_does_no_harm() {
    let origin = Origin::start();
    let gateway =
        TestGateway::start(one_host("a.example", &origin.url(), "tls: {force_https: false}"));
    let mut client = corvus_testkit::RawClient::connect(gateway.https).await.unwrap();
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
    let _ = client.read_to_close().await;
    assert_eq!(origin.requests(), 0);
    let mut tls = gateway.client_tls("a.example").await;
    assert_eq!(tls.get("a.example", "/", &[]).await.unwrap().status, 200);
}
