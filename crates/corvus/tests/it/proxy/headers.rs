//! What of the header fields passes, and what the gateway adds.

use corvus_testkit::{Origin, RawClient, RawResponse};
use serde_json::Value;

use crate::gateway::{TestGateway, one_host};

const TRUSTING: &str = "settings: {trusted_proxies: [127.0.0.2, 10.0.0.0/8, \"fd00::/8\"]}\n";

fn gateway(origin: &Origin, settings: &str) -> TestGateway {
    TestGateway::start(one_host("a.example", &origin.url(), "") + settings)
}

/// What the origin saw, as its echo tells.
struct Seen(Vec<(String, String)>);

impl Seen {
    fn of(response: &RawResponse) -> Self {
        assert_eq!(response.status, 200, "{}", response.text());
        Self::from(&response.json())
    }

    fn from(echo: &Value) -> Self {
        Self(serde_json::from_value(echo["headers"].clone()).unwrap())
    }

    fn all(&self, name: &str) -> Vec<&str> {
        let named = self.0.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    fn one(&self, name: &str) -> &str {
        match self.all(name)[..] {
            [value] => value,
            ref other => panic!("{name}: {other:?}"),
        }
    }
}

/// A client at a loopback address of its own.
async fn from(gateway: &TestGateway, ip: &str) -> RawClient {
    RawClient::connect_from(ip.parse().unwrap(), gateway.http).await.unwrap()
}

#[tokio::test]
async fn fields_pass_in_order_and_spelling() {
    let origin = Origin::start();
    let gateway = gateway(&origin, "");
    let request = "GET / HTTP/1.1\r\nuser-AGENT: x\r\nHOST: a.example\r\nX-b: 1\r\nX-A: \u{e4}\r\n\
        x-B: 2\r\nAccept-Encoding: gzip\r\nRange: bytes=0-1\r\nAuthorization: Basic eDp5\r\n\
        Cookie: a=1\r\ncookie: b=2\r\n\r\n";
    let request: Vec<u8> = request.chars().map(|c| c as u8).collect();
    let response = gateway.exchange(request).await;
    let seen = Seen::of(&response);
    let kept: Vec<_> = seen
        .0
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .filter(|(name, _)| {
            !name.starts_with("X-Forwarded") && !name.starts_with("X-Re") && *name != "Via"
        })
        .collect();
    let expected = [
        ("Host", "a.example"),
        ("user-AGENT", "x"),
        ("X-b", "1"),
        ("X-A", "\u{e4}"),
        ("x-B", "2"),
        ("Accept-Encoding", "gzip"),
        ("Range", "bytes=0-1"),
        ("Authorization", "Basic eDp5"),
        ("Cookie", "a=1"),
        ("cookie", "b=2"),
    ];
    assert_eq!(kept, expected);
}

#[tokio::test]
async fn the_origin_is_told_who_asks_and_how() {
    let origin = Origin::start();
    let more = "tls: {force_https: false}";
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), more));
    let plain = gateway.get("a.example:81", "/", &[]).await;
    let tls = gateway.client_tls("a.example").await.get("a.example:81", "/", &[]).await.unwrap();
    for (response, scheme) in [(plain, "http"), (tls, "https")] {
        let seen = Seen::of(&response);
        assert_eq!(seen.one("x-forwarded-for"), "127.0.0.1");
        assert_eq!(seen.one("x-real-ip"), "127.0.0.1");
        assert_eq!(seen.one("x-forwarded-proto"), scheme);
        assert_eq!(seen.one("x-forwarded-host"), "a.example:81");
        assert_eq!(seen.one("host"), "a.example:81");
        assert_eq!(seen.one("via"), "1.1 corvus");
        let id = seen.one("x-request-id");
        let line = gateway.logged_id(id).await;
        assert_eq!((&line["site"], &line["client"]), (&"site".into(), &"127.0.0.1".into()));
        assert_eq!(line["tls"], scheme == "https");
    }
    let h2 = gateway.h2("a.example").await.get("/", &[("via", "1.0 other")]).await.unwrap();
    assert_eq!(Seen::from(&h2.json()).one("via"), "1.0 other, 2.0 corvus");
}

