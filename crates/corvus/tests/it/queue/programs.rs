//! What programs get: JSON and `Retry-After`, never a redirect that loses a body, never a loop.

use std::time::Duration;

use super::shop::{HOST, HTML, LEAVE, Link, PLACE, STATUS, Shop, status};

/// Case 13: whatever does not ask for a page gets JSON.
#[tokio::test]
async fn whoever_does_not_ask_for_a_page_gets_json() {
    let shop = Shop::start("capacity: 1");
    let _inside = shop.inside().await;
    for accept in [
        "application/json",
        "application/json, text/plain, */*",
        "*/*",
        "",
        "application/json, text/html;q=0.9",
        "image/avif,image/webp,*/*;q=0.8",
        "text/event-stream",
    ] {
        for link in [Link::Http1, Link::Http2Tls] {
            let mut program = shop.browser_over(link).await;
            accept.clone_into(&mut program.accept);
            let first = program.get("/api/stock").await;
            assert_eq!(first.status, 429, "{accept}");
            assert!(first.header("content-type").starts_with("application/json"));
            assert_eq!(first.header("retry-after"), "3");
            assert_eq!(first.header("cache-control"), "private, no-store");
            assert_eq!(first.header("refresh"), "");
            assert_eq!(first.json()["queue"], "drop");
            assert_eq!(first.state(), "needs_cookie", "a program that keeps none learns why");
            // With the cookie it waits in line like everybody else.
            let second = program.get("/api/stock").await;
            assert_eq!(second.status, 429);
            let told = second.json();
            assert_eq!(told["state"], "waiting");
            assert_eq!(told["rank"], told["waiting"], "the last one");
            assert_eq!(told["retry_after"].to_string(), second.header("retry-after"));
            assert!(told.as_object().unwrap().contains_key("eta_s"));
            program.request("POST", LEAVE, &[]).await;
        }
    }
}

/// Cases 7 and 15: crawlers, command lines and probes, none of which keeps cookies.
#[tokio::test]
async fn clients_without_cookies_are_told_once_and_hold_nothing() {
    let shop = Shop::start("capacity: 100");
    let googlebot = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";
    for (agent, accept) in [
        ("curl/8.14.1", "*/*"),
        ("python-requests/2.32", "*/*"),
        ("Uptime-Kuma/2.0", "text/html,*/*"),
        (googlebot, "text/html,application/xhtml+xml,application/signed-exchange;v=b3,*/*"),
    ] {
        for method in ["GET", "HEAD"] {
            let mut client = shop.browser().await;
            client.keeps_cookies = false;
            accept.clone_into(&mut client.accept);
            let fields = [("user-agent", agent)];
            let mut redirects = 0;
            let mut target = "/".to_owned();
            let answer = loop {
                let answer = client.request(method, &target, &fields).await;
                if answer.status != 302 {
                    break answer;
                }
                answer.target(Link::Http1).clone_into(&mut target);
                redirects += 1;
                assert!(redirects <= 1, "{agent} {method}");
            };
            assert_eq!(answer.status, 429, "{agent} {method}");
            assert_eq!(method == "HEAD", answer.body.is_empty());
            if accept.contains("html") {
                assert_eq!(answer.header("x-robots-tag"), "noindex");
            }
        }
    }
    assert_eq!(shop.numbers(), (0, 0));
    assert_eq!(shop.origin.requests(), 0);
}

/// Case 8: an unsafe method without a token is refused with its method intact.
#[tokio::test]
async fn a_post_is_never_redirected() {
    let shop = Shop::start("capacity: 1");
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        for accept in [HTML, "*/*"] {
            let mut client = shop.browser().await;
            accept.clone_into(&mut client.accept);
            let answer = client.request(method, "/cart", &[]).await;
            assert_eq!(answer.status, 429, "{method}");
            assert_eq!(answer.header("location"), "");
            assert_eq!(answer.header("retry-after"), "3");
            if accept == HTML {
                assert!(answer.body.contains("<h1>"), "a page that goes on by itself");
                assert_eq!(answer.header("refresh"), "10");
            }
            assert!(client.jar.contains_key(PLACE), "the page that asks again has the cookie");
            // Once inside, the method passes.
            let again = client.request(method, "/cart", &[]).await;
            assert_eq!(again.status, 200, "{method}");
            assert_eq!(again.json()["method"], method);
            client.request("POST", LEAVE, &[]).await;
        }
    }
    let _inside = shop.inside().await;
    let mut waiting = shop.browser().await;
    waiting.open("/").await;
    let answer = waiting.request("POST", "/cart", &[]).await;
    assert_eq!((answer.status, answer.header("location")), (429, ""));
}

