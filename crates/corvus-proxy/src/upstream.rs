//! Everything between the decision to forward a request and the first byte of its answer.

pub(crate) mod balance;
pub(crate) mod body;
pub(crate) mod connect;
pub(crate) mod h1;
pub(crate) mod h2;
pub(crate) mod head;
pub(crate) mod pool;
pub(crate) mod resolve;
pub(crate) mod tunnel;

use std::io;

use crate::{
    http::{body::BodyError, pages},
    http1::parse::Malformed,
};

/// Why no answer, or no whole answer, came from an upstream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    #[error("the name {name} was not found")]
    NameNotFound {
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("the connection was refused")]
    Refused(#[source] io::Error),
    #[error("no connection within the timeout")]
    ConnectTimeout,
    #[error("the connection could not be made")]
    Connect(#[source] io::Error),
    #[error("the TLS handshake failed")]
    Tls(#[source] io::Error),
    #[error("the upstream's TLS settings are unusable")]
    TlsConfig(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the connection was closed without a whole answer")]
    Closed,
    #[error("the connection failed")]
    Io(#[source] io::Error),
    #[error("no data within the idle timeout")]
    Idle,
    #[error("the answer is malformed")]
    Malformed(#[source] Malformed),
    #[error("the HTTP/2 connection failed")]
    Http2(#[source] hyper::Error),
    #[error("the request cannot be expressed in HTTP/2")]
    NotHttp2,
    /// The client's part of the exchange failed, not the upstream's.
    #[error("the request body failed")]
    RequestBody(#[source] BodyError),
    #[error("the client left")]
    ClientGone,
}

impl UpstreamError {
    /// Stable name in logs, metrics and pages.
    pub(crate) const fn rule(&self) -> &'static str {
        match self {
            Self::NameNotFound { .. } => pages::UPSTREAM_NAME,
            Self::Refused(_) => pages::UPSTREAM_REFUSED,
            Self::ConnectTimeout | Self::Idle => pages::UPSTREAM_TIMEOUT,
            Self::Connect(_) => "upstream_connect",
            Self::Tls(_) => "upstream_tls",
            Self::TlsConfig(_) => "upstream_tls_settings",
            Self::Closed => "upstream_closed",
            Self::Io(_) => "upstream_connection",
            Self::Malformed(_) => "upstream_malformed",
            Self::Http2(_) => "upstream_http2",
            Self::NotHttp2 => "not_http2",
            Self::RequestBody(_) => "request_body",
            Self::ClientGone => "client_gone",
        }
    }

    /// No connection was made, so nothing can have been acted on: another try is always safe.
    pub(crate) const fn before_connected(&self) -> bool {
        matches!(
            self,
            Self::NameNotFound { .. }
                | Self::Refused(_)
                | Self::ConnectTimeout
                | Self::Connect(_)
                | Self::Tls(_)
        )
    }

    /// Whether it says something about the upstream as a whole. One slow or broken page does not:
    /// passing over the upstream for it would take the others down with it.
    pub(crate) const fn counts_against_upstream(&self) -> bool {
        self.before_connected() || matches!(self, Self::Closed | Self::Io(_) | Self::Http2(_))
    }
}
