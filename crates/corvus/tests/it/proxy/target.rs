//! The request target reaches the origin byte for byte.

use corvus_testkit::{Origin, RawOrigin};

use crate::gateway::{TestGateway, one_host};

const TARGETS: &[&[u8]] = &[
    b"/",
    b"/a%2Fb",
    b"/a%2fb",
    b"/%23",
    b"/a%23b?c%23d",
    b"/..%2f..%2fx",
    b"/%252e%252e%252f",
    b"/a/../b/./c",
    b"/..",
    b"//x",
    b"///",
    b"//evil.example/x",
    b"/a//b",
    b"/x;/../y",
    b"/a\\b",
    b"/a?",
    b"/?",
    b"/a??b=c?d",
    b"/a?b=<script>\"'`{}|^\\",
    b"/<>\"",
    b"/a#b",
    b"/a#/x?q=<iframe>",
    b"/a?b#c",
    b"/caf\xe9?\xff\x80=\xc3\xa9",
    b"/\xe2\x82\xac",
    b"/%",
    b"/%zz",
    b"/%00",
    b"/a?x=%0d%0aX:%20y",
    b"/A%7euSer~",
    b"/a:b@c/d:80",
    b"/http://other.example/",
    b"/[]",
    b"/+?a+b",
];

#[tokio::test]
async fn targets_pass_byte_for_byte_over_http1() {
    let origin = RawOrigin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let more = "tls: {force_https: false}";
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), more));
    let mut plain = gateway.client().await;
    let mut tls = gateway.client_tls("a.example").await;
    let mut expected: Vec<Vec<u8>> = Vec::new();
    for target in TARGETS {
        let request = [b"GET ", *target, b" HTTP/1.1\r\nHost: a.example\r\n\r\n"].concat();
        for client in [&mut plain, &mut tls] {
            let response = client.exchange(&request).await.unwrap();
            assert_eq!(response.status, 200, "{}", target.escape_ascii());
            expected.push([b"GET ", *target, b" HTTP/1.1"].concat());
        }
    }
    let received = origin.received().concat();
    let lines: Vec<Vec<u8>> = received
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec())
        .filter(|line| line.starts_with(b"GET "))
        .collect();
    assert_eq!(lines.len(), expected.len());
    for (line, expected) in lines.iter().zip(&expected) {
        assert_eq!(line.escape_ascii().to_string(), expected.escape_ascii().to_string());
    }
    // The log has the same bytes; what is not printable ASCII is escaped there.
    let line = gateway.logged("Latin-1", |line| line["target"] == "/caf\u{e9}?\u{ff}\u{80}=\u{e9}");
    assert_eq!(line.await["status"], 200);
}

#[tokio::test]
async fn targets_pass_byte_for_byte_over_http2() {
    let origin = Origin::start();
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), ""));
    let h2 = gateway.h2("a.example").await;
    for target in [
        "/",
        "/a%2Fb",
        "/%23?%23",
        "/..%2f",
        "//x",
        "/a/../b",
        "/%252e",
        "/a?",
        "/?a=b?c",
        "/x;y/../z",
        "/[]",
        "/+?a+b",
        "/%zz",
    ] {
        let response = h2.get(target, &[]).await.unwrap();
        assert_eq!(response.json()["target"], target);
    }
}

/// To an HTTP/2 upstream a target goes unchanged or not at all.
#[tokio::test]
async fn targets_to_an_h2c_upstream_are_unchanged_or_refused() {
    let origin = Origin::start();
    let url = origin.url().replace("http:", "h2c:");
    let gateway = TestGateway::start(one_host("a.example", &url, ""));
    for target in TARGETS {
        let request = [b"GET ", *target, b" HTTP/1.1\r\nHost: a.example\r\n\r\n"].concat();
        let response = gateway.exchange(request).await;
        let shown: String = target.iter().map(|byte| char::from(*byte)).collect();
        match response.status {
            200 => {
                let seen = response.json();
                let got = seen["target"].as_str().unwrap();
                let same = got == shown || got.as_bytes() == *target;
                assert!(same, "{} became {got}", target.escape_ascii());
            }
            400 => assert_eq!(response.json()["error"], "not_http2", "{}", target.escape_ascii()),
            other => panic!("{}: {other}", target.escape_ascii()),
        }
    }
    for ordinary in ["/a%2Fb", "//x", "/..%2f", "/%252e%252e%252f", "/a?b=c"] {
        let response = gateway.get("a.example", ordinary, &[]).await;
        assert_eq!((response.status, &response.json()["target"]), (200, &ordinary.into()));
    }
}

#[tokio::test]
async fn absolute_form_names_the_host_and_is_sent_in_origin_form() {
    let origin = Origin::start();
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), ""));
    for (target, seen_target, seen_host) in [
        ("http://a.example/x?y", "/x?y", "a.example"),
        ("HTTP://A.example:80/x", "/x", "A.example:80"),
        ("https://a.example//x", "//x", "a.example"),
        ("http://a.example", "/", "a.example"),
        ("http://a.example?q", "/?q", "a.example"),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: other.example\r\n\r\n");
        let seen = gateway.exchange(request).await.json();
        assert_eq!(seen["target"], seen_target, "{target}");
        assert_eq!(seen["headers"][0][1], seen_host, "{target}");
    }
    let unknown = "GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n";
    assert_eq!(gateway.exchange(unknown).await.status, 404);
    let options = gateway.exchange("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n").await.json();
    assert_eq!((&options["method"], &options["target"]), (&"OPTIONS".into(), &"*".into()));
}

#[tokio::test]
async fn connect_and_trace_are_not_for_a_gateway() {
    let origin = Origin::start();
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), ""));
    for request in [
        "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
        "CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "TRACE / HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ] {
        let response = gateway.exchange(request).await;
        assert_eq!(response.status, 405, "{request}");
        let allowed = response.headers.get("allow").unwrap();
        assert!(allowed.contains("GET") && !allowed.contains("TRACE"), "{allowed}");
    }
    assert_eq!(origin.requests(), 0);
}
