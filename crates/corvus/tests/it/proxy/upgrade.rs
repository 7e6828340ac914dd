//! `Upgrade`: WebSockets pass, everything that was not agreed on does not.

use corvus_testkit::{Message, Origin, RawOrigin, Step, WebSocket, pattern};

use crate::gateway::{TestGateway, one_host};

fn gateway(url: &str, more: &str) -> TestGateway {
    let more = format!("tls: {{force_https: false}}\n{more}");
    TestGateway::start(one_host("a.example", url, &more))
}

#[tokio::test]
async fn a_websocket_echoes_plain_and_over_tls() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url(), "");
    for tls in [false, true] {
        let client =
            if tls { gateway.client_tls("a.example").await } else { gateway.client().await };
        let offered = [("Sec-WebSocket-Protocol", "chat, other"), ("Origin", "https://a.example")];
        let socket = WebSocket::upgrade(client, "a.example", "/ws", &offered).await.unwrap();
        let Ok(mut socket) = socket else { panic!("no upgrade") };
        let headers = &socket.handshake().headers;
        assert_eq!(headers.get("sec-websocket-protocol"), Some("chat"));
        assert_eq!(headers.get("upgrade"), Some("websocket"));
        assert_eq!(socket.echo("hello").await.unwrap(), "hello");
        let large = pattern(0, 1_000_000);
        socket.send(Message::binary(large.clone())).await.unwrap();
        assert_eq!(socket.receive().await.unwrap().unwrap().into_data(), large);
        socket.close().await.unwrap();
    }
    origin.wait_for("closed sockets", |counts| counts.open == 0).await.unwrap();
    let line = gateway.logged("the upgrade", |line| line["status"] == 101 && line["tls"] == true);
    let line = line.await;
    assert!(line["sent"].as_u64().unwrap() > 1_000_000, "{line}");
    assert!(line["received"].as_u64().unwrap() > 1_000_000, "{line}");
}

#[tokio::test]
async fn a_refused_websocket_gets_the_origins_answer() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url(), "");
    let client = gateway.client().await;
    let refused = WebSocket::upgrade(client, "a.example", "/status/403", &[]).await.unwrap();
    assert_eq!(refused.err().expect("no upgrade").status, 403);
}

#[tokio::test]
async fn the_end_of_either_side_ends_the_other() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url(), "");
    let socket = gateway.websocket("a.example", "/ws").await;
    assert_eq!(origin.open_connections(), 1);
    drop(socket);
    origin.wait_for("the client left", |counts| counts.open == 0).await.unwrap();
    let mut socket = gateway.websocket("a.example", "/ws").await;
    drop(origin);
    assert!(!matches!(socket.receive().await, Ok(Some(_))));
}

