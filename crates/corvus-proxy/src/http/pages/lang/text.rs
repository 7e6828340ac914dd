//! What a language has to say.

/// Forms of a counted noun: one, two, few (Polish, Arabic), other; `{n}` is the number.
pub(crate) type Forms = [&'static str; 4];

/// A heading and what stands below it.
pub(crate) type Message = (&'static str, &'static str);

/// Every text of the pages in one language. Plain text, never markup.
#[derive(Debug)]
pub(crate) struct Text {
    // The waiting page.
    pub(crate) title: &'static str,
    /// Title while everybody waits for the start.
    pub(crate) title_before: &'static str,
    pub(crate) place: &'static str,
    pub(crate) next: &'static str,
    pub(crate) ahead: &'static str,
    pub(crate) behind: &'static str,
    pub(crate) here: &'static str,
    pub(crate) progress: &'static str,
    pub(crate) wait: &'static str,
    pub(crate) wait_unknown: &'static str,
    pub(crate) wait_moment: &'static str,
    pub(crate) minutes: Forms,
    pub(crate) hours: Forms,
    pub(crate) wait_day: &'static str,
    pub(crate) starts_in: &'static str,
    pub(crate) starting: &'static str,
    pub(crate) lottery: &'static str,
    pub(crate) promise: &'static str,
    pub(crate) by_itself: &'static str,
    pub(crate) paused: &'static str,
    pub(crate) offline: &'static str,
    pub(crate) overloaded: &'static str,
    pub(crate) admitted: &'static str,
    pub(crate) leave: &'static str,
    pub(crate) leave_sure: &'static str,
    pub(crate) leave_yes: &'static str,
    pub(crate) leave_no: &'static str,
    /// The unit after the number of days in a countdown.
    pub(crate) day: &'static str,

    // The notices.
    pub(crate) cookies: Message,
    pub(crate) cookies_how: [&'static str; 3],
    pub(crate) full: Message,
    pub(crate) busy: Message,
    pub(crate) try_again: Message,
    pub(crate) closed: Message,
    pub(crate) not_open: Message,
    pub(crate) opens_in: &'static str,
    pub(crate) left: Message,
    pub(crate) too_many: Message,
    pub(crate) retries: &'static str,
    pub(crate) again: &'static str,
    pub(crate) join_again: &'static str,

    // The foot of each page.
    pub(crate) request: &'static str,
    pub(crate) reason: &'static str,

    pub(crate) errors: Errors,
}

/// One sentence for each way to fail, and what the visitor can do about it.
#[derive(Debug)]
pub(crate) struct Errors {
    pub(crate) bad_request: &'static str,
    pub(crate) unauthorized: &'static str,
    pub(crate) forbidden: &'static str,
    pub(crate) not_found: &'static str,
    pub(crate) method: &'static str,
    pub(crate) slow_request: &'static str,
    pub(crate) too_large: &'static str,
    pub(crate) long_address: &'static str,
    pub(crate) misdirected: &'static str,
    pub(crate) too_many: &'static str,
    pub(crate) headers: &'static str,
    pub(crate) internal: &'static str,
    pub(crate) bad_answer: &'static str,
    pub(crate) no_name: &'static str,
    pub(crate) refused: &'static str,
    pub(crate) slow_answer: &'static str,
    pub(crate) unavailable: &'static str,
    pub(crate) maintenance: &'static str,

    pub(crate) check_address: &'static str,
    pub(crate) sign_in: &'static str,
    pub(crate) contact: &'static str,
    pub(crate) go_back: &'static str,
    pub(crate) connection: &'static str,
    pub(crate) smaller: &'static str,
    pub(crate) delete_cookies: &'static str,
    pub(crate) later: &'static str,
}
