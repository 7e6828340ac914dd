//! Schedule, pause, methods, and what the waiting page is like.

use std::time::Duration;

use super::shop::{HOST, PLACE, STATUS, Shop, field, status, ticket};

const MINUTE: Duration = Duration::from_mins(1);

/// Before `opens_at`: a countdown, nothing stored; then the line is open.
#[tokio::test]
async fn before_the_opening() {
    let shop = Shop::start("capacity: 1, schedule: {opens_at: \"2027-01-15T08:01:00Z\"}");
    let mut early = shop.browser().await;
    let (page, _) = early.open("/").await;
    assert_eq!(page.status, 429);
    assert!(page.body.contains("Not open yet"), "{}", page.body);
    assert!(page.body.contains(">1:00</p>"), "the countdown: {}", page.body);
    assert_eq!((page.header("retry-after"), page.header("refresh")), ("60", "60"));
    early.accept = "*/*".to_owned();
    let told = early.get("/").await;
    assert_eq!((told.status, &*told.state()), (429, "not_open"));
    assert_eq!(told.json()["retry_after"], 60);
    assert_eq!(shop.numbers(), (0, 0));
    shop.pass_time(MINUTE).await;
    let mut first = shop.inside().await;
    assert_eq!(first.get("/", &[]).await.unwrap().status, 200);
}

/// Before `starts_at`: everybody waits, ranks are hidden, and nothing tells the draw. Then all who
/// came are in some order, ahead of all who come later.
#[tokio::test]
async fn the_lottery() {
    let shop = Shop::start("capacity: 1, schedule: {starts_at: \"2027-01-15T08:01:00Z\"}");
    let mut early = Vec::new();
    for _ in 0..12 {
        let mut visitor = shop.waiting().await;
        assert_eq!(field(visitor.cookie(PLACE).unwrap(), 6), "L");
        let told = status(&mut visitor).await;
        assert_eq!(told["state"], "waiting");
        assert!(told["rank"].is_null(), "{told}");
        early.push(visitor);
    }
    let page = early[0].get("/", &[]).await.unwrap();
    assert!(page.body.contains("You are here early"), "{}", page.body);
    assert!(page.body.contains("Starts in") && page.body.contains("by lot"));
    assert_eq!(shop.numbers(), (0, 12));
    shop.pass_time(MINUTE).await;
    let mut late = shop.waiting().await;
    assert_eq!(status(&mut late).await["rank"], 12, "one of the twelve is granted");
    let mut ranks = Vec::new();
    for visitor in &mut early {
        let told = status(visitor).await;
        ranks.push(told["rank"].as_u64().unwrap_or(0));
    }
    let mut sorted = ranks.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..12).collect::<Vec<_>>());
    assert!(!ranks.is_sorted(), "1 in 479001600: {ranks:?}");
    // They get in by rank.
    let by_rank = |rank: u64| ranks.iter().position(|r| *r == rank).unwrap();
    for rank in 0..3 {
        let visitor = &mut early[by_rank(rank)];
        assert_eq!(visitor.get("/", &[]).await.unwrap().status, 200, "rank {rank}");
        visitor.get("/release", &[]).await.unwrap();
    }
}

/// After `ends_at`: those inside stay, nobody else gets in, and those who wait are told.
#[tokio::test]
async fn after_the_end() {
    let shop = Shop::start("capacity: 1, schedule: {ends_at: \"2027-01-15T08:01:00Z\"}");
    let mut inside = shop.inside().await;
    let mut waiting = shop.waiting().await;
    shop.pass_time(MINUTE).await;
    assert_eq!(inside.get("/", &[]).await.unwrap().status, 200);
    assert_eq!(status(&mut waiting).await["state"], "closed");
    for visitor in [&mut waiting, &mut shop.visitor()] {
        let page = visitor.get("/", &[]).await.unwrap();
        assert_eq!(page.status, 429);
        assert!(page.body.contains("This line has closed"), "{}", page.body);
        assert_eq!(page.headers.get("refresh"), None, "it will not open by itself");
    }
    inside.get("/release", &[]).await.unwrap();
    assert_eq!(inside.get_json("/", &[]).await.unwrap().json()["state"], "needs_cookie");
    let closed = inside.get_json("/", &[]).await.unwrap();
    assert_eq!(closed.json()["state"], "closed");
    assert_eq!(shop.stats().inside, 0);
}

