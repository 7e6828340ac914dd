//! The eight places where a queue of this kind breaks first, each with the right behaviour.

use std::{sync::Arc, time::Duration};

use corvus_testkit::{Accept, Origin, Visitor, data_dir};

use super::{
    crowd::moved,
    shop::{HOST, HTML, LEAVE, Link, Shop, document, status, ticket},
};
use crate::gateway::GatewayProcess;

/// 1: a slot comes up for somebody who is told to ask again only after `grant_ttl`. The grant holds
/// from the moment they are due; and a grant that lapsed is no reason to lose the place.
#[tokio::test]
async fn weak_point_1_a_grant_outlives_the_poll_it_waits_for() {
    // Polls are at most half the time to the start apart: 20 s, with grants of 5.
    let queue = |start: u64| {
        format!(
            "capacity: 1, grant_ttl_s: 5, schedule: {{starts_at: \"2027-01-15T08:00:{start:02}Z\"}}"
        )
    };
    let shop = Shop::start(&queue(40));
    let mut slow = shop.waiting().await;
    assert_eq!(status(&mut slow).await["retry_after"], 20);
    // The doors open early.
    shop.change(&queue(2));
    shop.pass_time(Duration::from_secs(3)).await;
    assert_eq!(shop.numbers(), (1, 0), "the slot is held");
    let mut next = shop.waiting().await;
    shop.pass_time(Duration::from_secs(21)).await;
    assert_eq!(status(&mut slow).await["state"], "admitted", "four seconds late");
    // Another two, and nobody came: the next one's turn. The place is still there.
    shop.pass_time(Duration::from_secs(2)).await;
    assert_eq!(status(&mut slow).await["rank"], 1, "ahead of all who came later");
    assert_eq!(next.get("/", &[]).await.unwrap().status, 200);
    assert_eq!(shop.numbers(), (1, 1));
    next.get("/release", &[]).await.unwrap();
    assert_eq!(slow.get("/", &[]).await.unwrap().status, 200);
}

/// 2: those who went away without a word count neither as waiting, nor in a rank, nor in the limit.
#[tokio::test]
async fn weak_point_2_ghosts_do_not_count() {
    let shop = Shop::start("capacity: 1, max_waiting: 5, queue_ttl_s: 30");
    let mut inside = shop.inside().await;
    let mut ghosts = Vec::new();
    for _ in 0..4 {
        ghosts.push(shop.waiting().await);
    }
    let mut live = shop.waiting().await;
    assert!(shop.visitor().get("/", &[]).await.unwrap().body.contains("The line is full"));
    for _ in 0..12 {
        shop.pass_time(Duration::from_secs(3)).await;
        inside.get("/", &[]).await.unwrap();
        status(&mut live).await;
    }
    let told = status(&mut live).await;
    assert_eq!((&told["rank"], &told["waiting"]), (&1.into(), &1.into()));
    assert_eq!(shop.stats().abandoned, 4);
    shop.waiting().await;
    // One of them comes back after all: it is told to begin anew, and never sees an old number.
    assert_eq!(status(&mut ghosts[0]).await["state"], "gone");
    ghosts[0].get("/", &[]).await.unwrap();
    assert_eq!(status(&mut ghosts[0]).await["rank"], 3);
}

/// 3: ghosts at the head idle no slot, and slots free themselves while nobody calls. See
/// `crowd::a_thousand_dead_ahead_of_one_live` and `sessions::slots_free_themselves_without_a_call`;
/// here: ten slots come up at once behind a hundred ghosts.
#[tokio::test]
async fn weak_point_3_ghosts_at_the_head_hold_nobody_up() {
    let queue = "capacity: 10, queue_ttl_s: 30, joins_per_ip_per_min: 10000, paused: true";
    let shop = Shop::start(queue);
    for _ in 0..100 {
        shop.waiting().await;
    }
    shop.pass_time(Duration::from_secs(12)).await;
    let mut live = Vec::new();
    for _ in 0..12 {
        live.push(shop.waiting().await);
    }
    // The last pass before the ghosts' time, then one call after it.
    for _ in 0..7 {
        shop.pass_time(Duration::from_secs(3)).await;
        for visitor in &mut live {
            assert_eq!(status(visitor).await["state"], "waiting");
        }
    }
    shop.change(&queue.replace("paused: true", "paused: false"));
    shop.clock.advance(Duration::from_secs(5));
    shop.pass().await;
    assert_eq!(shop.numbers(), (10, 2), "the ten slots went to live visitors");
    for (n, visitor) in live.iter_mut().enumerate() {
        let expected = if n < 10 { "admitted" } else { "waiting" };
        assert_eq!(status(visitor).await["state"], expected, "{n}");
    }
}

