//! Cloudflare-style expressions over a request, such as
//! `http.request.uri.path starts_with "/admin" and not ip.src in {203.0.113.0/24}`.
//!
//! Parsing checks everything: a parsed expression cannot fail or panic when it runs, its regular
//! expressions take linear time, and its depth is bounded, so neither hostile text nor a hostile
//! request can exhaust the stack.
//!
//! Meaning where it could be in doubt:
//! - a header or cookie may come several times: a test holds if it holds for any value, and for an
//!   absent one never, except `ne`, which is always the opposite of `eq`;
//! - text is compared as it stands (`lower()` to ignore case); host names are lower case;
//! - `len()` counts bytes, `lower()` and `upper()` change A-Z only.

use std::{borrow::Cow, fmt, net::IpAddr};

mod ast;
mod display;
mod eval;
mod lexer;
mod parser;
mod suggest;
#[cfg(test)]
mod tests;

/// Longest text of an expression, in bytes.
pub const MAX_LEN: usize = 65_536;
/// Deepest nesting of parentheses and `not`.
pub const MAX_DEPTH: usize = 64;
/// Most regular expressions in one expression.
pub const MAX_REGEXES: usize = 32;

/// A parsed, type-checked expression. Prints as a text that parses to an equal expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    root: ast::Node,
}

/// Why a text is no expression: a byte offset into it and a sentence.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{message} (at character {at})")]
pub struct ExprError {
    pub at: usize,
    pub message: String,
}

impl ExprError {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

/// The values an expression reads, asked for only when needed. Bytes as the client sent them, text
/// where it is ours.
pub trait Fields {
    fn host(&self) -> Cow<'_, str>;
    fn method(&self) -> &str;
    /// Normalised path (see `corvus_rules::path`).
    fn path(&self) -> Cow<'_, str>;
    /// Raw query, without `?`.
    fn query(&self) -> Cow<'_, str>;
    /// `http.request.uri`: path and, if there is one, `?` and the query.
    fn uri(&self) -> Cow<'_, str> {
        let query = self.query();
        if query.is_empty() {
            return self.path();
        }
        Cow::Owned(format!("{}?{query}", self.path()))
    }
    fn client_ip(&self) -> IpAddr;
    /// Every value of a header, in order; `name` lower case.
    fn header(&self, name: &str, each: &mut dyn FnMut(&str));
    fn cookie(&self, name: &str, each: &mut dyn FnMut(&str));
    fn tls(&self) -> bool;
}

impl Expr {
    pub fn parse(text: &str) -> Result<Self, ExprError> {
        Ok(Self { root: parser::parse(text)? })
    }

    pub fn matches(&self, fields: &dyn Fields) -> bool {
        eval::eval(&self.root, fields)
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.fmt(f)
    }
}

impl std::str::FromStr for Expr {
    type Err = ExprError;

    fn from_str(text: &str) -> Result<Self, ExprError> {
        Self::parse(text)
    }
}
