//! The reference page of the Document, written from the sections themselves.

use std::fmt::Write as _;

use crate::{
    decode::{Key, Section, Shape},
    document::Document,
};

/// The page, Markdown.
pub fn markdown() -> String {
    let mut out = String::from(
        "# The Document\n\n\
         Everything Corvus is told stands in one document, YAML or JSON. `corvus check FILE` reads \
         one and names every fault with its place. Keys without a default must be given; a key that \
         does not exist is a fault, never ignored.\n\n\
         In a file, `${NAME}` in a text becomes the value of that environment variable (capital \
         letters, digits and `_`; `$${NAME}` stays as it is), and `file:PATH` refers to a file \
         where the key says so.\n\n\
         This page is written from the source: `cargo run -p corvus-config --example reference`.\n",
    );
    let mut waiting: Vec<Section> = Document::section().into_iter().collect();
    let mut done: Vec<&str> = Vec::new();
    // Depth first, each section once, in the order of its first mention.
    while let Some(section) = waiting.pop() {
        if done.contains(&section.name) {
            continue;
        }
        done.push(section.name);
        let keys = (section.keys)();
        write_section(&mut out, &section, &keys);
        waiting.extend(keys.iter().rev().filter_map(|key| inner_section(&key.shape)));
    }
    out
}

fn inner_section(shape: &Shape) -> Option<Section> {
    match shape {
        Shape::Section(section) => Some(section.clone()),
        Shape::Optional(inner) | Shape::List(inner) | Shape::Map(inner) => inner_section(inner),
        Shape::Plain(_) | Shape::Choice(_) => None,
    }
}

fn write_section(out: &mut String, section: &Section, keys: &[Key]) {
    let _ = write!(out, "\n## {}\n\n{}\n\n", section.name, one_line(section.doc));
    out.push_str("| key | takes | default | what it does |\n|---|---|---|---|\n");
    for key in keys {
        let mut takes = describe(&key.shape);
        if let Some(range) = key.range {
            let _ = write!(takes, ", {} to {}", range.min, range.max);
        }
        let default = match (&key.default, &key.shape) {
            (None, _) => "required".to_owned(),
            // Its own table lists its defaults.
            (Some(_), Shape::Section(_)) => String::new(),
            (Some(default), _) => format!("`{default}`"),
        };
        let doc = one_line(key.doc).replace('|', "\\|");
        let _ = writeln!(out, "| `{}` | {takes} | {default} | {doc} |", key.name);
    }
}

fn describe(shape: &Shape) -> String {
    match shape {
        Shape::Plain(what) => (*what).to_owned(),
        Shape::Choice(words) => {
            let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            words.join(", ")
        }
        Shape::Optional(inner) => format!("{} or null", describe(inner)),
        Shape::List(inner) => format!("list of {}", describe(inner)),
        Shape::Map(inner) => format!("name to {}", describe(inner)),
        Shape::Section(section) => {
            format!("[{}](#{})", section.name, section.name.to_ascii_lowercase())
        }
    }
}

fn one_line(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_reference_page_is_up_to_date() {
        let page = include_str!("../../../docs/guide/document.md");
        assert!(
            page == super::markdown(),
            "docs/guide/document.md is stale; run \
             `cargo run -p corvus-config --example reference > docs/guide/document.md`"
        );
    }
}
