//! A site `shop.test` behind the queue `drop`, and browsers that take one step at a time.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt::Write as _,
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::Bytes;
use corvus_core::{FakeClock, Id};
use corvus_queue::op::Stats;
use corvus_testkit::{H2Client, Headers, Origin, RawClient, Visitor};
use serde_json::Value;

use crate::gateway::TestGateway;

pub(crate) const HOST: &str = "shop.test";
pub(crate) const ADMISSION: &str = "corvus_a_drop";
pub(crate) const PLACE: &str = "corvus_q_drop";
pub(crate) const STATUS: &str = "/__corvus/wr/drop/status";
pub(crate) const LEAVE: &str = "/__corvus/wr/drop/leave";
pub(crate) const MARKER: &str = "__corvus_c=1";
/// What Chromium sends for a page.
pub(crate) const HTML: &str =
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";

/// When tests begin: 2027-01-15 08:00 UTC.
pub(crate) const START_MS: u64 = 1_800_000_000_000;
/// A pass is due every second, and a gap of more than five counts as an outage.
const STEP: Duration = Duration::from_secs(4);

/// A request may take longer than this to come.
const LEAP: Duration = Duration::from_secs(20);

/// A gateway with a clock in the test's hands, its origin, and its queue.
pub(crate) struct Shop {
    pub(crate) gateway: TestGateway,
    pub(crate) origin: Origin,
    pub(crate) clock: FakeClock,
    pub(crate) visits: AtomicU64,
    /// What the clock was advanced by since workers had time to see it.
    pub(crate) leapt: Cell<Duration>,
}

impl Shop {
    /// `queue`: settings of the queue as members of a YAML flow mapping, `capacity: 1, paused: true`.
    pub(crate) fn start(queue: &str) -> Self {
        let (origin, clock) = (Origin::start(), FakeClock::new(START_MS));
        let document = document(&origin.url(), queue);
        let gateway = TestGateway::builder(document).from_file().clock(clock.clone()).start();
        Self { gateway, origin, clock, visits: AtomicU64::new(0), leapt: Cell::default() }
    }

    /// Applies other settings of the queue.
    pub(crate) fn change(&self, queue: &str) {
        self.gateway.reload(&document(&self.origin.url(), queue));
    }

    pub(crate) fn stats(&self) -> Stats {
        self.gateway.app().queue_stats(&Id::new("drop").unwrap()).unwrap()
    }

    /// Inside and waiting.
    pub(crate) fn numbers(&self) -> (u64, u64) {
        let stats = self.stats();
        (stats.inside, stats.waiting)
    }

    /// A visitor from an address of its own.
    pub(crate) fn visitor(&self) -> Visitor {
        self.gateway.visitor(HOST).ip(&self.address())
    }

    /// A browser from an address of its own.
    pub(crate) async fn browser(&self) -> Browser {
        self.browser_over(Link::Http1).await
    }

    pub(crate) async fn browser_over(&self, link: Link) -> Browser {
        let channel = match link {
            Link::Http1 => Channel::Http1(self.gateway.http),
            Link::Http1Tls => Channel::Http1(self.gateway.https),
            Link::Http2 => Channel::Http2(self.gateway.h2(HOST).await),
            Link::Http2Tls => Channel::Http2(self.gateway.h2_tls(HOST).await),
        };
        let (ip, jar) = (self.address(), BTreeMap::new());
        Browser { channel, link, ip, accept: HTML.to_owned(), jar, keeps_cookies: true }
    }

    fn address(&self) -> String {
        let n = self.visits.fetch_add(1, Ordering::Relaxed);
        format!("10.{}.{}.{}", n >> 16 & 255, n >> 8 & 255, n & 255)
    }

    /// A visitor who is inside.
    pub(crate) async fn inside(&self) -> Visitor {
        let mut visitor = self.visitor();
        let page = visitor.get("/", &[]).await.unwrap();
        assert_eq!(page.status, 200, "{}", page.body);
        visitor
    }

    /// A visitor who waits.
    pub(crate) async fn waiting(&self) -> Visitor {
        let mut visitor = self.visitor();
        let page = visitor.get("/", &[]).await.unwrap();
        assert_eq!(page.status, 429, "{}", page.body);
        assert!(visitor.cookie(PLACE).is_some_and(|place| field(place, 6) != "0"), "no place");
        visitor
    }

    /// Lets time go by with a pass at least every few seconds, as it does in a gateway that runs.
    pub(crate) async fn pass_time(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(STEP);
            self.clock.advance(step);
            let leapt = self.leapt.get() + step;
            self.leapt.set(leapt);
            if leapt >= LEAP {
                // Connections are timed by a clock that workers read twice a second.
                tokio::time::sleep(Duration::from_millis(600)).await;
                self.leapt.set(Duration::ZERO);
            }
            self.pass().await;
            left -= step;
        }
    }

    /// Has the queue make a pass: somebody with a proof of cookies, but no place, asks how it stands.
    pub(crate) async fn pass(&self) {
        let mut nobody = self.browser().await;
        let first = nobody.get("/").await;
        assert_eq!(first.status, 302);
        nobody.get(STATUS).await;
    }
}

