//! Two gigabytes in either direction through a gateway process, in constant memory.

use std::time::Duration;

use corvus_testkit::{H2Client, Origin, RawClient};

use crate::gateway::{GatewayProcess, one_host};

const SIZE: u64 = 2 << 30;
/// What a transfer may add to the memory of the process, KiB.
const GROWTH_KIB: u64 = 24 * 1024;

/// Runs a transfer and gives by how much the process grew at its highest.
async fn grows(gateway: &GatewayProcess, what: &str, transfer: impl Future<Output = u64>) {
    // Once before, so that what is made at first use does not count.
    let before = gateway.memory_kib("VmRSS");
    let bytes = tokio::time::timeout(Duration::from_mins(2), transfer).await.expect(what);
    assert_eq!(bytes, SIZE, "{what}");
    let after = gateway.memory_kib("VmHWM");
    assert!(after < before + GROWTH_KIB, "{what}: from {before} to {after} KiB");
}

async fn gateway(origin: &Origin) -> GatewayProcess {
    let gateway =
        GatewayProcess::start(&one_host("a.example", &origin.url(), ""), &["--workers", "1"]);
    let mut client = gateway.client().await;
    assert_eq!(client.get("a.example", "/bytes/1000000", &[]).await.unwrap().status, 200);
    gateway
}

async fn download(mut client: RawClient, path: &str) -> u64 {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n")).await.unwrap();
    assert_eq!(client.read_head("GET").await.unwrap().status, 200);
    client.read_pattern().await.unwrap()
}

async fn upload(mut client: RawClient, framing: &str) -> u64 {
    let head = format!("POST /upload HTTP/1.1\r\nHost: a.example\r\n{framing}\r\n\r\n");
    client.send(head).await.unwrap();
    if framing.starts_with("Transfer") {
        client.send_pattern_chunked(SIZE).await.unwrap();
    } else {
        client.send_pattern(SIZE).await.unwrap();
    }
    let report = client.read_response("POST").await.unwrap().json();
    assert!(report["first_mismatch"].is_null(), "{report}");
    report["bytes"].as_u64().unwrap()
}

#[tokio::test]
async fn heavy_2_gib_come_down_in_constant_memory() {
    let origin = Origin::start();
    let gateway = gateway(&origin).await;
    let client = gateway.client().await;
    grows(&gateway, "content-length", download(client, &format!("/bytes/{SIZE}"))).await;
}

#[tokio::test]
async fn heavy_2_gib_come_down_chunked_in_constant_memory() {
    let origin = Origin::start();
    let gateway = gateway(&origin).await;
    let client = gateway.client().await;
    grows(&gateway, "chunked", download(client, &format!("/chunked/{SIZE}"))).await;
}

#[tokio::test]
async fn heavy_2_gib_go_up_in_constant_memory() {
    let origin = Origin::start();
    let gateway = gateway(&origin).await;
    let client = gateway.client().await;
    let framing = format!("Content-Length: {SIZE}");
    grows(&gateway, "content-length", upload(client, &framing)).await;
}

#[tokio::test]
async fn heavy_2_gib_go_up_chunked_in_constant_memory() {
    let origin = Origin::start();
    let gateway = gateway(&origin).await;
    let client = gateway.client().await;
    grows(&gateway, "chunked", upload(client, "Transfer-Encoding: chunked")).await;
}

/// A client that does not read must not fill the gateway's memory either.
#[tokio::test]
async fn heavy_a_reader_who_stops_costs_no_memory() {
    let origin = Origin::start();
    let gateway = gateway(&origin).await;
    let before = gateway.memory_kib("VmRSS");
    let mut readers = Vec::new();
    for _ in 0..20 {
        let mut client = gateway.client().await;
        let request = format!("GET /bytes/{SIZE} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        client.send(request).await.unwrap();
        client.read_head("GET").await.unwrap();
        readers.push(client);
    }
    let h2 = H2Client::connect(gateway.http, "a.example").await.unwrap();
    let held = tokio::spawn(async move { h2.download(&format!("/bytes/{}", 64 << 20)).await });
    assert_eq!(held.await.unwrap().unwrap(), 64 << 20);
    let after = gateway.memory_kib("VmHWM");
    assert!(after < before + GROWTH_KIB, "from {before} to {after} KiB");
    drop(readers);
}
