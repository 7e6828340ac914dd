//! Limits: joins, polls, the length of the line.

use std::time::Duration;

use super::shop::{Browser, LEAVE, PLACE, STATUS, Shop, field};

async fn from(shop: &Shop, ip: &str) -> Browser {
    let mut browser = shop.browser().await;
    ip.clone_into(&mut browser.ip);
    browser
}

/// Case 12: joins are limited for each address, IPv6 by /64; who has a place is never refused.
#[tokio::test]
async fn joins_are_limited_for_each_address() {
    let shop = Shop::start("capacity: 1, joins_per_ip_per_min: 3");
    for (network, addresses) in [
        ("203.0.113.5", ["203.0.113.5"; 5]),
        (
            "2001:db8:1:2::/64",
            [
                "2001:db8:1:2::1",
                "2001:db8:1:2:ffff::2",
                "2001:db8:1:2:1:2:3:4",
                "2001:db8:1:2::5",
                "2001:db8:1:2:a::6",
            ],
        ),
    ] {
        let mut joined = Vec::new();
        for (n, ip) in addresses.into_iter().enumerate() {
            let mut browser = from(&shop, ip).await;
            let (answer, _) = browser.open("/").await;
            if n < 3 {
                assert!(!answer.body.contains("Too many attempts"), "{network} {n}");
                joined.push(browser);
                continue;
            }
            assert_eq!(answer.status, 429, "{network} {n}");
            assert!(answer.body.contains("Too many attempts"), "{network} {n}: {}", answer.body);
            assert_eq!((answer.header("retry-after"), answer.header("refresh")), ("60", "60"));
            browser.accept = "*/*".to_owned();
            assert_eq!(browser.get("/").await.state(), "busy");
        }
        for browser in &mut joined {
            let (answer, _) = browser.open("/").await;
            assert!(!answer.body.contains("Too many attempts"), "a place was refused");
        }
        let mut neighbour = from(&shop, "2001:db8:1:3::1").await;
        assert!(!neighbour.open("/").await.0.body.contains("Too many attempts"));
        neighbour.request("POST", LEAVE, &[]).await;
    }
    assert_eq!(shop.numbers(), (1, 5));
    // Two minutes later the same addresses may join again.
    shop.pass_time(Duration::from_secs(121)).await;
    let mut again = from(&shop, "203.0.113.5").await;
    assert!(!again.open("/").await.0.body.contains("Too many attempts"));
}

/// Polls beyond three a second are refused without asking the store, and cost no place.
#[tokio::test]
async fn polls_are_limited_for_each_session() {
    let shop = Shop::start("capacity: 1");
    let _inside = shop.inside().await;
    let mut waiting = shop.browser().await;
    waiting.open("/").await;
    let mut other = shop.browser().await;
    other.open("/").await;
    for n in 0..6 {
        let answer = waiting.get(STATUS).await;
        if n < 3 {
            assert_eq!((answer.status, &*answer.state()), (200, "waiting"));
        } else {
            assert_eq!((answer.status, &*answer.state()), (429, "busy"));
            assert_eq!(answer.header("retry-after"), "1");
            assert_eq!(answer.cookies(), Vec::<&str>::new());
        }
    }
    assert_eq!(other.get(STATUS).await.state(), "waiting");
    shop.pass_time(Duration::from_secs(2)).await;
    assert_eq!(waiting.get(STATUS).await.json()["rank"], 1);
}

/// A full line says so, keeps nobody's name, and has room again when somebody leaves.
#[tokio::test]
async fn a_full_line_says_come_back_later() {
    let shop = Shop::start("capacity: 1, max_waiting: 2");
    let _inside = shop.inside().await;
    let mut first = shop.waiting().await;
    let _second = shop.waiting().await;
    let mut third = shop.browser().await;
    let (page, _) = third.open("/").await;
    assert_eq!(page.status, 429);
    assert!(page.body.contains("The line is full"), "{}", page.body);
    assert_eq!((page.header("retry-after"), page.header("refresh")), ("30", "30"));
    third.accept = "*/*".to_owned();
    let told = third.get("/").await;
    assert_eq!((told.status, &*told.state()), (429, "full"));
    assert_eq!(field(&third.jar[PLACE], 6), "0", "no place");
    assert_eq!(shop.numbers(), (1, 2));
    first.request("POST", LEAVE, corvus_testkit::Accept::Html, &[], b"").await.unwrap();
    assert_eq!(third.get("/").await.state(), "waiting");
    assert_eq!(shop.numbers(), (1, 2));
}

/// At most so many wait from one address; others, and those who wait already, are not concerned.
#[tokio::test]
async fn waiting_is_limited_for_each_address() {
    let shop = Shop::start("capacity: 1, max_waiting_per_ip: 2");
    let _inside = shop.inside().await;
    let mut crowd = Vec::new();
    for n in 0..4 {
        let mut browser = from(&shop, &format!("2001:db8::{n}")).await;
        let (answer, _) = browser.open("/").await;
        assert_eq!(answer.body.contains("Too many attempts"), n >= 2, "{n}: {}", answer.body);
        crowd.push(browser);
    }
    for browser in crowd.iter_mut().take(2) {
        assert_eq!(browser.get(STATUS).await.state(), "waiting");
    }
    assert_eq!(shop.numbers(), (1, 2));
    let mut other = from(&shop, "2001:db8:0:1::1").await;
    other.open("/").await;
    assert_eq!(shop.numbers(), (1, 3));
    crowd[0].request("POST", LEAVE, &[]).await;
    crowd[3].open("/").await;
    assert_eq!(shop.numbers(), (1, 3), "a place is free again");
}

/// Somebody inside has no limits of the line.
#[tokio::test]
async fn those_inside_are_not_limited() {
    let shop = Shop::start("capacity: 1, joins_per_ip_per_min: 1, max_waiting_per_ip: 1");
    let mut inside = shop.browser().await;
    inside.open("/").await;
    for n in 0..50 {
        assert_eq!(inside.get("/").await.status, 200, "{n}");
    }
    shop.pass_time(Duration::from_secs(16)).await;
    assert_eq!(inside.get("/").await.status, 200);
}
