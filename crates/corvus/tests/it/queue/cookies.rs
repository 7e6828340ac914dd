//! Cookies: their attributes, and what becomes of ones that are not ours.

use std::time::Duration;

use super::shop::{ADMISSION, Link, PLACE, STATUS, Shop, field, status};

fn attributes(cookie: &str) -> Vec<&str> {
    cookie.split("; ").skip(1).collect()
}

#[tokio::test]
async fn attributes_are_those_of_the_settings() {
    for (queue, site, domain) in [
        ("capacity: 1", "SameSite=Lax", None),
        ("capacity: 1, cookie: {same_site: strict}", "SameSite=Strict", None),
        ("capacity: 1, cookie: {domain: shop.test}", "SameSite=Lax", Some("Domain=shop.test")),
    ] {
        let shop = Shop::start(queue);
        for link in Link::ALL {
            let mut browser = shop.browser_over(link).await;
            let place = browser.get("/").await;
            let inside = browser.get("/").await;
            assert_eq!(inside.status, 200, "{queue} {link:?}");
            let secure = (link.scheme() == "https").then_some("Secure");
            for (answer, name, life) in
                [(place, PLACE, "Max-Age=720"), (inside, ADMISSION, "Max-Age=300")]
            {
                let cookie = answer.cookies().into_iter().find(|c| c.starts_with(name)).unwrap();
                let mut expected = vec!["Path=/", life, "HttpOnly", site];
                expected.extend(secure);
                expected.extend(domain);
                assert_eq!(attributes(cookie), expected, "{queue} {link:?}");
                assert_eq!(answer.header("cache-control"), "private, no-store");
            }
            browser.request("POST", "/__corvus/wr/drop/leave", &[]).await;
        }
    }
}

/// Behind a proxy that ends TLS for us, the browser's connection is secure all the same.
#[tokio::test]
async fn secure_follows_a_trusted_proxy() {
    let shop = Shop::start("capacity: 1");
    let mut browser = shop.browser().await;
    for (proto, secure) in [("https", true), ("http", false), ("http, https", true)] {
        browser.jar.clear();
        let answer = browser.request("GET", "/", &[("x-forwarded-proto", proto)]).await;
        assert_eq!(answer.cookies()[0].contains("; Secure"), secure, "{proto}");
    }
}

/// A cookie on an answer forbids storing it, whatever the origin says of caching; answers without
/// one are left alone.
#[tokio::test]
async fn answers_with_a_cookie_are_not_for_caches() {
    let shop = Shop::start("capacity: 1, refresh_s: 15");
    let mut browser = shop.browser().await;
    browser.get("/").await;
    let target = "/header?Cache-Control=public,max-age=3600&Expires=Thu";
    let first = browser.get(target).await;
    assert_eq!(first.status, 200);
    assert_eq!(first.headers.all("cache-control").collect::<Vec<_>>(), ["private, no-store"]);
    assert_eq!(first.header("expires"), "");
    let second = browser.get(target).await;
    assert_eq!(second.header("cache-control"), "public,max-age=3600");
    assert_eq!(second.cookies(), Vec::<&str>::new());
    shop.pass_time(Duration::from_secs(16)).await;
    let refreshed = browser.get(target).await;
    assert_eq!(refreshed.cookies().len(), 1, "older than refresh: issued again");
    assert_eq!(refreshed.header("cache-control"), "private, no-store");
}

/// The origin sees none of our cookies and sets none.
#[tokio::test]
async fn the_origin_has_no_part_in_our_cookies() {
    let shop = Shop::start("capacity: 1");
    let mut inside = shop.browser().await;
    inside.open("/").await;
    inside.jar.insert("basket".to_owned(), "7".to_owned());
    inside.jar.insert("corvus_q_other".to_owned(), "x".to_owned());
    let answer = inside.get("/set-cookie?corvus_a_drop=forged&corvus_c=x&own=1").await;
    let set: Vec<_> = answer.cookies().into_iter().map(|c| c.split(';').next().unwrap()).collect();
    assert_eq!(set, ["own=1"]);
    let seen = shop.origin.seen();
    assert_eq!(seen.last().unwrap().headers.all("cookie").collect::<Vec<_>>(), ["basket=7"]);
}

/// Each way to make a token one's own is worth as much as no cookie.
#[tokio::test]
async fn tampered_and_foreign_tokens_are_refused() {
    let shop = Shop::start("capacity: 2");
    let mut inside = shop.inside().await;
    let good = inside.cookie(ADMISSION).unwrap().to_owned();
    let other = Shop::start("capacity: 1");
    let other_key = other.inside().await.cookie(ADMISSION).unwrap().to_owned();
    let fields: Vec<_> = good.split('.').map(str::to_owned).collect();
    let with = |index: usize, value: &str| {
        let mut fields = fields.clone();
        value.clone_into(&mut fields[index]);
        fields.join(".")
    };
    let later = (fields[6].parse::<u64>().unwrap() + 1).to_string();
    let mut forged: Vec<String> = (0..fields.len()).map(|index| with(index, "")).collect();
    forged.extend([
        with(6, &later),
        with(4, "AAAAAAAAAAAAAAAAAAAAAA"),
        with(3, "other"),
        with(2, "q"),
        with(0, "v1"),
        good[..good.len() - 1].to_owned(),
        format!("{good}A"),
        format!("{good}."),
        good.to_uppercase(),
        other_key,
        "x".repeat(4_000),
        String::new(),
    ]);
    for token in forged {
        let mut thief = shop.browser().await;
        thief.accept = "*/*".to_owned();
        thief.jar.insert(ADMISSION.to_owned(), token.clone());
        let answer = thief.get("/").await;
        assert_eq!((answer.status, &*answer.state()), (429, "needs_cookie"), "{token}");
    }
    assert_eq!(inside.get("/", &[]).await.unwrap().status, 200);
    assert_eq!(shop.numbers(), (1, 0));
}

