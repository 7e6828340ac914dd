//! The tree an expression parses to: already typed, so that no test can meet a value it does not
//! understand.

use regex::Regex;

use crate::IpSet;

/// Something that holds or does not. `And`, `Or` and `Xor` have two members or more: a chain of a
/// thousand `or` is one level deep.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Tls,
    Not(Box<Self>),
    And(Vec<Self>),
    Or(Vec<Self>),
    Xor(Vec<Self>),
    Text(TextValue, TextTest),
    Len(TextValue, NumberTest),
    Ip(IpTest),
}

/// A text field, with letters changed or not.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TextValue {
    pub(super) field: TextField,
    pub(super) fold: Fold,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fold {
    Keep,
    Lower,
    Upper,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TextField {
    Host,
    Method,
    Uri,
    Path,
    Query,
    UserAgent,
    Referer,
    /// Lower-case name.
    Header(String),
    Cookie(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TextTest {
    Eq(String),
    Ne(String),
    Contains(String),
    StartsWith(String),
    EndsWith(String),
    Matches(Pattern),
    /// Sorted, without duplicates.
    In(Vec<String>),
}

/// A regular expression; equal when its text is.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) text: String,
    pub(super) regex: Regex,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum NumberTest {
    Compare(Comparison, u64),
    /// First and last, both included.
    In(Vec<(u64, u64)>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum IpTest {
    Eq(std::net::IpAddr),
    Ne(std::net::IpAddr),
    In(IpSet),
}