/// 4: the store is lost, and those who are inside are not told by anybody but their tokens. Places
/// are held for them: nobody gets in on top.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weak_point_4_a_lost_store_admits_nobody_on_top() {
    let origin = Origin::start();
    let document = document(&origin.url(), "capacity: 2");
    let dir = Arc::new(data_dir());
    let gateway = GatewayProcess::start_in(&dir, &document, &["--workers", "1"]);
    let mut visitors = Vec::new();
    for expected in [200, 200, 429] {
        let mut visitor = Visitor::new(gateway.http, HOST);
        assert_eq!(visitor.get("/", &[]).await.unwrap().status, expected);
        visitors.push(visitor);
    }
    let old = ticket(&visitors[2]);
    gateway.child.kill().unwrap();
    // The state is gone; the keys, without which no token means anything, are not.
    for entry in std::fs::read_dir(gateway.data().join("queue")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("drop.")) {
            std::fs::remove_file(path).unwrap();
        }
    }
    let gateway = GatewayProcess::start_in(&dir, &document, &["--workers", "1"]);
    let mut newcomer = Visitor::new(gateway.http, HOST);
    let page = newcomer.get("/", &[]).await.unwrap();
    assert_eq!(page.status, 429, "free slots are not free before those inside had a say");
    for (visitor, expected) in visitors.iter().zip([200, 200, 429]) {
        let mut visitor = moved(visitor, &gateway);
        assert_eq!(visitor.get("/", &[]).await.unwrap().status, expected);
        if expected == 429 {
            assert_eq!(ticket(&visitor), old, "the old place");
            assert_eq!(status(&mut visitor).await["rank"], 1);
        }
    }
    assert_eq!(status(&mut newcomer).await["rank"], 2);
}

/// 5: a session shorter than the time for which a token is believed would give slots of people who
/// are there to others.
#[tokio::test]
async fn weak_point_5_sessions_shorter_than_refresh_are_refused() {
    let shop = Shop::start("capacity: 1");
    for queue in [
        "capacity: 1, active_ttl_s: 15",
        "capacity: 1, active_ttl_s: 10, refresh_s: 10, grant_ttl_s: 5",
    ] {
        shop.gateway.write_document(&document(&shop.origin.url(), queue));
        let error = shop.gateway.app().reload().unwrap_err().to_string();
        assert!(error.contains("/access_queues/0/active_ttl_s"), "{error}");
    }
}

/// 6: the cookie check ends after one try, keeps the target, and is for page navigations only. See
/// `first_visit` and `programs`; here: each kind of client in one table.
#[tokio::test]
async fn weak_point_6_the_cookie_check_is_bounded() {
    let shop = Shop::start("capacity: 5");
    for (method, accept, redirects) in [
        ("GET", HTML, 1),
        ("HEAD", HTML, 0),
        ("POST", HTML, 0),
        ("GET", "*/*", 0),
        ("POST", "application/json", 0),
        ("GET", "image/png", 0),
    ] {
        let mut client = shop.browser().await;
        client.keeps_cookies = false;
        accept.clone_into(&mut client.accept);
        let mut target = "/pay?a=1".to_owned();
        let mut way = 0;
        loop {
            let answer = client.request(method, &target, &[]).await;
            if answer.status != 302 {
                assert_eq!(answer.status, 429, "{method} {accept}");
                break;
            }
            way += 1;
            assert!(way <= redirects, "{method} {accept}");
            answer.target(Link::Http1).clone_into(&mut target);
        }
        assert_eq!(way, redirects, "{method} {accept}");
    }
    assert_eq!((shop.numbers(), shop.origin.requests()), ((0, 0), 0));
}

/// 7: in another site's frame a Lax cookie does not come back: that ends in the page that says so.
/// `same_site: none` is the way in, and only over TLS does it mean anything.
#[tokio::test]
async fn weak_point_7_frames_of_other_sites_are_told_or_let_in() {
    let shop = Shop::start("capacity: 5");
    let mut frame = shop.browser_over(Link::Http1Tls).await;
    frame.keeps_cookies = false;
    let (page, way) = frame.open("/widget").await;
    assert_eq!((page.status, way.len()), (429, 1));
    assert!(page.body.contains("Cookies are needed"), "{}", page.body);
    shop.change("capacity: 5, cookie: {same_site: none}");
    let mut frame = shop.browser_over(Link::Http1Tls).await;
    let first = frame.get("/widget").await;
    assert!(first.cookies()[0].contains("SameSite=None; Secure"), "{:?}", first.cookies());
    let (page, _) = frame.open("/widget").await;
    assert_eq!(page.status, 200);
}

/// 8: a rate is a rate over any window: no double portion at the edge of a second, nor after a
/// pause.
#[tokio::test]
async fn weak_point_8_the_rate_has_no_edges() {
    let shop = Shop::start("capacity: 100, rate: {count: 4, per_s: 1}");
    shop.pass_time(Duration::from_mins(1)).await;
    // After a quiet minute: one second's worth at once, not sixty.
    let mut crowd = Vec::new();
    let mut admitted = vec![(0_u64, 0_u64)];
    for _ in 0..40 {
        let mut visitor = shop.visitor();
        visitor.get("/", &[]).await.unwrap();
        crowd.push(visitor);
    }
    assert_eq!(shop.numbers(), (4, 36));
    for tenth in 1..=60_u64 {
        shop.clock.advance(Duration::from_millis(100));
        shop.pass().await;
        admitted.push((tenth, shop.stats().admitted));
    }
    let (_, last) = admitted[admitted.len() - 1];
    assert_eq!(last, 28, "4 at once and 4 a second");
    for (from, before) in &admitted {
        for (to, after) in admitted.iter().filter(|(to, _)| to > from) {
            let most = (to - from) as f64 * 0.4 + 4.0;
            assert!(
                (after - before) as f64 <= most,
                "{} in {} ms",
                after - before,
                (to - from) * 100
            );
        }
    }
    for visitor in &mut crowd {
        visitor.request("POST", LEAVE, Accept::Json, &[], b"").await.unwrap();
    }
}
