//! Requests that could be read in two ways, and what becomes of them. The table is also
//! docs/framing.md; `UPDATE_GOLDEN=1` writes it, for a person to read before commit.

mod table;

use std::fmt::Write as _;

use corvus_testkit::{Origin, RawClient, RawOrigin, RawResponse, Step};

use self::table::{Answer, CASES, Case};
use crate::gateway::{TestGateway, one_host};

fn origin() -> RawOrigin {
    RawOrigin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
}

/// Sends the bytes of a case, plain or over TLS, and reads the answer and the end.
async fn refused(gateway: &TestGateway, case: &Case, bytes: &[u8], tls: bool) -> RawResponse {
    let mut client =
        if tls { gateway.client_tls("a.example").await } else { gateway.client().await };
    client.send(bytes).await.unwrap();
    let response = client.read_response("GET").await;
    let response = response.unwrap_or_else(|error| panic!("{}: {error}", case.what));
    let rest = client.read_to_close().await;
    let rest = rest.unwrap_or_else(|error| panic!("{}: reset: {error}", case.what));
    assert!(rest.is_empty(), "{}: more than one answer", case.what);
    response
}

/// Puts an Accept field behind the request line, where there is one.
fn asking_for_a_page(bytes: &[u8]) -> Option<Vec<u8>> {
    let end = bytes.windows(2).position(|w| w == b"\r\n").filter(|at| *at > 0)? + 2;
    Some([&bytes[..end], b"Accept: text/html\r\n", &bytes[end..]].concat())
}

/// A refusal as the client saw it, to be found in the access log.
struct Refusal {
    what: &'static str,
    id: String,
    status: u16,
    rule: &'static str,
}

fn refusal(case: &Case, response: &RawResponse, status: u16, rule: &'static str) -> Refusal {
    let what = case.what;
    assert_eq!(response.status, status, "{what}: {}", response.text());
    assert_eq!(response.headers.get("connection"), Some("close"), "{what}");
    let id = response.headers.get("x-request-id").expect("a request id").to_owned();
    assert!(response.text().contains(&id), "{what}: {}", response.text());
    Refusal { what, id, status, rule }
}

impl Refusal {
    async fn is_logged(&self, gateway: &TestGateway) {
        let line = gateway.logged_id(&self.id).await;
        assert_eq!(line["status"], self.status, "{}", self.what);
        assert_eq!(line["rule"], self.rule, "{}", self.what);
        assert_eq!(line["outcome"], "refused", "{}", self.what);
    }
}

#[tokio::test]
async fn what_is_ambiguous_is_refused_and_no_origin_sees_it() {
    let origin = origin();
    let gateway =
        TestGateway::start(one_host("a.example", &origin.url(), "tls: {force_https: false}"));
    let mut refusals = Vec::new();
    for case in CASES {
        let Answer::Refused(status, rule) = case.answer else { continue };
        let response = refused(&gateway, case, case.sent, false).await;
        refusals.push(refusal(case, &response, status, rule));
        assert_eq!(response.json()["error"], rule, "{}", case.what);
        if let Some(bytes) = asking_for_a_page(case.sent) {
            let response = refused(&gateway, case, &bytes, true).await;
            refusals.push(refusal(case, &response, status, rule));
            let kind = response.headers.get("content-type");
            assert_eq!(kind, Some("text/html; charset=utf-8"), "{}", case.what);
        }
    }
    assert_eq!(origin.connections(), 0, "{:?}", origin.received());
    for refusal in &refusals {
        refusal.is_logged(&gateway).await;
    }
    // The gateway and the origin work.
    assert_eq!(gateway.get("a.example", "/", &[]).await.status, 200);
}

#[tokio::test]
async fn what_breaks_off_in_the_middle_never_looks_whole_to_the_origin() {
    for case in CASES {
        let Answer::BrokenOff(status, rule) = case.answer else { continue };
        let origin = RawOrigin::start(vec![vec![Step::ReadToEnd]]);
        let gateway = TestGateway::start(one_host("a.example", &origin.url(), ""));
        let response = refused(&gateway, case, case.sent, false).await;
        refusal(case, &response, status, rule).is_logged(&gateway).await;
        assert!(origin.connections() <= 1, "{}: repeated", case.what);
        for received in origin.received() {
            let text = String::from_utf8_lossy(&received).into_owned();
            assert!(!text.ends_with("0\r\n\r\n"), "{}: {text}", case.what);
            assert!(!text.contains("smuggled"), "{}: {text}", case.what);
        }
    }
}

#[tokio::test]
async fn what_passes_reaches_the_origin_in_one_reading() {
    let origin = Origin::start();
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), ""));
    for case in CASES {
        let (target, body) = match case.answer {
            Answer::Passed { target, body } => (target, body),
            Answer::UnknownHost => {
                let response = gateway.exchange(case.sent).await;
                assert_eq!(response.status, 404, "{}", case.what);
                assert_eq!(response.json()["error"], "not_found", "{}", case.what);
                continue;
            }
            Answer::Refused(..) | Answer::BrokenOff(..) => continue,
        };
        let response = gateway.exchange(case.sent).await;
        assert_eq!(response.status, 200, "{}: {}", case.what, response.text());
        let seen = response.json();
        assert_eq!(seen["target"], target, "{}", case.what);
        assert_eq!(seen["body"], body, "{}", case.what);
        let fields: Vec<(String, String)> =
            serde_json::from_value(seen["headers"].clone()).unwrap();
        let count =
            |name: &str| fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).count();
        assert_eq!(count("host"), 1, "{}", case.what);
        assert!(count("content-length") + count("transfer-encoding") <= 1, "{}", case.what);
    }
    assert_eq!(origin.counts().requests, origin.seen().len());
}

