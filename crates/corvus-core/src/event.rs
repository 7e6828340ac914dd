//! One request, as the monitor, the access log and the history see it.

use crate::{ClientIp, Id, Reason};

/// The record of one finished request. Every request makes exactly one, refused ones included.
///
/// Borrowed: it lives only while the record stage runs, so an event that nobody wants costs nothing.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// When the request began, Unix milliseconds.
    pub at_ms: u64,
    /// Shown on pages and in logs; joins the two.
    pub request_id: &'a str,
    pub client: ClientIp,
    /// The method, host and raw target as the client sent them: bytes, not text.
    pub method: &'a [u8],
    pub host: &'a [u8],
    pub target: &'a [u8],
    pub protocol: Protocol,
    pub tls: bool,
    /// The proxy host that took the request; `None` for the default site and malformed requests.
    pub site: Option<&'a Id>,
    /// Version of the Snapshot that the request ran under.
    pub version: u64,
    /// Status sent to the client; 0 when the client left before one was sent.
    pub status: u16,
    /// Body bytes sent to and received from the client.
    pub sent: u64,
    pub received: u64,
    /// From the first byte of the request to the end of the response, microseconds.
    pub duration_us: u64,
    /// From sending to the upstream until its response head, microseconds.
    pub upstream_us: Option<u64>,
    /// Address of the upstream that answered, or was tried last.
    pub upstream: Option<&'a str>,
    /// How the request ended.
    pub outcome: Outcome,
    /// Why it was refused or failed; `None` for a proxied request.
    pub reason: Option<&'a Reason>,
    pub user_agent: &'a [u8],
    pub referer: &'a [u8],
}

/// The protocol the client spoke.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    Http10,
    Http11,
    Http2,
}

impl Protocol {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        }
    }
}

/// How a request ended, by who is to blame.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// The upstream's response was passed on.
    Proxied,
    /// We answered ourselves, as configured: a redirect, a page, an own path.
    Answered,
    /// Held in an access queue.
    Queued,
    /// Refused by a stage.
    Refused,
    /// The client left or broke the protocol in the middle.
    ClientGone,
    /// No upstream could answer.
    UpstreamFailed,
    /// Our own fault.
    Internal,
}

impl Outcome {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proxied => "proxied",
            Self::Answered => "answered",
            Self::Queued => "queued",
            Self::Refused => "refused",
            Self::ClientGone => "client_gone",
            Self::UpstreamFailed => "upstream_failed",
            Self::Internal => "internal",
        }
    }
}
