//! A response on its way to the client.

use bytes::Bytes;
use corvus_core::event::Outcome;

use crate::{
    http::{body::ResponseBody, name::Name},
    http1::parse::ResponseHead,
    upstream::{
        body::UpstreamBody,
        pool::{InFlight, UpstreamConn},
    },
};

/// A response, ours or an upstream's.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) head: ResponseHead,
    pub(crate) body: ResponseBody,
    /// After `101`: the connection whose bytes go both ways.
    pub(crate) tunnel: Option<UpstreamConn>,
    /// End the client's connection after this response.
    pub(crate) close: bool,
    /// End it without any response.
    pub(crate) silent: bool,
    pub(crate) outcome: Outcome,
    /// Counts the request at its upstream until the response, or the tunnel, has ended.
    pub(crate) in_flight: Option<InFlight>,
}

impl Response {
    fn build(head: ResponseHead, body: ResponseBody, outcome: Outcome) -> Self {
        Self { head, body, tunnel: None, close: false, silent: false, outcome, in_flight: None }
    }

    /// An answer of our own.
    pub(crate) fn own(status: u16, outcome: Outcome) -> Self {
        let head = ResponseHead::new(status);
        Self::build(head, ResponseBody::Empty, outcome)
    }

    /// What the upstream said.
    pub(crate) fn forwarded(head: ResponseHead, body: UpstreamBody) -> Self {
        Self::build(head, ResponseBody::Upstream(Box::new(body)), Outcome::Proxied)
    }

    /// The upstream agreed to an upgrade.
    pub(crate) fn switched(head: ResponseHead, conn: UpstreamConn) -> Self {
        let mut response = Self::build(head, ResponseBody::Empty, Outcome::Proxied);
        response.tunnel = Some(conn);
        response
    }

    /// No answer at all: the connection just ends.
    pub(crate) fn silent(outcome: Outcome) -> Self {
        let mut response = Self::own(0, outcome);
        response.silent = true;
        response.close = true;
        response
    }

    #[must_use]
    pub(crate) fn with(mut self, name: Name, value: &[u8]) -> Self {
        self.head.headers.set(name, value);
        self
    }

    #[must_use]
    pub(crate) fn with_body(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        self.head.headers.set(Name::ContentType, content_type.as_bytes());
        self.body = ResponseBody::Full(body.into());
        self
    }
}
