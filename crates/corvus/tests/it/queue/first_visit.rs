//! The first visit: cookies are checked before anything is stored, with two redirects at most.

use corvus_testkit::RawClient;

use super::shop::{ADMISSION, Answer, HOST, Link, MARKER, PLACE, STATUS, Shop, field};

fn is_private(answer: &Answer) -> bool {
    answer.header("cache-control") == "private, no-store"
}

/// In through the whole way, out again and back into the line, over each protocol.
#[tokio::test]
async fn the_journey_is_the_same_over_each_protocol() {
    for link in Link::ALL {
        let shop = Shop::start("capacity: 1");
        let mut first = shop.browser_over(link).await;

        let sent_back = first.get("/tickets?a=1").await;
        assert_eq!(sent_back.status, 302, "{link:?}");
        assert_eq!(sent_back.target(link), format!("/tickets?a=1&{MARKER}"));
        assert_eq!(field(&first.jar[PLACE], 6), "0", "only a proof of cookies");
        assert!(is_private(&sent_back));
        assert_eq!(shop.numbers(), (0, 0), "a first visit stores nothing");

        let cleaned = first.get(&format!("/tickets?a=1&{MARKER}")).await;
        assert_eq!((cleaned.status, cleaned.target(link)), (302, "/tickets?a=1"));
        assert_eq!(shop.numbers(), (0, 0));
        assert_eq!(shop.origin.requests(), 0);

        let inside = first.get("/tickets?a=1").await;
        assert_eq!(inside.status, 200, "{link:?}: {}", inside.body);
        assert_eq!(inside.json()["target"], "/tickets?a=1");
        assert!(is_private(&inside), "it sets a cookie");
        assert!(first.jar.contains_key(ADMISSION));
        assert!(!first.jar.contains_key(PLACE), "the place was used");
        assert_eq!(shop.numbers(), (1, 0));

        let mut second = shop.browser_over(link).await;
        let (waiting, way) = second.open("/tickets").await;
        assert_eq!((waiting.status, way.len()), (429, 2));
        assert_eq!(shop.numbers(), (1, 1));
        let told = second.get(STATUS).await;
        let told = if told.status == 200 { told.json() } else { panic!("{told:?}") };
        assert_eq!(told["state"], "waiting");
        assert_eq!((&told["rank"], &told["waiting"]), (&1.into(), &1.into()));

        let left = first.request("POST", "/__corvus/wr/drop/leave", &[]).await;
        assert_eq!(left.status, 200);
        assert!(first.jar.is_empty(), "{:?}", first.jar);
        assert_eq!(second.get(STATUS).await.state(), "admitted");
        assert_eq!(second.get("/tickets").await.status, 200);
        let (behind, _) = first.open("/tickets").await;
        assert_eq!(behind.status, 429);
        assert_eq!(shop.numbers(), (1, 1));
    }
}

/// What was asked for comes back byte for byte, and the origin gets it so, without our marker and
/// cookies.
#[tokio::test]
async fn targets_survive_the_cookie_check_byte_for_byte() {
    let shop = Shop::start("capacity: 100");
    for target in [
        "/?a=1&b=2;c=3",
        "//double//slash?x=//y",
        "/a%2Fb%20c%3F?q=%26%3D&&=",
        "/a?",
        "/?x=?y",
        "/?__corvus_c=2&x=__corvus_c",
        "/a;p=1/b",
        "/%E2%82%AC/'()*!~$,@:",
        "/..;/x/../y",
    ] {
        let mut browser = shop.browser().await;
        let (page, way) = browser.open(target).await;
        assert_eq!(page.status, 200, "{target}: {}", page.body);
        assert_eq!(way.last().map(String::as_str), Some(target));
        assert_eq!(way.len(), 2, "{way:?}");
        let seen = shop.origin.seen();
        let seen = seen.last().unwrap();
        assert_eq!(seen.target, target);
        assert!(!seen.headers.all("cookie").any(|c| c.contains("corvus")), "{:?}", seen.headers);
    }
}

