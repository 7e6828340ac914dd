//! Changes to header fields.

use super::Context;
use crate::{
    document::proxy_host::HeaderEdits,
    problem::{escape, shown},
    snapshot::HeaderPolicy,
};

/// Fields that frame a message or belong to one connection (RFC 9110 section 7.6.1, RFC 9112
/// section 6): changing them desynchronises the two sides, which is request smuggling.
const CONNECTION_FIELDS: &[&str] = &[
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Side {
    Request,
    Response,
}

pub(super) fn compile(
    edits: &HeaderEdits,
    side: Side,
    at: &str,
    cx: &mut Context<'_>,
) -> HeaderPolicy {
    let mut policy = HeaderPolicy::default();
    for (name, value) in &edits.set.0 {
        let pointer = format!("{at}/set/{}", escape(name));
        if let Err(message) = check_name(name, side, true).and_then(|()| check_value(value)) {
            cx.add(pointer, message);
        } else if policy.set.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            cx.add(pointer, format!("`{name}` is set twice; case does not count"));
        } else {
            policy.set.push((name.clone(), value.clone()));
        }
    }
    for (i, name) in edits.remove.iter().enumerate() {
        let pointer = format!("{at}/remove/{i}");
        if let Err(message) = check_name(name, side, false) {
            cx.add(pointer, message);
        } else if policy.set.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            cx.add(pointer, format!("`{name}` is both set and removed; setting replaces it"));
        } else {
            policy.remove.push(name.to_ascii_lowercase());
        }
    }
    policy
}

fn check_name(name: &str, side: Side, set: bool) -> Result<(), String> {
    if name.is_empty() {
        return Err("a header name may not be empty".to_owned());
    }
    if let Some(c) = name.chars().find(|c| !is_token_char(*c)) {
        return Err(format!("a header name holds no `{}`", shown(c)));
    }
    let lower = name.to_ascii_lowercase();
    if CONNECTION_FIELDS.contains(&lower.as_str()) {
        return Err(format!("`{name}` belongs to the connection and cannot be changed"));
    }
    if lower == "host" && !(set && side == Side::Request) {
        return Err("`Host` can only be set, and only in requests".to_owned());
    }
    Ok(())
}

/// RFC 9110 section 5.6.2.
pub(super) fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

/// RFC 9110 section 5.5, without its obsolete bytes.
fn check_value(value: &str) -> Result<(), String> {
    if let Some(c) = value.chars().find(|c| !(c.is_ascii_graphic() || *c == ' ' || *c == '\t')) {
        return Err(format!("a header value holds no `{}`", shown(c)));
    }
    if value.trim() != value {
        return Err("a header value does not begin or end with a space".to_owned());
    }
    Ok(())
}
