//! The peers against each other, so that a failing gateway test is the gateway's fault.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use crate::*;

#[tokio::test]
async fn echo_keeps_the_target_and_the_spelling_of_fields() {
    let origin = Origin::start();
    let mut client = RawClient::connect(origin.addr()).await.unwrap();
    let request = b"POST /a%2Fb?q=<x>\xe4 HTTP/1.1\r\nhOsT: a\r\nX-B: 1\r\nx-b: 2\r\n\
        Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-End: yes\r\n\r\n";
    let seen = client.exchange(request).await.unwrap().json();
    assert_eq!(seen["target"], "/a%2Fb?q=<x>\u{e4}");
    let headers =
        json!([["hOsT", "a"], ["X-B", "1"], ["x-b", "2"], ["Transfer-Encoding", "chunked"]]);
    assert_eq!(seen["headers"], headers);
    assert_eq!(seen["trailers"], json!([["X-End", "yes"]]));
    assert_eq!((&seen["body_length"], &seen["body"]), (&json!(3), &json!("abc")));
    let sha256_of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(seen["body_sha256"], sha256_of_abc);
    // The same connection goes on.
    assert_eq!(client.get("a", "/status/204", &[]).await.unwrap().status, 204);
    assert_eq!((origin.connections(), origin.requests()), (1, 2));
}

