//! Connections, message framing and interim responses, between clients and origins of every kind.

use corvus_testkit::{Origin, RawClient, RawOrigin, Step, pattern};

use crate::gateway::{TestGateway, one_host};

fn gateway(url: &str) -> TestGateway {
    TestGateway::start(one_host("a.example", url, ""))
}

#[tokio::test]
async fn one_connection_serves_many_requests_on_both_sides() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url());
    let mut client = gateway.client().await;
    for n in 0..20 {
        let response = client.get("a.example", &format!("/{n}"), &[]).await.unwrap();
        assert_eq!(response.json()["target"], format!("/{n}"));
        assert_eq!(response.headers.get("connection"), None);
    }
    assert_eq!(origin.connections(), 1);
    // Another client of the same worker takes the same upstream connection.
    assert_eq!(gateway.get("a.example", "/", &[]).await.status, 200);
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url());
    let mut client = gateway.client().await;
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let mut requests = ["/slow/50", "/bytes/5", "/echo?3"].map(get).concat();
    requests += "POST /4 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello";
    requests += "GET /5 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    requests += "GET /never HTTP/1.1\r\nHost: a.example\r\n\r\n";
    client.send(requests).await.unwrap();
    assert_eq!(client.read_response("GET").await.unwrap().text(), "slow\n");
    assert_eq!(client.read_response("GET").await.unwrap().body, pattern(0, 5));
    assert_eq!(client.read_response("GET").await.unwrap().json()["target"], "/echo?3");
    assert_eq!(client.read_response("POST").await.unwrap().json()["body"], "hello");
    let last = client.read_response("GET").await.unwrap();
    assert_eq!(last.headers.get("connection"), Some("close"));
    assert!(client.read_to_close().await.unwrap().is_empty());
    assert!(origin.seen().iter().all(|seen| seen.target != "/never"));
}

#[tokio::test]
async fn http10_clients_get_what_they_understand() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url());
    // Without a Connection field: closed after the answer, and no chunks.
    let mut client = gateway.client().await;
    let request = "GET /chunked/1000 HTTP/1.0\r\nHost: a.example\r\n\r\n";
    let response = client.exchange(request).await.unwrap();
    assert_eq!(response.headers.get("transfer-encoding"), None);
    assert_eq!(response.body, pattern(0, 1000));
    assert!(client.closed().await);
    // With keep-alive and a known length it stays open.
    let mut client = gateway.client().await;
    let request = "GET /bytes/10 HTTP/1.0\r\nHost: a.example\r\nConnection: keep-alive\r\n\r\n";
    for _ in 0..2 {
        let response = client.exchange(request).await.unwrap();
        assert_eq!(response.headers.get("connection"), Some("keep-alive"));
        assert_eq!(response.body, pattern(0, 10));
    }
    let seen = origin.seen();
    assert!(seen.iter().all(|seen| seen.version == "HTTP/1.1"));
}

#[tokio::test]
async fn answers_without_a_body_have_none() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url());
    let mut client = gateway.client().await;
    for (path, length) in [("/bytes/1234", Some("1234")), ("/chunked/1234", None)] {
        let request = format!("HEAD {path} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let response = client.exchange(request).await.unwrap();
        assert_eq!(response.headers.get("content-length"), length);
        assert!(response.body.is_empty());
    }
    for status in [204, 304] {
        let response = client.get("a.example", &format!("/status/{status}"), &[]).await.unwrap();
        assert_eq!(response.status, status);
        assert_eq!(response.headers.get("transfer-encoding"), None);
        if status == 204 {
            assert_eq!(response.headers.get("content-length"), None);
        }
    }
    // Still in step.
    assert_eq!(client.get("a.example", "/bytes/3", &[]).await.unwrap().body, pattern(0, 3));
    let h2 = gateway.h2("a.example").await;
    let head = h2.request("HEAD", "/bytes/1234").body(bytes::Bytes::new()).unwrap();
    let response = h2.send(head).await.unwrap();
    assert_eq!(response.headers.get("content-length"), Some("1234"));
    assert_eq!(h2.get("/status/204", &[]).await.unwrap().status, 204);
    assert_eq!(h2.get("/status/304", &[]).await.unwrap().status, 304);
}

#[tokio::test]
async fn errors_of_our_own_have_no_body_for_head() {
    let gateway = TestGateway::start("version: 1\n");
    let mut client = gateway.client().await;
    for _ in 0..2 {
        let request = "HEAD / HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let response = client.exchange(request).await.unwrap();
        assert_eq!((response.status, response.body.len()), (404, 0));
    }
}

