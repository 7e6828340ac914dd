//! Stories in a real browser: `tests/browser/*.mjs`, driven by Node.js with playwright-core.
//!
//! `make test` installs what they need and sets `CORVUS_REQUIRE_BROWSER`; without that variable a
//! machine that lacks a part skips them and says which.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use corvus_core::Id;
use corvus_testkit::{Child, ExitWait, Origin, Visitor, free_port};

use crate::{
    gateway::{TestGateway, corvus, host},
    queue::shop::document,
};

/// A story takes ten seconds, and the longest forty, on an idle machine.
const LIMIT: Duration = Duration::from_mins(4);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What is missing for browser tests, if anything.
fn missing() -> Option<String> {
    let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".to_owned());
    let runs = |program: &str| {
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    if !runs("node") {
        return Some("node is not installed".to_owned());
    }
    if !Path::new(&chromium).exists() {
        return Some(format!("{chromium} is not there (CHROMIUM names another)"));
    }
    let modules = root().join("tests/browser/node_modules/playwright-core");
    (!modules.exists()).then(|| "`npm ci --prefix tests/browser` was not run".to_owned())
}

#[expect(clippy::print_stderr, reason = "whoever runs the tests should know what did not run")]
fn skip(missing: &str) {
    eprintln!("skipped: {missing}");
}

/// Runs Node.js in `tests/browser`. Fails with all that was printed.
fn node(args: &[&str], environment: &[(&str, &str)]) {
    if let Some(missing) = missing() {
        let required = std::env::var_os("CORVUS_REQUIRE_BROWSER").is_some();
        assert!(!required, "browser tests cannot run: {missing}");
        skip(&missing);
        return;
    }
    let mut command = Command::new("node");
    command.args(args).envs(environment.iter().copied()).current_dir(root().join("tests/browser"));
    let child = Child::spawn(command).unwrap();
    let ended = child.wait(LIMIT);
    let printed = || child.lines().join("\n");
    match ended {
        ExitWait::Exited(status) => assert!(status.success(), "{args:?}: {status}\n{}", printed()),
        ExitWait::StillRunning => panic!("{args:?} takes too long\n{}", printed()),
    }
}

/// A story with one queue `drop` of one place.
fn story(name: &str) {
    let origin = Origin::start();
    let gateway = TestGateway::start(document(&origin.url(), "capacity: 1"));
    let site = format!("http://shop.test:{}", gateway.http.port());
    node(&[name], &[("CORVUS_URL", &site)]);
}

#[test]
fn joins_waits_and_is_admitted() {
    story("line.mjs");
}

#[test]
fn leaves_and_joins_again() {
    story("leave.mjs");
}

#[test]
fn without_a_script() {
    story("without-script.mjs");
}

#[test]
fn blocked_cookies() {
    let origin = Origin::start();
    let gateway = TestGateway::start(document(&origin.url(), "capacity: 1"));
    let site = format!("http://shop.test:{}", gateway.http.port());
    node(&["without-cookies.mjs"], &[("CORVUS_URL", &site)]);
    if missing().is_none() {
        let stats = gateway.app().queue_stats(&Id::new("drop").unwrap()).unwrap();
        assert_eq!((stats.inside, stats.waiting), (0, 0), "nothing was stored");
        assert_eq!(origin.requests(), 0);
    }
}

/// The waiting page's script with the clock in the test's hands.
#[test]
fn the_waiting_pages_script() {
    node(&["--test", "../../crates/corvus-proxy/testdata/pages/waiting.spec.mjs"], &[]);
}

/// Every page, on small and large screens, light and dark. The pictures are for people to look at.
#[tokio::test]
async fn pages_fit_every_screen() {
    let mut shop = corvus();
    shop.args(["sample-shop", "--listen", "127.0.0.1:0"]);
    let shop = Child::spawn(shop).unwrap();
    let line = shop.wait_for_line("sample shop on", Duration::from_secs(10)).unwrap();
    let shop_url = line.trim_start_matches("sample shop on ").trim_end_matches('/').to_owned();
    let gone = format!("http://127.0.0.1:{}", free_port());
    let (mut hosts, mut queues) = (String::new(), String::new());
    for (name, settings) in [
        ("waiting", "capacity: 1"),
        ("next", "capacity: 1"),
        (
            "words",
            "capacity: 1, page: {title: \"Tickets for Saturday\", message: \"We sell 500 tickets at \
             noon. Card and PayPal only.\"}",
        ),
        ("paused", "capacity: 1, paused: true"),
        ("lottery", "capacity: 1, schedule: {starts_at: \"2099-01-01T00:00:00Z\"}"),
        ("full", "capacity: 1, max_waiting: 1"),
        ("closed", "capacity: 1, method: reject"),
        ("early", "capacity: 1, schedule: {opens_at: \"2099-01-01T00:00:00Z\"}"),
        ("shop", "capacity: 100"),
    ] {
        let domain = format!("{name}.test");
        hosts.push_str(&host(name, &domain, &shop_url, &format!("access_queue: {name}")));
        // Writing to a String cannot fail.
        let _ = writeln!(queues, "  - {{id: {name}, {settings}}}");
    }
    hosts.push_str(&host("broken", "broken.test", &gone, ""));
    let gateway = TestGateway::start(format!(
        "version: 1\nsettings: {{trusted_proxies: [\"127.0.0.0/8\"]}}\n\
         proxy_hosts:\n{hosts}access_queues:\n{queues}"
    ));
    // Some are there before.
    for (host, visitors) in
        [("waiting.test", 130), ("next.test", 1), ("words.test", 8), ("full.test", 2)]
    {
        for n in 0..visitors {
            let mut visitor = Visitor::new(gateway.http, host).ip(&format!("10.0.0.{n}"));
            visitor.get("/", &[]).await.unwrap();
        }
    }
    let pictures = root().join("test-out");
    std::fs::create_dir_all(&pictures).unwrap();
    let site = format!("http://shop.test:{}", gateway.http.port());
    let pictures = pictures.to_string_lossy().into_owned();
    node(&["pages.mjs"], &[("CORVUS_URL", &site), ("CORVUS_PICTURES", &pictures)]);
}
