//! The frame around every page: head, card, foot. Styles and scripts are files of their own, and
//! lose their comments and indentation here.

use std::sync::LazyLock;

use super::{Visit, escape};

static BASE: LazyLock<String> = LazyLock::new(|| squeeze(include_str!("base.css")));
static WAITING: LazyLock<String> = LazyLock::new(|| squeeze(include_str!("waiting.css")));

/// What a page consists of beside the frame.
pub(super) struct Page<'a> {
    pub(super) visit: &'a Visit<'a>,
    /// Plain text.
    pub(super) title: &'a str,
    /// Markup inside `<main>`.
    pub(super) main: &'a str,
    /// Whether the styles of the waiting page are needed.
    pub(super) figures: bool,
    /// The data block (JSON, see [`super::json`]) and the script that reads it.
    pub(super) script: Option<(&'a str, &'a str)>,
    /// The stable code of why, for the foot.
    pub(super) reason: Option<&'a str>,
}

/// Lines trimmed; blank lines and comment lines left out. Enough for files that keep comments on
/// lines of their own or behind code.
pub(super) fn squeeze(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    for line in source.lines() {
        let line = line.split(" // ").next().unwrap_or_default().trim();
        if !(line.is_empty() || line.starts_with("//")) {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

pub(super) fn render(page: &Page<'_>) -> String {
    let Visit { language, nonce, request_id, host } = page.visit;
    let text = language.text();
    let nonce = match *nonce {
        "" => String::new(),
        nonce => format!(" nonce=\"{}\"", escape::escaped(nonce)),
    };
    let mut out = String::with_capacity(14 * 1024);
    out.push_str("<!doctype html>\n<html lang=\"");
    out.push_str(language.tag());
    out.push_str("\" dir=\"");
    out.push_str(language.direction());
    out.push_str(
        "\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><title>",
    );
    escape::html(&mut out, page.title);
    // An empty icon: else each visitor asks for /favicon.ico and meets the queue once more.
    out.push_str("</title><link rel=\"icon\" href=\"data:,\"><style");
    out.push_str(&nonce);
    out.push_str(">\n");
    out.push_str(&BASE);
    if page.figures {
        out.push_str(&WAITING);
    }
    out.push_str("</style></head>\n<body><main>");
    if let Some(host) = host {
        out.push_str("<p class=\"host\"><bdi>");
        escape::html(&mut out, host);
        out.push_str("</bdi></p>");
    }
    out.push_str(page.main);
    out.push_str("</main>\n<footer>");
    if let Some(reason) = page.reason {
        foot(&mut out, text.reason, reason);
        out.push_str(" · ");
    }
    foot(&mut out, text.request, request_id);
    out.push_str("</footer>\n");
    if let Some((data, script)) = page.script {
        out.push_str("<script type=\"application/json\" id=\"page\">");
        out.push_str(data);
        out.push_str("</script>\n<script");
        out.push_str(&nonce);
        out.push_str(">\n(() => {\n'use strict';\n");
        out.push_str(script);
        out.push_str("})();\n</script>");
    }
    out.push_str("</body></html>\n");
    out
}

fn foot(out: &mut String, label: &str, value: &str) {
    escape::html(out, label);
    out.push_str(": <bdi>");
    escape::html(out, value);
    out.push_str("</bdi>");
}
