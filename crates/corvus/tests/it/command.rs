//! The command line through the real program: bad input gets one clear answer and loses nothing.

use std::{process::Output, sync::Arc};

use corvus_testkit::{ExitWait, Origin, PATIENCE, RawClient, Signal, data_dir};

use crate::gateway::{GatewayProcess, corvus, eventually, one_host};

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = corvus().args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// Arguments of `serve` that bind nothing in particular.
fn serve<'a>(config: &'a str, data: &'a str) -> Vec<&'a str> {
    let any = "127.0.0.1:0";
    vec!["serve", "--config", config, "--data", data, "--http", any, "--https", any, "--admin", any]
}

#[test]
fn check_tells_every_problem_with_its_place() {
    let dir = data_dir();
    let file = dir.path().join("wrong.yaml");
    std::fs::write(
        &file,
        "version: 1\nproxy_hosts:\n  - id: Shop\n    domains: [\"a b\"]\n    upsteams: []\n    \
         timeouts: {idle_s: soon}\nsetings: {}\n",
    )
    .unwrap();
    let file = file.display().to_string();
    let (code, out, err) = run(&["check", &file]);
    assert_eq!(code, Some(1));
    assert!(out.is_empty(), "{out}");
    for (line, pointer, words) in [
        (3, "/proxy_hosts/0/id", "not with `S`"),
        (4, "/proxy_hosts/0/domains/0", "a b"),
        (5, "/proxy_hosts/0/upsteams", "did you mean `upstreams`?"),
        (6, "/proxy_hosts/0/timeouts/idle_s", "expected a whole number"),
        (7, "/setings", "did you mean `settings`?"),
    ] {
        let found = err
            .lines()
            .any(|l| l.contains(&format!("wrong.yaml:{line}: {pointer}: ")) && l.contains(words));
        assert!(found, "{pointer} in:\n{err}");
    }
    // `serve` says the same and starts nothing.
    let data = dir.path().join("data").display().to_string();
    let (code, _, served) = run(&serve(&file, &data));
    assert_eq!(code, Some(1));
    assert!(served.contains("did you mean `upstreams`?"), "{served}");
    assert!(!dir.path().join("data").exists());
}

#[test]
fn check_accepts_what_is_right() {
    let dir = data_dir();
    let file = dir.path().join("right.yaml");
    std::fs::write(&file, one_host("a.example", "http://127.0.0.1:9000", "")).unwrap();
    let file = file.display().to_string();
    let (code, out, err) = run(&["check", &file]);
    assert_eq!(
        (code, out, err),
        (Some(0), format!("{file} is valid: 1 proxy host, 0 access queues\n"), String::new(),)
    );
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let dir = data_dir();
    let missing = dir.path().join("missing.yaml").display().to_string();
    let (code, _, err) = run(&["check", &missing]);
    assert_eq!(code, Some(1));
    assert!(err.contains(&missing) && err.contains("No such file"), "{err}");
    let folder = dir.path().display().to_string();
    let (code, _, err) = run(&["check", &folder]);
    assert_eq!(code, Some(1));
    assert!(err.contains(&folder), "{err}");
    let latin = dir.path().join("latin.yaml");
    std::fs::write(&latin, b"version: 1 # \xe4\n").unwrap();
    let (code, _, err) = run(&["check", &latin.display().to_string()]);
    assert_eq!(code, Some(1));
    assert!(err.contains("UTF-8"), "{err}");
}

/// Case 27: values are typed, there is nothing to inject into.
#[test]
fn values_with_something_behind_them_are_refused() {
    let dir = data_dir();
    let file = dir.path().join("evil.yaml");
    for (domain, upstream) in [
        ("a.example; return 200", "http://127.0.0.1:1"),
        ("a.example\\nb.example", "http://127.0.0.1:1"),
        ("a.example:8080", "http://127.0.0.1:1"),
        ("a.example", "http://x\\\"; return 200 \\\"pwn"),
        ("a.example", "http://127.0.0.1:1\\r\\nX: y"),
        ("a.example", "http://user:secret@127.0.0.1"),
        ("a.example", "file:///etc/passwd"),
    ] {
        std::fs::write(&file, one_host(domain, upstream, "")).unwrap();
        let (code, _, err) = run(&["check", &file.display().to_string()]);
        assert_eq!(code, Some(1), "{domain} {upstream}");
        assert!(err.contains("/proxy_hosts/0/"), "{err}");
    }
}

