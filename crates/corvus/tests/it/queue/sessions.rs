//! Inside: leaving, release by the origin, grants, open streams, changes of capacity.

use std::time::Duration;

use corvus_testkit::{Accept, Message, Visitor, WebSocket};

use super::shop::{ADMISSION, HOST, LEAVE, PLACE, Shop, status, ticket};
use crate::gateway::eventually;

async fn leave(visitor: &mut Visitor) {
    let page = visitor.request("POST", LEAVE, Accept::Html, &[], b"").await.unwrap();
    assert_eq!(page.status, 200);
    assert!(page.body.contains("You left the line"), "{}", page.body);
    assert_eq!((visitor.cookie(ADMISSION), visitor.cookie(PLACE)), (None, None));
}

/// Leaving gives the place up for good; coming again is coming last.
#[tokio::test]
async fn leaving_the_line() {
    let shop = Shop::start("capacity: 1");
    let _inside = shop.inside().await;
    let mut first = shop.waiting().await;
    let mut second = shop.waiting().await;
    let old = first.cookie(PLACE).unwrap().to_owned();
    leave(&mut first).await;
    assert_eq!(shop.numbers(), (1, 1));
    assert_eq!(status(&mut second).await["rank"], 1);
    // The old cookie, kept by hand, is refused.
    first.set_cookie(PLACE, &old);
    assert_eq!(status(&mut first).await["state"], "gone");
    first.forget_cookies();
    first.get("/", &[]).await.unwrap();
    assert!(ticket(&first) > ticket(&second));
    assert_eq!(status(&mut first).await["rank"], 2);
}