/// The Document of a [`Shop`].
pub(crate) fn document(origin: &str, queue: &str) -> String {
    format!(
        "version: 1
settings: {{trusted_proxies: [\"127.0.0.0/8\"]}}
proxy_hosts:
  - id: shop
    domains: [{HOST}]
    upstreams: [{{url: \"{origin}\"}}]
    tls: {{certificate: lab, force_https: false}}
    access_queue: drop
certificates:
  - {{id: lab, domains: [{HOST}], issuer: self_signed}}
access_queues:
  - {{id: drop, {queue}}}
"
    )
}

/// A field of a token, from 0.
pub(crate) fn field(token: &str, index: usize) -> &str {
    token.split('.').nth(index).unwrap_or_default()
}

/// The ticket in a visitor's place cookie.
pub(crate) fn ticket(visitor: &Visitor) -> u64 {
    field(visitor.cookie(PLACE).expect("a place"), 6).parse().expect("a ticket")
}

/// Asks the status address as the waiting page does.
pub(crate) async fn status(visitor: &mut Visitor) -> Value {
    visitor.get_json(STATUS, &[]).await.unwrap().json()
}

/// How a browser reaches the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Http1,
    Http1Tls,
    Http2,
    Http2Tls,
}

impl Link {
    pub(crate) const ALL: [Self; 4] = [Self::Http1, Self::Http1Tls, Self::Http2, Self::Http2Tls];

    pub(crate) const fn scheme(self) -> &'static str {
        match self {
            Self::Http1 | Self::Http2 => "http",
            Self::Http1Tls | Self::Http2Tls => "https",
        }
    }
}

enum Channel {
    /// A connection for each request: the test's clock leaps over the time that one may be idle.
    Http1(SocketAddr),
    Http2(H2Client),
}

/// A client that keeps cookies and follows nothing by itself.
pub(crate) struct Browser {
    channel: Channel,
    pub(crate) link: Link,
    pub(crate) ip: String,
    pub(crate) accept: String,
    pub(crate) jar: BTreeMap<String, String>,
    pub(crate) keeps_cookies: bool,
}

/// One response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {}", self.body))
    }

    /// What a JSON answer says that it is.
    pub(crate) fn state(&self) -> String {
        self.json()["state"].as_str().unwrap_or_default().to_owned()
    }

    /// Each `Set-Cookie` field.
    pub(crate) fn cookies(&self) -> Vec<&str> {
        self.headers.all("set-cookie").collect()
    }

    /// `Location` without scheme and host, which must be ours.
    pub(crate) fn target(&self, link: Link) -> &str {
        let site = format!("{}://{HOST}", link.scheme());
        let location = self.header("location");
        location.strip_prefix(&site).unwrap_or_else(|| panic!("{location} is not on {site}"))
    }
}

impl Browser {
    pub(crate) async fn get(&mut self, target: &str) -> Answer {
        self.request("GET", target, &[]).await
    }

    pub(crate) async fn request(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
    ) -> Answer {
        let cookies: Vec<_> = self.jar.iter().map(|(name, v)| format!("{name}={v}")).collect();
        let cookies = cookies.join("; ");
        let mut all = vec![("x-forwarded-for", self.ip.as_str())];
        if !self.accept.is_empty() {
            all.push(("accept", &self.accept));
        }
        if !cookies.is_empty() {
            all.push(("cookie", &cookies));
        }
        all.extend_from_slice(fields);
        let answer = match &mut self.channel {
            Channel::Http1(gateway) => {
                let mut text = format!("{method} {target} HTTP/1.1\r\nhost: {HOST}\r\n");
                for (name, value) in &all {
                    // Writing to a String cannot fail.
                    let _ = write!(text, "{name}: {value}\r\n");
                }
                if method == "POST" {
                    text.push_str("content-length: 0\r\n");
                }
                text.push_str("\r\n");
                let mut client = match self.link {
                    Link::Http1Tls => RawClient::connect_tls(*gateway, HOST, &["http/1.1"]).await,
                    _ => RawClient::connect(*gateway).await,
                }
                .unwrap();
                let response = client.exchange(text).await.unwrap();
                let (status, body) = (response.status, response.text());
                Answer { status, headers: response.head.headers, body }
            }
            Channel::Http2(client) => {
                let request = all
                    .iter()
                    .fold(client.request(method, target), |b, (n, v)| b.header(*n, *v))
                    .body(Bytes::new())
                    .unwrap();
                let response = client.send(request).await.unwrap();
                let (status, body) = (response.status, response.text());
                Answer { status, headers: response.headers, body }
            }
        };
        if self.keeps_cookies {
            self.take_cookies(&answer);
        }
        answer
    }

    fn take_cookies(&mut self, answer: &Answer) {
        for cookie in answer.cookies() {
            let (pair, attributes) = cookie.split_once(';').unwrap_or((cookie, ""));
            let (name, value) = pair.split_once('=').expect("name=value");
            if attributes.contains("Max-Age=0") {
                self.jar.remove(name);
            } else {
                self.jar.insert(name.to_owned(), value.to_owned());
            }
        }
    }

    /// Follows redirects; gives the last answer and where they led.
    pub(crate) async fn open(&mut self, target: &str) -> (Answer, Vec<String>) {
        let (mut target, mut way) = (target.to_owned(), Vec::new());
        loop {
            let answer = self.get(&target).await;
            if answer.status != 302 {
                return (answer, way);
            }
            answer.target(self.link).clone_into(&mut target);
            way.push(target.clone());
            assert!(way.len() < 10, "a redirect loop: {way:?}");
        }
    }
}