/// A token of one queue is none of another's, though the same key signs both.
#[tokio::test]
async fn tokens_of_another_queue_are_refused() {
    let shop = Shop::start("capacity: 2");
    let origin = shop.origin.url();
    let document = super::shop::document(&origin, "capacity: 2")
        .replace(
            "certificates:",
            &format!(
                "  - {{id: blog, domains: [blog.test], upstreams: [{{url: \"{origin}\"}}], access_queue: line}}\ncertificates:"
            ),
        )
        .replace("access_queues:", "access_queues:\n  - {id: line, capacity: 2}");
    shop.gateway.reload(&document);
    let inside = shop.inside().await;
    let token = inside.cookie(ADMISSION).unwrap();
    let cookie = format!("corvus_a_line={token}");
    let mut client = shop.gateway.client().await;
    let answer = client.get("blog.test", "/", &[("Cookie", &cookie)]).await.unwrap();
    assert_eq!(answer.status, 429);
}

/// A rotated key leaves tokens of the previous one good; see also `corvus_queue::keys`. Here: an
/// admission is good after a restart on the same data.
#[tokio::test]
async fn tokens_outlive_a_restart() {
    let shop = Shop::start("capacity: 1");
    let mut inside = shop.browser().await;
    inside.open("/").await;
    let mut waiting = shop.browser().await;
    waiting.open("/").await;
    let (first, second) = (inside.jar.clone(), waiting.jar.clone());
    let shop = Shop { gateway: shop.gateway.restart(), ..shop };
    let mut inside = shop.browser().await;
    inside.jar = first;
    assert_eq!(inside.get("/").await.status, 200);
    let mut waiting = shop.browser().await;
    waiting.jar = second;
    let answer = waiting.get("/").await;
    assert_eq!(answer.status, 429);
    assert_eq!(waiting.get(STATUS).await.json()["rank"], 1);
    assert_eq!(shop.numbers(), (1, 1));
}

/// If two cookies carry different sessions, the admission's is meant.
#[tokio::test]
async fn of_two_sessions_the_admission_counts() {
    let shop = Shop::start("capacity: 1, refresh_s: 5, active_ttl_s: 20, grant_ttl_s: 5");
    let inside = shop.inside().await;
    let waiting = shop.waiting().await;
    let mut both = shop.visitor();
    both.set_cookie(ADMISSION, inside.cookie(ADMISSION).unwrap());
    both.set_cookie(PLACE, waiting.cookie(PLACE).unwrap());
    assert_eq!(both.get("/", &[]).await.unwrap().status, 200);
    shop.pass_time(Duration::from_secs(6)).await;
    assert_eq!(both.get("/", &[]).await.unwrap().status, 200, "the heartbeat is the admission's");
    let sid = field(inside.cookie(ADMISSION).unwrap(), 4);
    assert_eq!(field(both.cookie(ADMISSION).unwrap(), 4), sid);
    assert_eq!(shop.numbers(), (1, 1), "the place is still the other visitor's");
}

/// Browsers send two cookies of one name when a Domain was added to the settings later, or when a
/// neighbouring site sets one. The good one counts, wherever it stands.
#[tokio::test]
async fn a_stale_cookie_of_the_same_name_shadows_nothing() {
    let shop = Shop::start("capacity: 1, polls_per_session_per_s: 1000");
    let inside = shop.inside().await;
    let admission = inside.cookie(ADMISSION).unwrap();
    let mut waiting = shop.waiting().await;
    let place = waiting.cookie(PLACE).unwrap().to_owned();
    for stale in ["rubbish", "", &admission.replace(".a.", ".q.")] {
        for cookie in [
            format!("{ADMISSION}={stale}; {ADMISSION}={admission}"),
            format!("{ADMISSION}={admission}; {ADMISSION}={stale}"),
        ] {
            let answer = shop.gateway.get("shop.test", "/", &[("Cookie", &cookie)]).await;
            assert_eq!(answer.status, 200, "{cookie}");
        }
        for cookie in [
            format!("{PLACE}={stale}; {PLACE}={place}"),
            format!("{PLACE}={place}; {PLACE}={stale}"),
        ] {
            let answer = shop.gateway.get("shop.test", STATUS, &[("Cookie", &cookie)]).await;
            assert_eq!(answer.json()["state"], "waiting", "{cookie}");
        }
    }
    // Also when the stale one is ours.
    assert_eq!(status(&mut waiting).await["state"], "waiting");
    let fresh = waiting.cookie(PLACE).unwrap();
    let mut old = shop.browser().await;
    old.get("/").await;
    let unplaced = old.jar[PLACE].clone();
    let cookie = format!("{PLACE}={unplaced}; {PLACE}={fresh}");
    let answer = shop.gateway.get("shop.test", STATUS, &[("Cookie", &cookie)]).await;
    assert_eq!(answer.json()["state"], "waiting", "a place beats a proof of cookies");
    assert_eq!(shop.numbers(), (1, 1));
}

/// With `bind_network` a stolen cookie is worth nothing elsewhere, and moving within the /24 is
/// allowed.
#[tokio::test]
async fn tokens_can_be_bound_to_the_network() {
    let shop = Shop::start("capacity: 1, bind_network: true");
    let mut inside = shop.browser().await;
    inside.ip = "198.51.100.7".to_owned();
    inside.open("/").await;
    inside.ip = "198.51.100.200".to_owned();
    assert_eq!(inside.get("/").await.status, 200);
    inside.ip = "198.51.101.7".to_owned();
    inside.accept = "*/*".to_owned();
    assert_eq!(inside.get("/").await.status, 429);
}
