//! A visitor: a browser reduced to its connection, its cookies and its way with redirects.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;

use cookie::Cookie;

use crate::headers::Headers;
use crate::raw_client::{RawClient, RawResponse};
use crate::wire::bad;

const MAX_REDIRECTS: usize = 20;

/// What a visitor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// As a browser asks for a page.
    Html,
    /// As `fetch` with JSON asks.
    Json,
}

/// What a visitor got, after redirects.
#[derive(Clone, Debug)]
pub struct Page {
    pub status: u16,
    pub headers: Headers,
    pub body: String,
    /// The path (and query) that answered in the end.
    pub path: String,
    /// The `Location` of each redirect on the way.
    pub redirects: Vec<String>,
}

impl Page {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {}", self.body))
    }
}

#[derive(Clone, Debug)]
struct Kept {
    cookie: Cookie<'static>,
    /// The host that set it; without a Domain attribute it is sent to no other.
    host: String,
}

/// A client with a cookie jar on one gateway. Every name is reached at the gateway's address, so
/// redirects to other hosts of it work.
///
/// Cookies live until they are deleted (`Max-Age=0`, or another value set): a test's clock is not
/// the visitor's.
pub struct Visitor {
    gateway: SocketAddr,
    host: String,
    tls: bool,
    ip: Option<String>,
    jar: Vec<Kept>,
    connection: Option<RawClient>,
}

impl Visitor {
    /// A visitor of `http://host`, found at `gateway`.
    pub fn new(gateway: SocketAddr, host: &str) -> Self {
        let (ip, jar, connection) = (None, Vec::new(), None);
        Self { gateway, host: host.to_owned(), tls: false, ip, jar, connection }
    }

    /// A visitor of `https://host`, who accepts any certificate.
    pub fn new_tls(gateway: SocketAddr, host: &str) -> Self {
        Self { tls: true, ..Self::new(gateway, host) }
    }

    /// Comes from this address, as `X-Forwarded-For` says to a gateway that trusts 127.0.0.1.
    #[must_use]
    pub fn ip(mut self, ip: &str) -> Self {
        self.ip = Some(ip.to_owned());
        self
    }

    /// Goes on at another gateway of the same sites, with the same cookies.
    pub fn go_to(&mut self, gateway: SocketAddr) {
        self.gateway = gateway;
        self.connection = None;
    }

