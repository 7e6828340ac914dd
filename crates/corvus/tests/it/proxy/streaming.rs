//! What must not be held back: events, gRPC messages, and the news that somebody has left.

use std::time::Duration;

use corvus_testkit::{GrpcClient, H2Client, Origin, PATIENCE, RawOrigin, Step};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::gateway::{TestGateway, one_host};

fn gateway(url: &str) -> TestGateway {
    TestGateway::start(one_host("a.example", url, "tls: {force_https: false}"))
}

/// The origin waits for us between two events, so an event that is held back never comes.
#[tokio::test]
async fn events_arrive_one_by_one() {
    let origin = RawOrigin::start(vec![vec![
        Step::ReadHead,
        Step::write(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n\
             9\r\ndata: 0\n\n\r\n",
        ),
        Step::Hang,
    ]]);
    let gateway = gateway(&origin.url());
    for tls in [false, true] {
        let mut client =
            if tls { gateway.client_tls("a.example").await } else { gateway.client().await };
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
        let head = client.read_head("GET").await.unwrap();
        assert_eq!(head.headers.get("content-type"), Some("text/event-stream"));
        assert_eq!(client.read_body().await.unwrap().unwrap(), "data: 0\n\n");
    }
    let origin = Origin::start();
    let gateway = self::gateway(&origin.url());
    let whole = gateway.get("a.example", "/sse/5/4", &[]).await.text();
    assert_eq!(whole, "data: 0\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\n");
    let h2 = gateway.h2_tls("a.example").await;
    assert_eq!(h2.get("/sse/5/2", &[]).await.unwrap().text(), "data: 0\n\ndata: 1\n\n");
}

/// A head without a body yet is passed on too.
#[tokio::test]
async fn a_head_does_not_wait_for_its_body() {
    let origin = RawOrigin::start(vec![vec![
        Step::ReadHead,
        Step::write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        Step::Hang,
    ]]);
    let gateway = gateway(&origin.url());
    let mut client = gateway.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
    assert_eq!(client.read_head("GET").await.unwrap().status, 200);
}

/// The upload reaches the origin while the client still sends.
#[tokio::test]
async fn an_upload_is_not_held_back() {
    let origin = RawOrigin::start(vec![vec![Step::ReadToEnd]]);
    let gateway = gateway(&origin.url());
    let mut client = gateway.client().await;
    let head = "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(head).await.unwrap();
    for piece in ["one", "two", "three"] {
        client.send(format!("{:x}\r\n{piece}\r\n", piece.len())).await.unwrap();
        let came = |all: &[Vec<u8>]| {
            all.iter().any(|bytes| String::from_utf8_lossy(bytes).contains(piece))
        };
        origin.wait_for(piece, came).await.unwrap();
    }
}

