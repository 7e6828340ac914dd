//! Printing, in a form that parses back to the same tree.

use std::fmt::{self, Display, Formatter, Write as _};

use super::ast::{Comparison, Fold, IpTest, Node, NumberTest, TextField, TextTest, TextValue};

impl Node {
    /// How tightly it binds; a member of a chain binds tighter than the chain, or is put in
    /// parentheses.
    fn strength(&self) -> u8 {
        match self {
            Self::Or(_) => 0,
            Self::Xor(_) => 1,
            Self::And(_) => 2,
            _ => 3,
        }
    }

    fn fmt_member(&self, f: &mut Formatter<'_>, of: u8) -> fmt::Result {
        if self.strength() > of { self.fmt(f) } else { write!(f, "({self})") }
    }
}

impl Display for Node {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (members, word) = match self {
            Self::And(members) => (members, " and "),
            Self::Or(members) => (members, " or "),
            Self::Xor(members) => (members, " xor "),
            Self::Not(inner) => {
                f.write_str("not ")?;
                return inner.fmt_member(f, 2);
            }
            Self::Tls => return f.write_str("ssl"),
            Self::Text(value, test) => return write!(f, "{value} {test}"),
            Self::Len(value, test) => return write!(f, "len({value}) {test}"),
            Self::Ip(test) => return write!(f, "ip.src {test}"),
        };
        for (i, member) in members.iter().enumerate() {
            if i > 0 {
                f.write_str(word)?;
            }
            member.fmt_member(f, self.strength())?;
        }
        Ok(())
    }
}

impl Display for TextValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.fold {
            Fold::Keep => self.field.fmt(f),
            Fold::Lower => write!(f, "lower({})", self.field),
            Fold::Upper => write!(f, "upper({})", self.field),
        }
    }
}

impl Display for TextField {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "http.host",
            Self::Method => "http.request.method",
            Self::Uri => "http.request.uri",
            Self::Path => "http.request.uri.path",
            Self::Query => "http.request.uri.query",
            Self::UserAgent => "http.user_agent",
            Self::Referer => "http.referer",
            Self::Header(name) => return write!(f, "http.request.headers[{}]", Quoted(name)),
            Self::Cookie(name) => return write!(f, "http.request.cookies[{}]", Quoted(name)),
        })
    }
}

impl Display for TextTest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eq(text) => write!(f, "eq {}", Quoted(text)),
            Self::Ne(text) => write!(f, "ne {}", Quoted(text)),
            Self::Contains(text) => write!(f, "contains {}", Quoted(text)),
            Self::StartsWith(text) => write!(f, "starts_with {}", Quoted(text)),
            Self::EndsWith(text) => write!(f, "ends_with {}", Quoted(text)),
            Self::Matches(pattern) => write!(f, "matches {}", Quoted(&pattern.text)),
            Self::In(texts) => fmt_set(f, texts.iter().map(|text| Quoted(text))),
        }
    }
}

impl Display for NumberTest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compare(comparison, number) => {
                let word = match comparison {
                    Comparison::Eq => "eq",
                    Comparison::Ne => "ne",
                    Comparison::Lt => "lt",
                    Comparison::Le => "le",
                    Comparison::Gt => "gt",
                    Comparison::Ge => "ge",
                };
                write!(f, "{word} {number}")
            }
            Self::In(ranges) => fmt_set(f, ranges.iter().map(|(a, b)| Range(*a, *b))),
        }
    }
}

impl Display for IpTest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eq(ip) => write!(f, "eq {ip}"),
            Self::Ne(ip) => write!(f, "ne {ip}"),
            Self::In(set) => fmt_set(f, set.items().iter()),
        }
    }
}

fn fmt_set(f: &mut Formatter<'_>, items: impl Iterator<Item = impl Display>) -> fmt::Result {
    f.write_str("in {")?;
    for (i, item) in items.enumerate() {
        if i > 0 {
            f.write_str(" ")?;
        }
        item.fmt(f)?;
    }
    f.write_str("}")
}

struct Range(u64, u64);

impl Display for Range {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == self.1 { self.0.fmt(f) } else { write!(f, "{}..{}", self.0, self.1) }
    }
}

struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                c if c.is_control() => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}