    /// The value of a cookie in the jar.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        self.jar.iter().find(|kept| kept.cookie.name() == name).map(|kept| kept.cookie.value())
    }

    /// Puts a cookie of this host into the jar, in place of one of the same name.
    pub fn set_cookie(&mut self, name: &str, value: &str) {
        let cookie = Cookie::build((name.to_owned(), value.to_owned())).path("/").build();
        let host = self.host.clone();
        self.keep(cookie, &host);
    }

    pub fn forget_cookie(&mut self, name: &str) {
        self.jar.retain(|kept| kept.cookie.name() != name);
    }

    pub fn forget_cookies(&mut self) {
        self.jar.clear();
    }

    /// Opens a page as a browser does, following redirects.
    pub async fn get(&mut self, path: &str, fields: &[(&str, &str)]) -> io::Result<Page> {
        self.request("GET", path, Accept::Html, fields, b"").await
    }

    /// Asks for JSON, following redirects.
    pub async fn get_json(&mut self, path: &str, fields: &[(&str, &str)]) -> io::Result<Page> {
        self.request("GET", path, Accept::Json, fields, b"").await
    }

    /// Any request, following redirects: 303 becomes GET, and POST becomes GET after 301 and 302,
    /// as browsers do. A redirect to another scheme is returned and not followed.
    pub async fn request(
        &mut self,
        method: &str,
        path: &str,
        accept: Accept,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Page> {
        let (mut method, mut path, mut body) = (method.to_owned(), path.to_owned(), body.to_vec());
        let mut host = self.host.clone();
        let mut redirects = Vec::new();
        loop {
            let response = self.once(&host, &method, &path, accept, fields, &body).await?;
            for text in response.headers.all("set-cookie") {
                let cookie = Cookie::parse(text.to_owned()).map_err(|e| bad(e.to_string()))?;
                self.keep(cookie, &host);
            }
            let location = response.headers.get("location").map(str::to_owned);
            let redirect = matches!(response.status, 301 | 302 | 303 | 307 | 308);
            let next = location.filter(|_| redirect).and_then(|to| {
                let next = self.resolve(&host, &path, &to);
                redirects.push(to);
                next
            });
            let Some((next_host, next_path)) = next else {
                let (status, body) = (response.status, response.text());
                return Ok(Page { status, headers: response.head.headers, body, path, redirects });
            };
            if redirects.len() > MAX_REDIRECTS {
                return Err(bad(format!("a redirect loop: {redirects:?}")));
            }
            let to_get = response.status == 303 || response.status < 303 && method == "POST";
            if to_get && method != "HEAD" {
                "GET".clone_into(&mut method);
                body.clear();
            }
            (host, path) = (next_host, next_path);
        }
    }

    async fn once(
        &mut self,
        host: &str,
        method: &str,
        path: &str,
        accept: Accept,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<RawResponse> {
        let accept = match accept {
            Accept::Html => "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            Accept::Json => "application/json",
        };
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n\
             Accept-Language: en\r\nUser-Agent: Mozilla/5.0 (visitor)\r\n"
        );
        // Writing to a String cannot fail.
        if let Some(ip) = &self.ip {
            let _ = write!(head, "X-Forwarded-For: {ip}\r\n");
        }
        let cookies = self.cookies_for(host, path);
        if !cookies.is_empty() {
            let _ = write!(head, "Cookie: {}\r\n", cookies.join("; "));
        }
        for (name, value) in fields {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if !body.is_empty() || method == "POST" {
            let _ = write!(head, "Content-Length: {}\r\n", body.len());
        }
        head.push_str("\r\n");
        let mut client = self.connection(host).await?;
        let response = client.exchange([head.as_bytes(), body].concat()).await?;
        if !response.headers.has_token("connection", "close") {
            self.connection = Some(client);
        }
        Ok(response)
    }

    /// The kept connection, unless the gateway has closed it.
    async fn connection(&mut self, host: &str) -> io::Result<RawClient> {
        if let Some(mut client) = self.connection.take()
            && !client.closed().await
        {
            return Ok(client);
        }
        let name = host.split(':').next().unwrap_or_default();
        if self.tls {
            RawClient::connect_tls(self.gateway, name, &["http/1.1"]).await
        } else {
            RawClient::connect(self.gateway).await
        }
    }

    fn resolve(&self, host: &str, path: &str, location: &str) -> Option<(String, String)> {
        let scheme = if self.tls { "https://" } else { "http://" };
        let location = location.split('#').next().unwrap_or_default();
        if let Some(rest) = location.strip_prefix(scheme).or_else(|| location.strip_prefix("//")) {
            let at = rest.find(['/', '?']).unwrap_or(rest.len());
            let (host, path) = rest.split_at(at);
            let slash = if path.starts_with('/') { "" } else { "/" };
            return Some((host.to_owned(), format!("{slash}{path}")));
        }
        if location.contains("://") {
            return None;
        }
        if location.starts_with('/') {
            return Some((host.to_owned(), location.to_owned()));
        }
        let path = path.split('?').next().unwrap_or_default();
        let folder = if location.starts_with('?') || location.is_empty() {
            path
        } else {
            &path[..=path.rfind('/').unwrap_or(0)]
        };
        Some((host.to_owned(), format!("{folder}{location}")))
    }

    fn keep(&mut self, cookie: Cookie<'static>, host: &str) {
        let host = host.split(':').next().unwrap_or_default().to_owned();
        self.jar.retain(|kept| {
            kept.cookie.name() != cookie.name()
                || kept.cookie.domain() != cookie.domain()
                || kept.cookie.path().unwrap_or("/") != cookie.path().unwrap_or("/")
                || (cookie.domain().is_none() && kept.host != host)
        });
        let deleted = cookie.max_age().is_some_and(|age| !age.is_positive());
        let refused = cookie.secure() == Some(true) && !self.tls;
        if !deleted && !refused {
            self.jar.push(Kept { cookie, host });
        }
    }

    fn cookies_for(&self, host: &str, path: &str) -> Vec<String> {
        let host = host.split(':').next().unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default();
        let fits = |kept: &&Kept| {
            let on_host = match kept.cookie.domain() {
                None => kept.host == host,
                Some(domain) => {
                    host == domain
                        || host.strip_suffix(domain).is_some_and(|front| front.ends_with('.'))
                }
            };
            let folder = kept.cookie.path().unwrap_or("/");
            on_host
                && path.strip_prefix(folder).is_some_and(|rest| {
                    rest.is_empty() || folder.ends_with('/') || rest.starts_with('/')
                })
        };
        let text = |kept: &Kept| format!("{}={}", kept.cookie.name(), kept.cookie.value());
        self.jar.iter().filter(fits).map(text).collect()
    }
}