/// A body that is refused leaves the connection usable and the bytes unread by the next request.
#[tokio::test]
async fn a_refused_body_is_not_taken_for_a_request() {
    let shop = Shop::start("capacity: 1");
    let _inside = shop.inside().await;
    let mut client = shop.gateway.client().await;
    let body = "GET /smuggled HTTP/1.1\r\nHost: shop.test\r\n\r\n";
    let head = format!(
        "POST /cart HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let refused = client.exchange(head).await.unwrap();
    assert_eq!(refused.status, 429);
    if refused.headers.has_token("connection", "close") {
        assert_eq!(client.read_to_close().await.unwrap(), b"");
    } else {
        let next = client.get(HOST, "/robots.txt", &[]).await.unwrap();
        assert_eq!(next.json()["target"], "/robots.txt");
    }
    assert!(!shop.origin.seen().iter().any(|seen| seen.target == "/smuggled"));
}

/// Case 13: a preflight carries no cookies by design and passes; other OPTIONS wait.
#[tokio::test]
async fn preflights_pass() {
    let shop = Shop::start("capacity: 1");
    let _inside = shop.inside().await;
    let mut client = shop.browser().await;
    let preflight = [("origin", "https://app.test"), ("access-control-request-method", "POST")];
    let answer = client.request("OPTIONS", "/api", &preflight).await;
    assert_eq!((answer.status, answer.json()["method"].as_str()), (200, Some("OPTIONS")));
    assert_eq!(answer.cookies(), Vec::<&str>::new());
    assert_eq!(client.request("OPTIONS", "/api", &[]).await.status, 429);
    assert_eq!(shop.numbers(), (1, 0));
}

/// Case 15: what crawlers and certificate authorities must reach is open, and nothing beside it.
#[tokio::test]
async fn robots_and_well_known_pass() {
    let shop = Shop::start("capacity: 1");
    let _inside = shop.inside().await;
    for open in [
        "/robots.txt",
        "/robots.txt?x=1",
        "/.well-known/security.txt",
        "/.well-known/acme-challenge/unknown",
    ] {
        let mut client = shop.browser().await;
        let answer = client.get(open).await;
        assert_eq!(answer.status, 200, "{open}");
        assert_eq!(answer.cookies(), Vec::<&str>::new(), "{open}");
    }
    for queued in [
        "/%72obots.txt",
        "/tickets/..;/robots.txt",
        "/robots.txt/x",
        "/robots.txtx",
        "/x/robots.txt",
        "/.well-known",
        "/.well-known/../tickets",
        "/.well-known/%2e%2e/tickets",
        "/.well-known/..;/tickets",
        "/.well-known/%252e%252e/tickets",
        "/.well-known\\..\\tickets",
        "/robots.txt/../tickets",
        "/favicon.ico/../tickets",
    ] {
        let mut client = shop.browser().await;
        client.accept = "*/*".to_owned();
        assert_eq!(client.get(queued).await.status, 429, "{queued}");
    }
}

/// The status address: GET and HEAD only, never a place for somebody who has none, and its JSON is
/// not for caches.
#[tokio::test]
async fn the_status_address_joins_nobody() {
    let shop = Shop::start("capacity: 1");
    let _inside = shop.inside().await;
    let mut stranger = shop.browser().await;
    let answer = stranger.get(STATUS).await;
    assert_eq!((answer.status, &*answer.state()), (200, "gone"));
    assert_eq!(answer.header("cache-control"), "private, no-store");
    assert_eq!(answer.cookies(), Vec::<&str>::new());
    // Nor one with a proof of cookies only.
    stranger.get("/").await;
    assert_eq!(stranger.get(STATUS).await.state(), "gone");
    assert_eq!(shop.numbers(), (1, 0));
    for method in ["POST", "PUT", "DELETE"] {
        assert_eq!(stranger.request(method, STATUS, &[]).await.status, 405, "{method}");
    }
    assert_eq!(stranger.get(LEAVE).await.status, 405);
    // No other queue's and no unknown address of ours reaches the origin.
    for path in
        ["/__corvus/wr/other/status", "/__corvus/wr/drop/statusx", "/__corvus/", "/__corvus/x"]
    {
        assert_eq!(stranger.get(path).await.status, 404, "{path}");
    }
    let mut waiting = shop.waiting().await;
    assert_eq!(status(&mut waiting).await["state"], "waiting");
    shop.pass_time(Duration::from_secs(3)).await;
    assert_eq!(status(&mut waiting).await["rank"], 1);
}