#[tokio::test]
async fn a_body_until_close_gets_an_end_that_can_be_seen() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url());
    let mut client = gateway.client().await;
    let response = client.get("a.example", "/until-close/100000", &[]).await.unwrap();
    assert_eq!(response.headers.get("transfer-encoding"), Some("chunked"));
    assert_eq!(response.body, pattern(0, 100_000));
    assert_eq!(client.get("a.example", "/bytes/1", &[]).await.unwrap().status, 200);
    let h2 = gateway.h2("a.example").await;
    assert_eq!(h2.download("/until-close/100000").await.unwrap(), 100_000);
}

#[tokio::test]
async fn a_body_cut_short_is_never_shown_as_whole() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url());
    let mut client = gateway.client().await;
    assert!(client.get("a.example", "/truncated/100000", &[]).await.is_err());
    assert!(gateway.h2("a.example").await.get("/truncated/100000", &[]).await.is_err());
    let chunked = RawOrigin::start(vec![vec![
        Step::ReadHead,
        Step::write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
    ]]);
    let broken = TestGateway::start(one_host("a.example", &chunked.url(), ""));
    let mut client = broken.client().await;
    assert!(client.get("a.example", "/", &[]).await.is_err());
    // An HTTP/1.0 client can be shown only by a reset, since a close means the end.
    let mut client = broken.client().await;
    let response = client.exchange("GET / HTTP/1.0\r\nHost: a.example\r\n\r\n").await;
    let error = response.expect_err("a clean close shows a broken body as whole");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let line = broken.logged("the outcome", |line| line["protocol"] == "HTTP/1.0").await;
    assert_eq!(line["outcome"], "upstream_failed");
}

#[tokio::test]
async fn trailers_pass_in_both_directions() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url());
    let mut client = gateway.client().await;
    let response = client.get("a.example", "/trailers", &[]).await.unwrap();
    assert_eq!(response.trailers.get("x-checksum"), Some("1000"));
    assert_eq!(response.trailers.get("x-last"), Some("yes"));
    let request = "POST /echo HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\
        Trailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 5\r\n\r\n";
    let seen = client.exchange(request).await.unwrap().json();
    assert_eq!(seen["trailers"][0][1], "5");
    let h2 = gateway.h2("a.example").await;
    let response = h2.get("/trailers", &[]).await.unwrap();
    assert_eq!(response.trailers.get("x-checksum"), Some("1000"));
    // HTTP/1.0 has no place for them.
    let request = "GET /trailers HTTP/1.0\r\nHost: a.example\r\n\r\n";
    assert_eq!(gateway.exchange(request).await.body, pattern(0, 1000));
}

/// RFC 9110 section 6.5.1: a trailer is no way to bring in what a header may not say.
#[tokio::test]
async fn trailers_cannot_say_who_the_client_is() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url());
    for field in [
        "X-Forwarded-For",
        "X-Real-IP",
        "Forwarded",
        "Remote_User",
        "Content-Length",
        "Host",
        "Cookie",
        "Transfer-Encoding",
        "Connection",
        "Proxy",
        "Authorization",
    ] {
        let request = format!(
            "POST /echo HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
             5\r\nhello\r\n0\r\n{field}: 5\r\nX-Sum: 5\r\n\r\n"
        );
        let response = gateway.exchange(request).await;
        if response.status == 400 {
            continue;
        }
        let seen = response.json();
        let trailers = seen["trailers"].as_array().unwrap();
        assert_eq!(trailers.len(), 1, "{field}: {trailers:?}");
        assert_eq!(trailers[0][0], "X-Sum", "{field}");
    }
}

fn expecting(path: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: a.example\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    )
}

async fn expect(gateway: &TestGateway, path: &str) -> RawClient {
    let mut client = gateway.client().await;
    client.send(expecting(path)).await.unwrap();
    client
}

#[tokio::test]
async fn expect_100_continue_is_the_origins_to_answer() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url());
    let mut client = expect(&gateway, "/100/accept").await;
    assert_eq!(client.read_head("POST").await.unwrap().status, 100);
    client.send("hello").await.unwrap();
    assert_eq!(client.read_response("POST").await.unwrap().json()["bytes"], 5);
    assert_eq!(client.get("a.example", "/", &[]).await.unwrap().status, 200);
    let seen = origin.seen();
    assert_eq!(seen[0].headers.get("expect"), Some("100-continue"));

    // A final status instead: no 100, and the unsent body is not waited for.
    let mut client = expect(&gateway, "/100/refuse").await;
    let response = client.read_response("POST").await.unwrap();
    assert_eq!((response.status, response.interim.len()), (417, 0));
    // Whether the client sends its body now cannot be known, so the connection ends.
    assert_eq!(response.headers.get("connection"), Some("close"));
}