/// An origin that sends `answer` and tells when its request has come and when its peer has gone.
async fn watched(answer: &'static str) -> (String, tokio::sync::mpsc::Receiver<&'static str>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = tokio::sync::mpsc::channel(8);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = vec![0; 64 * 1024];
            assert!(stream.read(&mut buffer).await.unwrap() > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
            tell.send("come").await.unwrap();
            while !matches!(stream.read(&mut buffer).await, Ok(0) | Err(_)) {}
            tell.send("gone").await.unwrap();
        }
    });
    (url, told)
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_request_upstream() {
    let begun = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    // While it waits for the answer, and in the middle of it.
    for (answer, status) in [("", 0), (begun, 200)] {
        let (url, mut told) = watched(answer).await;
        let gateway = gateway(&url);
        let mut next = async || tokio::time::timeout(PATIENCE, told.recv()).await.unwrap();
        for tls in [false, true] {
            let mut client =
                if tls { gateway.client_tls("a.example").await } else { gateway.client().await };
            client.send("GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
            assert_eq!(next().await, Some("come"));
            if status == 200 {
                assert_eq!(client.read_head("GET").await.unwrap().status, 200);
            }
            drop(client);
            assert_eq!(next().await, Some("gone"));
            let line = gateway.logged("h1", |line| line["target"] == "/1" && line["tls"] == tls);
            let line = line.await;
            assert_eq!(line["outcome"], "client_gone");
            assert_eq!(line["status"], status);
        }
        let h2 = gateway.h2("a.example").await;
        let request = tokio::spawn({
            let h2 = h2.clone();
            async move { h2.get("/2", &[]).await }
        });
        assert_eq!(next().await, Some("come"));
        request.abort();
        assert_eq!(next().await, Some("gone"));
        let line = gateway.logged("h2", |line| line["target"] == "/2").await;
        assert_eq!(line["outcome"], "client_gone");
    }
}

async fn grpc_both_ways(h2: H2Client) {
    let grpc = GrpcClient::new(h2);
    let reply = grpc.unary("/echo.Echo/Unary", b"ping", &[]).await.unwrap();
    assert_eq!((reply.http_status, reply.status), (200, Some(0)));
    assert_eq!(reply.messages, ["ping"]);
    assert_eq!(reply.trailers.get("grpc-message"), Some("told"));
    let refused = grpc.unary("/echo.Echo/Unary", b"", &[("x-grpc-status", "7")]).await.unwrap();
    assert_eq!((refused.http_status, refused.status), (200, Some(7)));

    let mut call = grpc.bidi("/echo.Echo/Bidi", &[]).await.unwrap();
    // Each message comes back before the next is sent: nothing is buffered in either direction.
    for n in 0..20_u32 {
        let message = n.to_string().repeat(1000);
        call.send(message.as_bytes()).await.unwrap();
        assert_eq!(call.receive().await.unwrap().unwrap(), message);
    }
    call.finish_sending();
    assert_eq!(call.receive().await.unwrap(), None);
    assert_eq!(call.status(), Some(0));
}

#[tokio::test]
async fn grpc_calls_pass_both_ways_with_trailers() {
    let plain = Origin::start();
    let tls = Origin::start_tls();
    let mut document = "version: 1\nproxy_hosts:\n".to_owned();
    let no_verify = "tls: {force_https: false}\nupstream_tls: {verify: false}";
    for (id, url) in [
        ("grpc", plain.url().replace("http:", "grpc:")),
        ("h2c", plain.url().replace("http:", "h2c:")),
        ("grpcs", tls.url().replace("https:", "grpcs:")),
    ] {
        document += &crate::gateway::host(id, &format!("{id}.example"), &url, no_verify);
    }
    let gateway = TestGateway::start(document);
    for host in ["grpc.example", "h2c.example", "grpcs.example"] {
        grpc_both_ways(gateway.h2(host).await).await;
        grpc_both_ways(gateway.h2_tls(host).await).await;
    }
    let seen = plain.seen();
    assert!(seen.iter().all(|seen| seen.version == "HTTP/2"));
    assert_eq!(seen[0].headers.get("te"), Some("trailers"));
    // Calls share a connection.
    assert!(plain.connections() <= 2, "{}", plain.connections());
}

#[tokio::test]
async fn a_grpc_client_that_cancels_ends_the_call() {
    let origin = Origin::start();
    let gateway = gateway(&origin.url().replace("http:", "grpc:"));
    let grpc = GrpcClient::new(gateway.h2("a.example").await);
    let mut call = grpc.bidi("/echo.Echo/Bidi", &[]).await.unwrap();
    call.send(b"one").await.unwrap();
    assert_eq!(call.receive().await.unwrap().unwrap(), "one");
    drop(call);
    let line = gateway.logged("the call", |line| line["method"] == "POST").await;
    assert_eq!(line["outcome"], "client_gone");
    // Others on the same upstream connection are untouched.
    let reply = grpc.unary("/echo.Echo/Unary", b"two", &[]).await.unwrap();
    assert_eq!((reply.status, reply.messages), (Some(0), vec!["two".into()]));
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn http1_and_http2_meet_in_both_directions() {
    let origin = Origin::start();
    let h2c = gateway(&origin.url().replace("http:", "h2c:"));
    let mut client = h2c.client().await;
    assert_eq!(client.get("a.example", "/bytes/100", &[]).await.unwrap().body.len(), 100);
    let request = "POST /upload HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\n\0\x01\x02\r\n0\r\n\r\n";
    assert_eq!(client.exchange(request).await.unwrap().json()["bytes"], 3);
    let request = "POST /upload HTTP/1.1\r\nHost: a.example\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
    client.send(request).await.unwrap();
    assert_eq!(client.read_head("POST").await.unwrap().status, 100);
    client.send([0]).await.unwrap();
    assert_eq!(client.read_response("POST").await.unwrap().json()["bytes"], 1);
    let trailers = client.get("a.example", "/trailers", &[]).await.unwrap().trailers;
    assert_eq!(trailers.get("x-last"), Some("yes"));
    assert_eq!(client.get("a.example", "/status/204", &[]).await.unwrap().status, 204);
    assert_eq!(client.get("a.example", "/early-hints", &[]).await.unwrap().status, 200);

    let plain = gateway(&origin.url());
    let h2 = plain.h2("a.example").await;
    assert_eq!(
        h2.upload("/upload", 300_000).await.unwrap().json()["first_mismatch"],
        serde_json::Value::Null
    );
    let all = futures_util::future::join_all((0..50).map(|n| {
        let h2 = h2.clone();
        async move { h2.download(&format!("/bytes/{}", n * 1000)).await.unwrap() }
    }));
    let lengths = tokio::time::timeout(Duration::from_secs(20), all).await.unwrap();
    assert_eq!(lengths.len(), 50);
    assert!(lengths.iter().enumerate().all(|(n, length)| *length == n as u64 * 1000));
}

/// A gRPC stream is idle when nothing moves in either direction: a client that only listens is not.
#[tokio::test]
async fn a_call_lives_as_long_as_one_side_speaks() {
    let origin = Origin::start();
    let url = origin.url().replace("http:", "grpc:");
    let gateway = TestGateway::start(one_host("a.example", &url, "timeouts: {idle_s: 1}"));
    // The client has sent its head, holds its side open, and only listens.
    let grpc = GrpcClient::new(gateway.h2("a.example").await);
    let mut call = grpc.bidi("/sse/300/10", &[]).await.unwrap();
    let mut text = Vec::new();
    while let Some(piece) = call.receive_raw().await.unwrap() {
        text.extend_from_slice(&piece);
    }
    assert!(text.ends_with(b"data: 9\n\n"), "{}", String::from_utf8_lossy(&text));
    // When nobody speaks it ends.
    let mut call = grpc.bidi("/echo.Echo/Bidi", &[]).await.unwrap();
    call.send(b"one").await.unwrap();
    assert_eq!(call.receive().await.unwrap().unwrap(), "one");
    assert!(call.receive().await.is_err());
}
