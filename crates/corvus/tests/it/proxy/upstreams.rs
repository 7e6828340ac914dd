//! Upstreams: which one, over what, and what happens when there is none.

use std::{collections::HashMap, os::unix::net::UnixListener};

use corvus_testkit::{
    Authority, Certificate, ChaosProxy, Origin, RawOrigin, Step, data_dir, free_port,
};

use crate::gateway::{TestGateway, host, one_host};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Case 1: what is wrong with one upstream costs its own host, and the page says what.
#[tokio::test]
async fn a_failing_upstream_costs_only_its_own_host() {
    let good = Origin::start();
    let closing = RawOrigin::start(vec![vec![Step::ReadHead]]);
    let resetting = RawOrigin::start(vec![vec![Step::ReadHead, Step::Reset]]);
    let cases = [
        ("refused", format!("http://127.0.0.1:{}", free_port()), "upstream_refused"),
        ("name", "http://does-not-exist.invalid:80".to_owned(), "upstream_name"),
        ("closing", closing.url(), "upstream_closed"),
        ("resetting", resetting.url(), "upstream_closed"),
        ("unix", "unix:/does/not/exist.sock".to_owned(), "upstream_connect"),
    ];
    let mut document = "version: 1\nproxy_hosts:\n".to_owned();
    for (id, url, _) in &cases {
        document += &host(id, &format!("{id}.example"), url, "");
    }
    document += &host("good", "good.example", &good.url(), "");
    let gateway = TestGateway::start(document);
    let mut pages = HashMap::new();
    for (id, _, rule) in &cases {
        let host = format!("{id}.example");
        let response = gateway.get(&host, "/", &[("Accept", "text/html")]).await;
        assert_eq!(response.status, 502, "{id}");
        let text = response.text();
        assert!(text.contains(rule), "{id}: {text}");
        let heading = text.split("<h1>").nth(1).and_then(|t| t.split("</h1>").next());
        pages.insert(*rule, heading.unwrap().to_owned());
        // Addresses of the inside are not for visitors.
        assert!(!text.contains("127.0.0.1") && !text.contains(".invalid"), "{text}");
        let json = gateway.get(&host, "/", &[]).await.json();
        assert_eq!(json["error"], *rule, "{id}");
        let line = gateway.logged_id(response.headers.get("x-request-id").unwrap()).await;
        assert_eq!((&line["site"], &line["rule"]), (&(*id).into(), &(*rule).into()));
        assert_eq!(line["outcome"], "upstream_failed", "{id}");
        assert_eq!(gateway.get("good.example", "/", &[]).await.status, 200);
    }
    assert_ne!(pages["upstream_refused"], pages["upstream_name"]);
    assert_ne!(pages["upstream_refused"], pages["upstream_closed"]);
}

#[tokio::test]
async fn an_answer_that_is_malformed_gets_502() {
    for answer in [
        "rubbish\r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 200 OK\r\nX : y\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: y\0\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: y\r\n folded\r\nContent-Length: 0\r\n\r\n",
    ] {
        let origin =
            RawOrigin::start(vec![vec![Step::ReadHead, Step::write(answer), Step::ReadToEnd]]);
        let gateway = TestGateway::start(one_host("a.example", &origin.url(), ""));
        let response = gateway.get("a.example", "/", &[]).await;
        assert_eq!(response.status, 502, "{answer:?}");
        assert_eq!(response.json()["error"], "upstream_malformed", "{answer:?}");
        assert_eq!(origin.connections(), 1, "{answer:?}: repeated");
    }
}

/// Bytes behind an answer belong to nobody, least of all to the next visitor.
#[tokio::test]
async fn an_answer_nobody_asked_for_goes_to_nobody() {
    let twice = [OK, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"].concat();
    let origin = RawOrigin::start(vec![
        vec![Step::ReadRequest, Step::write(&twice), Step::ReadToEnd],
        vec![Step::ReadRequest, Step::write(OK), Step::Again],
    ]);
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), ""));
    for _ in 0..3 {
        assert_eq!(gateway.get("a.example", "/", &[]).await.text(), "ok");
    }
    assert_eq!(origin.connections(), 2);
}

/// The upstream answers once on each connection and closes it when the next request comes.
fn stale(connections: usize) -> RawOrigin {
    let once = vec![Step::ReadRequest, Step::write(OK), Step::Read(1), Step::Reset];
    let mut scripts = vec![once; connections];
    scripts.push(vec![Step::ReadRequest, Step::write(OK), Step::Again]);
    RawOrigin::start(scripts)
}

