//! `${NAME}` in texts becomes the value of an environment variable.

use super::{Node, Value};
use crate::problem::{Pointer, Problem, Problems};

/// Substitutes in all texts (not in keys). A name is of capital letters, digits and `_`, so that
/// `${name}` in a page's script stays; `$${NAME}` gives `${NAME}`. Values are put in as they are,
/// and not looked at again.
pub fn substitute(
    node: &mut Node,
    lookup: &dyn Fn(&str) -> Option<String>,
    problems: &mut Problems,
) {
    walk(node, &Pointer::ROOT, lookup, problems);
}

fn walk(
    node: &mut Node,
    at: &Pointer<'_>,
    lookup: &dyn Fn(&str) -> Option<String>,
    problems: &mut Problems,
) {
    match &mut node.value {
        Value::Text(text) if text.contains("${") => {
            let (new, missing) = expand(text, lookup);
            for name in missing {
                problems.push(Problem {
                    pointer: at.to_string(),
                    message: format!("the environment variable `{name}` is not set"),
                    line: node.line,
                });
            }
            *text = new;
            node.substituted = true;
        }
        Value::List(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                walk(item, &at.index(i), lookup, problems);
            }
        }
        Value::Map(members) => {
            for (key, member) in members {
                walk(member, &at.key(key), lookup, problems);
            }
        }
        _ => {}
    }
}

fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> (String, Vec<String>) {
    let (mut out, mut missing) = (String::with_capacity(text.len()), Vec::new());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        let name = from.get(2..).and_then(|after| after.split_once('}')).map(|(name, _)| name);
        let Some(name) = name.filter(|name| is_name(name)) else {
            out.push_str(before);
            out.push_str("${");
            rest = from.get(2..).unwrap_or_default();
            continue;
        };
        rest = from.get(name.len() + 3..).unwrap_or_default();
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.extend(["${", name, "}"]);
            continue;
        }
        out.push_str(before);
        match lookup(name) {
            Some(value) => out.push_str(&value),
            None => missing.push(name.to_owned()),
        }
    }
    out.push_str(rest);
    (out, missing)
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
        && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_once_and_missing_ones_are_told() {
        let env = |name: &str| match name {
            "A" => Some("1${B}".to_owned()),
            "B_2" => Some(String::new()),
            _ => None,
        };
        let (text, missing) = expand("x${A}y${B_2}z$${A}${a}${}${C}${", &env);
        assert_eq!(text, "x1${B}yz${A}${a}${}${");
        assert_eq!(missing, ["C"]);
    }
}
