//! Text to tokens.

use std::net::IpAddr;

use ipnet::IpNet;

use super::ExprError;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A field, function, operator word or constant.
    Word(String),
    Text(String),
    Number(u64),
    Ip(IpAddr),
    Net(IpNet),
    /// `..`
    To,
    /// Punctuation and operator signs, as a word where one exists (`==` is `eq`).
    Sign(&'static str),
}

impl Token {
    /// As an error message shows it.
    pub(super) fn show(&self) -> String {
        match self {
            Self::Word(word) => format!("`{word}`"),
            Self::Text(_) => "a text".to_owned(),
            Self::Number(number) => format!("the number {number}"),
            Self::Ip(ip) => format!("the address {ip}"),
            Self::Net(net) => format!("the network {net}"),
            Self::To => "`..`".to_owned(),
            Self::Sign(sign) => format!("`{sign}`"),
        }
    }
}

/// A token and the byte offset of its first character.
pub(super) type At = (Token, usize);

/// Signs, longest first, with the operator word they stand for.
const SIGNS: &[(&str, &str)] = &[
    ("==", "eq"),
    ("!=", "ne"),
    ("<=", "le"),
    (">=", "ge"),
    ("&&", "and"),
    ("||", "or"),
    ("^^", "xor"),
    ("<", "lt"),
    (">", "gt"),
    ("~", "matches"),
    ("!", "not"),
];
const PUNCTUATION: &[&str] = &["(", ")", "{", "}", "[", "]", ","];

pub(super) fn tokens(text: &str) -> Result<Vec<At>, ExprError> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = text.get(at..).unwrap_or_default();
        let start = at;
        if c.is_whitespace() {
            at += c.len_utf8();
        } else if c == '"' {
            let (value, len) = quoted(rest, start)?;
            out.push((Token::Text(value), start));
            at += len;
        } else if rest.starts_with("r\"") || rest.starts_with("r#") {
            let (value, len) = raw(rest, start)?;
            out.push((Token::Text(value), start));
            at += len;
        } else if let Some((sign, word)) = SIGNS.iter().find(|(sign, _)| rest.starts_with(sign)) {
            out.push((Token::Word((*word).to_owned()), start));
            at += sign.len();
        } else if let Some(sign) = PUNCTUATION.iter().find(|sign| rest.starts_with(**sign)) {
            out.push((Token::Sign(sign), start));
            at += 1;
        } else {
            let len = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            if len == 0 {
                return Err(stray(c, start));
            }
            words(rest.get(..len).unwrap_or_default(), start, &mut out)?;
            at += len;
        }
    }
    Ok(out)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.:/-".contains(c)
}

fn stray(c: char, at: usize) -> ExprError {
    let hint = match c {
        '=' => "; write `eq` or `==`",
        '&' => "; write `and` or `&&`",
        '|' => "; write `or` or `||`",
        '^' => "; write `xor` or `^^`",
        '\'' | '`' | '“' | '”' | '‘' | '’' => "; a text stands in double quotes",
        _ => "",
    };
    let shown = if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    ExprError::new(at, format!("`{shown}` means nothing here{hint}"))
}

/// A run without spaces: one word or value, or several with `..` between them.
fn words(run: &str, start: usize, out: &mut Vec<At>) -> Result<(), ExprError> {
    let mut at = start;
    for (i, part) in run.split("..").enumerate() {
        if i > 0 {
            out.push((Token::To, at));
            at += 2;
        }
        if !part.is_empty() {
            out.push((word(part, at)?, at));
        }
        at += part.len();
    }
    Ok(())
}

fn word(part: &str, at: usize) -> Result<Token, ExprError> {
    if part.bytes().all(|b| b.is_ascii_digit()) {
        let number = part.parse().ok();
        return number
            .map(Token::Number)
            .ok_or_else(|| ExprError::new(at, format!("the number {part} is too large")));
    }
    if let Ok(ip) = part.parse::<IpAddr>() {
        return Ok(Token::Ip(ip.to_canonical()));
    }
    if part.contains('/') {
        return match part.parse::<IpNet>() {
            Ok(net) => Ok(Token::Net(net)),
            Err(_) if part.starts_with('/') => {
                Err(ExprError::new(at, format!("put the text in quotes: \"{part}\"")))
            }
            Err(_) => Err(ExprError::new(at, format!("`{part}` is not a network like 10.0.0.0/8"))),
        };
    }
    if part.starts_with(|c: char| c.is_ascii_digit()) || part.contains(':') {
        return Err(ExprError::new(at, format!("`{part}` is neither a number nor an address")));
    }
    Ok(Token::Word(part.to_owned()))
}

/// A text in quotes with escapes; the value and its length in the source.
fn quoted(rest: &str, start: usize) -> Result<(String, usize), ExprError> {
    let mut value = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return Ok((value, i + 1)),
            '\\' => {
                let at = start + i;
                let unknown = |what: &str| {
                    ExprError::new(
                        at,
                        format!(
                            "unknown escape `\\{what}`; use `\\\\` for a backslash, or a raw text r\"..\""
                        ),
                    )
                };
                let (_, kind) = chars.next().ok_or_else(|| unclosed(start))?;
                value.push(match kind {
                    '"' | '\\' => kind,
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    'x' => {
                        let hex: String = chars.by_ref().take(2).map(|(_, c)| c).collect();
                        let code = u8::from_str_radix(&hex, 16).ok().filter(u8::is_ascii);
                        code.map(char::from).ok_or_else(|| unknown(&format!("x{hex}")))?
                    }
                    'u' => {
                        let hex: String =
                            chars.by_ref().map(|(_, c)| c).take_while(|c| *c != '}').collect();
                        let code = hex
                            .strip_prefix('{')
                            .filter(|digits| digits.len() <= 6)
                            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
                            .and_then(char::from_u32);
                        code.ok_or_else(|| unknown("u"))?
                    }
                    other => return Err(unknown(&other.to_string())),
                });
            }
            c => value.push(c),
        }
    }
    Err(unclosed(start))
}

/// `r"..."`, `r#"..."#`: nothing in it is an escape.
fn raw(rest: &str, start: usize) -> Result<(String, usize), ExprError> {
    let hashes = rest.bytes().skip(1).take_while(|b| *b == b'#').count();
    let open = 1 + hashes + 1;
    if rest.as_bytes().get(1 + hashes) != Some(&b'"') {
        return Err(ExprError::new(start, "a raw text begins like r\" or r#\""));
    }
    let body = rest.get(open..).unwrap_or_default();
    let close = format!("\"{}", "#".repeat(hashes));
    let len = body.find(&close).ok_or_else(|| unclosed(start))?;
    Ok((body.get(..len).unwrap_or_default().to_owned(), open + len + close.len()))
}

fn unclosed(start: usize) -> ExprError {
    ExprError::new(start, "this text has no closing quote")
}
