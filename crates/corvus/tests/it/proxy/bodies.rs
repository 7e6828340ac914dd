//! Limits on bodies: how large, and how long they may pause.

use std::time::Duration;

use corvus_testkit::{ChaosProxy, H2Client, Origin, RawOrigin, Step, pattern};

use crate::gateway::{TestGateway, one_host};

#[tokio::test]
async fn a_body_beyond_the_limit_gets_413() {
    let origin = RawOrigin::start(vec![vec![Step::ReadToEnd]]);
    let document = one_host("a.example", &origin.url(), "body_limit_bytes: 1000");
    let gateway = TestGateway::start(document);
    // Known: the origin sees nothing.
    let head = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1001\r\n\r\n";
    let mut client = gateway.client().await;
    client.send(head).await.unwrap();
    let response = client.read_response("POST").await.unwrap();
    assert_eq!((response.status, &response.json()["error"]), (413, &"body_limit".into()));
    assert_eq!(response.headers.get("connection"), Some("close"));
    let expecting = head.replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    let response = gateway.exchange(expecting).await;
    assert_eq!((response.status, response.interim.len()), (413, 0));
    assert_eq!(origin.connections(), 0);
    // Chunked: the origin has seen a beginning, never the end.
    let mut client = gateway.client().await;
    client
        .send("POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    client.send_pattern_chunked(5000).await.unwrap();
    let response = client.read_response("POST").await.unwrap();
    assert_eq!(response.status, 413);
    let id = response.headers.get("x-request-id").unwrap();
    assert_eq!(gateway.logged_id(id).await["rule"], "body_limit");
    assert!(client.read_to_close().await.unwrap().is_empty());
    for received in origin.received() {
        assert!(!received.ends_with(b"0\r\n\r\n"));
    }
    let h2 = gateway.h2("a.example").await;
    assert_eq!(h2.upload("/", 5000).await.unwrap().status, 413);
}

#[tokio::test]
async fn a_body_at_the_limit_passes() {
    let origin = Origin::start();
    let document = one_host("a.example", &origin.url(), "body_limit_bytes: 1000");
    let gateway = TestGateway::start(document);
    let mut client = gateway.client().await;
    let head = "POST /upload HTTP/1.1\r\nHost: a.example\r\n";
    client.send(format!("{head}Content-Length: 1000\r\n\r\n")).await.unwrap();
    client.send(pattern(0, 1000)).await.unwrap();
    assert_eq!(client.read_response("POST").await.unwrap().json()["bytes"], 1000);
    client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n")).await.unwrap();
    client.send_pattern_chunked(1000).await.unwrap();
    assert_eq!(client.read_response("POST").await.unwrap().json()["bytes"], 1000);
    assert_eq!(gateway.h2("a.example").await.upload("/upload", 1000).await.unwrap().status, 200);
    let zero = TestGateway::start(one_host("a.example", &origin.url(), "body_limit_bytes: 0"));
    assert_eq!(zero.get("a.example", "/", &[]).await.status, 200);
}

const IDLE: &str = "timeouts: {idle_s: 1}";

/// Case 16: time is limited between two pieces, never in all.
#[tokio::test]
async fn a_slow_upload_passes_and_one_that_stops_gets_408() {
    let origin = Origin::start();
    let h2c = origin.url().replace("http:", "h2c:");
    let document = one_host("a.example", &origin.url(), IDLE)
        + &crate::gateway::host("h2c", "b.example", &h2c, IDLE);
    let gateway = TestGateway::start(document);
    let head = |host: &str, framing: &str| {
        format!("POST /upload HTTP/1.1\r\nHost: {host}\r\n{framing}\r\n\r\n")
    };
    let slow = async |host: &str| {
        let mut client = gateway.client().await;
        client.send(head(host, "Content-Length: 10")).await.unwrap();
        for n in 0..10 {
            client.send(pattern(n, 1)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        let response = client.read_response("POST").await.unwrap();
        assert_eq!((response.status, &response.json()["bytes"]), (200, &10.into()), "{host}");
    };
    let stopping = async |host: &str, framing: &str| {
        let mut client = gateway.client().await;
        client.send(head(host, framing) + "5\r\n").await.unwrap();
        let response = client.read_response("POST").await.unwrap();
        let answer = (response.status, &response.json()["error"]);
        assert_eq!(answer, (408, &"body_timeout".into()), "{host} {framing}");
        assert!(client.read_to_close().await.unwrap().is_empty());
    };
    tokio::join!(
        slow("a.example"),
        slow("b.example"),
        stopping("a.example", "Content-Length: 10"),
        stopping("a.example", "Transfer-Encoding: chunked"),
        stopping("b.example", "Content-Length: 10"),
        stopping("b.example", "Transfer-Encoding: chunked"),
    );
    // The broken requests have not been left standing at the origin.
    origin.wait_for("closed", |counts| counts.open <= 2).await.unwrap();
}

#[tokio::test]
async fn a_slow_download_passes_and_one_that_stops_is_cut() {
    let origin = Origin::start();
    let silent = RawOrigin::start(vec![vec![
        Step::ReadHead,
        Step::write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"),
        Step::Hang,
    ]]);
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), IDLE));
    let stopping = TestGateway::start(one_host("a.example", &silent.url(), IDLE));
    let slow = async {
        let events = gateway.get("a.example", "/sse/250/10", &[]).await;
        assert!(events.text().ends_with("data: 9\n\n"));
    };
    let cut = async {
        let mut client = stopping.client().await;
        assert!(client.get("a.example", "/", &[]).await.is_err());
        let line = stopping.logged("the cut", |line| line["status"] == 200).await;
        assert_eq!(
            (&line["outcome"], &line["rule"]),
            (&"upstream_failed".into(), &"upstream_timeout".into())
        );
    };
    tokio::join!(slow, cut);
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_gets_504() {
    let origin = Origin::start();
    let h2c = origin.url().replace("http:", "h2c:");
    let document = one_host("a.example", &origin.url(), IDLE)
        + &crate::gateway::host("h2c", "b.example", &h2c, IDLE);
    let gateway = TestGateway::start(document);
    for host in ["a.example", "b.example"] {
        let response = gateway.get(host, "/slow/30000", &[("Accept", "text/html")]).await;
        assert_eq!(response.status, 504, "{host}");
        assert!(response.text().contains("upstream_timeout"), "{host}");
        assert_eq!(response.headers.get("retry-after"), Some("10"));
        let id = response.headers.get("x-request-id").unwrap();
        let line = gateway.logged_id(id).await;
        assert_eq!((&line["status"], &line["rule"]), (&504.into(), &"upstream_timeout".into()));
    }
    // One slow page does not take the others down.
    assert_eq!(gateway.get("a.example", "/bytes/1", &[]).await.status, 200);
}

/// A client that stops reading holds an upstream connection no longer than the idle time.
#[tokio::test]
async fn a_client_that_stops_reading_is_cut() {
    let origin = Origin::start();
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), IDLE));
    let mut client = gateway.client().await;
    client.send("GET /bytes/100000000 HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
    client.read_head("GET").await.unwrap();
    let h2 = gateway.h2("a.example").await;
    origin.wait_for("the request", |counts| counts.open == 1).await.unwrap();
    origin.wait_for("the cut", |counts| counts.open == 0).await.unwrap();
    let line = gateway.logged("the download", |line| line["status"] == 200).await;
    assert_eq!(line["outcome"], "client_gone");
    assert!(line["sent"].as_u64().unwrap() < 100_000_000, "{line}");
    // Others are served meanwhile.
    assert_eq!(h2.get("/bytes/1", &[]).await.unwrap().status, 200);
}

