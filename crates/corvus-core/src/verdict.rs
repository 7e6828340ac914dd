//! What a stage decides about a request, and why. The same value goes to the log, the monitor and
//! the page, so that "why was this refused?" has one answer.

use std::{borrow::Cow, fmt};

use serde::Serialize;

/// The stages of the request path (docs/request-path.md), in order.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Parse,
    Client,
    Acme,
    Host,
    Ban,
    Redirect,
    Rules,
    Exploit,
    Limits,
    OwnPaths,
    Challenge,
    Access,
    Queue,
    Body,
    Upstream,
    Response,
    Record,
}

impl Stage {
    /// The name used in logs, metrics and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parse => "parse",
            Self::Client => "client",
            Self::Acme => "acme",
            Self::Host => "host",
            Self::Ban => "ban",
            Self::Redirect => "redirect",
            Self::Rules => "rules",
            Self::Exploit => "exploit",
            Self::Limits => "limits",
            Self::OwnPaths => "own_paths",
            Self::Challenge => "challenge",
            Self::Access => "access",
            Self::Queue => "queue",
            Self::Body => "body",
            Self::Upstream => "upstream",
            Self::Response => "response",
            Self::Record => "record",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a verdict fell: the stage, a stable rule name in snake case, and, where there is one, the
/// input that decided and the fragment of it. Client text is kept raw here and escaped by whoever
/// prints it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Reason {
    pub stage: Stage,
    pub rule: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragment: Option<String>,
}

impl Reason {
    pub const fn new(stage: Stage, rule: &'static str) -> Self {
        Self { stage, rule: Cow::Borrowed(rule), input: None, fragment: None }
    }

    #[must_use]
    pub fn input(mut self, input: impl Into<Cow<'static, str>>) -> Self {
        self.input = Some(input.into());
        self
    }

    #[must_use]
    pub fn fragment(mut self, fragment: impl Into<String>) -> Self {
        self.fragment = Some(fragment.into());
        self
    }
}

/// What a stage decided.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Go on.
    Pass,
    /// Go on, and record why this would have been stopped (log mode).
    Observe(Reason),
    /// Answer with the browser challenge.
    Challenge(Reason),
    /// Answer from the access queue.
    Enqueue(Reason),
    /// Refuse.
    Deny(Reason),
}
