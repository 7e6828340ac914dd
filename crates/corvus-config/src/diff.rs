//! What changed between two Documents, for people.

use std::{collections::HashMap, fmt};

use serde::Serialize;
use serde_json::Value;

use crate::document::Document;

/// One change.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Change {
    /// What it belongs to: `proxy host shop`, `settings`.
    pub subject: String,
    /// Dotted path inside the subject; empty when the whole subject came or went.
    pub key: String,
    pub kind: ChangeKind,
}

/// Values are shown as JSON; secrets as `(secret)`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Added,
    Removed,
    /// Rules apply in order, so their order is a setting.
    Moved,
    Changed {
        from: String,
        to: String,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)?;
        match &self.kind {
            ChangeKind::Added => f.write_str(": added"),
            ChangeKind::Removed => f.write_str(": removed"),
            ChangeKind::Moved => f.write_str(": moved"),
            ChangeKind::Changed { from, to } => write!(f, ": {} {from} -> {to}", self.key),
        }
    }
}

/// Lists of things with an id, and what people call one.
const LISTS: &[(&str, &str)] = &[
    ("proxy_hosts", "proxy host"),
    ("redirections", "redirection"),
    ("dead_hosts", "dead host"),
    ("streams", "stream"),
    ("certificates", "certificate"),
    ("access_lists", "access list"),
    ("access_queues", "access queue"),
    ("security_rules", "security rule"),
    ("alert_channels", "alert channel"),
];

/// The changes from `old` to `new`: section by section, things by id in the order of `new`, those
/// removed last.
pub fn diff(old: &Document, new: &Document) -> Vec<Change> {
    let json = |document| serde_json::to_value(document).unwrap_or_default();
    let (old, new) = (json(old), json(new));
    let mut changes = Vec::new();
    for section in new.as_object().into_iter().flatten().map(|(key, _)| key.as_str()) {
        let (old, new) = (&old[section], &new[section]);
        match LISTS.iter().find(|(list, _)| *list == section) {
            Some((_, noun)) => diff_list(noun, old, new, &mut changes),
            None => diff_values(section, "", old, new, &mut changes),
        }
    }
    changes
}

fn id(item: &Value) -> &str {
    item["id"].as_str().unwrap_or_default()
}

fn diff_list(noun: &str, old: &Value, new: &Value, changes: &mut Vec<Change>) {
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let (old, new) = (items(old), items(new));
    let change =
        |item, kind| Change { subject: format!("{noun} {}", id(item)), key: String::new(), kind };
    let before: HashMap<&str, &Value> = old.iter().map(|item| (id(item), item)).collect();
    let after: HashMap<&str, &Value> = new.iter().map(|item| (id(item), item)).collect();
    for item in &new {
        match before.get(id(item)) {
            Some(before) => {
                diff_values(&format!("{noun} {}", id(item)), "", before, item, changes);
            }
            None => changes.push(change(item, ChangeKind::Added)),
        }
    }
    if noun == "security rule" {
        let was = old.iter().map(id).filter(|id| after.contains_key(id));
        let is = new.iter().map(id).filter(|id| before.contains_key(id));
        for (item, _) in is.zip(was).filter(|(is, was)| is != was) {
            changes.push(Change {
                subject: format!("{noun} {item}"),
                key: String::new(),
                kind: ChangeKind::Moved,
            });
        }
    }
    for item in old.iter().filter(|item| !after.contains_key(id(item))) {
        changes.push(change(item, ChangeKind::Removed));
    }
}

/// Mappings are compared key by key, everything else as a whole.
fn diff_values(subject: &str, key: &str, old: &Value, new: &Value, changes: &mut Vec<Change>) {
    if old == new {
        return;
    }
    if let (Value::Object(before), Value::Object(after)) = (old, new) {
        let removed = before.keys().filter(|name| !after.contains_key(*name));
        for name in after.keys().chain(removed) {
            let path = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
            diff_values(subject, &path, &old[name], &new[name], changes);
        }
        return;
    }
    let show = |value: &Value| show(subject, key, value);
    let kind = ChangeKind::Changed { from: show(old), to: show(new) };
    changes.push(Change { subject: subject.to_owned(), key: key.to_owned(), kind });
}

/// Names whose values are secrets, wherever they stand.
const SECRET_KEYS: &[&str] = &["key", "password_hash", "credentials", "eab", "users"];
/// Parts of header names whose values are secrets more often than not.
const SECRET_HEADERS: &[&str] =
    &["auth", "cookie", "key", "password", "secret", "signature", "token"];

fn show(subject: &str, key: &str, value: &Value) -> String {
    let last = key.rsplit('.').next().unwrap_or_default();
    let header = key.starts_with("headers.") && {
        let lower = key.to_ascii_lowercase();
        let name = lower.split_once(".set.").map(|(_, name)| name).unwrap_or_default();
        SECRET_HEADERS.iter().any(|part| name.contains(part))
    };
    let address = subject.starts_with("alert channel") && last == "url";
    let secret = header
        || address
        || SECRET_KEYS.iter().any(|name| key.split('.').any(|step| step == *name));
    match value {
        Value::Null => "none".to_owned(),
        // A reference tells nothing, and is what people want to see.
        Value::Object(map) if map.len() == 1 && map.contains_key("secret") => value.to_string(),
        Value::String(text) if secret && text.starts_with("file:") => value.to_string(),
        _ if secret => "(secret)".to_owned(),
        Value::String(text) if text.contains("-----BEGIN ") => "(PEM text)".to_owned(),
        // A page is not read in a list of changes.
        Value::String(text) if text.len() > 200 => format!("({} characters)", text.chars().count()),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
