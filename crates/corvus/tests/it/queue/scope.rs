//! Which requests are queued: path scopes, bypass expressions, other hosts.

use super::shop::{HOST, PLACE, Shop};

/// Case 21: no spelling of a queued path slips past.
#[tokio::test]
async fn lookalike_paths_are_queued() {
    let shop = Shop::start("capacity: 1, paths: [\"/sale\"]");
    let mut inside = shop.visitor();
    assert_eq!(inside.get("/sale", &[]).await.unwrap().status, 200);
    for queued in [
        "/sale",
        "/Sale",
        "/SALE/",
        "/sale/",
        "/sale/shoes",
        "//sale",
        "///sale//x",
        "/sale%2F",
        "/sale%2fx",
        "/s%61le",
        "/%73%41le",
        "/s%2561le",
        "/sale;x",
        "/sale;x=1/y",
        "/;/sale",
        "/x/../sale",
        "/x/%2e%2e/sale",
        "/x/..%2fsale",
        "/x/..;/sale",
        "/./sale",
        "/.//sale",
        "/\\sale",
        "/x\\..\\sale",
        "/sale%00",
        "/%00/sale",
        "/sale?x",
        "/sale%3Fx/../../sale",
        "/%c0%afsale",
        "/sale%09",
    ] {
        let mut client = shop.browser().await;
        client.accept = "*/*".to_owned();
        let answer = client.get(queued).await;
        assert_eq!(answer.status, 429, "{queued} passed the queue");
    }
    for open in ["/", "/salesman", "/on-sale", "/x/sale", "/sale/../x", "/sa/le", "/?/sale"] {
        let mut client = shop.browser().await;
        let answer = client.get(open).await;
        assert_eq!(answer.status, 200, "{open} is not in the queue's scope");
        assert_eq!(answer.json()["target"], open, "forwarded as it came");
        assert_eq!(answer.cookies(), Vec::<&str>::new(), "{open}");
    }
    assert_eq!(shop.numbers(), (1, 0));
}

/// A target in absolute form is the same path.
#[tokio::test]
async fn absolute_targets_are_queued() {
    let shop = Shop::start("capacity: 1, paths: [\"/sale\"]");
    let mut client = shop.gateway.client().await;
    let ask = format!("GET http://{HOST}/sale HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    assert_eq!(client.exchange(ask).await.unwrap().status, 429);
}

/// Cases 16 and 23: a callback passes by rule, is not counted, and opens nothing else.
#[tokio::test]
async fn bypassed_requests_pass_and_are_not_counted() {
    let bypass = "http.request.uri.path eq \\\"/callback\\\" or \
                  http.request.headers[\\\"x-api-key\\\"] eq \\\"k1\\\"";
    let shop = Shop::start(&format!("capacity: 1, bypass: \"{bypass}\""));
    let _inside = shop.inside().await;
    for _ in 0..5 {
        let mut service = shop.browser().await;
        service.keeps_cookies = false;
        let answer = service.request("POST", "/callback", &[]).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.cookies(), Vec::<&str>::new());
        assert_eq!(service.request("GET", "/api", &[("x-api-key", "k1")]).await.status, 200);
        service.accept = "*/*".to_owned();
        assert_eq!(service.request("GET", "/api", &[("x-api-key", "k2")]).await.status, 429);
        // As rules read paths: the spelling does not matter, case does.
        assert_eq!(service.get("//callback").await.status, 200);
        assert_eq!(service.get("/callback/x").await.status, 429);
    }
    assert_eq!(shop.numbers(), (1, 0));
    // Somebody who waits keeps the place meanwhile.
    let mut waiting = shop.browser().await;
    waiting.open("/").await;
    let place = waiting.jar[PLACE].clone();
    assert_eq!(waiting.get("/callback").await.status, 200);
    assert_eq!(waiting.jar[PLACE], place);
    // The origin cannot end a session through a request that never was in the queue.
    assert_eq!(waiting.request("GET", "/release", &[("x-api-key", "k1")]).await.status, 200);
    assert_eq!(shop.numbers(), (1, 1));
}

/// A host that names no queue has none of it, and its address for status is nobody's.
#[tokio::test]
async fn other_hosts_are_not_queued() {
    let shop = Shop::start("capacity: 1");
    let _inside = shop.inside().await;
    let origin = shop.origin.url();
    let document = super::shop::document(&origin, "capacity: 1").replace(
        "certificates:",
        &format!("  - {{id: blog, domains: [blog.test], upstreams: [{{url: \"{origin}\"}}]}}\ncertificates:"),
    );
    shop.gateway.reload(&document);
    let mut blog = shop.gateway.client().await;
    let page = blog.get("blog.test", "/x?__corvus_c=1", &[("Accept", "text/html")]).await.unwrap();
    assert_eq!(page.status, 200);
    assert_eq!(page.json()["target"], "/x?__corvus_c=1", "not ours to take here");
    let status = blog.get("blog.test", "/__corvus/wr/drop/status", &[]).await.unwrap();
    assert_eq!(status.status, 404);
    assert_eq!(shop.numbers(), (1, 0));
}
