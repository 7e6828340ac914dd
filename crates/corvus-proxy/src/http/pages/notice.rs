//! Pages that say one thing: cookies are needed, the line is full, not open yet, and so on.

use std::sync::LazyLock;

use super::{
    Visit,
    escape::{escaped, local_path},
    json::Object,
    lang::Text,
    layout,
};

static NOT_OPEN: LazyLock<String> = LazyLock::new(|| {
    layout::squeeze(concat!(include_str!("common.js"), include_str!("not_open.js")))
});

/// What there is to say. Targets are raw request targets; anything that is not a path on this site
/// becomes `/`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notice<'a> {
    /// The visitor's browser did not return our cookie; `again` is what was asked for.
    CookiesNeeded { again: &'a str },
    /// `max_waiting` is reached. Send `Refresh`.
    Full,
    /// The store is full. Send `Refresh`.
    Busy,
    /// The store is down and the policy is closed. Send `Refresh`.
    TryAgain,
    /// The queue has ended, or lets nobody in.
    Closed,
    /// Not open yet; milliseconds until `opens_at` by the store's clock. Send `Refresh` too.
    NotOpen { opens_in_ms: Option<u64> },
    /// The place was given up; `again` leads back into the line.
    Left { again: &'a str },
    /// The limit of joins or polls is reached. Send `Refresh`.
    TooMany,
}

impl Notice<'_> {
    fn message(&self, text: &'static Text) -> (&'static str, &'static str) {
        match self {
            Self::CookiesNeeded { .. } => text.cookies,
            Self::Full => text.full,
            Self::Busy => text.busy,
            Self::TryAgain => text.try_again,
            Self::Closed => text.closed,
            Self::NotOpen { .. } => text.not_open,
            Self::Left { .. } => text.left,
            Self::TooMany => text.too_many,
        }
    }

    /// Markup below the message.
    fn more(&self, visit: &Visit<'_>) -> String {
        let text = visit.language.text();
        let link = |target: &str, label: &str| {
            let target = escaped(&local_path(target));
            format!("<p><a class=\"button\" href=\"{target}\">{}</a></p>", escaped(label))
        };
        match self {
            Self::CookiesNeeded { again } => {
                let how = text.cookies_how.map(escaped).join("</li><li>");
                format!("<ul><li>{how}</li></ul>{}", link(again, text.again))
            }
            Self::Left { again } => link(again, text.join_again),
            Self::Full | Self::Busy | Self::TryAgain | Self::TooMany => {
                format!("<p class=\"soft\">{}</p>", escaped(text.retries))
            }
            Self::NotOpen { opens_in_ms: Some(ms) } => format!(
                "<div class=\"figure\"><p class=\"soft\">{}</p>\
                 <p id=\"clock\" class=\"big clock\" role=\"timer\">{}</p></div>\
                 <noscript><p class=\"soft\">{}</p></noscript>",
                escaped(text.opens_in),
                visit.language.clock(*ms),
                escaped(text.by_itself),
            ),
            Self::NotOpen { opens_in_ms: None } | Self::Closed => String::new(),
        }
    }
}

/// The page for `notice`.
pub(crate) fn notice(visit: &Visit<'_>, notice: Notice<'_>) -> String {
    let text = visit.language.text();
    let (title, message) = notice.message(text);
    let main =
        format!("<h1>{}</h1><p>{}</p>{}", escaped(title), escaped(message), notice.more(visit));
    let data = match notice {
        Notice::NotOpen { opens_in_ms: Some(ms) } => Some(
            Object::new()
                .number("opens_in", ms)
                .object("text", Object::new().string("day", text.day))
                .end(),
        ),
        _ => None,
    };
    layout::render(&layout::Page {
        visit,
        title,
        main: &main,
        figures: data.is_some(),
        script: data.as_deref().map(|data| (data, NOT_OPEN.as_str())),
        reason: None,
    })
}