/// Paused: free slots or not, everybody waits and keeps the place; the page says so.
#[tokio::test]
async fn paused() {
    let shop = Shop::start("capacity: 3");
    let _inside = shop.inside().await;
    shop.change("capacity: 3, paused: true");
    let mut first = shop.waiting().await;
    let page = first.get("/", &[]).await.unwrap();
    assert!(page.body.contains("<p id=\"paused\" class=\"note\">"), "{}", page.body);
    let mut second = shop.waiting().await;
    shop.pass_time(MINUTE / 2).await;
    assert_eq!(shop.numbers(), (1, 2));
    shop.change("capacity: 3");
    for visitor in [&mut first, &mut second] {
        assert_eq!(status(visitor).await["state"], "admitted");
        assert_eq!(visitor.get("/", &[]).await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn method_reject() {
    let shop = Shop::start("capacity: 3");
    let mut inside = shop.inside().await;
    shop.change("capacity: 3, method: reject");
    let page = shop.visitor().get("/", &[]).await.unwrap();
    assert_eq!(page.status, 429);
    assert!(page.body.contains("This line has closed"), "{}", page.body);
    assert_eq!(inside.get("/", &[]).await.unwrap().status, 200);
    assert_eq!(shop.numbers(), (1, 0));
}

/// Everybody is let in and counted, those who waited too.
#[tokio::test]
async fn method_passthrough() {
    let shop = Shop::start("capacity: 1");
    let _inside = shop.inside().await;
    let mut waiting = shop.waiting().await;
    shop.change("capacity: 1, method: passthrough");
    for _ in 0..5 {
        shop.inside().await;
    }
    assert_eq!(waiting.get("/", &[]).await.unwrap().status, 200);
    assert_eq!(shop.numbers(), (7, 0));
}

/// By lot: coming first is no use, and coming again does not draw again.
#[tokio::test]
async fn method_random() {
    let shop = Shop::start("capacity: 1, method: random");
    let mut inside = shop.inside().await;
    let mut line = Vec::new();
    for _ in 0..12 {
        line.push(shop.waiting().await);
    }
    let tickets: Vec<_> = line.iter().map(ticket).collect();
    assert!(!tickets.is_sorted(), "1 in 479001600: {tickets:?}");
    line[0].get("/", &[]).await.unwrap();
    assert_eq!(ticket(&line[0]), tickets[0]);
    inside.get("/release", &[]).await.unwrap();
    let best = (0..12).min_by_key(|n| tickets[*n]).unwrap();
    for (n, visitor) in line.iter_mut().enumerate() {
        let expected = if n == best { "admitted" } else { "waiting" };
        assert_eq!(status(visitor).await["state"], expected);
    }
}

/// Status, `Retry-After` and `Refresh` of the waiting page; programs always get 429.
#[tokio::test]
async fn the_status_of_the_waiting_page() {
    for code in [429, 200, 202] {
        let shop = Shop::start(&format!("capacity: 1, status: {code}"));
        let _inside = shop.inside().await;
        let mut browser = shop.browser().await;
        let (page, _) = browser.open("/").await;
        assert_eq!(page.status, code);
        assert_eq!((page.header("retry-after"), page.header("refresh")), ("3", "10"));
        assert_eq!(page.header("cache-control"), "private, no-store");
        assert_eq!(page.header("x-robots-tag"), "noindex");
        assert_eq!(page.header("x-content-type-options"), "nosniff");
        assert!(page.header("vary").contains("Cookie"), "{}", page.header("vary"));
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
        assert!(page.header("content-security-policy").contains("default-src 'none'"));
        assert_eq!(browser.get(STATUS).await.status, 200);
        browser.accept = "application/json".to_owned();
        assert_eq!(browser.get("/").await.status, 429);
        // What the page says about its request is in the log too.
        let line = shop.gateway.logged_id(page.header("x-request-id")).await;
        assert_eq!(
            (&line["status"], line["rule"].as_str()),
            (&code.into(), Some("waiting")),
            "{line}"
        );
    }
}

/// Under 15 KB in every language, and in the visitor's.
#[tokio::test]
async fn the_waiting_page_is_small_and_speaks_the_visitors_language() {
    let shop = Shop::start("capacity: 1");
    let _inside = shop.inside().await;
    let mut browser = shop.browser().await;
    browser.open("/").await;
    for (asked, lang) in [
        ("en", "en"),
        ("de-AT,de;q=0.9,en;q=0.5", "de"),
        ("fr", "fr"),
        ("es-MX", "es"),
        ("it", "it"),
        ("nl", "nl"),
        ("pl", "pl"),
        ("pt-BR", "pt-BR"),
        ("ja", "ja"),
        ("zh-CN", "zh"),
        ("ko", "ko"),
        ("ar", "ar"),
        ("tlh", "en"),
        ("", "en"),
        ("en;q=0.1, de", "de"),
    ] {
        let page = browser.request("GET", "/", &[("accept-language", asked)]).await;
        assert!(page.body.len() < 15_000, "{asked}: {} bytes", page.body.len());
        let tag = page.body.split("<html lang=\"").nth(1).and_then(|t| t.split('"').next());
        let tag = tag.unwrap_or_default();
        assert!(tag.starts_with(lang.split('-').next().unwrap()), "{asked}: {tag}");
        assert_eq!(page.body.contains("dir=\"rtl\""), lang == "ar", "{asked}");
    }
}

/// The operator's words are text, and the operator's template a page.
#[tokio::test]
async fn the_operators_words_and_page() {
    let page = "page: {title: \"Tickets & <b>more</b>\", message: \"At noon\"}";
    let shop = Shop::start(&format!("capacity: 1, {page}"));
    let _inside = shop.inside().await;
    let mut browser = shop.browser().await;
    let (answer, _) = browser.open("/").await;
    assert!(answer.body.contains("Tickets &amp; &lt;b&gt;more&lt;/b&gt;"), "{}", answer.body);
    assert!(answer.body.contains("At noon"));
    let template =
        "<!doctype html><title>{{title}}</title><b>{{rank}} of {{waiting}}</b> {{refresh_s}}";
    shop.change(&format!("capacity: 1, page: {{title: \"Hi <you>\", template: \"{template}\"}}"));
    let (answer, _) = browser.open("/").await;
    assert_eq!(answer.body, "<!doctype html><title>Hi &lt;you&gt;</title><b>1 of 1</b> 3",);
    assert_eq!((answer.status, answer.header("refresh")), (429, "10"));
    assert_eq!(answer.header("cache-control"), "private, no-store");
}

/// The settings are judged before they are in force.
#[tokio::test]
async fn settings_that_would_hurt_are_refused() {
    let shop = Shop::start("capacity: 1");
    for (queue, why) in [
        ("capacity: 0", "/capacity"),
        ("capacity: 1, bypass: \"http.request.uri.path eq\"", "/bypass"),
        ("capacity: 1, schedule: {opens_at: tomorrow}", "/opens_at"),
        ("capacity: 1, status: 404", "/status"),
        ("capacity: 1, cookie: {domain: other.test}", "/cookie/domain"),
    ] {
        shop.gateway.write_document(&super::shop::document(&shop.origin.url(), queue));
        let error = shop.gateway.app().reload().unwrap_err().to_string();
        assert!(error.contains(why), "{queue}: {error}");
    }
    let page = shop.visitor().get("/", &[]).await.unwrap();
    assert_eq!(page.status, 200, "{HOST} runs on with the settings it had");
}
