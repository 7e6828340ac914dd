//! Tokens to a typed tree: recursive descent, its recursion bounded by [`MAX_DEPTH`].
//!
//! Precedence, tightest first: `not`, `and`, `xor`, `or`.

use std::net::IpAddr;

use regex::RegexBuilder;

use super::{
    ExprError, MAX_DEPTH, MAX_LEN, MAX_REGEXES,
    ast::{Comparison, Fold, IpTest, Node, NumberTest, Pattern, TextField, TextTest, TextValue},
    lexer::{At, Token, tokens},
    suggest::{nearest, or_list, regex_message},
};
use crate::ip_set::{IpItem, IpSet};

const FIELDS: &[&str] = &[
    "http.host",
    "http.request.method",
    "http.request.uri",
    "http.request.uri.path",
    "http.request.uri.query",
    "http.request.headers",
    "http.request.cookies",
    "http.cookie",
    "http.user_agent",
    "http.referer",
    "ip.src",
    "ssl",
];
const FUNCTIONS: &[&str] = &["lower", "upper", "len", "starts_with", "ends_with", "contains"];
const OPERATORS: &[&str] =
    &["eq", "ne", "lt", "le", "gt", "ge", "contains", "starts_with", "ends_with", "matches", "in"];
const CONNECTIVES: &[&str] = &["and", "or", "xor", "not", "true", "false"];

/// Bytes a compiled regular expression may take.
const REGEX_BYTES: usize = 1 << 20;

pub(super) fn parse(text: &str) -> Result<Node, ExprError> {
    if text.len() > MAX_LEN {
        let message = format!("an expression has at most {MAX_LEN} bytes, this has {}", text.len());
        return Err(ExprError::new(MAX_LEN, message));
    }
    let mut parser =
        Parser { tokens: tokens(text)?, next: 0, end: text.len(), depth: 0, regexes: 0 };
    if parser.tokens.is_empty() {
        return Err(ExprError::new(0, "an expression may not be empty"));
    }
    let node = parser.or()?;
    match parser.peek() {
        None => Ok(node),
        Some(Token::Word(word)) => {
            let hint = nearest(word, &[CONNECTIVES]);
            Err(parser.error(format!("expected `and`, `or`, `xor` or the end, not `{word}`{hint}")))
        }
        Some(Token::Sign(")")) => Err(parser.error("this `)` closes nothing")),
        Some(other) => {
            let message = format!("expected `and`, `or`, `xor` or the end, not {}", other.show());
            Err(parser.error(message))
        }
    }
}

struct Parser {
    tokens: Vec<At>,
    next: usize,
    end: usize,
    depth: usize,
    regexes: usize,
}