/// The same over HTTP/2, to upstreams of both kinds.
#[tokio::test]
async fn slow_and_stopped_uploads_over_http2() {
    let origin = Origin::start();
    let h2c = origin.url().replace("http:", "h2c:");
    let document = one_host("a.example", &origin.url(), IDLE)
        + &crate::gateway::host("h2c", "b.example", &h2c, IDLE);
    let gateway = TestGateway::start(document);
    for host in ["a.example", "b.example"] {
        let line = ChaosProxy::start(gateway.http);
        let h2 = H2Client::connect(line.addr(), host).await.unwrap();
        line.slow(Duration::from_millis(300));
        let started = tokio::time::Instant::now();
        let response = h2.upload("/upload", 150_000).await.unwrap();
        assert_eq!((response.status, &response.json()["bytes"]), (200, &150_000.into()), "{host}");
        assert!(started.elapsed() > Duration::from_millis(1200), "too fast to show anything");
        line.resume();
        let before = origin.requests();
        let upload = tokio::spawn(async move { h2.upload("/upload", 4 << 30).await });
        origin.wait_for("the upload", |counts| counts.requests > before).await.unwrap();
        line.half_open();
        let logged = gateway.logged(host, |line| line["host"] == host && line["status"] != 200);
        let logged = logged.await;
        assert_eq!((&logged["status"], &logged["rule"]), (&408.into(), &"body_timeout".into()));
        upload.abort();
    }
}
