//! Changing the configuration while the gateway works, and ending it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use corvus_testkit::{ExitWait, Origin, PATIENCE, RawClient, Signal, first_mismatch};

use crate::gateway::{GatewayProcess, TestGateway, eventually, host, one_host};

/// A Document whose every version differs from the last in more than a comment.
fn version(n: usize, origin: &Origin) -> String {
    let more = format!("headers: {{response: {{set: {{X-Version: \"{n}\"}}}}}}");
    let mut document = one_host("a.example", &origin.url(), &more);
    document += &host(&format!("other{n}"), &format!("other{n}.example"), &origin.url(), "");
    if n.is_multiple_of(2) {
        document += &host("idle", "idle.example", "http://127.0.0.1:1", "");
    }
    document
}

#[tokio::test(flavor = "current_thread")]
async fn heavy_100_reloads_under_load_fail_no_request() {
    let origin = Origin::start();
    let gateway = TestGateway::builder(version(0, &origin)).from_file().workers(2).start();
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = Vec::new();
    for n in 0..6 {
        let (stop, addr) = (Arc::clone(&stop), gateway.http);
        clients.push(tokio::spawn(async move {
            let mut done = 0_usize;
            while !stop.load(Ordering::Relaxed) {
                // Some keep their connection, some come anew.
                let mut client = RawClient::connect(addr).await.unwrap();
                for _ in 0..if n % 2 == 0 { 50 } else { 1 } {
                    let response = client.get("a.example", "/bytes/2000", &[]).await.unwrap();
                    assert_eq!(response.status, 200, "{}", response.text());
                    assert_eq!(first_mismatch(0, &response.body), None);
                    assert!(response.headers.get("x-version").is_some());
                    done += 1;
                }
            }
            done
        }));
    }
    let gateway = tokio::task::spawn_blocking({
        let documents: Vec<_> = (1..=100).map(|n| version(n, &origin)).collect();
        move || {
            for document in documents {
                gateway.reload(&document);
                std::thread::sleep(Duration::from_millis(10));
            }
            gateway
        }
    })
    .await
    .unwrap();
    stop.store(true, Ordering::Relaxed);
    let mut total = 0;
    for client in clients {
        total += client.await.unwrap();
    }
    assert!(total > 100, "{total}");
    assert_eq!(gateway.app().version(), 101);
    let response = gateway.get("a.example", "/", &[]).await;
    assert_eq!(response.headers.get("x-version"), Some("100"));
    assert_eq!(origin.requests(), total + 1);
}