/// CVE-2026-2833: what a client sends before the origin has agreed is not for the origin's
/// WebSocket, and never a second request past our stages.
#[tokio::test]
async fn bytes_before_101_are_never_tunnelled() {
    let upgrade = "GET /ws HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let early = "GET /admin HTTP/1.1\r\nHost: a.example\r\nX-Early: yes\r\n\r\n";
    // The origin answers with an ordinary response: the early bytes are the next request, and go
    // through every stage (they carry our fields).
    let origin = RawOrigin::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno");
    let plain = gateway(&origin.url(), "");
    let mut client = plain.client().await;
    client.send([upgrade, early].concat()).await.unwrap();
    assert_eq!(client.read_response("GET").await.unwrap().text(), "no");
    assert_eq!(client.read_response("GET").await.unwrap().text(), "no");
    let received = origin.received().concat();
    let text = String::from_utf8_lossy(&received);
    let (_, second) = text.split_once("GET /admin").expect("a second request");
    assert!(second.contains("X-Forwarded-For: 127.0.0.1"), "{text}");

    // The origin reads on while it has not answered: nothing comes.
    let origin = RawOrigin::start(vec![vec![
        Step::ReadHead,
        Step::Pause(std::time::Duration::from_millis(300)),
        Step::write("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
        Step::ReadToEnd,
    ]]);
    let refusing = gateway(&origin.url(), "");
    let mut client = refusing.client().await;
    client.send([upgrade, "\x01\x02raw bytes"].concat()).await.unwrap();
    assert_eq!(client.read_response("GET").await.unwrap().status, 403);
    let received = origin.received().concat();
    assert!(!String::from_utf8_lossy(&received).contains("raw bytes"));
}

#[tokio::test]
async fn a_101_that_nobody_asked_for_opens_no_tunnel() {
    for answer in [
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ] {
        let origin =
            RawOrigin::start(vec![vec![Step::ReadHead, Step::write(answer), Step::ReadToEnd]]);
        let gateway = gateway(&origin.url(), "");
        let mut client = gateway.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
        assert_eq!(client.read_response("GET").await.unwrap().status, 502);
    }
    // Nor one to something else than was asked for.
    let other = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n";
    let origin = RawOrigin::start(vec![vec![Step::ReadHead, Step::write(other), Step::ReadToEnd]]);
    let gateway = gateway(&origin.url(), "");
    let client = gateway.client().await;
    let answer = WebSocket::upgrade(client, "a.example", "/", &[]).await.unwrap();
    assert_eq!(answer.err().expect("no tunnel").status, 502);
}

#[tokio::test]
async fn h2c_never_tunnels() {
    // Even where an operator lists it.
    let origin = RawOrigin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let gateway = gateway(&origin.url(), "upgrades: [websocket]");
    for (connection, upgrade) in [
        ("Upgrade, HTTP2-Settings", "h2c"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "h2c"),
        ("upgrade", "H2C"),
        ("Upgrade", "h2c, websocket"),
        ("Upgrade", "websocket, h2c"),
        ("Upgrade", "HTTP/2.0"),
        ("Upgrade", "TLS/1.0"),
    ] {
        let fields = [
            ("Connection", connection),
            ("Upgrade", upgrade),
            ("HTTP2-Settings", "AAMAAABkAAQAoAAAAAIAAAAA"),
        ];
        let response = gateway.get("a.example", "/", &fields).await;
        assert_eq!(response.status, 200, "{connection} {upgrade}");
    }
    let text = String::from_utf8_lossy(&origin.received().concat()).to_lowercase();
    for gone in ["h2c", "http2-settings", "upgrade", "tls/1.0", "http/2.0"] {
        assert!(!text.contains(gone), "{gone}: {text}");
    }
}

#[tokio::test]
async fn only_the_protocols_of_the_host_are_switched_to() {
    let answer =
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: mqtt\r\nConnection: upgrade\r\n\r\nhi";
    let origin = RawOrigin::start(vec![vec![Step::ReadHead, Step::write(answer), Step::ReadToEnd]]);
    let listed = gateway(&origin.url(), "upgrades: [mqtt]");
    let fields = [("Connection", "upgrade"), ("Upgrade", "MQTT")];
    let mut client = listed.client().await;
    assert_eq!(client.get("a.example", "/", &fields).await.unwrap().status, 101);
    assert_eq!(&client.read_some().await.unwrap()[..], b"hi");
    client.send("ping").await.unwrap();
    origin.wait_for("the tunnel", |all| all[0].ends_with(b"ping")).await.unwrap();

    let origin = Origin::start();
    let none = gateway(&origin.url(), "upgrades: []");
    let answer = WebSocket::upgrade(none.client().await, "a.example", "/echo", &[]).await.unwrap();
    let response = answer.err().expect("no upgrade");
    assert_eq!(response.status, 200);
    let fields = origin.seen()[0].headers.clone();
    assert_eq!((fields.get("upgrade"), fields.get("connection")), (None, None));
}

#[tokio::test]
async fn a_silent_tunnel_is_cut_after_the_idle_time() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url(), "timeouts: {idle_s: 1}");
    let mut socket = gateway.websocket("a.example", "/ws").await;
    // Longer in all than the idle time.
    for _ in 0..4 {
        assert_eq!(socket.echo("still here").await.unwrap(), "still here");
        tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    }
    assert!(!matches!(socket.receive().await, Ok(Some(_))));
    origin.wait_for("closed", |counts| counts.open == 0).await.unwrap();
}