#[tokio::test]
async fn bodies_of_each_framing_arrive_whole() {
    let origin = Origin::start();
    let mut client = RawClient::connect(origin.addr()).await.unwrap();
    for path in ["/bytes/200000", "/chunked/200000", "/until-close/200000"] {
        let response = client.get("a", path, &[]).await.unwrap();
        assert_eq!(response.body.len(), 200_000, "{path}");
        assert_eq!(first_mismatch(0, &response.body), None, "{path}");
    }
    assert!(client.closed().await);
    let mut client = RawClient::connect(origin.addr()).await.unwrap();
    let error = client.get("a", "/truncated/100", &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    let mut client = RawClient::connect(origin.addr()).await.unwrap();
    assert_eq!(client.get("a", "/close", &[]).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn interim_responses_and_trailers() {
    let origin = Origin::start();
    let mut client = RawClient::connect(origin.addr()).await.unwrap();
    let hinted = client.get("a", "/early-hints", &[]).await.unwrap();
    assert_eq!((hinted.status, hinted.interim[0].status), (200, 103));
    assert!(hinted.interim[0].headers.get("link").is_some());
    let trailers = client.get("a", "/trailers", &[]).await.unwrap().trailers;
    assert_eq!(trailers.get("X-Last"), Some("yes"));

    let expecting = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        )
    };
    client.send(expecting("/100/accept")).await.unwrap();
    assert_eq!(client.read_head("POST").await.unwrap().status, 100);
    client.send(pattern(0, 3)).await.unwrap();
    let report = json!({"bytes": 3, "first_mismatch": null});
    assert_eq!(client.read_response("POST").await.unwrap().json(), report);
    client.send(expecting("/100/ignore")).await.unwrap();
    client.send(b"abc").await.unwrap();
    let ignored = client.read_response("POST").await.unwrap();
    assert!(ignored.interim.is_empty());
    assert_eq!(ignored.json(), json!({"bytes": 3, "first_mismatch": 0}));
    client.send(expecting("/100/refuse")).await.unwrap();
    assert_eq!(client.read_response("POST").await.unwrap().status, 417);
    assert!(client.closed().await || client.read_to_close().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_early_response_survives_the_unread_body() {
    let origin = Origin::start();
    let mut client = RawClient::connect(origin.addr()).await.unwrap();
    client
        .send("POST /early-response HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
        .await
        .unwrap();
    client.send(pattern(0, 60_000)).await.unwrap();
    assert_eq!(client.read_response("POST").await.unwrap().status, 413);
}

#[tokio::test]
async fn the_origin_refuses_what_is_ambiguous() {
    let origin = Origin::start();
    for request in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut client = RawClient::connect(origin.addr()).await.unwrap();
        assert_eq!(client.exchange(request).await.unwrap().status, 400, "{request:?}");
    }
    assert_eq!(origin.requests(), 0);
}

#[tokio::test]
async fn server_sent_events_and_websocket() {
    let origin = Origin::start();
    let mut client = RawClient::connect(origin.addr()).await.unwrap();
    let events = client.get("a", "/sse/1/3", &[]).await.unwrap();
    assert_eq!(events.text(), "data: 0\n\ndata: 1\n\ndata: 2\n\n");
    let offered = [("Sec-WebSocket-Protocol", "chat, other")];
    let mut socket = WebSocket::connect(origin.addr(), "a", "/ws", &offered).await.unwrap();
    assert_eq!(socket.handshake().headers.get("sec-websocket-protocol"), Some("chat"));
    assert_eq!(socket.echo("hello").await.unwrap(), "hello");
    socket.send(Message::binary(pattern(0, 100_000))).await.unwrap();
    assert_eq!(socket.receive().await.unwrap().unwrap().into_data(), pattern(0, 100_000));
    socket.close().await.unwrap();
    let refused = WebSocket::connect(origin.addr(), "a", "/status/403", &[]).await;
    assert!(refused.err().unwrap().to_string().contains("403"));
}

#[tokio::test]
async fn tls_offers_both_versions_and_shows_its_certificate() {
    let origin = Origin::start_tls();
    let mut client =
        RawClient::connect_tls(origin.addr(), "localhost", &["http/1.1"]).await.unwrap();
    assert_eq!(client.alpn(), Some(&b"http/1.1"[..]));
    assert_eq!(client.certificate(), origin.certificate().map(|c| &c.der));
    assert_eq!(client.get("a", "/", &[]).await.unwrap().json()["sni"], "localhost");
    let client = H2Client::connect_tls(origin.addr(), "localhost").await.unwrap();
    let seen = client.get("/x?y", &[("x-a", "1")]).await.unwrap().json();
    assert_eq!((&seen["version"], &seen["target"]), (&json!("HTTP/2"), &json!("/x?y")));
    assert_eq!(seen["headers"], json!([[":authority", "localhost"], ["x-a", "1"]]));
}

#[tokio::test]
async fn http2_by_prior_knowledge_and_grpc() {
    let origin = Origin::start();
    let http = H2Client::connect(origin.addr(), "a").await.unwrap();
    assert_eq!(first_mismatch(0, &http.get("/bytes/200000", &[]).await.unwrap().body), None);
    assert_eq!(http.get("/trailers", &[]).await.unwrap().trailers.get("x-last"), Some("yes"));
    assert!(http.get("/truncated/1000", &[]).await.is_err());

    let grpc = GrpcClient::new(http);
    let reply = grpc.unary("/echo.Echo/Unary", b"ping", &[]).await.unwrap();
    assert_eq!((reply.status, reply.messages), (Some(0), vec![Bytes::from("ping")]));
    let refused = [("x-grpc-status", "7")];
    let reply = grpc.unary("/echo.Echo/Unary", b"ping", &refused).await.unwrap();
    assert_eq!(reply.status, Some(7));
    assert_eq!(grpc.unary("/echo.Echo/None", b"", &[]).await.unwrap().status, Some(12));

    let mut call = grpc.bidi("/echo.Echo/Bidi", &[]).await.unwrap();
    for message in ["one", "two"] {
        // The answer comes while the request is open: nothing waits for its end.
        call.send(message.as_bytes()).await.unwrap();
        assert_eq!(call.receive().await.unwrap().unwrap(), message);
    }
    call.finish_sending();
    assert_eq!(call.receive().await.unwrap(), None);
    assert_eq!(call.status(), Some(0));
}

#[tokio::test]
async fn a_scripted_origin_keeps_the_bytes_and_closes_as_told() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let once = vec![Step::ReadRequest, Step::write(answer)];
    let reset = vec![Step::ReadHead, Step::Reset];
    let origin = RawOrigin::start(vec![once, reset]);
    let mut client = RawClient::connect(origin.addr()).await.unwrap();
    let request =
        "POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nA: b\r\n\r\n";
    assert_eq!(client.exchange(request).await.unwrap().text(), "ok");
    assert!(client.read_to_close().await.unwrap().is_empty());
    let mut client = RawClient::connect(origin.addr()).await.unwrap();
    let error = client.exchange("GET / HTTP/1.1\r\n\r\n").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let received = origin.wait_for("two requests", |all| all.len() == 2).await.unwrap();
    assert_eq!(received, [request.as_bytes(), b"GET / HTTP/1.1\r\n\r\n"]);

    let origin = RawOrigin::answering(answer);
    let mut client = RawClient::connect(origin.addr()).await.unwrap();
    let two = "POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nxPUT / HTTP/1.1\r\n\r\n";
    assert_eq!(client.exchange(two).await.unwrap().text(), "ok");
    assert_eq!(client.read_response("PUT").await.unwrap().text(), "ok");
    assert_eq!((origin.connections(), origin.received()), (1, vec![two.as_bytes().to_vec()]));
}

#[tokio::test]
async fn chaos_cuts_refuses_holds_back_and_resumes() {
    let origin = Origin::start();
    let chaos = ChaosProxy::start(origin.addr());
    let mut client = RawClient::connect(chaos.addr()).await.unwrap();
    assert_eq!(client.get("a", "/status/200", &[]).await.unwrap().status, 200);
    chaos.cut();
    assert_eq!(client.read_some().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let refused = RawClient::connect(chaos.addr()).await;
    assert_eq!(refused.err().unwrap().kind(), ErrorKind::ConnectionRefused);
    chaos.half_open();
    let mut client = RawClient::connect(chaos.addr()).await.unwrap();
    client.set_patience(Duration::from_millis(50));
    let silence = client.get("a", "/status/200", &[]).await.unwrap_err();
    assert_eq!(silence.kind(), ErrorKind::TimedOut);
    chaos.resume();
    client.set_patience(PATIENCE);
    assert_eq!(client.read_response("GET").await.unwrap().status, 200);
    chaos.slow(Duration::from_millis(40));
    client.set_patience(Duration::from_millis(20));
    let late = client.get("a", "/status/200", &[]).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    client.set_patience(PATIENCE);
    assert_eq!(client.read_response("GET").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_dropped_origin_frees_its_port_for_the_next() {
    let origin = Origin::start();
    let addr = origin.addr();
    let mut client = RawClient::connect(addr).await.unwrap();
    assert_eq!(client.get("a", "/status/200", &[]).await.unwrap().status, 200);
    drop(origin);
    assert_eq!(RawClient::connect(addr).await.err().unwrap().kind(), ErrorKind::ConnectionRefused);
    let origin = Origin::builder().addr(addr).start();
    assert_eq!(origin.addr(), addr);
    let mut client = RawClient::connect(addr).await.unwrap();
    assert_eq!(client.get("a", "/status/200", &[]).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_visitor_follows_redirects_and_keeps_cookies() {
    let origin = Origin::start();
    let mut visitor = Visitor::new(origin.addr(), "shop.test").ip("203.0.113.5");
    let page = visitor.get("/redirect?/set-cookie?a=1&b=2", &[]).await.unwrap();
    assert_eq!((page.status, page.path.as_str()), (200, "/set-cookie?a=1&b=2"));
    assert_eq!(page.redirects, ["/set-cookie?a=1&b=2"]);
    let seen = visitor.get_json("/echo", &[]).await.unwrap().json();
    let field = |name: &str| {
        let pairs = seen["headers"].as_array().unwrap();
        pairs.iter().find(|pair| pair[0] == name).map(|pair| pair[1].clone())
    };
    assert_eq!(field("Cookie"), Some(json!("a=1; b=2")));
    assert_eq!(field("X-Forwarded-For"), Some(json!("203.0.113.5")));
    assert_eq!(field("Accept"), Some(json!("application/json")));
    assert_eq!(origin.connections(), 1);
    let page = visitor.get("/redirect?https://shop.test/", &[]).await.unwrap();
    assert_eq!((page.status, &page.redirects[..]), (302, &["https://shop.test/".to_owned()][..]));
    let looping = visitor.get("/redirect?", &[]).await.unwrap_err();
    assert!(looping.to_string().contains("redirect loop"));
}

#[tokio::test]
async fn a_visitor_forgets_deleted_cookies_and_minds_hosts_and_paths() {
    let answer = |cookie: &str| {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\nSet-Cookie: {cookie}\r\n\r\n"
        );
        vec![Step::ReadRequest, Step::write(head)]
    };
    let origin = RawOrigin::start(vec![
        answer("a=1; Path=/"),
        answer("deep=1; Path=/deep"),
        answer("s=1; Secure"),
        answer("a=gone; Max-Age=0; Path=/"),
        answer("z=1"),
    ]);
    let mut visitor = Visitor::new(origin.addr(), "shop.test");
    for _ in 0..3 {
        visitor.get("/", &[]).await.unwrap();
    }
    assert_eq!((visitor.cookie("a"), visitor.cookie("s")), (Some("1"), None));
    visitor.get("/deep/x", &[]).await.unwrap();
    assert_eq!(visitor.cookie("a"), None);
    visitor.get("/deeper", &[]).await.unwrap();
    let received = origin.received();
    let cookie = |n: usize| {
        let text = String::from_utf8_lossy(&received[n]).into_owned();
        text.lines().find_map(|line| line.strip_prefix("Cookie: ").map(str::to_owned))
    };
    assert_eq!(cookie(0), None);
    assert_eq!(cookie(1).as_deref(), Some("a=1"));
    assert_eq!(cookie(3).as_deref(), Some("a=1; deep=1"));
    assert_eq!(cookie(4), None);
}

#[tokio::test]
async fn stream_echoes() {
    let (tcp, udp) = (TcpEcho::start(), UdpEcho::start());
    let mut client = RawClient::connect(tcp.addr()).await.unwrap();
    client.send("hello").await.unwrap();
    client.finish_sending().await.unwrap();
    assert_eq!(client.read_to_close().await.unwrap(), b"hello");
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(b"ping", udp.addr()).await.unwrap();
    let mut buffer = [0; 16];
    let (n, from) = socket.recv_from(&mut buffer).await.unwrap();
    assert_eq!((&buffer[..n], from), (&b"ping"[..], udp.addr()));
}

#[tokio::test]
async fn long_bodies_pass_in_pieces_both_ways() {
    const TOTAL: u64 = 20_000_000;
    let report = json!({"bytes": TOTAL, "first_mismatch": null});
    let origin = Origin::start();
    let mut client = RawClient::connect(origin.addr()).await.unwrap();
    client
        .send(format!("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: {TOTAL}\r\n\r\n"))
        .await
        .unwrap();
    client.send_pattern(TOTAL).await.unwrap();
    assert_eq!(client.read_response("POST").await.unwrap().json(), report);
    client
        .send("POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    client.send_pattern_chunked(TOTAL).await.unwrap();
    assert_eq!(client.read_response("POST").await.unwrap().json(), report);
    client.send(format!("GET /chunked/{TOTAL} HTTP/1.1\r\nHost: a\r\n\r\n")).await.unwrap();
    assert_eq!(client.read_head("GET").await.unwrap().status, 200);
    assert_eq!(client.read_pattern().await.unwrap(), TOTAL);

    let client = H2Client::connect(origin.addr(), "a").await.unwrap();
    assert_eq!(client.upload("/upload", TOTAL).await.unwrap().json(), report);
    assert_eq!(client.download(&format!("/bytes/{TOTAL}")).await.unwrap(), TOTAL);
    // The body of `/echo` is not the pattern.
    assert!(client.download("/echo").await.is_err());
    drop(client);
    let counts = origin.wait_for("one connection left", |c| c.open == 1).await.unwrap();
    assert_eq!((counts.requests, counts.connections), (6, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_visitors_at_once() {
    let origin = Origin::start();
    let addr = origin.addr();
    let visits = (0..200).map(|n| {
        tokio::spawn(async move {
            let mut visitor = Visitor::new(addr, "shop.test").ip(&format!("203.0.113.{n}"));
            let path = format!("/redirect?/set-cookie?me={n}");
            assert_eq!(visitor.get(&path, &[]).await.unwrap().status, 200);
            let seen = visitor.get_json("/echo", &[]).await.unwrap().body;
            assert!(seen.contains(&format!("me={n}\"")), "{seen}");
            visitor.cookie("me").map(str::to_owned)
        })
    });
    for (n, visit) in visits.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(visit.await.unwrap(), Some(n.to_string()));
    }
    assert_eq!((origin.requests(), origin.connections()), (600, 200));
}

#[tokio::test]
async fn an_authority_signs_what_a_verifying_server_accepts() {
    use rustls_pki_types::pem::PemObject;
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let mut roots = rustls::RootCertStore::empty();
    let pem = ours.certificate_pem.as_bytes();
    roots.add(rustls_pki_types::CertificateDer::from_pem_slice(pem).unwrap()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
        std::sync::Arc::new(roots),
        provider,
    )
    .build()
    .unwrap();
    let now = rustls_pki_types::UnixTime::now();
    let verdict = |certificate: &Certificate| {
        use rustls::server::danger::ClientCertVerifier;
        ClientCertVerifier::verify_client_cert(&*verifier, &certificate.der, &[], now).is_ok()
    };
    assert!(verdict(&ours.issue(&["ana"])));
    assert!(!verdict(&other.issue(&["ana"])));
    // Both halves of a client certificate fit together.
    let _ = client_config_as(&ours.issue(&["ana"]), &["h2"]);
}