/// Case 17.
#[tokio::test]
async fn connections_of_other_hosts_live_through_twenty_changes() {
    let origin = Origin::start();
    let gateway = TestGateway::builder(version(0, &origin)).from_file().start();
    let mut socket = gateway.websocket("a.example", "/ws").await;
    let mut events = gateway.client().await;
    events.send("GET /sse/20/60 HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
    events.read_head("GET").await.unwrap();
    let mut kept = gateway.client().await;
    for n in 1..=20 {
        gateway.reload(&version(n, &origin));
        assert_eq!(socket.echo(&n.to_string()).await.unwrap(), n.to_string());
        let response = kept.get("a.example", "/", &[]).await.unwrap();
        assert_eq!(response.headers.get("x-version"), Some(&*n.to_string()));
    }
    // Even when its own host is taken away, an open socket goes on to its end.
    gateway.reload("version: 1\n");
    assert_eq!(socket.echo("still").await.unwrap(), "still");
    assert_eq!(kept.get("a.example", "/", &[]).await.unwrap().status, 404);
    let mut text = Vec::new();
    while let Some(piece) = events.read_body().await.unwrap() {
        text.extend_from_slice(&piece);
    }
    assert!(text.ends_with(b"data: 59\n\n"));
}

#[tokio::test]
async fn a_host_that_is_gone_leaves_no_connection_to_its_upstream() {
    let origin = Origin::start();
    let document = one_host("a.example", &origin.url(), "");
    let gateway = TestGateway::builder(document).from_file().start();
    assert_eq!(gateway.get("a.example", "/", &[]).await.status, 200);
    assert_eq!(origin.open_connections(), 1);
    gateway.reload("version: 1\n");
    origin.wait_for("closed", |counts| counts.open == 0).await.unwrap();
}

#[tokio::test]
async fn an_invalid_document_changes_nothing() {
    let origin = Origin::start();
    let document = one_host("a.example", &origin.url(), "");
    let gateway = TestGateway::builder(document).from_file().start();
    for (bad, told) in [
        ("version: 1\nproxy_hosts: [", ""),
        ("version: 2\n", "version"),
        ("version: 1\nproxy_host: []\n", "proxy_hosts"),
        ("", ""),
    ] {
        gateway.write_document(bad);
        let error = gateway.app().reload().expect_err("a wrong document");
        assert!(format!("{error:#}").contains(told), "{error:#}");
        assert_eq!(gateway.app().version(), 1);
        assert_eq!(gateway.get("a.example", "/", &[]).await.status, 200);
    }
}

#[tokio::test]
async fn a_changed_file_is_picked_up_by_itself() {
    let origin = Origin::start();
    let document = one_host("a.example", &origin.url(), "");
    let gateway = TestGateway::builder(document).from_file().start();
    gateway.write_document(&one_host("b.example", &origin.url(), ""));
    eventually("the new version", || (gateway.app().version() == 2).then_some(())).await;
    assert_eq!(gateway.get("b.example", "/", &[]).await.status, 200);
    assert_eq!(gateway.get("a.example", "/", &[]).await.status, 404);
}

#[tokio::test]
async fn sighup_reloads_and_tells_what_is_wrong() {
    let origin = Origin::start();
    let gateway = GatewayProcess::start(&one_host("a.example", &origin.url(), ""), &[]);
    gateway.write_document(&one_host("b.example", &origin.url(), "nonsense: 1"));
    gateway.child.signal(Signal::HUP).unwrap();
    let told = gateway.child.wait_for_line("unknown key `nonsense`", PATIENCE).unwrap();
    assert!(told.contains("/proxy_hosts/0/nonsense"), "{told}");
    let mut client = gateway.client().await;
    assert_eq!(client.get("a.example", "/", &[]).await.unwrap().status, 200);
    gateway.write_document(&one_host("b.example", &origin.url(), ""));
    gateway.child.signal(Signal::HUP).unwrap();
    gateway.child.wait_for_line("configuration in force version=2", PATIENCE).unwrap();
    assert_eq!(client.get("b.example", "/", &[]).await.unwrap().status, 200);
    assert_eq!(client.get("a.example", "/", &[]).await.unwrap().status, 404);
}

#[tokio::test]
async fn sigterm_lets_a_request_finish_and_exits_cleanly() {
    let origin = Origin::start();
    let gateway = GatewayProcess::start(&one_host("a.example", &origin.url(), ""), &[]);
    let mut idle = gateway.client().await;
    assert_eq!(idle.get("a.example", "/", &[]).await.unwrap().status, 200);
    let never_used = gateway.client().await;
    let h2 = corvus_testkit::H2Client::connect(gateway.http, "a.example").await.unwrap();
    assert_eq!(h2.get("/", &[]).await.unwrap().status, 200);
    let mut busy = gateway.client().await;
    busy.send("GET /slow/1500 HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
    let slow_h2 = tokio::spawn({
        let h2 = h2.clone();
        async move { h2.get("/slow/1500", &[]).await }
    });
    origin.wait_for("the requests", |counts| counts.requests == 4).await.unwrap();
    gateway.child.signal(Signal::TERM).unwrap();
    gateway.child.wait_for_line("draining", PATIENCE).unwrap();
    assert!(idle.read_to_close().await.unwrap().is_empty());
    let mut never_used = never_used;
    assert!(never_used.read_to_close().await.unwrap().is_empty());
    // No new connections while the old ones finish.
    let refused = async {
        while RawClient::connect(gateway.http).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), refused).await.unwrap();
    let response = busy.read_response("GET").await.unwrap();
    assert_eq!((response.status, response.text().as_str()), (200, "slow\n"));
    assert_eq!(response.headers.get("connection"), Some("close"));
    assert_eq!(slow_h2.await.unwrap().unwrap().text(), "slow\n");
    drop(h2);
    let ExitWait::Exited(status) = gateway.child.wait(PATIENCE) else { panic!("still running") };
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn what_outlasts_the_grace_is_cut() {
    let origin = Origin::start();
    let args = ["--grace", "1"];
    let gateway = GatewayProcess::start(&one_host("a.example", &origin.url(), ""), &args);
    let mut busy = gateway.client().await;
    busy.send("GET /slow/60000 HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
    origin.wait_for("the request", |counts| counts.requests == 1).await.unwrap();
    gateway.child.signal(Signal::TERM).unwrap();
    let ExitWait::Exited(status) = gateway.child.wait(PATIENCE) else { panic!("still running") };
    assert_eq!(status.code(), Some(0));
    assert!(busy.read_response("GET").await.is_err());
}