/// A fragment and Latin-1, which no browser sends but a gateway passes on, are kept too.
#[tokio::test]
async fn odd_targets_survive_the_cookie_check() {
    let shop = Shop::start("capacity: 100");
    for (target, marked) in [
        (&b"/a#b?c"[..], &b"/a?__corvus_c=1#b?c"[..]),
        (b"/caf\xe9?x=\xfc", b"/caf\xe9?x=\xfc&__corvus_c=1"),
    ] {
        let mut client = shop.gateway.client().await;
        let mut ask = async |target: &[u8], more: &str| {
            let head = [b"GET ", target, b" HTTP/1.1\r\nHost: shop.test\r\nAccept: text/html\r\n"];
            let tail = format!("{more}\r\n");
            client.exchange([&head.concat()[..], tail.as_bytes()].concat()).await.unwrap()
        };
        let latin1 = |bytes: &[u8]| bytes.iter().map(|&b| char::from(b)).collect::<String>();
        let first = ask(target, "").await;
        let location = first.headers.get("location").unwrap();
        assert_eq!(location, format!("http://{HOST}{}", latin1(marked)));
        let set = first.headers.get("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let second = ask(marked, &format!("Cookie: {set}\r\n")).await;
        assert_eq!(
            second.headers.get("location").unwrap(),
            format!("http://{HOST}{}", latin1(target))
        );
        let third = ask(target, &format!("Cookie: {set}\r\n")).await;
        assert_eq!(third.status, 200);
        assert_eq!(shop.origin.seen().last().unwrap().target, latin1(target));
    }
}

/// The marker is taken out wherever it stands, and what only looks like it stays.
#[tokio::test]
async fn the_marker_never_reaches_the_origin() {
    let shop = Shop::start("capacity: 100");
    let mut browser = shop.browser().await;
    browser.open("/").await;
    for (asked, seen) in [
        ("/a?__corvus_c=1", "/a"),
        ("/a?__corvus_c=1&b=2", "/a?b=2"),
        ("/a?b=2&__corvus_c=1", "/a?b=2"),
        ("/a?b=2&__corvus_c=1&c=3", "/a?b=2&c=3"),
        ("/a?x__corvus_c=1", "/a?x__corvus_c=1"),
        ("/a?__corvus_c=12", "/a?__corvus_c=12"),
        ("/__corvus_c=1", "/__corvus_c=1"),
        ("/a?b=__corvus_c=1", "/a?b=__corvus_c=1"),
    ] {
        let page = browser.get(asked).await;
        assert_eq!(page.status, 200, "{asked}");
        assert_eq!(page.json()["target"], seen, "{asked}");
    }
}

/// Case 7: without cookies there is one clear page after one try, and never a loop.
#[tokio::test]
async fn blocked_cookies_get_one_clear_page() {
    let shop = Shop::start("capacity: 100");
    for link in Link::ALL {
        let mut browser = shop.browser_over(link).await;
        browser.keeps_cookies = false;
        for target in ["/", "/tickets?a=1&b=2"] {
            let (page, way) = browser.open(target).await;
            assert_eq!((page.status, way.len()), (429, 1), "{target}");
            assert!(page.body.contains("cookies"), "{}", page.body);
            let link = format!("href=\"{}\"", target.replace('&', "&amp;"));
            assert!(page.body.contains(&link), "the way to try again: {link}\n{}", page.body);
            assert_eq!(page.header("refresh"), "", "it would ask for ever");
        }
    }
    assert_eq!(shop.numbers(), (0, 0));
    assert_eq!(shop.origin.requests(), 0);
}

/// The absolute address of the redirect is the matched host's; other names never come into it.
#[tokio::test]
async fn the_redirect_leads_nowhere_else() {
    let shop = Shop::start("capacity: 100");
    let ask = async |head: &str| -> (u16, String) {
        let mut client = shop.gateway.client().await;
        let text = format!("{head}\r\nAccept: text/html\r\n\r\n");
        let response = client.exchange(text).await.unwrap();
        (response.status, response.headers.get("location").unwrap_or_default().to_owned())
    };
    // Paths that a browser would read as another site stay behind our own name.
    for target in ["//evil.test", "//evil.test/x?y", "///evil.test", "/\\evil.test", "/@evil.test"]
    {
        let (status, location) = ask(&format!("GET {target} HTTP/1.1\r\nHost: shop.test")).await;
        assert_eq!(status, 302, "{target}");
        assert!(location.starts_with(&format!("http://shop.test{target}")), "{location}");
    }
    // An absolute target replaces Host, and must be ours too.
    let (status, location) = ask("GET http://shop.test/a HTTP/1.1\r\nHost: evil.test").await;
    assert_eq!((status, &*location), (302, "http://shop.test/a?__corvus_c=1"));
    for head in [
        "GET /a HTTP/1.1\r\nHost: evil.test",
        "GET http://evil.test/a HTTP/1.1\r\nHost: shop.test",
        "GET /a HTTP/1.1\r\nHost: shop.test@evil.test",
        "GET /a HTTP/1.1\r\nHost: evil.test/shop.test",
        "GET /a HTTP/1.1\r\nHost: evil.test\\.shop.test",
        "GET /a HTTP/1.1\r\nHost: shop.test:80@evil.test",
        "GET /a HTTP/1.1\r\nHost: shop.test\r\nHost: evil.test",
        "GET /a HTTP/1.1\r\nHost: shop.test, evil.test",
    ] {
        let (status, location) = ask(head).await;
        assert!(matches!(status, 400 | 404), "{head}: {status}");
        assert_eq!(location, "", "{head}");
    }
    // What forwarding headers say of the host is never used, whoever sends them.
    for field in ["X-Forwarded-Host: evil.test", "X-Host: evil.test", "Forwarded: host=evil.test"] {
        let (status, location) =
            ask(&format!("GET /a HTTP/1.1\r\nHost: shop.test\r\n{field}")).await;
        assert_eq!((status, &*location), (302, "http://shop.test/a?__corvus_c=1"), "{field}");
    }
    // The port is kept: behind a mapped port it is part of the address.
    let (_, location) = ask("GET /a HTTP/1.1\r\nHost: shop.test:8443").await;
    assert_eq!(location, "http://shop.test:8443/a?__corvus_c=1");
    // So is the scheme that a trusted proxy names.
    let (_, location) = ask("GET /a HTTP/1.1\r\nHost: shop.test\r\nX-Forwarded-Proto: https").await;
    assert_eq!(location, "https://shop.test/a?__corvus_c=1");
}

/// Case 10: a browser that restores its tabs sends many first requests at once. One place comes of
/// it, whichever response is last.
#[tokio::test]
async fn parallel_first_requests_get_one_place() {
    let shop = Shop::start("capacity: 1");
    let _inside = shop.inside().await;
    let mut browser = shop.browser().await;
    let h2 = shop.gateway.h2(HOST).await;
    // All of them set out without a cookie, so each answer brings another proof of cookies.
    let firsts = (0..10).map(|n| {
        let h2 = h2.clone();
        async move { h2.get(&format!("/tab/{n}"), &[("accept", "text/html")]).await.unwrap() }
    });
    let firsts = futures_util::future::join_all(firsts).await;
    for first in &firsts {
        assert_eq!(first.status, 302);
        let set = first.headers.get("set-cookie").unwrap();
        let (name, value) = set.split(';').next().unwrap().split_once('=').unwrap();
        browser.jar.insert(name.to_owned(), value.to_owned());
    }
    // The jar holds the last one; every redirect is followed with it.
    let cookie = format!("{PLACE}={}", browser.jar[PLACE]);
    let tabs = (0..10).map(|n| {
        let (h2, cookie) = (h2.clone(), cookie.clone());
        let fields =
            [("accept", "text/html"), ("cookie", cookie.as_str())].map(|(n, v)| (n, v.to_owned()));
        async move {
            let fields: Vec<_> = fields.iter().map(|(n, v)| (*n, v.as_str())).collect();
            h2.get(&format!("/tab/{n}"), &fields).await.unwrap()
        }
    });
    for tab in futures_util::future::join_all(tabs).await {
        assert_eq!(tab.status, 429);
    }
    assert_eq!(shop.numbers(), (1, 1), "ten tabs, one place");
}

/// Case 4: reloading, more tabs and coming back keep the place, and the rank never rises.
#[tokio::test]
async fn tabs_and_reloads_keep_the_place() {
    let shop = Shop::start("capacity: 1");
    let _inside = shop.inside().await;
    let mut browser = shop.browser().await;
    browser.open("/").await;
    let place = browser.jar[PLACE].clone();
    for _ in 0..20 {
        shop.waiting().await;
    }
    for target in ["/", "/", "/other", "/other?tab=3", "/"] {
        let (page, _) = browser.open(target).await;
        assert_eq!(page.status, 429);
        for index in [4, 6] {
            assert_eq!(field(&browser.jar[PLACE], index), field(&place, index), "sid and ticket");
        }
        assert_eq!(browser.get(STATUS).await.json()["rank"], 1);
        shop.pass_time(std::time::Duration::from_secs(1)).await;
    }
    assert_eq!(shop.numbers(), (1, 21));
}

/// A forwarded address of somebody untrusted changes neither the client nor the scheme.
#[tokio::test]
async fn forwarded_headers_count_only_from_trusted_proxies() {
    let shop = Shop::start("capacity: 1, max_waiting_per_ip: 1");
    let document = super::shop::document(&shop.origin.url(), "capacity: 1, max_waiting_per_ip: 1")
        .replace("127.0.0.0/8", "192.0.2.0/24");
    shop.gateway.reload(&document);
    let _inside = shop.inside().await;
    let mut first = shop.browser().await;
    assert_eq!(first.open("/").await.0.status, 429);
    let mut second = shop.browser().await;
    let (page, _) = second.open("/").await;
    assert!(page.body.contains("Too many"), "both are 127.0.0.1: {}", page.body);
    // Another address in truth.
    let mut other =
        RawClient::connect_from([127, 0, 0, 9].into(), shop.gateway.http).await.unwrap();
    let fields = [("X-Forwarded-Proto", "https"), ("Accept", "text/html")];
    let sent_back = other.get(HOST, "/", &fields).await.unwrap();
    assert!(sent_back.headers.get("location").unwrap().starts_with("http://"));
    let cookie = sent_back.headers.get("set-cookie").unwrap();
    assert!(!cookie.contains("Secure"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let fields = [("Cookie", cookie.as_str()), ("Accept", "text/html")];
    other.get(HOST, "/", &fields).await.unwrap();
    assert_eq!(shop.numbers(), (1, 2));
}
