//! L2: the Document people write, and the Snapshot the gateway runs on.
//!
//! Text -> [`tree`] (values with lines) -> [`document`] (typed, as written) -> [`compile()`] (every
//! problem at once) -> [`snapshot::Snapshot`]. Pure: reads no file and no environment; whoever
//! loads a Document hands over its text and a lookup.

pub mod compile;
pub mod decode;
pub mod diff;
pub mod document;
pub mod domain;
pub mod host_index;
pub mod problem;
pub mod queue_settings;
pub mod reference;
pub mod snapshot;
pub mod tree;

pub use compile::compile;
pub use diff::{Change, diff};
pub use document::{Document, decode};
pub use problem::{Problem, render_problems};
pub use snapshot::Snapshot;
pub use tree::{Format, Node, parse};

use problem::Problems;

/// Reads, decodes and compiles a Document, with `${NAME}` in texts taken from `env`. All problems
/// at once, with their lines, in the order of the text.
pub fn load(
    text: &str,
    format: Format,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(Document, Snapshot), Vec<Problem>> {
    let mut node = parse(text, format)?;
    let mut problems = Problems::default();
    tree::env::substitute(&mut node, env, &mut problems);
    check_after(&node, problems.into_vec())
}

/// Decodes and compiles a tree as it is, for Documents that are not files: `${NAME}` stays.
pub fn check(node: &Node) -> Result<(Document, Snapshot), Vec<Problem>> {
    check_after(node, Vec::new())
}

fn check_after(node: &Node, mut found: Vec<Problem>) -> Result<(Document, Snapshot), Vec<Problem>> {
    let (document, decoding) = document::decode_lossy(node);
    let compiled = compile(&document);
    found.extend(decoding);
    match compiled {
        Ok(snapshot) if found.is_empty() => return Ok((document, snapshot)),
        Ok(_) => {}
        Err(compiling) => {
            let known: Vec<String> = found.iter().map(|p| p.pointer.clone()).collect();
            // What could not be read was replaced by a default: what is then wrong with that
            // default, or with what surrounds a missing key, is no news.
            let news = |p: &Problem| !known.iter().any(|known| below(&p.pointer, known));
            found.extend(compiling.into_iter().filter(news));
        }
    }
    for problem in &mut found {
        problem.line = problem.line.or_else(|| node.line_at(&problem.pointer));
    }
    // Stable: where lines are unknown, the order of discovery stays.
    found.sort_by_key(|problem| problem.line);
    Err(found)
}

/// Whether `pointer` is `parent` or lies below it; the whole document shadows nothing.
fn below(pointer: &str, parent: &str) -> bool {
    !parent.is_empty()
        && pointer.strip_prefix(parent).is_some_and(|r| r.is_empty() || r.starts_with('/'))
}

/// The Document as YAML, every key spelt out. Holds secrets if the Document does.
pub fn to_yaml(document: &Document) -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(document)
}

/// The Document as JSON, every key spelt out. Holds secrets if the Document does.
pub fn to_json(document: &Document) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(document)
}
