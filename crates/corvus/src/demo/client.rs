//! The least of an HTTP client that a simulated visitor needs: one request a connection, and
//! cookies.

use std::{collections::HashMap, io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// Patience with one request.
const LIMIT: Duration = Duration::from_secs(10);
/// Bytes read of an answer.
const MAX_ANSWER: u64 = 256 * 1024;

/// A browser without a screen.
#[derive(Debug)]
pub(super) struct Client {
    address: SocketAddr,
    cookies: HashMap<String, String>,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, cookies: HashMap::new() }
    }

    pub(super) fn forget(&mut self) {
        self.cookies.clear();
    }

    /// One request; takes the cookies that come back.
    pub(super) async fn send(&mut self, method: &str, path: &str) -> io::Result<Answer> {
        let cookies: Vec<_> = self.cookies.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAccept: text/html\r\nCookie: {}\r\n\
             Content-Length: 0\r\nConnection: close\r\n\r\n",
            self.address,
            cookies.join("; ")
        );
        let exchange = async {
            let mut stream = TcpStream::connect(self.address).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = Vec::new();
            stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
            Ok::<_, io::Error>(answer)
        };
        let bytes = timeout(LIMIT, exchange).await.map_err(|_| io::ErrorKind::TimedOut)??;
        let answer = parse(&String::from_utf8_lossy(&bytes)).ok_or(io::ErrorKind::InvalidData)?;
        for (_, cookie) in answer.headers.iter().filter(|(name, _)| name == "set-cookie") {
            self.take_cookie(cookie);
        }
        Ok(answer)
    }

    fn take_cookie(&mut self, cookie: &str) {
        let (pair, attributes) = cookie.split_once(';').unwrap_or((cookie, ""));
        let Some((name, value)) = pair.split_once('=') else { return };
        if attributes.contains("Max-Age=0") {
            self.cookies.remove(name);
        } else {
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
    }
}

fn parse(text: &str) -> Option<Answer> {
    let head = text.split_once("\r\n\r\n")?.0;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    Some(Answer { status, headers })
}
