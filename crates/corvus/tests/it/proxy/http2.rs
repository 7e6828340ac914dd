//! HTTP/2 frames that no honest client sends. hyper and the h2 crate bound them; these tests hold
//! them to it.

use bytes::Bytes;
use corvus_testkit::{Origin, RawClient};

use crate::gateway::{TestGateway, one_host};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: u8 = 4;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// GET http://a.example/slow/60000 in HPACK, without Huffman codes.
fn request() -> Vec<u8> {
    let mut block = vec![0x82, 0x86];
    for (index, value) in [(0x04, "/slow/60000"), (0x01, "a.example")] {
        block.extend([index, value.len() as u8]);
        block.extend_from_slice(value.as_bytes());
    }
    block
}

async fn connect(gateway: &TestGateway) -> RawClient {
    let mut client = gateway.client().await;
    client.send([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await.unwrap();
    client
}

/// Sends `piece(n)` until the gateway ends the connection; the number of pieces.
async fn flood(mut client: RawClient, piece: impl Fn(u32) -> Vec<u8>) -> u32 {
    for n in 0..20_000 {
        if client.send(piece(n)).await.is_err() || client.closed().await {
            return n;
        }
        // What the gateway has to say is read, so that it is not held up by us.
        if n % 100 == 99 {
            let read = client.read_some();
            if let Ok(Ok(bytes)) = tokio::time::timeout(std::time::Duration::ZERO, read).await
                && bytes.is_empty()
            {
                return n;
            }
        }
    }
    let end = client.read_to_close().await;
    let open = end.is_err_and(|error| error.kind() == std::io::ErrorKind::TimedOut);
    assert!(!open, "still open");
    20_000
}

async fn others_are_served(gateway: &TestGateway) {
    let h2 = gateway.h2("a.example").await;
    assert_eq!(h2.get("/bytes/1", &[]).await.unwrap().status, 200);
}

/// CVE-2024-27316 and its like: a header block without an end.
#[tokio::test]
async fn endless_continuation_frames_end_the_connection() {
    let origin = Origin::start();
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), ""));
    let mut client = connect(&gateway).await;
    client.send(frame(HEADERS, END_STREAM, 1, &request())).await.unwrap();
    // Literal fields without indexing: `x: aaaa...`.
    let field = [&[0x00, 0x01, b'x', 0x7d][..], &[b'a'; 125]].concat();
    let block = field.repeat(100);
    let sent = flood(client, |_| frame(CONTINUATION, 0, 1, &block)).await;
    assert!(sent < 1000, "{sent} frames of {} bytes", block.len());
    assert_eq!(origin.requests(), 0);
    others_are_served(&gateway).await;
}

/// CVE-2023-44487, rapid reset: requests that are taken back at once, faster than they are counted.
#[tokio::test]
async fn rapid_resets_end_the_connection() {
    let origin = Origin::start();
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), ""));
    let client = connect(&gateway).await;
    let flags = END_STREAM | END_HEADERS;
    let pair = |n: u32| {
        let stream = 2 * n + 1;
        let cancel = 8_u32.to_be_bytes();
        [frame(HEADERS, flags, stream, &request()), frame(RST_STREAM, 0, stream, &cancel)].concat()
    };
    // Many in one segment, so that they arrive together.
    let sent = flood(client, |n| (n * 200..(n + 1) * 200).flat_map(pair).collect()).await;
    assert!(sent < 100, "{sent} times 200");
    others_are_served(&gateway).await;
    // What was taken back does not stay at the origin either.
    let few = |counts: corvus_testkit::Counts| counts.requests < 2000;
    assert!(few(origin.counts()), "{:?}", origin.counts());
}

/// Answers that are never read pile up nowhere.
#[tokio::test]
async fn pings_without_end_are_bounded() {
    let origin = Origin::start();
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), ""));
    let mut client = connect(&gateway).await;
    client.set_patience(std::time::Duration::from_millis(500));
    let pings = frame(PING, 0, 0, &[0; 8]).repeat(1000);
    for _ in 0..2000 {
        // Back-pressure stops us, or the gateway does.
        if client.send(&pings).await.is_err() {
            others_are_served(&gateway).await;
            return;
        }
    }
    panic!("2,000,000 answers are kept somewhere");
}

#[tokio::test]
async fn frames_out_of_place_end_only_their_connection() {
    let origin = Origin::start();
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), ""));
    for bad in [
        frame(0, 0, 0, b"data on the connection"),
        frame(HEADERS, END_HEADERS, 2, &request()),
        frame(HEADERS, END_HEADERS, 1, &[0xff; 20]),
        frame(CONTINUATION, END_HEADERS, 1, &request()),
        [0xff; 64].to_vec(),
    ] {
        let mut client = connect(&gateway).await;
        client.send(&bad).await.unwrap();
        let end = client.read_to_close().await;
        let timed_out = end.is_err_and(|error| error.kind() == std::io::ErrorKind::TimedOut);
        assert!(!timed_out, "{bad:?}");
    }
    assert_eq!(origin.requests(), 0);
    others_are_served(&gateway).await;
}

/// RFC 9113 section 8.2.3: browsers send cookies in pieces over HTTP/2; an HTTP/1 origin must get
/// them as one field.
#[tokio::test]
async fn cookies_in_pieces_reach_the_origin_as_one() {
    let origin = Origin::start();
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), ""));
    let client = gateway.h2("a.example").await;
    let crumbs = [("cookie", "a=1"), ("cookie", "corvus_a_x=no"), ("cookie", "b=2")];
    assert_eq!(client.get("/", &crumbs).await.unwrap().status, 200);
    assert_eq!(origin.seen()[0].headers.all("cookie").collect::<Vec<_>>(), ["a=1; b=2"]);
}

/// A body in answer to HEAD is a protocol error that curl and browsers report as such.
#[tokio::test]
async fn head_has_no_body_over_http2() {
    let origin = Origin::start();
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), ""));
    let client = gateway.h2("a.example").await;
    for (path, status, length) in [("/bytes/1000", 200, "1000"), ("/status/204", 204, "")] {
        let request = client.request("HEAD", path).body(Bytes::new()).unwrap();
        let response = client.send(request).await.unwrap();
        assert_eq!((response.status, response.body.len()), (status, 0), "{path}");
        let shown = response.headers.get("content-length");
        assert_eq!(shown.unwrap_or_default(), length, "{path}");
    }
    // A page of our own, too.
    let other = gateway.h2("unknown.example").await;
    let request = other.request("HEAD", "/").body(Bytes::new()).unwrap();
    let response = other.send(request).await.unwrap();
    assert_eq!((response.status, response.body.len()), (404, 0));
    // The upstream's connection was given back each time.
    assert_eq!(client.get("/", &[]).await.unwrap().status, 200);
    assert_eq!(origin.connections(), 1);
}