#[tokio::test]
async fn an_idempotent_request_on_a_stale_connection_is_repeated() {
    for method in ["GET", "HEAD", "OPTIONS", "DELETE"] {
        let origin = stale(1);
        let gateway = TestGateway::start(one_host("a.example", &origin.url(), ""));
        assert_eq!(gateway.get("a.example", "/", &[]).await.status, 200);
        let request = format!("{method} /again HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(gateway.exchange(request).await.status, 200, "{method}");
        assert_eq!(origin.connections(), 2, "{method}");
        let second = String::from_utf8_lossy(&origin.received()[1]).into_owned();
        assert_eq!(second.matches("/again").count(), 1, "{method}");
    }
}

#[tokio::test]
async fn a_post_is_never_sent_twice() {
    for request in [
        "POST /once HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello",
        "POST /once HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n",
        "PATCH /once HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "BREW /once HTTP/1.1\r\nHost: a.example\r\n\r\n",
        // What has begun to be sent cannot be sent again, whatever the method.
        "PUT /once HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let origin = stale(1);
        let second = stale(0);
        let upstreams = format!(
            "version: 1\nproxy_hosts:\n  - id: a\n    domains: [a.example]\n    \
             upstreams: [{{url: \"{}\"}}, {{url: \"{}\", backup: true}}]\n",
            origin.url(),
            second.url()
        );
        let gateway = TestGateway::start(upstreams);
        assert_eq!(gateway.get("a.example", "/", &[]).await.status, 200);
        let response = gateway.exchange(request).await;
        assert_eq!(response.status, 502, "{request}");
        let all = [origin.received().concat(), second.received().concat()].concat();
        let count = String::from_utf8_lossy(&all).matches("/once").count();
        assert!(count <= 1, "{request}: sent {count} times");
    }
}

fn several(upstreams: &[String], more: &str) -> String {
    let list = upstreams.join(", ");
    format!(
        "version: 1\nproxy_hosts:\n  - id: a\n    domains: [a.example]\n    upstreams: [{list}]\n{more}"
    )
}

#[tokio::test]
async fn weights_are_kept() {
    let origins = [Origin::start(), Origin::start()];
    let document = several(
        &[
            format!("{{url: \"{}\", weight: 3}}", origins[0].url()),
            format!("{{url: \"{}\", weight: 1}}", origins[1].url()),
        ],
        "",
    );
    let gateway = TestGateway::start(document);
    let mut client = gateway.client().await;
    for _ in 0..40 {
        client.get("a.example", "/", &[]).await.unwrap();
    }
    assert_eq!((origins[0].requests(), origins[1].requests()), (30, 10));
}

#[tokio::test]
async fn one_client_stays_on_one_upstream_with_ip_hash() {
    let origins = [Origin::start(), Origin::start(), Origin::start()];
    let urls: Vec<_> = origins.iter().map(|o| format!("{{url: \"{}\"}}", o.url())).collect();
    let settings = "    load_balancing: ip_hash\nsettings: {trusted_proxies: [127.0.0.1]}\n";
    let gateway = TestGateway::start(several(&urls, settings));
    let mut client = gateway.client().await;
    let mut used = std::collections::HashSet::new();
    for last in 0..30 {
        let ip = format!("203.0.113.{last}");
        let before: Vec<_> = origins.iter().map(Origin::requests).collect();
        for _ in 0..3 {
            client.get("a.example", "/", &[("X-Forwarded-For", &ip)]).await.unwrap();
        }
        let grown: Vec<_> = (0..3).filter(|i| origins[*i].requests() > before[*i]).collect();
        assert_eq!(grown.len(), 1, "{ip}: {grown:?}");
        used.insert(grown[0]);
    }
    assert_eq!(used.len(), 3);
}

#[tokio::test]
async fn one_upstream_down_costs_no_request() {
    let origins = [Origin::start(), Origin::start()];
    let chaos = ChaosProxy::start(origins[0].addr());
    let document = several(
        &[
            format!("{{url: \"http://{}\"}}", chaos.addr()),
            format!("{{url: \"{}\"}}", origins[1].url()),
        ],
        "",
    );
    let gateway = TestGateway::start(document);
    let mut client = gateway.client().await;
    for _ in 0..4 {
        assert_eq!(client.get("a.example", "/", &[]).await.unwrap().status, 200);
    }
    assert_eq!((origins[0].requests(), origins[1].requests()), (2, 2));
    chaos.cut();
    for _ in 0..20 {
        assert_eq!(client.get("a.example", "/", &[]).await.unwrap().status, 200);
        // No connection was made, so nothing can have happened twice.
        let post = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(client.exchange(post).await.unwrap().json()["body"], "hello");
    }
    assert_eq!(origins[0].requests(), 2);
}

#[tokio::test]
async fn a_backup_serves_only_while_the_others_are_down() {
    let origin = Origin::start();
    let backup = Origin::start();
    let chaos = ChaosProxy::start(origin.addr());
    let clock = corvus_core::clock::FakeClock::new(1_800_000_000_000);
    let document = several(
        &[
            format!("{{url: \"http://{}\"}}", chaos.addr()),
            format!("{{url: \"{}\", backup: true}}", backup.url()),
        ],
        "",
    );
    let gateway = TestGateway::builder(document).clock(clock.clone()).start();
    let mut client = gateway.client().await;
    for _ in 0..5 {
        assert_eq!(client.get("a.example", "/", &[]).await.unwrap().status, 200);
    }
    assert_eq!((origin.requests(), backup.requests()), (5, 0));
    chaos.cut();
    for _ in 0..5 {
        assert_eq!(client.get("a.example", "/", &[]).await.unwrap().status, 200);
    }
    assert_eq!(backup.requests(), 5);
    chaos.resume();
    clock.advance(std::time::Duration::from_secs(11));
    // The workers look at the time twice a second.
    let back = async {
        while origin.requests() == 5 {
            assert_eq!(client.get("a.example", "/", &[]).await.unwrap().status, 200);
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(corvus_testkit::PATIENCE, back).await.unwrap();
}

#[tokio::test]
async fn an_upstream_that_comes_back_is_used_at_once() {
    let origin = Origin::start();
    let chaos = ChaosProxy::start(origin.addr());
    let url = format!("http://{}", chaos.addr());
    let gateway = TestGateway::start(one_host("a.example", &url, ""));
    assert_eq!(gateway.get("a.example", "/", &[]).await.status, 200);
    chaos.cut();
    assert_eq!(gateway.get("a.example", "/", &[]).await.status, 502);
    chaos.resume();
    assert_eq!(gateway.get("a.example", "/", &[]).await.status, 200);
}

/// `localhost` may be ::1 first: every address of a name is tried.
#[tokio::test]
async fn names_are_resolved_and_each_address_is_tried() {
    let origin = Origin::start();
    let url = format!("http://localhost:{}", origin.addr().port());
    let gateway = TestGateway::start(one_host("a.example", &url, ""));
    assert_eq!(gateway.get("a.example", "/", &[]).await.status, 200);
    assert_eq!(gateway.h2("a.example").await.get("/", &[]).await.unwrap().status, 200);
}

#[tokio::test]
async fn an_https_upstream_is_verified_unless_told_otherwise() {
    let authority = Authority::new("inner");
    let trusted = Origin::builder().tls(authority.issue(&["app.internal", "localhost"])).start();
    let stranger = Origin::builder().tls(Certificate::self_signed(&["localhost"])).start();
    let dir = data_dir();
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, &authority.certificate_pem).unwrap();
    let ca = format!("file:{}", ca.display());
    let local = |origin: &Origin| format!("https://localhost:{}", origin.addr().port());
    let mut document = "version: 1\nproxy_hosts:\n".to_owned();
    let cases = [
        ("default", local(&stranger), String::new(), 502, None),
        (
            "unverified",
            local(&stranger),
            "upstream_tls: {verify: false}".to_owned(),
            200,
            Some("localhost"),
        ),
        ("ca", local(&trusted), format!("upstream_tls: {{ca: \"{ca}\"}}"), 200, Some("localhost")),
        ("otherca", local(&stranger), format!("upstream_tls: {{ca: \"{ca}\"}}"), 502, None),
        (
            "named",
            trusted.url(),
            format!("upstream_tls: {{ca: \"{ca}\", server_name: app.internal}}"),
            200,
            Some("app.internal"),
        ),
        (
            "misnamed",
            trusted.url(),
            format!("upstream_tls: {{ca: \"{ca}\", server_name: other.internal}}"),
            502,
            None,
        ),
        ("address", trusted.url(), format!("upstream_tls: {{ca: \"{ca}\"}}"), 502, None),
    ];
    for (id, url, more, ..) in &cases {
        document += &host(id, &format!("{id}.example"), url, more);
    }
    let gateway = TestGateway::start(document);
    for (id, _, _, status, sni) in &cases {
        let response = gateway.get(&format!("{id}.example"), "/", &[]).await;
        assert_eq!(response.status, *status, "{id}: {}", response.text());
        if *status == 200 {
            assert_eq!(response.json()["sni"].as_str(), *sni, "{id}");
        } else {
            assert_eq!(response.json()["error"], "upstream_tls", "{id}");
        }
    }
}

#[tokio::test]
async fn a_unix_socket_upstream_is_served() {
    let dir = data_dir();
    let path = dir.path().join("app.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = listener.accept().unwrap();
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        while !seen.ends_with(b"\r\n\r\n") {
            let n = stream.read(&mut buffer).unwrap();
            seen.extend_from_slice(&buffer[..n]);
        }
        stream.write_all(OK.as_bytes()).unwrap();
        String::from_utf8(seen).unwrap()
    });
    let url = format!("unix:{}", path.display());
    let gateway = TestGateway::start(one_host("a.example", &url, ""));
    assert_eq!(gateway.get("a.example", "/a%2Fb", &[]).await.text(), "ok");
    assert!(server.join().unwrap().starts_with("GET /a%2Fb HTTP/1.1\r\nHost: a.example\r\n"));
}

#[tokio::test]
async fn a_request_that_goes_in_a_circle_ends() {
    let gateway = TestGateway::builder("version: 1\n").from_file().start();
    gateway.reload(&one_host("a.example", &format!("http://{}", gateway.http), ""));
    let response = gateway.get("a.example", "/", &[]).await;
    assert_eq!((response.status, &response.json()["error"]), (508, &"loop".into()));
}