/// Smuggling by a kept connection: after a final answer without a 100 the origin may still take the
/// next five bytes on it for the body, whatever request they begin.
#[tokio::test]
async fn a_connection_that_may_still_expect_a_body_is_not_used_again() {
    let answer = "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n";
    let origin = RawOrigin::start(vec![
        vec![Step::ReadHead, Step::write(answer), Step::ReadToEnd],
        vec![Step::ReadHead, Step::write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")],
    ]);
    let gateway = gateway(&origin.url());
    let mut client = expect(&gateway, "/redirected").await;
    assert_eq!(client.read_response("POST").await.unwrap().status, 302);
    assert_eq!(gateway.get("a.example", "/next", &[]).await.text(), "ok");
    let received = origin.received();
    assert!(!received[0].windows(5).any(|bytes| bytes == b"/next"), "{received:?}");
    assert_eq!(origin.connections(), 2);
}

/// The head and a broken body come in one piece: the client gets a page that says so, not silence.
#[tokio::test]
async fn an_answer_that_is_broken_at_once_becomes_a_502() {
    let broken = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot a chunk\r\n";
    let origin = RawOrigin::start(vec![vec![Step::ReadHead, Step::write(broken)]]);
    let gateway = gateway(&origin.url());
    let response = gateway.get("a.example", "/", &[]).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["error"], "upstream_malformed");
}

#[tokio::test]
async fn an_origin_that_never_says_100_gets_the_body_all_the_same() {
    let origin = RawOrigin::start(vec![vec![
        Step::ReadHead,
        Step::Read(5),
        Step::write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        Step::Again,
    ]]);
    let gateway = gateway(&origin.url());
    let mut client = expect(&gateway, "/").await;
    // The gateway stops waiting and asks for the body itself.
    assert_eq!(client.read_head("POST").await.unwrap().status, 100);
    client.send("hello").await.unwrap();
    assert_eq!(client.read_response("POST").await.unwrap().text(), "ok");
    assert!(origin.received()[0].ends_with(b"\r\n\r\nhello"));
}

#[tokio::test]
async fn a_body_sent_without_waiting_for_100_arrives() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url());
    let mut client = gateway.client().await;
    client.send(expecting("/upload") + "hello").await.unwrap();
    assert_eq!(client.read_response("POST").await.unwrap().json()["bytes"], 5);
    assert_eq!(client.get("a.example", "/", &[]).await.unwrap().status, 200);
}

#[tokio::test]
async fn an_answer_before_the_body_is_read_reaches_the_client() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url());
    let mut client = gateway.client().await;
    let head =
        "POST /early-response HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100000000\r\n\r\n";
    client.send(head).await.unwrap();
    client.send(pattern(0, 60_000)).await.unwrap();
    let response = client.read_response("POST").await.unwrap();
    assert_eq!((response.status, response.text().as_str()), (413, "enough\n"));
    assert_eq!(response.headers.get("connection"), Some("close"));
}

/// A deviation that docs/deviations.md lists: clients that do not expect a 103 break on it.
#[tokio::test]
async fn early_hints_are_not_forwarded() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url());
    let mut client = gateway.client().await;
    let response = client.get("a.example", "/early-hints", &[]).await.unwrap();
    assert_eq!((response.status, response.interim.len()), (200, 0));
    assert_eq!(response.text(), "hinted\n");
    assert_eq!(gateway.h2("a.example").await.get("/early-hints", &[]).await.unwrap().status, 200);
}

#[tokio::test]
async fn an_empty_post_says_that_it_is_empty() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url());
    gateway.exchange("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n").await;
    gateway.get("a.example", "/", &[]).await;
    let seen = origin.seen();
    assert_eq!(seen[0].headers.get("content-length"), Some("0"));
    assert_eq!(seen[1].headers.get("content-length"), None);
}

/// An answer of our own to a request whose body nobody has read: told, and readable to its end.
#[tokio::test]
async fn a_body_that_nobody_wants_does_not_spoil_the_answer() {
    let gateway = TestGateway::start("version: 1\n");
    let mut client = gateway.client().await;
    let head = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 200000\r\n\r\n";
    client.send(head).await.unwrap();
    client.send_pattern(200_000).await.unwrap();
    let response = client.read_response("POST").await.unwrap();
    assert_eq!(response.status, 404);
    assert_eq!(response.headers.get("connection"), Some("close"));
    assert!(client.read_to_close().await.unwrap().is_empty());
}
