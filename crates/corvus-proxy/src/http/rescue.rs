//! The one place where a refusal or a failure becomes a response.

use std::borrow::Cow;

use corvus_core::{Reason, Stage, event::Outcome};

use crate::{
    http::{
        body::BodyError,
        exchange::Exchange,
        name::Name,
        pages::{self, Language, Visit},
        response::Response,
    },
    http1::parse::Malformed,
    upstream::UpstreamError,
};

/// Why there is no answer from the site, by who is to blame.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The client's bytes are no request that may be passed on.
    Malformed(Malformed),
    /// A stage refused the request.
    Denied { status: u16, reason: Reason },
    /// The request body failed on its way in.
    Body(BodyError),
    /// No upstream gave a whole answer.
    Upstream(UpstreamError),
}

impl Failure {
    pub(crate) const fn denied(status: u16, stage: Stage, rule: &'static str) -> Self {
        Self::Denied { status, reason: Reason::new(stage, rule) }
    }
}

/// What the failure means for the client and the record. `None` for the status: the client is
/// gone, nobody is there to answer.
struct Sentence {
    status: Option<u16>,
    reason: Reason,
    outcome: Outcome,
    /// The client's next bytes cannot be told from the rest of this request.
    close: bool,
}

/// Turns a failure into the page (or JSON, by `Accept`) that the client gets, and leaves the reason
/// for the record.
pub(crate) fn respond(x: &mut Exchange, failure: Failure) -> Response {
    let Sentence { status, reason, outcome, close } = judge(failure);
    let Some(status) = status else {
        x.reason = Some(reason);
        return Response::silent(outcome);
    };
    let mut response = page(x, status, &reason.rule, outcome);
    response.close |= close;
    if status == 405 {
        response.head.headers.push(b"Allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    }
    if matches!(status, 502..=504) {
        response.head.headers.set(Name::RetryAfter, b"10");
    }
    x.reason = Some(reason);
    response
}

fn judge(failure: Failure) -> Sentence {
    match failure {
        Failure::Malformed(why) => Sentence {
            status: Some(match why {
                Malformed::HeadTooLarge | Malformed::TooManyFields => 431,
                Malformed::Version => 505,
                _ => 400,
            }),
            reason: Reason::new(Stage::Parse, why.rule()),
            outcome: Outcome::Refused,
            close: true,
        },
        Failure::Denied { status, reason } => {
            Sentence { status: Some(status), reason, outcome: Outcome::Refused, close: false }
        }
        Failure::Body(error) | Failure::Upstream(UpstreamError::RequestBody(error)) => {
            body_sentence(&error)
        }
        Failure::Upstream(UpstreamError::ClientGone) => gone(),
        Failure::Upstream(error) => {
            let status = match &error {
                UpstreamError::ConnectTimeout | UpstreamError::Idle => 504,
                UpstreamError::NotHttp2 => 400,
                _ => 502,
            };
            let mut reason = Reason::new(Stage::Upstream, error.rule());
            reason.fragment = Some(chain(&error));
            Sentence {
                status: Some(status),
                reason,
                outcome: Outcome::UpstreamFailed,
                close: false,
            }
        }
    }
}

fn body_sentence(error: &BodyError) -> Sentence {
    let (status, rule): (_, Cow<'static, str>) = match error {
        BodyError::Malformed(why) => (400, why.rule().into()),
        BodyError::Idle => (408, "body_timeout".into()),
        BodyError::TooLarge => (413, "body_limit".into()),
        BodyError::Truncated | BodyError::Io(_) | BodyError::Stream(_) => return gone(),
    };
    let mut reason = Reason::new(Stage::Body, "");
    reason.rule = rule;
    Sentence { status: Some(status), reason, outcome: Outcome::Refused, close: true }
}

fn gone() -> Sentence {
    Sentence {
        status: None,
        reason: Reason::new(Stage::Upstream, "client_gone"),
        outcome: Outcome::ClientGone,
        close: true,
    }
}

/// An error with its causes, for the log.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The error page for `status`, or the same in JSON.
pub(crate) fn page(x: &Exchange, status: u16, rule: &str, outcome: Outcome) -> Response {
    let response = Response::own(status, outcome);
    let response = if wants_html(x) {
        html(response, pages::error(&visit(x, ""), status, rule), "")
    } else {
        let body = pages::error_json(status, rule, x.id());
        private(response).with_body(pages::PROBLEM_JSON, body)
    };
    response.with(Name::XRequestId, &x.id)
}

/// What pages need to know of the visit.
pub(crate) fn visit<'a>(x: &'a Exchange, nonce: &'a str) -> Visit<'a> {
    let languages = x.head.headers.get_str(Name::AcceptLanguage).unwrap_or_default();
    Visit {
        language: Language::negotiate(languages),
        nonce,
        request_id: x.id(),
        host: (!x.host.is_empty()).then_some(&x.host),
    }
}

/// A page of ours: never stored, never sniffed, no code but its own.
pub(crate) fn html(response: Response, page: String, nonce: &str) -> Response {
    private(response)
        .with(Name::ContentSecurityPolicy, pages::csp(nonce).as_bytes())
        .with_body(pages::HTML, page)
}

/// Not for caches: what it says is for one client at one moment.
pub(crate) fn private(response: Response) -> Response {
    response
        .with(Name::CacheControl, b"private, no-store")
        .with(Name::XContentTypeOptions, b"nosniff")
        .with(Name::Vary, b"Accept, Accept-Language, Cookie")
}

/// Whether the client asks for a page rather than for data.
pub(crate) fn wants_html(x: &Exchange) -> bool {
    pages::wants_html(x.head.headers.get_str(Name::Accept))
}
