//! Cloudflare-style expressions.

use std::{borrow::Cow, net::IpAddr};

/// A parsed, type-checked expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr;

/// Why a text is no expression: a byte offset into it and a sentence.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{message} (at character {at})")]
pub struct ExprError {
    pub at: usize,
    pub message: String,
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
    fn client_ip(&self) -> IpAddr;
    /// Every value of a header, in order; `name` lower case.
    fn header(&self, name: &str, each: &mut dyn FnMut(&str));
    fn cookie(&self, name: &str, each: &mut dyn FnMut(&str));
    fn tls(&self) -> bool;
}

impl Expr {
    pub fn parse(_text: &str) -> Result<Self, ExprError> {
        Ok(Self)
    }

    pub fn matches(&self, _fields: &dyn Fields) -> bool {
        true
    }
}
