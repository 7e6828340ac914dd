//! Which site a request is for.

use corvus_testkit::Origin;

use crate::gateway::{TestGateway, host, one_host};

/// Sites that tell themselves apart by a response field.
fn named(id: &str, domain: &str, origin: &Origin) -> String {
    let more = format!("headers: {{response: {{set: {{X-Site: {id}}}}}}}");
    host(id, domain, &origin.url(), &more)
}

#[tokio::test]
async fn exact_names_win_over_wildcards_and_longer_wildcards_over_shorter() {
    let origin = Origin::start();
    let document = [
        "version: 1\nproxy_hosts:\n".to_owned(),
        named("short", "*.b.example", &origin),
        named("long", "*.a.b.example", &origin),
        named("exact", "x.a.b.example", &origin),
        named("idn", "bücher.example", &origin),
    ];
    let gateway = TestGateway::start(document.concat());
    let https = gateway.https.port();
    let mut client = gateway.client().await;
    for (host, site) in [
        ("x.a.b.example", Some("exact")),
        ("X.A.B.EXAMPLE", Some("exact")),
        ("x.a.b.example.", Some("exact")),
        ("x.a.b.example:8080", Some("exact")),
        ("X.a.b.Example.:80", Some("exact")),
        ("y.a.b.example", Some("long")),
        ("z.y.a.b.example", Some("long")),
        ("z.x.a.b.example", Some("long")),
        ("a.b.example", Some("short")),
        ("c.b.example", Some("short")),
        ("d.c.b.example", Some("short")),
        ("b.example", None),
        ("ab.example", None),
        ("xn--bcher-kva.example", Some("idn")),
        ("other.example", None),
        ("127.0.0.1", None),
        (&format!("[::1]:{https}"), None),
    ] {
        let response = client.get(host, "/", &[]).await.unwrap();
        assert_eq!(response.headers.get("x-site"), site, "{host}");
        assert_eq!(response.status, if site.is_some() { 200 } else { 404 }, "{host}");
    }
    let h2 = gateway.h2("Z.Y.A.b.example:99").await;
    assert_eq!(h2.get("/", &[]).await.unwrap().headers.get("x-site"), Some("long"));
}

#[tokio::test]
async fn an_unknown_host_learns_nothing() {
    let origin = Origin::start();
    let gateway = TestGateway::start(one_host("known.example", &origin.url(), ""));
    for accept in ["text/html", "application/json"] {
        let fields = [("Accept", accept)];
        let plain = gateway.get("unknown.example", "/secret", &fields).await;
        let tls = gateway
            .client_tls("unknown.example")
            .await
            .get("unknown.example", "/secret", &fields)
            .await
            .unwrap();
        for response in [plain, tls] {
            assert_eq!(response.status, 404);
            let text = response.text();
            for leak in ["known.example", "\"site\"", "corvus", "127.0.0.1", "unknown_host"] {
                let text = text.replace("unknown.example", "");
                assert!(!text.contains(leak), "{leak} in {text}");
            }
            let id = response.headers.get("x-request-id").unwrap();
            assert!(text.contains(id), "{text}");
            let line = gateway.logged_id(id).await;
            assert_eq!((&line["status"], &line["rule"]), (&404.into(), &"unknown_host".into()));
            assert!(line.get("site").is_none());
        }
    }
    // A certificate for a name we do not serve names none that we do.
    let client = gateway.client_tls("unknown.example").await;
    let shown = String::from_utf8_lossy(client.certificate().unwrap()).into_owned();
    assert!(!shown.contains("known.example"));
    assert_eq!(origin.requests(), 0);
}

#[tokio::test]
async fn the_default_site_answers_as_configured_on_both_ports() {
    let with = |site: &str| {
        TestGateway::start(format!("version: 1\nsettings: {{default_site: {site}}}\n"))
    };
    let redirect = with("{action: redirect, url: \"https://example.com/here\"}");
    let page = with("{action: page, html: \"<p>parked</p>\"}");
    let close = with("{action: close}");
    for tls in [false, true] {
        for (gateway, status) in [(&redirect, 302), (&page, 200)] {
            let mut client =
                if tls { gateway.client_tls("a.example").await } else { gateway.client().await };
            let response = client.get("a.example", "/x", &[]).await.unwrap();
            assert_eq!(response.status, status);
            if status == 302 {
                assert_eq!(response.headers.get("location"), Some("https://example.com/here"));
            } else {
                assert_eq!(response.text(), "<p>parked</p>");
            }
            // The connection goes on.
            assert_eq!(client.get("a.example", "/y", &[]).await.unwrap().status, status);
        }
        let mut client =
            if tls { close.client_tls("a.example").await } else { close.client().await };
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
        // Over TLS the end comes without a close_notify, which the client takes for an error.
        assert!(client.read_to_close().await.unwrap_or_default().is_empty());
    }
    assert!(close.h2("a.example").await.get("/", &[]).await.is_err());
    let line = close.logged("a silent close", |line| line["protocol"] == "HTTP/1.1").await;
    assert_eq!(line["status"], 0);
}

#[tokio::test]
async fn a_disabled_host_is_unknown() {
    let origin = Origin::start();
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), "enabled: false"));
    assert_eq!(gateway.get("a.example", "/", &[]).await.status, 404);
}