/// What stands left of an operator.
enum Operand {
    Text(TextValue),
    Len(TextValue),
    Ip,
    Tls,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(token, _)| token)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(_, at)| *at)
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.next).map(|(token, _)| token.clone());
        self.next += 1;
        token
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(have)) if have == word);
        self.next += usize::from(found);
        found
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(have)) if *have == sign);
        self.next += usize::from(found);
        found
    }

    /// An error at the next token.
    fn error(&self, message: impl Into<String>) -> ExprError {
        ExprError::new(self.at(), message)
    }

    fn expected(&self, what: &str) -> ExprError {
        let found = self.peek().map_or_else(|| "the end".to_owned(), Token::show);
        self.error(format!("expected {what}, not {found}"))
    }

    fn sign(&mut self, sign: &str) -> Result<(), ExprError> {
        if self.take_sign(sign) { Ok(()) } else { Err(self.expected(&format!("`{sign}`"))) }
    }

    fn chain(
        &mut self,
        word: &str,
        member: fn(&mut Self) -> Result<Node, ExprError>,
        join: fn(Vec<Node>) -> Node,
    ) -> Result<Node, ExprError> {
        let first = member(self)?;
        if !self.take_word(word) {
            return Ok(first);
        }
        let mut members = vec![first, member(self)?];
        while self.take_word(word) {
            members.push(member(self)?);
        }
        Ok(join(members))
    }

    fn or(&mut self) -> Result<Node, ExprError> {
        self.chain("or", Self::xor, Node::Or)
    }

    fn xor(&mut self) -> Result<Node, ExprError> {
        self.chain("xor", Self::and, Node::Xor)
    }

    fn and(&mut self) -> Result<Node, ExprError> {
        self.chain("and", Self::unary, Node::And)
    }

    fn unary(&mut self) -> Result<Node, ExprError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let node = if self.take_word("not") {
            Node::Not(Box::new(self.unary()?))
        } else if self.take_sign("(") {
            let inner = self.or()?;
            self.sign(")")?;
            inner
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(node)
    }

    /// `field operator value`, `function(field, value)`, or `ssl`.
    fn test(&mut self) -> Result<Node, ExprError> {
        if let Some(Token::Word(word)) = self.peek()
            && ["starts_with", "ends_with", "contains"].contains(&word.as_str())
        {
            let word = word.clone();
            let at = self.at();
            self.next += 1;
            self.sign("(")?;
            let Operand::Text(value) = self.operand()? else {
                return Err(ExprError::new(at, format!("`{word}` looks into a text field")));
            };
            self.sign(",")?;
            let text = self.text(&value)?;
            self.sign(")")?;
            return Ok(Node::Text(
                value,
                match word.as_str() {
                    "starts_with" => TextTest::StartsWith(text),
                    "ends_with" => TextTest::EndsWith(text),
                    _ => TextTest::Contains(text),
                },
            ));
        }
        match self.operand()? {
            Operand::Tls => self.tls_test(),
            Operand::Ip => self.ip_test().map(Node::Ip),
            Operand::Len(value) => Ok(Node::Len(value, self.number_test()?)),
            Operand::Text(value) => {
                let test = self.text_test(&value)?;
                Ok(Node::Text(value, test))
            }
        }
    }

    fn operand(&mut self) -> Result<Operand, ExprError> {
        let at = self.at();
        let Some(Token::Word(word)) = self.peek().cloned() else {
            return Err(self.expected("a field like `http.host`"));
        };
        self.next += 1;
        let field = match word.as_str() {
            "ssl" => return Ok(Operand::Tls),
            "ip.src" => return Ok(Operand::Ip),
            "lower" | "upper" | "len" => return self.call(&word, at),
            "http.host" => TextField::Host,
            "http.request.method" => TextField::Method,
            "http.request.uri" => TextField::Uri,
            "http.request.uri.path" => TextField::Path,
            "http.request.uri.query" => TextField::Query,
            "http.user_agent" => TextField::UserAgent,
            "http.referer" => TextField::Referer,
            "http.request.headers" => TextField::Header(self.header_name()?),
            "http.cookie" | "http.request.cookies" => TextField::Cookie(self.name()?),
            _ => {
                let message = if matches!(self.peek(), Some(Token::Sign("("))) {
                    format!("unknown function `{word}`{}", nearest(&word, &[FUNCTIONS]))
                } else if CONNECTIVES.contains(&word.as_str()) || OPERATORS.contains(&word.as_str())
                {
                    format!("expected a field like `http.host`, not `{word}`")
                } else {
                    format!("unknown field `{word}`{}", nearest(&word, &[FIELDS, FUNCTIONS]))
                };
                return Err(ExprError::new(at, message));
            }
        };
        Ok(Operand::Text(TextValue { field, fold: Fold::Keep }))
    }

    /// The rest of `lower(...)`, `upper(...)` or `len(...)`.
    fn call(&mut self, function: &str, at: usize) -> Result<Operand, ExprError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.sign("(")?;
        let inner = self.operand()?;
        self.sign(")")?;
        self.depth -= 1;
        let Operand::Text(mut value) = inner else {
            return Err(ExprError::new(at, format!("`{function}()` takes a text field")));
        };
        match function {
            "len" => return Ok(Operand::Len(value)),
            // The outermost wins: both change the same letters.
            "lower" => value.fold = Fold::Lower,
            _ => value.fold = Fold::Upper,
        }
        Ok(Operand::Text(value))
    }

    fn name(&mut self) -> Result<String, ExprError> {
        self.sign("[")?;
        let at = self.at();
        let Some(Token::Text(name)) = self.take() else {
            return Err(ExprError::new(at, "expected a name in quotes, like [\"name\"]"));
        };
        if name.is_empty() {
            return Err(ExprError::new(at, "a name may not be empty"));
        }
        self.sign("]")?;
        Ok(name)
    }

    fn header_name(&mut self) -> Result<String, ExprError> {
        let at = self.at();
        let name = self.name()?;
        // RFC 9110 section 5.6.2: a field name is a token.
        match name.chars().find(|c| !(c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(*c)))
        {
            None => Ok(name.to_ascii_lowercase()),
            Some(bad) => {
                let bad = bad.escape_debug();
                Err(ExprError::new(at, format!("a header name holds no `{bad}`")))
            }
        }
    }

    fn operator(&mut self, allowed: &[&str], what: &str) -> Result<String, ExprError> {
        match self.peek() {
            Some(Token::Word(word)) if allowed.contains(&word.as_str()) => {
                let word = word.clone();
                self.next += 1;
                Ok(word)
            }
            Some(Token::Word(word)) if OPERATORS.contains(&word.as_str()) => {
                Err(self
                    .error(format!("`{word}` does not work on {what}; use {}", or_list(allowed))))
            }
            Some(Token::Word(word)) => {
                Err(self.error(format!("unknown operator `{word}`{}", nearest(word, &[allowed]))))
            }
            _ => Err(self.expected(&format!("an operator ({})", or_list(allowed)))),
        }
    }

    fn tls_test(&mut self) -> Result<Node, ExprError> {
        let equal = match self.peek() {
            Some(Token::Word(word)) if OPERATORS.contains(&word.as_str()) => {
                self.operator(&["eq", "ne"], "`ssl`")? == "eq"
            }
            _ => return Ok(Node::Tls),
        };
        let wanted = if self.take_word("true") {
            true
        } else if self.take_word("false") {
            false
        } else {
            return Err(self.expected("`true` or `false`"));
        };
        Ok(if wanted == equal { Node::Tls } else { Node::Not(Box::new(Node::Tls)) })
    }

    fn ip_test(&mut self) -> Result<IpTest, ExprError> {
        let operator = self.operator(&["eq", "ne", "in"], "`ip.src`")?;
        if operator == "in" {
            let mut items = Vec::new();
            self.set(|parser| {
                let item = parser.ip_item()?;
                items.push(item);
                Ok(())
            })?;
            return Ok(IpTest::In(IpSet::new(items)));
        }
        let ip = match self.peek() {
            Some(Token::Ip(ip)) => *ip,
            Some(Token::Net(net)) => {
                return Err(self.error(format!("a network stands in braces: in {{{net}}}")));
            }
            Some(Token::Text(_)) => return Err(self.error("an address stands without quotes")),
            _ => return Err(self.expected("an address")),
        };
        self.next += 1;
        Ok(if operator == "eq" { IpTest::Eq(ip) } else { IpTest::Ne(ip) })
    }

    fn ip_item(&mut self) -> Result<IpItem, ExprError> {
        let at = self.at();
        let item = match self.peek() {
            Some(Token::Net(net)) => IpItem::Net(*net),
            Some(Token::Ip(ip)) => IpItem::One(*ip),
            Some(Token::Text(_)) => return Err(self.error("an address stands without quotes")),
            _ => return Err(self.expected("an address, a network or a range")),
        };
        self.next += 1;
        let IpItem::One(first) = item else { return Ok(item) };
        if !matches!(self.peek(), Some(Token::To)) {
            return Ok(item);
        }
        self.next += 1;
        let Some(Token::Ip(last)) = self.take() else {
            return Err(ExprError::new(at, "expected an address after `..`"));
        };
        let same_family = matches!(
            (first, last),
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_))
        );
        if !same_family || first > last {
            return Err(ExprError::new(at, "a range goes up, within one address family"));
        }
        Ok(IpItem::Range(first, last))
    }

    fn number_test(&mut self) -> Result<NumberTest, ExprError> {
        let allowed = ["eq", "ne", "lt", "le", "gt", "ge", "in"];
        let comparison = match self.operator(&allowed, "a number")?.as_str() {
            "eq" => Comparison::Eq,
            "ne" => Comparison::Ne,
            "lt" => Comparison::Lt,
            "le" => Comparison::Le,
            "gt" => Comparison::Gt,
            "ge" => Comparison::Ge,
            _ => {
                let mut ranges = Vec::new();
                self.set(|parser| {
                    let at = parser.at();
                    let first = parser.number()?;
                    let mut last = first;
                    if matches!(parser.peek(), Some(Token::To)) {
                        parser.next += 1;
                        last = parser.number()?;
                    }
                    if first > last {
                        return Err(ExprError::new(at, "a range goes up"));
                    }
                    ranges.push((first, last));
                    Ok(())
                })?;
                return Ok(NumberTest::In(ranges));
            }
        };
        Ok(NumberTest::Compare(comparison, self.number()?))
    }

    fn number(&mut self) -> Result<u64, ExprError> {
        let Some(Token::Number(number)) = self.peek() else {
            return Err(self.expected("a number"));
        };
        let number = *number;
        self.next += 1;
        Ok(number)
    }

    fn text_test(&mut self, value: &TextValue) -> Result<TextTest, ExprError> {
        let allowed = ["eq", "ne", "contains", "starts_with", "ends_with", "matches", "in"];
        if matches!(self.peek(), Some(Token::Word(w)) if ["lt", "le", "gt", "ge"].contains(&w.as_str()))
        {
            return Err(self.error("a text has no order; compare its length: len(..)"));
        }
        Ok(match self.operator(&allowed, "a text")?.as_str() {
            "eq" => TextTest::Eq(self.text(value)?),
            "ne" => TextTest::Ne(self.text(value)?),
            "contains" => TextTest::Contains(self.text(value)?),
            "starts_with" => TextTest::StartsWith(self.text(value)?),
            "ends_with" => TextTest::EndsWith(self.text(value)?),
            "matches" => TextTest::Matches(self.pattern()?),
            _ => {
                let mut texts = Vec::new();
                self.set(|parser| {
                    let text = parser.text(value)?;
                    texts.push(text);
                    Ok(())
                })?;
                texts.sort_unstable();
                texts.dedup();
                TextTest::In(texts)
            }
        })
    }

    /// A text to compare with; refused when no value of the field can be like it.
    fn text(&mut self, value: &TextValue) -> Result<String, ExprError> {
        let Some(Token::Text(text)) = self.peek() else {
            return Err(self.expected("a text in double quotes"));
        };
        let text = text.clone();
        match value.fold {
            Fold::Lower if text.bytes().any(|b| b.is_ascii_uppercase()) => {
                Err(self.error("`lower()` never gives capital letters; write this text small"))
            }
            Fold::Upper if text.bytes().any(|b| b.is_ascii_lowercase()) => {
                Err(self.error("`upper()` never gives small letters; write this text in capitals"))
            }
            _ => {
                self.next += 1;
                // Names compare without case (RFC 9110 section 4.2.3), and arrive in lower case.
                let host = value.field == TextField::Host && value.fold == Fold::Keep;
                Ok(if host { text.to_ascii_lowercase() } else { text })
            }
        }
    }

    fn pattern(&mut self) -> Result<Pattern, ExprError> {
        let Some(Token::Text(text)) = self.peek() else {
            return Err(self.expected("a regular expression in double quotes"));
        };
        let text = text.clone();
        self.regexes += 1;
        if self.regexes > MAX_REGEXES {
            return Err(self.error(format!("more than {MAX_REGEXES} regular expressions")));
        }
        let regex = RegexBuilder::new(&text)
            .size_limit(REGEX_BYTES)
            .dfa_size_limit(REGEX_BYTES)
            .nest_limit(64)
            .build()
            .map_err(|error| self.error(regex_message(&error)))?;
        self.next += 1;
        Ok(Pattern { text, regex })
    }

    /// `{a b c}`, commas allowed, at least one member.
    fn set(
        &mut self,
        mut member: impl FnMut(&mut Self) -> Result<(), ExprError>,
    ) -> Result<(), ExprError> {
        self.sign("{")?;
        member(self)?;
        loop {
            let comma = self.take_sign(",");
            if !comma && self.take_sign("}") {
                return Ok(());
            }
            if self.peek().is_none() {
                return Err(self.expected("`}`"));
            }
            member(self)?;
        }
    }
}