#[tokio::test]
async fn a_request_id_is_new_each_time() {
    let origin = Origin::start();
    let gateway = gateway(&origin, "");
    let mut client = gateway.client().await;
    let mut ids = std::collections::HashSet::new();
    for _ in 0..50 {
        let response = client.get("a.example", "/", &[("X-Request-Id", "mine")]).await.unwrap();
        ids.insert(Seen::of(&response).one("x-request-id").to_owned());
    }
    assert_eq!(ids.len(), 50);
    assert!(!ids.contains("mine"));
}

#[tokio::test]
async fn hop_by_hop_fields_stay_on_their_hop() {
    let origin = Origin::start();
    let gateway = gateway(&origin, "");
    let fields = [
        ("Connection", "X-Tmp, keep-alive"),
        ("X-Tmp", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("TE", "trailers"),
        ("Upgrade", "foo"),
        ("HTTP2-Settings", "AAMAAABkAAQAoAAAAAIAAAAA"),
        ("Proxy", "http://evil.example"),
    ];
    let seen = Seen::of(&gateway.get("a.example", "/", &fields).await);
    for (name, _) in fields {
        assert!(seen.all(name).is_empty(), "{name}: {:?}", seen.all(name));
    }
    let query = "Connection=X-Mine&X-Mine=1&Keep-Alive=timeout%3D5&Upgrade=h2c&X-Kept=2";
    let response = gateway.get("a.example", &format!("/header?{query}"), &[]).await;
    for name in ["connection", "x-mine", "keep-alive", "upgrade"] {
        assert_eq!(response.headers.get(name), None, "{name}");
    }
    assert_eq!(response.headers.get("x-kept"), Some("2"));
}

/// CVE-2021-32813 and CVE-2026-39858: a client that lists our fields in `Connection` must not strip
/// them, nor what frames or describes the request.
#[tokio::test]
async fn connection_cannot_take_away_what_we_say() {
    let origin = Origin::start();
    let gateway = gateway(&origin, "");
    let listed = "close, X-Real-IP, X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host, Host, Via, \
        X-Request-Id, Content-Length, Cookie, Authorization, Content-Type";
    let request = format!(
        "POST / HTTP/1.1\r\nHost: a.example\r\nConnection: {listed}\r\nX-Real-IP: 6.6.6.6\r\n\
         Cookie: a=1\r\nAuthorization: x\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"
    );
    let response = gateway.exchange(request).await;
    assert_eq!(response.json()["body"], "hello");
    let seen = Seen::of(&response);
    assert_eq!(seen.one("x-real-ip"), "127.0.0.1");
    assert_eq!(seen.one("x-forwarded-for"), "127.0.0.1");
    assert_eq!(seen.one("host"), "a.example");
    for name in [
        "x-forwarded-proto",
        "x-forwarded-host",
        "via",
        "x-request-id",
        "cookie",
        "authorization",
        "content-type",
    ] {
        seen.one(name);
    }
}

const SPOOFS: [&str; 26] = [
    "X-Forwarded-For",
    "x-forwarded-for",
    "X_Forwarded_For",
    "X.Forwarded.For",
    "X-Forwarded_Proto",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Server",
    "X_Real_IP",
    "X.Real.IP",
    "Forwarded",
    "CF-Connecting-IP",
    "True-Client-IP",
    "Client-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "X-Original-URL",
    "X-Rewrite-URL",
    "Remote-User",
    "Remote_User",
    "REMOTE.GROUPS",
    "X-Auth-Request-User",
    "X.Authenticated.User",
    "X-Authentik-Username",
    "Front-End-Https",
];

#[tokio::test]
async fn nobody_untrusted_can_say_who_he_is() {
    let origin = Origin::start();
    let gateway = gateway(&origin, TRUSTING);
    let h2 = gateway.h2("a.example").await;
    for name in SPOOFS {
        let seen = Seen::of(&gateway.get("a.example", "/", &[(name, "6.6.6.6")]).await);
        let two = h2.get("/", &[(&*name.to_lowercase(), "6.6.6.6")]).await.unwrap();
        for seen in [seen, Seen::from(&two.json())] {
            let liars: Vec<_> =
                seen.0.iter().filter(|(_, value)| value.contains("6.6.6.6")).collect();
            assert!(liars.is_empty(), "{name}: {liars:?}");
            assert_eq!(seen.one("x-forwarded-for"), "127.0.0.1", "{name}");
        }
    }
    let line = gateway.log();
    assert!(line.iter().all(|line| line["client"] == "127.0.0.1"));
}

#[tokio::test]
async fn a_trusted_proxy_is_believed_from_right_to_left() {
    let origin = Origin::start();
    let gateway = gateway(&origin, TRUSTING);
    for (forwarded, client) in [
        ("203.0.113.9", "203.0.113.9"),
        ("6.6.6.6, 203.0.113.9", "203.0.113.9"),
        ("6.6.6.6, 203.0.113.9, 10.0.0.2, 10.0.0.1", "203.0.113.9"),
        ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("203.0.113.9:4711", "203.0.113.9"),
        ("[2001:db8::9]:4711, fd00::1", "2001:db8::9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("6.6.6.6, unknown, 10.0.0.2", "10.0.0.2"),
        ("rubbish", "127.0.0.2"),
        ("", "127.0.0.2"),
    ] {
        let mut proxy = from(&gateway, "127.0.0.2").await;
        let fields = [
            ("X-Forwarded-For", forwarded),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Host", "outer.example"),
        ];
        let seen = Seen::of(&proxy.get("a.example", "/", &fields).await.unwrap());
        assert_eq!(seen.one("x-real-ip"), client, "{forwarded}");
        assert_eq!(seen.one("x-forwarded-proto"), "https", "{forwarded}");
        assert_eq!(seen.one("x-forwarded-host"), "outer.example", "{forwarded}");
        let line = gateway.logged_id(seen.one("x-request-id")).await;
        assert_eq!(line["client"], client, "{forwarded}");
        if forwarded.contains('.') && forwarded != "rubbish" {
            let sent_on = format!("{forwarded}, 127.0.0.2");
            assert_eq!(seen.one("x-forwarded-for"), sent_on, "{forwarded}");
        }
    }
    // Several fields are one list.
    let mut proxy = from(&gateway, "127.0.0.2").await;
    let fields = [("X-Forwarded-For", "6.6.6.6"), ("x-forwarded-for", "203.0.113.9")];
    let seen = Seen::of(&proxy.get("a.example", "/", &fields).await.unwrap());
    assert_eq!(seen.one("x-real-ip"), "203.0.113.9");
    assert_eq!(seen.one("x-forwarded-for"), "6.6.6.6, 203.0.113.9, 127.0.0.2");
}

/// Case 11: Cloudflare in "flexible" mode, or a second proxy, ends TLS in front of us.
#[tokio::test]
async fn force_https_believes_a_trusted_proxy_and_nobody_else() {
    let origin = Origin::start();
    let document = one_host("a.example", &origin.url(), "tls: {certificate: c}")
        + "certificates: [{id: c, issuer: self_signed, domains: [a.example]}]\n"
        + TRUSTING;
    let gateway = TestGateway::start(document);
    let fields = [("X-Forwarded-Proto", "https")];
    let mut proxy = from(&gateway, "127.0.0.2").await;
    assert_eq!(proxy.get("a.example", "/", &fields).await.unwrap().status, 200);
    let mut client = from(&gateway, "127.0.0.3").await;
    let response = client.get("a.example", "/", &fields).await.unwrap();
    assert_eq!(response.status, 301);
    assert_eq!(response.headers.get("location"), Some("https://a.example/"));
    assert_eq!(origin.requests(), 1);
}

fn v2(source: [u8; 4]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend(source);
    header.extend([10, 0, 0, 1, 0x12, 0x67, 1, 0xbb]);
    header
}

#[tokio::test]
async fn the_proxy_protocol_is_read_from_those_who_must_send_it() {
    let origin = Origin::start();
    let more = "tls: {force_https: false}";
    let document = one_host("a.example", &origin.url(), more)
        + "settings: {proxy_protocol_from: [127.0.0.2]}\n";
    let gateway = TestGateway::start(document);
    let v1 = b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 443\r\n".to_vec();
    let v1_of_six = b"PROXY TCP6 2001:db8::9 ::1 4711 443\r\n".to_vec();
    for (header, ip) in [
        (v1, "203.0.113.9"),
        (v1_of_six, "2001:db8::9"),
        (v2([203, 0, 113, 9]), "203.0.113.9"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.2"),
        (b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec(), "127.0.0.2"),
    ] {
        // In one segment with the request, and byte by byte.
        let mut client = from(&gateway, "127.0.0.2").await;
        let request = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
        client.send([&header[..], request].concat()).await.unwrap();
        let seen = Seen::of(&client.read_response("GET").await.unwrap());
        assert_eq!(seen.one("x-forwarded-for"), ip);
        let mut client = from(&gateway, "127.0.0.2").await;
        for byte in &header {
            client.send([*byte]).await.unwrap();
        }
        let seen = Seen::of(&client.get("a.example", "/", &[]).await.unwrap());
        assert_eq!(seen.one("x-real-ip"), ip);
        // Before TLS.
        let ip_from = "127.0.0.2".parse().unwrap();
        let mut client = RawClient::connect_from(ip_from, gateway.https).await.unwrap();
        client.send(&header).await.unwrap();
        let mut client = client.start_tls("a.example", &["http/1.1"]).await.unwrap();
        let seen = Seen::of(&client.get("a.example", "/", &[]).await.unwrap());
        assert_eq!(seen.one("x-real-ip"), ip);
    }
    let seen = origin.requests();
    // Without the header, or with a broken one: nothing but the end.
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"[..],
        b"PROXY TCP4 203.0.113.9\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ] {
        let mut client = from(&gateway, "127.0.0.2").await;
        client.send(bytes).await.unwrap();
        assert!(client.read_to_close().await.unwrap_or_default().is_empty());
    }
    // From others it is no header but rubbish.
    let mut client = from(&gateway, "127.0.0.3").await;
    client.send(b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 443\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
    assert_eq!(client.read_response("GET").await.unwrap().status, 400);
    assert_eq!(origin.requests(), seen);
}

#[tokio::test]
async fn our_cookies_are_ours() {
    let origin = Origin::start();
    let gateway = gateway(&origin, "");
    for (sent, seen) in [
        ("a=1; corvus_a_shop=v1.x; b=2", vec!["a=1; b=2"]),
        ("corvus_q_shop=x", vec![]),
        ("corvus_c=x;corvus_a_x=y", vec![]),
        ("a=1;b=2", vec!["a=1;b=2"]),
        ("mycorvus_a=1", vec!["mycorvus_a=1"]),
    ] {
        let response = gateway.get("a.example", "/", &[("Cookie", sent)]).await;
        assert_eq!(Seen::of(&response).all("cookie"), seen, "{sent}");
    }
    let response = gateway.get("a.example", "/set-cookie?a=1&corvus_a_shop=stolen&b=2", &[]).await;
    let set: Vec<_> = response.headers.all("set-cookie").collect();
    assert_eq!(set, ["a=1; Path=/", "b=2; Path=/"]);
}

#[tokio::test]
async fn the_hosts_own_header_policy_has_the_last_word() {
    let origin = Origin::start();
    let more = "headers:\n  request: {set: {X-Env: prod, Host: inner.example}, remove: [X-Debug, User-Agent]}\n  \
        response: {set: {X-Frame-Options: DENY}, remove: [X-Powered-By]}";
    let gateway = TestGateway::start(one_host("a.example", &origin.url(), more));
    let fields =
        [("X-Debug", "1"), ("x-env", "test"), ("User-Agent", "x"), ("Connection", "X-Env")];
    let seen = Seen::of(&gateway.get("a.example", "/", &fields).await);
    assert_eq!(seen.one("x-env"), "prod");
    assert_eq!(seen.one("host"), "inner.example");
    assert!(seen.all("x-debug").is_empty() && seen.all("user-agent").is_empty());
    assert_eq!(seen.one("x-forwarded-host"), "a.example");
    let query = "X-Frame-Options=SAMEORIGIN&x-powered-by=PHP&X-Other=1";
    let response = gateway.get("a.example", &format!("/header?{query}"), &[]).await;
    let all: Vec<_> = response.headers.all("x-frame-options").collect();
    assert_eq!(all, ["DENY"]);
    assert_eq!(response.headers.get("x-powered-by"), None);
    assert_eq!(response.headers.get("x-other"), Some("1"));
}
