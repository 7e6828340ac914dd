//! YAML 1.2 (core schema) to a tree, from the parser's events, without recursion.
//!
//! Text that an attacker may have written: what aliases copy is counted, so that nine lines cannot
//! become gigabytes.

use std::collections::HashMap;

use granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span, Tag};

use super::{MAX_BYTES, MAX_DEPTH, Node, Value};
use crate::problem::Problem;

/// An open collection.
struct Frame {
    members: Members,
    line: u32,
    /// 0: none.
    anchor: usize,
}

enum Members {
    List(Vec<Node>),
    Map(Vec<(String, Node)>, Option<(String, u32)>),
}

struct Builder {
    open: Vec<Frame>,
    root: Option<Node>,
    anchors: HashMap<usize, Node>,
    /// What copies of anchored values may still cost, in bytes.
    copies: usize,
}

pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    let mut options = Options::default();
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    // A key as long as the text is still a key, in JSON's flow notation as well.
    options.simple_key_max_lookahead = 1 << 16;
    let mut builder =
        Builder { open: Vec::new(), root: None, anchors: HashMap::new(), copies: MAX_BYTES };
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| syntax(&error))?;
        builder.event(event, span)?;
    }
    Ok(builder.root.unwrap_or_else(|| Node::new(Value::Null, None)))
}

fn syntax(error: &ScanError) -> Problem {
    let line = u32::try_from(error.marker().line()).ok();
    Problem { pointer: String::new(), message: format!("this is not YAML: {}", error.info()), line }
}

fn line(span: &Span) -> u32 {
    u32::try_from(span.start.line()).unwrap_or(u32::MAX)
}

fn refuse(span: &Span, message: impl Into<String>) -> Problem {
    Problem { pointer: String::new(), message: message.into(), line: Some(line(span)) }
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Problem> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar(&text, style, tag.as_deref(), &span)?;
                // Keys are texts, whatever they look like: `200: page` has the key `200`.
                if self.wants_key() {
                    return self.key(text.into_owned(), &span);
                }
                self.finish(Node::new(value, Some(line(&span))), anchor, &span)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.begin(Members::List(Vec::new()), anchor, tag.as_deref(), &span)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.begin(Members::Map(Vec::new(), None), anchor, tag.as_deref(), &span)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(frame) = self.open.pop() else { return Ok(()) };
                let value = match frame.members {
                    Members::List(items) => Value::List(items),
                    Members::Map(members, _) => Value::Map(members),
                };
                self.finish(Node::new(value, Some(frame.line)), frame.anchor, &span)
            }
            Event::Alias(id) => {
                if self.wants_key() {
                    return Err(refuse(&span, "a key is a plain text, not an alias"));
                }
                let Some(node) = self.anchors.get(&id) else {
                    return Err(refuse(&span, "an alias may not stand inside what it names"));
                };
                let node = node.clone();
                // Aliases of aliases would grow without a level of nesting in the text.
                if self.open.len() + height(&node) > MAX_DEPTH {
                    return Err(refuse(&span, format!("nested deeper than {MAX_DEPTH} levels")));
                }
                self.charge(&node, &span)?;
                self.finish(node, 0, &span)
            }
            Event::DocumentStart(..) if self.root.is_some() => {
                Err(refuse(&span, "a file holds one document"))
            }
            _ => Ok(()),
        }
    }

    fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(Frame { members: Members::Map(_, None), .. }))
    }

    fn key(&mut self, text: String, span: &Span) -> Result<(), Problem> {
        match self.open.last_mut() {
            Some(Frame { members: Members::Map(_, key), .. }) => {
                *key = Some((text, line(span)));
                Ok(())
            }
            _ => Err(refuse(span, "a key stands in a mapping")),
        }
    }

    fn begin(
        &mut self,
        members: Members,
        anchor: usize,
        tag: Option<&Tag>,
        span: &Span,
    ) -> Result<(), Problem> {
        if self.wants_key() {
            return Err(refuse(span, "a key is a plain text, not a list or a mapping"));
        }
        // The parser bounds block and flow nesting each; this bounds their sum.
        if self.open.len() >= MAX_DEPTH {
            return Err(refuse(span, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema()) {
            return Err(refuse(span, format!("the tag `{}` means nothing here", tag.original())));
        }
        self.open.push(Frame { members, line: line(span), anchor });
        Ok(())
    }

    fn finish(&mut self, mut node: Node, anchor: usize, span: &Span) -> Result<(), Problem> {
        if anchor != 0 {
            self.charge(&node, span)?;
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|frame| &mut frame.members) {
            None => self.root = Some(node),
            Some(Members::List(items)) => items.push(node),
            Some(Members::Map(members, key)) => {
                let Some((key, line)) = key.take() else {
                    return Err(refuse(span, "a value without a key"));
                };
                node.line = Some(line);
                members.push((key, node));
            }
        }
        Ok(())
    }

    fn charge(&mut self, node: &Node, span: &Span) -> Result<(), Problem> {
        self.copies = self
            .copies
            .checked_sub(weight(node))
            .ok_or_else(|| refuse(span, "the aliases of this document expand to too much"))?;
        Ok(())
    }
}

/// Levels of collections; bounded by [`MAX_DEPTH`] for every node made here.
fn height(node: &Node) -> usize {
    match &node.value {
        Value::List(items) => 1 + items.iter().map(height).max().unwrap_or(0),
        Value::Map(members) => 1 + members.iter().map(|(_, n)| height(n)).max().unwrap_or(0),
        _ => 0,
    }
}

fn weight(node: &Node) -> usize {
    size_of::<Node>()
        + match &node.value {
            Value::Text(text) => text.len(),
            Value::List(items) => items.iter().map(weight).sum(),
            Value::Map(members) => members.iter().map(|(k, n)| k.len() + 32 + weight(n)).sum(),
            _ => 0,
        }
}

fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    span: &Span,
) -> Result<Value, Problem> {
    match tag {
        Some(tag) if tag.is_yaml_core_schema_tag("str") => Ok(Value::Text(text.to_owned())),
        // `!` alone: not resolved, so a text.
        Some(tag) if tag.original() == "!" => Ok(Value::Text(text.to_owned())),
        Some(tag) if !tag.is_yaml_core_schema() => {
            Err(refuse(span, format!("the tag `{}` means nothing here", tag.original())))
        }
        _ if style == ScalarStyle::Plain => Ok(resolve(text)),
        _ => Ok(Value::Text(text.to_owned())),
    }
}

/// YAML 1.2.2 section 10.3.2: `yes`, `no`, `on` and `off` are texts.
fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let radix = |prefix: &str, radix| {
        let digits = text.strip_prefix(prefix)?;
        let valid = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
        valid.then(|| i64::from_str_radix(digits, radix).ok()).flatten()
    };
    if let Some(value) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Value::Int(value);
    }
    if digits.bytes().all(|b| b.is_ascii_digit())
        && let Ok(value) = text.parse()
    {
        return Value::Int(value);
    }
    let number_like = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    match text.parse() {
        Ok(value) if number_like => Value::Float(value),
        _ => Value::Text(text.to_owned()),
    }
}