#[test]
fn serve_without_a_configuration_says_what_to_do() {
    let dir = data_dir();
    let data = dir.path().join("data").display().to_string();
    let (code, _, err) = run(&["serve", "--data", &data]);
    assert_eq!(code, Some(1));
    for hint in ["corvus serve --config FILE", "corvus check FILE", "corvus demo"] {
        assert!(err.contains(hint), "{err}");
    }
    assert!(!dir.path().join("data").exists());
}

#[test]
fn unknown_options_and_addresses_are_told() {
    for (args, told) in [
        (&["serve", "--confg", "x"][..], "--config"),
        (&["serv"], "serve"),
        (&["serve", "--http", "nonsense"], "not an address like"),
        (&["serve", "--workers", "0"], "1..=1024"),
        (&[], "Usage"),
    ] {
        let (code, out, err) = run(args);
        assert_eq!(code, Some(2), "{args:?}");
        assert!(err.contains(told), "{args:?}: {err}");
        assert!(out.is_empty(), "{out}");
    }
    let (code, out, _) = run(&["version"]);
    assert_eq!(
        (code, out),
        (Some(0), concat!("corvus ", env!("CARGO_PKG_VERSION"), "\n").to_owned())
    );
    let (code, out, _) = run(&["--help"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("serve") && out.contains("demo") && out.contains("check"));
}

#[test]
fn a_port_in_use_is_an_error() {
    let dir = data_dir();
    let file = dir.path().join("gateway.yaml");
    std::fs::write(&file, "version: 1\n").unwrap();
    let (file, data) = (file.display().to_string(), dir.path().join("data").display().to_string());
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap().to_string();
    for option in ["--http", "--https", "--admin"] {
        let mut args = serve(&file, &data);
        let at = args.iter().position(|arg| *arg == option).unwrap();
        args[at + 1] = &address;
        let (code, out, err) = run(&args);
        assert_eq!(code, Some(1), "{option}");
        assert!(err.contains(&format!("{address} is in use by another program")), "{err}");
        assert!(!out.contains("listening"), "{out}");
    }
}

#[tokio::test]
async fn two_gateways_share_neither_port_nor_folder() {
    let origin = Origin::start();
    let dir = Arc::new(data_dir());
    let first = GatewayProcess::start_in(&dir, &one_host("a.example", &origin.url(), ""), &[]);
    let file = dir.path().join("gateway.yaml").display().to_string();
    let data = first.data().display().to_string();
    let (code, _, err) = run(&serve(&file, &data));
    assert_eq!(code, Some(1));
    assert!(err.contains("is in use by another gateway"), "{err}");
    let other = dir.path().join("other").display().to_string();
    let address = first.http.to_string();
    let mut args = serve(&file, &other);
    args[6] = &address;
    let (code, _, err) = run(&args);
    assert_eq!(code, Some(1));
    assert!(err.contains(&format!("{address} is in use by another program")), "{err}");
    // The first one has not noticed; after its end the folder is free, also after a kill.
    assert_eq!(first.client().await.get("a.example", "/", &[]).await.unwrap().status, 200);
    first.child.kill().unwrap();
    let second = GatewayProcess::start_in(&dir, &one_host("a.example", &origin.url(), ""), &[]);
    assert_eq!(second.client().await.get("a.example", "/", &[]).await.unwrap().status, 200);
}

#[test]
fn a_data_folder_that_cannot_be_used_is_an_error() {
    let dir = data_dir();
    let file = dir.path().join("gateway.yaml");
    std::fs::write(&file, "version: 1\n").unwrap();
    let occupied = dir.path().join("occupied");
    std::fs::write(&occupied, "a file").unwrap();
    for data in [occupied.clone(), occupied.join("below")] {
        let data = data.display().to_string();
        let (code, out, err) = run(&serve(&file.display().to_string(), &data));
        assert_eq!(code, Some(1), "{data}");
        assert!(err.contains(&data), "{err}");
        assert!(!out.contains("listening"), "{out}");
    }
    assert_eq!(std::fs::read_to_string(occupied).unwrap(), "a file");
}

async fn console(gateway: &GatewayProcess, path: &str) -> corvus_testkit::RawResponse {
    let client = RawClient::connect_tls(gateway.admin, "localhost", &["http/1.1"]).await;
    client.unwrap().get("localhost", path, &[]).await.unwrap()
}

#[tokio::test]
async fn the_console_tells_health_and_numbers() {
    let origin = Origin::start();
    let document = one_host("a.example", &origin.url(), "");
    let gateway = GatewayProcess::start(&document, &[]);
    let health = console(&gateway, "/healthz").await;
    assert_eq!((health.status, health.text().as_str()), (200, "ok\n"));
    let mut client = gateway.client().await;
    for (path, count) in [("/bytes/10", 3), ("/status/503", 2)] {
        for _ in 0..count {
            client.get("a.example", path, &[]).await.unwrap();
        }
    }
    client.get("unknown.example", "/", &[]).await.unwrap();
    let page = console(&gateway, "/metrics").await;
    assert_eq!(page.status, 200);
    let text = page.text();
    for part in ["# HELP ", "# TYPE ", "site=\"site\"", "upstream"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert_eq!(console(&gateway, "/nothing").await.status, 404);
    // Its own port speaks TLS only, and none of it is on the public ports.
    assert_eq!(client.get("localhost", "/metrics", &[]).await.unwrap().status, 404);

    let admin = gateway.admin.to_string();
    let (code, out, _) = tokio::task::spawn_blocking({
        let admin = admin.clone();
        move || run(&["healthcheck", "--admin", &admin])
    })
    .await
    .unwrap();
    assert_eq!((code, out.as_str()), (Some(0), "healthy\n"));
    gateway.child.signal(Signal::TERM).unwrap();
    assert!(matches!(gateway.child.wait(PATIENCE), ExitWait::Exited(status) if status.success()));
    let (code, _, err) = run(&["healthcheck", "--admin", &admin]);
    assert_eq!(code, Some(1));
    assert!(err.contains(&admin), "{err}");
}

#[tokio::test]
async fn the_environment_stands_for_options() {
    let origin = Origin::start();
    let dir = data_dir();
    let file = dir.path().join("gateway.yaml");
    let document = one_host("a.example", "http://${TEST_UPSTREAM}", "");
    std::fs::write(&file, document).unwrap();
    let mut command = corvus();
    command.arg("serve").env("CORVUS_CONFIG", &file).env("CORVUS_DATA", dir.path().join("d"));
    for name in ["CORVUS_HTTP", "CORVUS_HTTPS", "CORVUS_ADMIN"] {
        command.env(name, "127.0.0.1:0");
    }
    command.env("TEST_UPSTREAM", origin.addr().to_string()).env("CORVUS_WORKERS", "1");
    let child = corvus_testkit::Child::spawn(command).unwrap();
    let line = child.wait_for_line("listening on http://", PATIENCE).unwrap();
    let address = line.strip_prefix("listening on http://").unwrap().parse().unwrap();
    let mut client = RawClient::connect(address).await.unwrap();
    assert_eq!(client.get("a.example", "/", &[]).await.unwrap().status, 200);
    // The access log goes to standard output unless told otherwise.
    child.wait_for_line("\"site\":\"site\"", PATIENCE).unwrap();
}

/// What logrotate does: move the file away, then ask for a new one.
#[tokio::test]
async fn the_access_log_is_opened_again_on_request() {
    let origin = Origin::start();
    let gateway = GatewayProcess::start(&one_host("a.example", &origin.url(), ""), &[]);
    let log = gateway.data().with_file_name("access.log");
    let moved = gateway.data().with_file_name("access.log.1");
    let lines = |path: &std::path::Path| -> Vec<String> {
        std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
    };
    let first = |path: &std::path::Path| lines(path).into_iter().next();
    let mut client = gateway.client().await;
    client.get("a.example", "/1", &[]).await.unwrap();
    let line = eventually("the first line", || first(&log)).await;
    assert!(line.contains("\"target\":\"/1\""), "{line}");
    std::fs::rename(&log, &moved).unwrap();
    gateway.child.signal(Signal::USR1).unwrap();
    eventually("the new file", || log.exists().then_some(())).await;
    client.get("a.example", "/2", &[]).await.unwrap();
    let line = eventually("the second line", || first(&log)).await;
    assert!(line.contains("\"target\":\"/2\""), "{line}");
    assert_eq!(lines(&moved).len(), 1);
}