#[tokio::test]
async fn heads_beyond_the_limits_get_431() {
    let origin = origin();
    let settings = "settings: {limits: {header_bytes: 4096, header_count: 20}}\n";
    let document = one_host("a.example", &origin.url(), "") + settings;
    let gateway = TestGateway::start(document);
    let many = "X: y\r\n".repeat(20);
    let long = "x".repeat(5000);
    for (request, rule) in [
        (format!("GET / HTTP/1.1\r\nHost: a.example\r\n{many}\r\n"), "too_many_fields"),
        (format!("GET / HTTP/1.1\r\nHost: a.example\r\nCookie: {long}\r\n\r\n"), "head_too_large"),
        (format!("GET /{long} HTTP/1.1\r\nHost: a.example\r\n\r\n"), "head_too_large"),
        // Never ends: refused all the same.
        (format!("GET / HTTP/1.1\r\nHost: a.example\r\nX: {long}"), "head_too_large"),
    ] {
        let request = request.replace("\r\nHost", "\r\nAccept: text/html\r\nHost");
        let mut client = gateway.client().await;
        let response = client.exchange(request).await.unwrap();
        assert_eq!(response.status, 431, "{rule}");
        assert!(response.text().contains("<h1>"), "{rule}: a page for a browser");
        let id = response.headers.get("x-request-id").unwrap();
        assert_eq!(gateway.logged_id(id).await["rule"], rule);
        assert!(client.read_to_close().await.unwrap().is_empty());
    }
    let h2 = gateway.h2("a.example").await;
    assert!(h2.get("/", &[("cookie", &long)]).await.is_ok_and(|r| r.status == 431));
    assert_eq!(origin.connections(), 0);
}

/// HTTP/2 has its own framing, which hyper checks; what it lets through is checked like the rest.
#[tokio::test]
async fn http2_requests_of_two_readings_are_refused() {
    let origin = origin();
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), ""));
    let h2 = gateway.h2("a.example").await;
    for fields in [
        &[("host", "b.example")][..],
        &[("host", "a.example"), ("host", "a.example")],
        &[("host", "a b")],
    ] {
        assert_eq!(h2.get("/", fields).await.unwrap().status, 400, "{fields:?}");
    }
    // Fields of HTTP/1 connections make the message malformed (RFC 9113 section 8.2.2): the stream
    // is reset, or the field never reaches the origin.
    for field in ["transfer-encoding", "connection", "keep-alive", "upgrade"] {
        let h2 = gateway.h2("a.example").await;
        if let Ok(response) = h2.get("/", &[(field, "smuggled")]).await {
            assert!(matches!(response.status, 200 | 400), "{field}: {}", response.status);
        }
    }
    for received in origin.received() {
        let text = String::from_utf8_lossy(&received).to_lowercase();
        assert!(!text.contains("smuggled"), "{text}");
    }
}

/// A head that trickles in is read to its end; one that never ends is cut.
#[tokio::test]
async fn a_head_may_come_in_single_bytes_but_not_for_ever() {
    let origin = origin();
    let clock = corvus_core::clock::FakeClock::new(1_800_000_000_000);
    let document = one_host("a.example", &origin.url(), "");
    let gateway = TestGateway::builder(document).clock(clock.clone()).start();
    let mut client = gateway.client().await;
    for byte in b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n" {
        client.send([*byte]).await.unwrap();
    }
    assert_eq!(client.read_response("GET").await.unwrap().status, 200);

    // Slowloris: each byte comes in time, the head does not.
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n").await.unwrap();
    let mut closed = false;
    for _ in 0..100 {
        clock.advance(std::time::Duration::from_secs(1));
        if client.send("X").await.is_err() || client.closed().await {
            closed = true;
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(closed || eventually_closed(&mut client).await, "still open");
}

async fn eventually_closed(client: &mut RawClient) -> bool {
    client.read_to_close().await.is_ok_and(|rest| rest.is_empty())
}

#[tokio::test]
async fn the_table_in_the_documentation_is_this_one() {
    let mut text = String::from(
        "# How requests are read\n\n\
         What two readers could understand differently is refused, not repaired: request smuggling \
         lives in the difference. A refused request gets a page (JSON, unless `Accept` asks for \
         HTML) with a request id that the access log has too, the connection is closed, and no \
         upstream sees anything of it. `a.example` is a configured host. The integration tests send \
         exactly these bytes and compare this table.\n",
    );
    for (title, wanted) in [
        ("Refused", 0),
        ("Broken off: the upstream has seen a beginning, never a whole request", 1),
        ("Understood, and sent on in one reading", 2),
    ] {
        let _ = write!(text, "\n## {title}\n\n| what | sent | answer |\n|---|---|---|\n");
        for case in CASES {
            let (section, answer) = match case.answer {
                Answer::Refused(status, rule) => (0, format!("{status} `{rule}`")),
                Answer::BrokenOff(status, rule) => (1, format!("{status} `{rule}`")),
                Answer::Passed { target, body: "" } => (2, format!("passes as `{target}`")),
                Answer::Passed { target, body } => {
                    (2, format!("passes as `{target}` with the body `{body}`"))
                }
                Answer::UnknownHost => (2, "404, unknown host".to_owned()),
            };
            if section == wanted {
                let sent = case.sent.escape_ascii().to_string().replace("\\\"", "\"");
                let _ = writeln!(text, "| {} | `{sent}` | {answer} |", case.what);
            }
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/framing.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == text, "docs/framing.md differs; UPDATE_GOLDEN=1 writes it");
}
