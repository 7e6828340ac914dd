//! A Document's text as a tree of values that remember their lines.

use crate::problem::{Pointer, Problem, Problems};

pub mod env;
mod json;
mod yaml;

/// Longest text of a Document, in bytes.
pub const MAX_BYTES: usize = 16 << 20;
/// Deepest nesting.
pub const MAX_DEPTH: usize = 64;

/// The notations a Document is written in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    Yaml,
    Json,
}

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub value: Value,
    /// Line, from 1; of a mapping's member, the line of its key.
    pub line: Option<u32>,
    /// Whether an environment variable was put in: then a text may stand for a number.
    pub substituted: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order written.
    Map(Vec<(String, Node)>),
}

impl Node {
    pub fn new(value: Value, line: Option<u32>) -> Self {
        Self { value, line, substituted: false }
    }

    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// The line of a pointer's value, or of the nearest thing around it that exists.
    pub fn line_at(&self, pointer: &str) -> Option<u32> {
        let mut node = self;
        let mut line = node.line;
        for step in pointer.split('/').skip(1) {
            let key = step.replace("~1", "/").replace("~0", "~");
            let next = match &node.value {
                Value::List(items) => key.parse().ok().and_then(|i: usize| items.get(i)),
                Value::Map(members) => members.iter().find(|(k, _)| *k == key).map(|(_, n)| n),
                _ => None,
            };
            let Some(next) = next else { break };
            node = next;
            line = node.line.or(line);
        }
        line
    }
}

/// Reads a text. Duplicate keys, aliases that expand without bound and nesting beyond
/// [`MAX_DEPTH`] are refused.
pub fn parse(text: &str, format: Format) -> Result<Node, Vec<Problem>> {
    if text.len() > MAX_BYTES {
        let message = format!("a document has at most {MAX_BYTES} bytes, this has {}", text.len());
        return Err(vec![Problem::new("", message)]);
    }
    let node = match format {
        Format::Yaml => yaml::parse(text),
        Format::Json => json::parse(text),
    }
    .map_err(|problem| vec![problem])?;
    let mut problems = Problems::default();
    find_duplicates(&node, &Pointer::ROOT, &mut problems);
    if problems.is_empty() { Ok(node) } else { Err(problems.into_vec()) }
}

/// Two values for one key: which one counts differs between readers, so neither does.
fn find_duplicates(node: &Node, at: &Pointer<'_>, problems: &mut Problems) {
    match &node.value {
        Value::List(items) => {
            for (i, item) in items.iter().enumerate() {
                find_duplicates(item, &at.index(i), problems);
            }
        }
        Value::Map(members) => {
            let mut seen = std::collections::HashSet::with_capacity(members.len());
            for (key, member) in members {
                let at = at.key(key);
                if !seen.insert(key.as_str()) {
                    problems.push(Problem {
                        pointer: at.to_string(),
                        message: format!("the key `{key}` stands here twice"),
                        line: member.line,
                    });
                }
                find_duplicates(member, &at, problems);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
