//! What is wrong with a Document: where, and a sentence.

use std::fmt::{self, Write as _};

use serde::Serialize;

/// One fault of a Document.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, thiserror::Error)]
#[error("{}{message}", if pointer.is_empty() { String::new() } else { format!("{pointer}: ") })]
pub struct Problem {
    /// JSON pointer (RFC 6901) to the value; empty for the whole document.
    pub pointer: String,
    /// Lower case, without full stop.
    pub message: String,
    /// Line in the text, from 1, where it is known.
    pub line: Option<u32>,
}

impl Problem {
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into(), line: None }
    }
}

/// More than this many faults help nobody, and hostile text could make millions.
const MAX_PROBLEMS: usize = 1_000;

/// Collects faults, up to a bound.
#[derive(Debug, Default)]
pub struct Problems(Vec<Problem>);

impl Problems {
    pub fn push(&mut self, problem: Problem) {
        if !self.is_full() {
            self.0.push(problem);
        }
    }

    pub fn add(&mut self, pointer: impl Into<String>, message: impl Into<String>) {
        self.push(Problem::new(pointer, message));
    }

    /// Whether further problems are dropped.
    pub fn is_full(&self) -> bool {
        self.0.len() >= MAX_PROBLEMS
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order in which they were found.
    pub fn into_vec(self) -> Vec<Problem> {
        self.0
    }
}

/// A place in a Document while it is walked: costs nothing until somebody asks for the text.
#[derive(Clone, Copy, Debug)]
pub struct Pointer<'a> {
    parent: Option<&'a Self>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Key(&'a str),
    Index(usize),
}

impl<'a> Pointer<'a> {
    pub const ROOT: Self = Self { parent: None, step: Step::Root };

    #[must_use]
    pub fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Key(key) }
    }

    #[must_use]
    pub fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Index(index) }
    }
}

impl fmt::Display for Pointer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Key(key) => write!(f, "/{}", escape(key)),
            Step::Index(index) => write!(f, "/{index}"),
        }
    }
}

/// A key as a step of a JSON pointer.
pub fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The problems as a terminal shows them: `file:line: pointer: sentence`, one a line.
pub fn render_problems(problems: &[Problem], file: &str) -> String {
    let mut out = String::new();
    for problem in problems {
        out.push_str(&printable(file));
        if let Some(line) = problem.line {
            let _ = write!(out, ":{line}");
        }
        let _ = writeln!(out, ": {}", printable(&problem.to_string()));
    }
    out
}

/// Control characters escaped, for messages.
pub(crate) fn shown(c: char) -> String {
    printable(c.encode_utf8(&mut [0; 4]))
}

/// Control characters escaped: a Document from somebody else must not drive the reader's terminal.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// `; did you mean ..?` when one of `names` is close to `word`, else nothing.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // The distance costs the product of both lengths; nobody slips in a word this long.
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_lowercase().replace('-', "_");
    names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&lower, name), name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_escape_their_steps() {
        let a = Pointer::ROOT.key("a/b~c");
        assert_eq!(a.index(3).to_string(), "/a~1b~0c/3");
        assert_eq!(Pointer::ROOT.to_string(), "");
    }

    #[test]
    fn rendering_names_file_line_and_place_and_escapes_control_characters() {
        let problems = [
            Problem { pointer: "/a".into(), message: "bad `\u{1b}[2J`".into(), line: Some(7) },
            Problem::new("", "empty"),
        ];
        let text = render_problems(&problems, "c.yaml");
        assert_eq!(text, "c.yaml:7: /a: bad `\\u{1b}[2J`\nc.yaml: empty\n");
    }
}