/// The leave page leads back to where the visitor was, and nowhere else.
#[tokio::test]
async fn the_way_back_after_leaving_stays_on_this_site() {
    let shop = Shop::start("capacity: 1");
    for (referer, link) in [
        ("http://shop.test/tickets?a=1", "/tickets?a=1"),
        ("http://shop.test//evil.test/x", "/.//evil.test/x"),
        ("http://evil.test/x", "/"),
        ("http://shop.test.evil.test/x", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
    ] {
        let mut visitor = shop.browser().await;
        visitor.open("/").await;
        let page = visitor.request("POST", LEAVE, &[("referer", referer)]).await;
        assert!(page.body.contains(&format!("href=\"{link}\"")), "{referer}: {}", page.body);
    }
}

/// Another site can neither press the button nor read the answer.
#[tokio::test]
async fn another_site_cannot_make_a_visitor_leave() {
    let shop = Shop::start("capacity: 2, cookie: {same_site: none}");
    let mut inside = shop.browser_over(super::shop::Link::Http1Tls).await;
    inside.open("/").await;
    let cross = [("sec-fetch-site", "cross-site"), ("origin", "https://evil.test")];
    assert_eq!(inside.request("POST", LEAVE, &cross).await.status, 403);
    assert_eq!(inside.request("POST", LEAVE, &[("origin", "null")]).await.status, 403);
    assert_eq!(shop.numbers(), (1, 0));
    let own = [("sec-fetch-site", "same-origin"), ("origin", "https://shop.test")];
    assert_eq!(inside.request("POST", LEAVE, &own).await.status, 200);
    assert_eq!(shop.numbers(), (0, 0));
}

/// Leaving from inside, and release by the origin, free the slot at once.
#[tokio::test]
async fn leaving_and_release_free_the_slot_at_once() {
    let shop = Shop::start("capacity: 1");
    let mut first = shop.inside().await;
    let mut second = shop.waiting().await;
    let mut third = shop.waiting().await;
    leave(&mut first).await;
    assert_eq!(second.get("/", &[]).await.unwrap().status, 200);
    let stolen = second.cookie(ADMISSION).unwrap().to_owned();
    let answer = second.get("/release", &[]).await.unwrap();
    assert_eq!((answer.status, &*answer.body), (200, "released\n"));
    assert_eq!(answer.headers.get("corvus-queue"), None, "acted on and removed");
    assert_eq!(answer.headers.get("cache-control"), Some("private, no-store"));
    assert_eq!(second.cookie(ADMISSION), None);
    assert_eq!(third.get("/", &[]).await.unwrap().status, 200);
    // The session is over for a kept cookie too, once it is no longer young.
    shop.pass_time(Duration::from_secs(16)).await;
    second.set_cookie(ADMISSION, &stolen);
    assert_eq!(second.get("/", &[]).await.unwrap().status, 429);
}

/// Case 5: a poll does not claim, so a tab in the background holds a slot for `grant_ttl` only; and
/// it is not the end of the line either.
#[tokio::test]
async fn only_a_real_request_claims_a_grant() {
    let shop = Shop::start("capacity: 1, grant_ttl_s: 10, active_ttl_s: 300");
    let mut inside = shop.inside().await;
    let mut sleeper = shop.waiting().await;
    let mut next = shop.waiting().await;
    let mut last = shop.waiting().await;
    leave(&mut inside).await;
    let kept = ticket(&sleeper);
    for _ in 0..2 {
        assert_eq!(status(&mut sleeper).await["state"], "admitted");
        assert_eq!(sleeper.cookie(ADMISSION), None, "a poll is no claim");
        shop.pass_time(Duration::from_secs(3)).await;
        assert_eq!(status(&mut next).await["rank"], 1);
    }
    // Nobody came for it: the next one's turn.
    shop.pass_time(Duration::from_secs(12)).await;
    assert_eq!(next.get("/", &[]).await.unwrap().status, 200);
    assert_eq!(sleeper.get("/", &[]).await.unwrap().status, 429);
    assert_eq!(ticket(&sleeper), kept, "ahead of all who came later");
    assert_eq!(status(&mut sleeper).await["rank"], 1);
    assert_eq!(status(&mut last).await["rank"], 2);
    assert_eq!(shop.stats().inside, 1);
}

/// Without requests a session lapses after `active_ttl`; with them it does not.
#[tokio::test]
async fn sessions_last_as_long_as_they_are_used() {
    let shop = Shop::start("capacity: 2, active_ttl_s: 20, refresh_s: 5, grant_ttl_s: 5");
    let mut busy = shop.inside().await;
    let mut idle = shop.inside().await;
    for _ in 0..6 {
        shop.pass_time(Duration::from_secs(4)).await;
        assert_eq!(busy.get("/", &[]).await.unwrap().status, 200);
    }
    assert_eq!(shop.numbers(), (1, 0));
    let mut third = shop.inside().await;
    assert_eq!(idle.get("/", &[]).await.unwrap().status, 429);
    assert_eq!(third.get("/", &[]).await.unwrap().status, 200);
}

/// An open WebSocket or event stream keeps the session, though no request comes. Its heartbeats run
/// on the machine's clock, each `refresh`; the session's on the test's.
#[tokio::test]
async fn open_streams_keep_the_session() {
    let shop = Shop::start("capacity: 2, active_ttl_s: 6, refresh_s: 1, grant_ttl_s: 5");
    let (first, second) = (shop.inside().await, shop.inside().await);
    let cookie = |visitor: &Visitor| format!("{ADMISSION}={}", visitor.cookie(ADMISSION).unwrap());
    let fields = [("Cookie", &*cookie(&first))];
    let mut socket = WebSocket::connect(shop.gateway.http, HOST, "/ws", &fields).await.unwrap();
    let mut events = shop.gateway.client().await;
    let ask =
        format!("GET /sse/50/2000 HTTP/1.1\r\nHost: {HOST}\r\nCookie: {}\r\n\r\n", cookie(&second));
    events.send(ask).await.unwrap();
    assert_eq!(events.read_head("GET").await.unwrap().status, 200);
    let mut second_passed = tokio::time::interval(Duration::from_millis(1_100));
    second_passed.tick().await;
    for _ in 0..4 {
        second_passed.tick().await;
        shop.pass_time(Duration::from_secs(3)).await;
        assert_eq!(shop.stats().inside, 2);
    }
    socket.send(Message::Text("still here".into())).await.unwrap();
    assert_eq!(socket.receive().await.unwrap(), Some(Message::Text("still here".into())));
    assert!(events.read_body().await.unwrap().is_some());
    // Closed: nothing keeps them any more.
    drop((socket, events));
    shop.origin.wait_for("both closed", |counts| counts.open == 0).await.ok();
    shop.pass_time(Duration::from_secs(8)).await;
    assert_eq!(shop.stats().inside, 0);
}

/// Trace 14: the stream of somebody who left in another tab takes no slot.
#[tokio::test]
async fn an_open_stream_never_joins_after_leaving() {
    let shop = Shop::start("capacity: 1, active_ttl_s: 6, refresh_s: 1, grant_ttl_s: 5");
    let mut visitor = shop.inside().await;
    let cookie = format!("{ADMISSION}={}", visitor.cookie(ADMISSION).unwrap());
    let _socket =
        WebSocket::connect(shop.gateway.http, HOST, "/ws", &[("Cookie", &cookie)]).await.unwrap();
    leave(&mut visitor).await;
    assert_eq!(shop.numbers(), (0, 0));
    let mut second_passed = tokio::time::interval(Duration::from_millis(1_100));
    second_passed.tick().await;
    for _ in 0..2 {
        second_passed.tick().await;
        shop.pass_time(Duration::from_secs(2)).await;
        assert_eq!(shop.numbers(), (0, 0));
    }
    shop.inside().await;
}

/// Case 22: a lower capacity throws nobody out; a higher one lets in at once, in order.
#[tokio::test]
async fn capacity_may_change_at_any_time() {
    let shop = Shop::start("capacity: 3");
    let mut inside = Vec::new();
    for _ in 0..3 {
        inside.push(shop.inside().await);
    }
    let mut line = Vec::new();
    for _ in 0..6 {
        line.push(shop.waiting().await);
    }
    shop.change("capacity: 1");
    for visitor in &mut inside {
        assert_eq!(visitor.get("/", &[]).await.unwrap().status, 200);
    }
    shop.pass_time(Duration::from_secs(16)).await;
    for visitor in &mut inside {
        assert_eq!(visitor.get("/", &[]).await.unwrap().status, 200, "refreshed too");
    }
    assert_eq!(shop.numbers(), (3, 6));
    for left in [2, 1] {
        leave(&mut inside.pop().unwrap()).await;
        shop.pass().await;
        assert_eq!(shop.numbers(), (left, 6), "admissions go on only below the capacity");
    }
    shop.change("capacity: 4");
    for (n, visitor) in line.iter_mut().enumerate() {
        let expected = if n < 3 { "admitted" } else { "waiting" };
        assert_eq!(status(visitor).await["state"], expected, "{n}");
    }
    assert_eq!(shop.numbers(), (4, 3));
    // In force at once also for whoever comes next, without a call in between.
    shop.change("capacity: 100");
    assert_eq!(line[5].get("/", &[]).await.unwrap().status, 200);
}

/// The gateway's own pass, once a second, lets the next one in though nobody calls.
#[tokio::test]
async fn slots_free_themselves_without_a_call() {
    let shop = Shop::start("capacity: 1, active_ttl_s: 5, refresh_s: 1, grant_ttl_s: 5");
    let _inside = shop.inside().await;
    let mut waiting = shop.waiting().await;
    // Not more than five seconds: that would be an outage, in which nobody could keep a session.
    shop.clock.advance(Duration::from_secs(5));
    eventually("a pass", || (shop.numbers() == (1, 0)).then_some(())).await;
    assert_eq!(status(&mut waiting).await["state"], "admitted");
}
