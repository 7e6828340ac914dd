//! The waiting page.

use std::sync::LazyLock;

use super::{Visit, escape::escaped, json::Object, lang::Language, layout};

static SCRIPT: LazyLock<String> = LazyLock::new(|| {
    layout::squeeze(concat!(include_str!("common.js"), include_str!("waiting.js")))
});

/// What the waiting page shows.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "`waiting` is the name in JSON and templates too")]
pub(crate) struct Waiting<'a> {
    pub(crate) visit: Visit<'a>,
    /// The queue's id.
    pub(crate) queue: &'a str,
    /// The operator's words instead of ours; plain text.
    pub(crate) title: Option<&'a str>,
    /// Shown above the position; plain text, line breaks are kept.
    pub(crate) message: Option<&'a str>,
    /// Any text that stays the same as long as the visitor keeps the place, and changes with it: a
    /// number once shown never rises while this stays. A keyed hash of sid and ticket, say; not a
    /// ticket, since a lottery's tell the draw.
    pub(crate) place: &'a str,
    /// 1 is next. `None` while places are hidden: before the start of a lottery.
    pub(crate) rank: Option<u64>,
    /// How many wait, this visitor included.
    pub(crate) waiting: u64,
    /// Seconds; `None` until measured.
    pub(crate) eta_s: Option<u64>,
    /// Seconds until the next poll.
    pub(crate) poll_s: u64,
    /// Milliseconds until the start, by the store's clock; `None` once started or without schedule.
    pub(crate) starts_in_ms: Option<u64>,
    pub(crate) paused: bool,
}

/// Where the page asks how things stand (GET).
pub(crate) fn status_url(queue: &str) -> String {
    format!("/__corvus/wr/{queue}/status")
}

/// Where the visitor gives the place up (POST).
pub(crate) fn leave_url(queue: &str) -> String {
    format!("/__corvus/wr/{queue}/leave")
}

/// The waiting page. Its script polls; for visitors without one send `Refresh: <poll_s>` along,
/// which the script cancels.
pub(crate) fn waiting(page: &Waiting<'_>) -> String {
    let text = page.visit.language.text();
    let before = page.rank.is_none() && page.starts_in_ms.is_some();
    let title = page.title.unwrap_or(if before { text.title_before } else { text.title });
    let data = data(page);
    layout::render(&layout::Page {
        visit: &page.visit,
        title,
        main: &main(page, title),
        figures: true,
        script: Some((&data, &SCRIPT)),
        reason: None,
    })
}

fn main(page: &Waiting<'_>, title: &str) -> String {
    let language = page.visit.language;
    let text = language.text();
    let message = page.message.map_or_else(String::new, |message| {
        format!("<p class=\"message\">{}</p>", escaped(message))
    });
    let hidden = |hide: bool| if hide { " hidden" } else { "" };
    let (rank, class) = match page.rank {
        Some(1) => (text.next.to_owned(), "big next"),
        Some(rank) => {
            let rank = language.number(rank);
            let class = if rank.chars().count() > 5 { "big long" } else { "big" };
            (rank, class)
        }
        None => (String::new(), "big"),
    };
    let known = page.rank.is_some();
    let ahead = page.rank.map_or(0, |rank| rank.saturating_sub(1));
    let behind = page.rank.map_or(0, |rank| page.waiting.saturating_sub(rank));
    format!(
        r#"<h1>{title}</h1>
{message}
<div id="start" class="figure"{start_hidden}><p class="soft">{starts_in}</p><p id="clock" class="big clock" role="timer">{clock}</p><p class="promise">{lottery}</p></div>
<div id="line" class="figure"{unknown}><p class="soft">{place}</p><p id="rank" class="{class}">{rank}</p><progress id="bar" aria-label="{progress}" max="1" value="0" hidden></progress></div>
<dl id="tiles"{unknown}><div class="wide"><dt>{wait}</dt><dd id="wait">{eta}</dd></div><div><dt>{ahead_label}</dt><dd id="ahead">{ahead}</dd></div><div><dt>{behind_label}</dt><dd id="behind">{behind}</dd></div></dl>
<dl id="crowd"{known}><div><dt>{here_label}</dt><dd id="here">{here}</dd></div></dl>
<p id="paused" class="note"{paused_hidden}>{paused}</p>
<p id="note" class="note" hidden></p>
<p class="promise">{promise}</p>
<noscript><p class="soft">{by_itself}</p></noscript>
<details id="leave"><summary>{leave}</summary><form method="post" action="{leave_url}"><p>{leave_sure}</p><button class="button">{leave_yes}</button><button id="stay" type="button" class="button plain" hidden>{leave_no}</button></form></details>
<p id="heard" class="heard" role="status"></p>"#,
        title = escaped(title),
        start_hidden = hidden(page.starts_in_ms.is_none() || known),
        starts_in = escaped(text.starts_in),
        clock = language.clock(page.starts_in_ms.unwrap_or(0)),
        lottery = escaped(text.lottery),
        unknown = hidden(!known),
        known = hidden(known),
        place = escaped(text.place),
        progress = escaped(text.progress),
        wait = escaped(text.wait),
        eta = escaped(&language.wait(page.eta_s)),
        ahead_label = escaped(text.ahead),
        ahead = language.number(ahead),
        behind_label = escaped(text.behind),
        behind = language.number(behind),
        here_label = escaped(text.here),
        here = language.number(page.waiting),
        paused_hidden = hidden(!page.paused),
        paused = escaped(text.paused),
        promise = escaped(text.promise),
        by_itself = escaped(text.by_itself),
        leave = escaped(text.leave),
        leave_url = escaped(&leave_url(page.queue)),
        leave_sure = escaped(text.leave_sure),
        leave_yes = escaped(text.leave_yes),
        leave_no = escaped(text.leave_no),
    )
}

/// What the script reads: see common.js and waiting.js.
fn data(page: &Waiting<'_>) -> String {
    Object::new()
        .string("queue", page.queue)
        .string("place", page.place)
        .string("status_url", &status_url(page.queue))
        .number("poll_s", page.poll_s.max(1))
        .number("rank", page.rank)
        .number("waiting", page.waiting)
        .number("eta_s", page.eta_s)
        .number("starts_in", if page.rank.is_none() { page.starts_in_ms } else { None })
        .string("language", page.visit.language.primary())
        .object("text", script_text(page.visit.language))
        .end()
}

fn script_text(language: Language) -> Object {
    let text = language.text();
    Object::new()
        .string("separator", language.separator())
        .string("day", text.day)
        .string("place", text.place)
        .string("next", text.next)
        .string("wait", text.wait)
        .string("wait_unknown", text.wait_unknown)
        .string("wait_moment", text.wait_moment)
        .strings("minutes", &text.minutes)
        .strings("hours", &text.hours)
        .string("wait_day", text.wait_day)
        .string("starting", text.starting)
        .string("offline", text.offline)
        .string("overloaded", text.overloaded)
        .string("admitted", text.admitted)
}
